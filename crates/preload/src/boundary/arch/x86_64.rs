//! x86-64: the `syscall` instruction, a 14-byte absolute jump, 2 MiB and 1 GiB huge pages.

use core::arch::asm;

#[cfg(not(test))]
mod memory;

/// Smallest page.
pub const PAGE: usize = 4096;
/// What one page-middle-directory entry maps: the size of transparent huge pages.
pub const PMD: usize = 2 << 20;

/// System call numbers.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod nr {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const BRK: usize = 12;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = 16;
    pub const PREAD64: usize = 17;
    pub const PWRITE64: usize = 18;
    pub const MREMAP: usize = 25;
    pub const MSYNC: usize = 26;
    pub const MINCORE: usize = 27;
    pub const MADVISE: usize = 28;
    pub const GETPID: usize = 39;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const RECVMSG: usize = 47;
    pub const SETSOCKOPT: usize = 54;
    pub const CLONE: usize = 56;
    pub const EXECVE: usize = 59;
    pub const EXIT: usize = 60;
    pub const FCNTL: usize = 72;
    pub const FTRUNCATE: usize = 77;
    pub const READLINK: usize = 89;
    pub const GETRUSAGE: usize = 98;
    pub const GETEUID: usize = 107;
    pub const GETPPID: usize = 110;
    pub const CAPGET: usize = 125;
    pub const SETGROUPS: usize = 116;
    pub const SETRESUID: usize = 117;
    pub const GETRESUID: usize = 118;
    pub const SETRESGID: usize = 119;
    pub const GETRESGID: usize = 120;
    pub const CAPSET: usize = 126;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const MLOCK: usize = 149;
    pub const MUNLOCK: usize = 150;
    pub const MLOCKALL: usize = 151;
    pub const MUNLOCKALL: usize = 152;
    pub const PRCTL: usize = 157;
    pub const FUTEX: usize = 202;
    pub const SCHED_SETAFFINITY: usize = 203;
    pub const SCHED_GETAFFINITY: usize = 204;
    pub const CLOCK_GETTIME: usize = 228;
    pub const EXIT_GROUP: usize = 231;
    pub const MBIND: usize = 237;
    pub const GET_MEMPOLICY: usize = 239;
    pub const OPENAT: usize = 257;
    pub const NEWFSTATAT: usize = 262;
    pub const UNLINKAT: usize = 263;
    pub const SYMLINKAT: usize = 266;
    pub const FACCESSAT: usize = 269;
    pub const VMSPLICE: usize = 278;
    pub const MOVE_PAGES: usize = 279;
    pub const PIPE2: usize = 293;
    pub const PRLIMIT64: usize = 302;
    pub const SECCOMP: usize = 317;
    pub const EXECVEAT: usize = 322;
    pub const USERFAULTFD: usize = 323;
    pub const MLOCK2: usize = 325;
    pub const PKEY_MPROTECT: usize = 329;
    pub const PIDFD_OPEN: usize = 434;
    pub const CLOSE_RANGE: usize = 436;
    pub const PIDFD_GETFD: usize = 438;
    pub const PROCESS_VM_READV: usize = 310;
}

/// One raw system call; a value in `-4095..0` is a negated errno.
///
/// # Safety
/// The kernel does what the arguments say: the caller answers for every pointer among them.
#[inline]
pub unsafe fn syscall6(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention; it clobbers rcx and r11 and may write through the caller's pointers.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// clone(2) of a thread that runs `entry(argument)` on the stack that ends at `stack_top` (16-aligned), with `flags`; its
/// id is stored in `*tid` at its start and 0 at its end (for the flags that ask for it). The id, or a negated errno.
///
/// The new thread has the thread pointer of the old one: what it runs must not use thread-local storage.
///
/// # Safety
/// The stack is its own, `entry` does not return, and `tid` outlives it.
#[unsafe(naked)]
pub unsafe extern "C" fn clone_thread(
    flags: usize,
    stack_top: usize,
    tid: *mut u32,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    core::arch::naked_asm!(
        "mov r9, rcx",
        "mov r10, rdx",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "xor ebp, ebp",
        "mov rdi, r8",
        "call r9",
        "ud2",
        clone = const nr::CLONE,
    );
}

/// Calls `entry(argument)` on the stack that ends at `stack_top` (16-aligned). Debuggers and unwinders find the way back.
///
/// # Safety
/// The stack is the caller's alone, and `entry` returns.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on(stack_top: usize, entry: extern "C" fn(usize), argument: usize) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    );
}

/// The processor's clock: ticks since some time, a billion or more a second.
pub fn ticks() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The calling thread's thread pointer.
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: glibc's thread control block begins with a pointer to itself (the ABI of thread-local storage wants it).
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

