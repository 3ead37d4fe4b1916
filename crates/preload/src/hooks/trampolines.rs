//! Entry points in assembly, which preserve all registers.

use super::entry;

/// libc's `syscall`, which looks out for three calls: the same instructions, and [`entry::seccomp`], [`entry::generic_ioctl`]
/// and [`entry::generic_prctl`] for these.
#[unsafe(naked)]
pub extern "C" fn generic_syscall() {
    core::arch::naked_asm!(
        "cmp rdi, 317",
        "je {seccomp}",
        "cmp rdi, 16",
        "je {ioctl}",
        "cmp rdi, 157",
        "je {prctl}",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "3:",
        "neg eax",
        "mov edi, eax",
        "sub rsp, 8",
        "call {fail}",
        "add rsp, 8",
        "mov rax, -1",
        "ret",
        ioctl = sym entry::generic_ioctl,
        prctl = sym entry::generic_prctl,
        seccomp = sym entry::seccomp,
        fail = sym entry::fail_with,
    );
}
