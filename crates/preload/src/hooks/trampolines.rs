//! Entry points in assembly, which preserve all registers.

use super::entry;

/// libc's `syscall`, which looks out for seccomp(2) and ioctl(2): the same instructions, [`entry::seccomp`] for that
/// one, and a call before the other.
#[unsafe(naked)]
pub extern "C" fn generic_syscall() {
    core::arch::naked_asm!(
        "cmp rdi, 317",
        "je {seccomp}",
        "cmp rdi, 16",
        "jne 2f",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "call {ioctl}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "2:",
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
        ioctl = sym entry::ioctl_entered,
        seccomp = sym entry::seccomp,
        fail = sym entry::fail_with,
    );
}