/// Where ld.so keeps what it tells debuggers (`_r_debug`); 0: the loader has no such variable.
pub fn debugger_state() -> usize {
    let address: usize;
    // SAFETY: reads one entry of our own offset table; the weak symbol leaves it null where nobody defines it.
    unsafe {
        asm!(
            ".weak _r_debug",
            "mov {}, qword ptr [rip + _r_debug@GOTPCREL]",
            out(reg) address,
            options(nostack, readonly, preserves_flags)
        );
    };
    address
}

/// Bytes that a detour overwrites.
pub const DETOUR_BYTES: usize = 14;

/// `jmp *0(%rip)` followed by the target: reaches any address and needs no register.
pub fn jump_to(target: usize) -> [u8; DETOUR_BYTES] {
    let mut code = [0; DETOUR_BYTES];
    let (opcode, address) = code.split_at_mut(6);
    opcode.copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
    address.copy_from_slice(&target.to_le_bytes());
    code
}

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Where in `code` the jump goes: behind a landing pad for indirect branches, where there is one.
pub fn entry_offset(code: &[u8]) -> usize {
    if code.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 }
}

/// Whether `code` begins with a jump that some other tool wrote there.
pub fn already_detoured(code: &[u8]) -> bool {
    let code = code.get(entry_offset(code)..).unwrap_or(&[]);
    matches!(code, [0xe9, ..] | [0xff, 0x25, ..] | [0xcc, ..] | [0x48, 0xb8, ..] | [0x49, 0xbb, ..])
}

/// Whether `code` is a wrapper of system call `number`: loads the number into a register, then `syscall`.
pub fn wraps_syscall(code: &[u8], number: usize) -> bool {
    let wanted = (number as u32).to_le_bytes();
    let loads = |window: &[u8]| matches!(window, [0xb8..=0xbf, rest @ ..] if rest == wanted);
    code.windows(5).any(loads) && code.windows(2).any(|window| window == [0x0f, 0x05])
}

/// Whether `code` is libc's `syscall`: shifts its arguments by one register, then does the call.
pub fn is_generic_syscall(code: &[u8]) -> bool {
    code.get(entry_offset(code)..).is_some_and(|code| code.starts_with(&[0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7]))
        && code.windows(2).any(|window| window == [0x0f, 0x05])
}

/// Whether `code` is an empty function padded with no-ops for at least a detour's length.
pub fn is_empty_function(code: &[u8]) -> bool {
    let at = entry_offset(code);
    let Some((&0xc3, mut padding)) = code.get(at..at + DETOUR_BYTES).and_then(<[u8]>::split_first) else {
        return false;
    };
    while !padding.is_empty() {
        let prefixes = padding.iter().take_while(|&&byte| byte == 0x66 || byte == 0x2e).count();
        let rest = padding.get(prefixes..).unwrap_or(&[]);
        let used = match rest {
            [] => return true,
            [0x90 | 0xcc, ..] => 1,
            [0x0f] => 1,
            [0x0f, 0x1f, modrm, ..] => nop_bytes(*modrm),
            [0x0f, 0x1f] => 2,
            _ => return false,
        };
        padding = rest.get(used..).unwrap_or(&[]);
    }
    true
}

/// Length of a multi-byte no-op `0f 1f /0` by its ModRM byte.
fn nop_bytes(modrm: u8) -> usize {
    let index = usize::from(modrm & 7 == 4);
    match modrm >> 6 {
        0 => 3 + index,
        1 => 4 + index,
        _ => 7 + index,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUNMAP_ENTRY: [u8; 16] =
        [0xb8, 0x0b, 0, 0, 0, 0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x73, 0x01, 0xc3];

    #[test]
    fn wrappers_are_told_apart() {
        assert!(wraps_syscall(&MUNMAP_ENTRY, nr::MUNMAP));
        assert!(!wraps_syscall(&MUNMAP_ENTRY, nr::MMAP));
        assert!(!wraps_syscall(&MUNMAP_ENTRY[..5], nr::MUNMAP));
    }

    #[test]
    fn a_landing_pad_is_kept() {
        let code = [&ENDBR64[..], &MUNMAP_ENTRY].concat();
        assert_eq!(entry_offset(&code), 4);
        assert!(!already_detoured(&code));
        assert!(already_detoured(&[&ENDBR64[..], &jump_to(1)].concat()));
    }

    #[test]
    fn only_padding_may_follow_an_empty_function() {
        let mut code = vec![0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0];
        assert!(is_empty_function(&code));
        code[12] = 0x55;
        assert!(!is_empty_function(&code));
        assert!(!is_empty_function(&code[..8]));
    }

    #[test]
    fn the_jump_carries_its_target() {
        let code = jump_to(0x1122_3344_5566_7788);
        assert_eq!(code[..6], [0xff, 0x25, 0, 0, 0, 0]);
        assert_eq!(code[6..], 0x1122_3344_5566_7788_u64.to_le_bytes());
    }
}
