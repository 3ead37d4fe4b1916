//! x86-64: the `syscall` instruction, a 14-byte absolute jump, 2 MiB and 1 GiB huge pages.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[cfg(not(test))]
mod memory;

/// Smallest page.
pub const PAGE: usize = 4096;
/// End of a program's addresses: the kernel keeps the last page. (Processors with five levels of tables have more, for
/// programs that ask for an address there.)
pub const TASK_END: usize = (1 << 47) - PAGE;
/// Bytes that one page-middle-directory entry maps: the size of transparent huge pages.
pub const PMD: usize = 2 << 20;

/// System call numbers.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod nr {
    pub use linux_raw_sys::general::{
        __NR_brk as BRK, __NR_capget as CAPGET, __NR_capset as CAPSET, __NR_clock_gettime as CLOCK_GETTIME,
        __NR_clone as CLONE, __NR_close as CLOSE, __NR_close_range as CLOSE_RANGE, __NR_connect as CONNECT,
        __NR_execve as EXECVE, __NR_execveat as EXECVEAT, __NR_exit as EXIT, __NR_exit_group as EXIT_GROUP,
        __NR_faccessat as FACCESSAT, __NR_fcntl as FCNTL, __NR_fstat as FSTAT, __NR_fstatfs as FSTATFS,
        __NR_ftruncate as FTRUNCATE, __NR_futex as FUTEX, __NR_get_mempolicy as GET_MEMPOLICY,
        __NR_get_robust_list as GET_ROBUST_LIST, __NR_getdents64 as GETDENTS64, __NR_geteuid as GETEUID,
        __NR_getpid as GETPID, __NR_getppid as GETPPID, __NR_getrandom as GETRANDOM, __NR_getresgid as GETRESGID,
        __NR_getresuid as GETRESUID, __NR_getrusage as GETRUSAGE, __NR_gettid as GETTID, __NR_ioctl as IOCTL,
        __NR_landlock_restrict_self as LANDLOCK_RESTRICT_SELF, __NR_lseek as LSEEK, __NR_madvise as MADVISE,
        __NR_mbind as MBIND, __NR_mincore as MINCORE, __NR_mlock as MLOCK, __NR_mlock2 as MLOCK2,
        __NR_mlockall as MLOCKALL, __NR_mmap as MMAP, __NR_move_pages as MOVE_PAGES, __NR_mprotect as MPROTECT,
        __NR_mremap as MREMAP, __NR_mseal as MSEAL, __NR_msync as MSYNC, __NR_munlock as MUNLOCK,
        __NR_munlockall as MUNLOCKALL, __NR_munmap as MUNMAP, __NR_newfstatat as NEWFSTATAT, __NR_openat as OPENAT,
        __NR_personality as PERSONALITY, __NR_pidfd_getfd as PIDFD_GETFD, __NR_pidfd_open as PIDFD_OPEN,
        __NR_pipe2 as PIPE2, __NR_pkey_mprotect as PKEY_MPROTECT, __NR_prctl as PRCTL, __NR_pread64 as PREAD64,
        __NR_prlimit64 as PRLIMIT64, __NR_process_madvise as PROCESS_MADVISE,
        __NR_process_vm_readv as PROCESS_VM_READV, __NR_pwrite64 as PWRITE64, __NR_read as READ,
        __NR_readlink as READLINK, __NR_recvmsg as RECVMSG, __NR_rt_sigprocmask as RT_SIGPROCMASK,
        __NR_rt_sigtimedwait as RT_SIGTIMEDWAIT, __NR_sched_getaffinity as SCHED_GETAFFINITY,
        __NR_sched_getparam as SCHED_GETPARAM, __NR_sched_setaffinity as SCHED_SETAFFINITY,
        __NR_sched_setattr as SCHED_SETATTR, __NR_sched_setparam as SCHED_SETPARAM,
        __NR_sched_setscheduler as SCHED_SETSCHEDULER, __NR_seccomp as SECCOMP,
        __NR_set_tid_address as SET_TID_ADDRESS, __NR_setgroups as SETGROUPS, __NR_setns as SETNS,
        __NR_setresgid as SETRESGID, __NR_setresuid as SETRESUID, __NR_setsockopt as SETSOCKOPT,
        __NR_socket as SOCKET, __NR_symlinkat as SYMLINKAT, __NR_sysinfo as SYSINFO, __NR_tgkill as TGKILL,
        __NR_uname as UNAME, __NR_unlinkat as UNLINKAT, __NR_unshare as UNSHARE, __NR_userfaultfd as USERFAULTFD,
        __NR_vmsplice as VMSPLICE, __NR_waitid as WAITID, __NR_write as WRITE,
    };
}

/// Address of the `syscall` instruction in libc's `syscall`; the test of the result and the return follow it.
pub static LIBC_SYSCALL: AtomicUsize = AtomicUsize::new(0);
/// Whether system calls are made by that instruction.
static FROM_LIBC: AtomicBool = AtomicBool::new(false);

/// Chooses the instruction for system calls from now on: libc's, if its address is known, or the library's own. Errors
/// of libc's also set errno.
pub fn call_from_libc(is: bool) {
    FROM_LIBC.store(is && LIBC_SYSCALL.load(Ordering::Relaxed) != 0, Ordering::Relaxed);
}

/// One raw system call; a value in `-4095..0` is a negated errno.
///
/// # Safety
/// The kernel does what the arguments say: the caller answers for every pointer among them.
#[inline]
pub unsafe fn syscall6(number: u32, args: [usize; 6]) -> isize {
    // SAFETY: the caller answers for the arguments.
    unsafe { if FROM_LIBC.load(Ordering::Relaxed) { by_libc(number, args) } else { by_ourselves(number, args) } }
}

unsafe extern "C" {
    fn __errno_location() -> *mut i32;
}

/// As [`syscall6`], by libc's instruction.
///
/// # Safety
/// As for [`syscall6`]; and the instruction's address is known.
#[cold]
unsafe fn by_libc(number: u32, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: as in `by_ourselves`; the code after libc's instruction returns, and changes only registers that a
    // function may.
    unsafe {
        asm!(
            "call {at}",
            at = in(reg) LIBC_SYSCALL.load(Ordering::Relaxed),
            inlateout("rax") i64::from(number) as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            clobber_abi("C"),
        );
        if result == -1 { -(*__errno_location() as isize) } else { result }
    }
}

/// As [`syscall6`], by an instruction of the library's own.
///
/// # Safety
/// As for [`syscall6`].
#[inline]
unsafe fn by_ourselves(number: u32, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention; it clobbers rcx and r11 and may write through the caller's pointers.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") i64::from(number) as isize => result,
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

/// Makes a thread by clone(2) with `flags`. It runs `entry(argument)` on the stack that ends at `stack_top`
/// (16-aligned). With the flags for it, `*tid` becomes the thread's id at its start and 0 at its end. Returns the id,
/// or a negated errno.
///
/// The new thread has the thread pointer of the old one, so its code must not use thread-local storage.
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

/// Calls `entry(argument)` on the stack that ends at `stack_top` (16-aligned). Debuggers and unwinders find the way
/// back.
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

/// The processor's clock: ticks from an arbitrary start, a billion or more a second.
pub fn ticks() -> u64 {
    // SAFETY: reads a counter of the processor, and no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether the processor traps after each instruction of the calling thread (the flag TF).
#[inline]
pub fn is_stepping() -> bool {
    let flags: usize;
    // SAFETY: reads the flags by way of the stack.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(preserves_flags)) };
    flags & 0x100 != 0
}

/// Sets or clears that flag. If it was set, the trap comes once more.
#[cold]
pub fn set_stepping(is: bool) {
    let (kept, added): (isize, isize) = if is { (-1, 0x100) } else { (!0x100, 0) };
    // SAFETY: changes no flag but this one, for which the program has a handler where it has set it.
    unsafe {
        asm!(
            "pushfq",
            "and [rsp], {kept}",
            "or [rsp], {added}",
            "popfq",
            kept = in(reg) kept,
            added = in(reg) added
        );
    }
}

/// The calling thread's thread pointer.
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: glibc's thread control block begins with a pointer to itself (the ABI of thread-local storage wants it).
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

/// Address of the state that ld.so keeps for debuggers (`_r_debug`); 0: the loader has no such variable.
pub fn debugger_state() -> usize {
    let address: usize;
    // SAFETY: reads one entry of this library's offset table; the weak symbol leaves it null where nobody defines it.
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

/// Offset in `code` at which the jump is written: behind a landing pad for indirect branches, if there is one.
pub fn entry_offset(code: &[u8]) -> usize {
    if code.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 }
}

/// Whether `code` begins with a jump that some other tool wrote there.
pub fn already_detoured(code: &[u8]) -> bool {
    let code = code.get(entry_offset(code)..).unwrap_or(&[]);
    matches!(code, [0xe9, ..] | [0xff, 0x25, ..] | [0xcc, ..] | [0x48, 0xb8, ..] | [0x49, 0xbb, ..])
}

/// Whether `code` is a wrapper of system call `number`: it loads the number into a register, then executes `syscall`.
pub fn wraps_syscall(code: &[u8], number: u32) -> bool {
    let wanted = number.to_le_bytes();
    let loads = |window: &[u8]| matches!(window, [0xb8..=0xbf, rest @ ..] if rest == wanted);
    code.windows(5).any(loads) && code.windows(2).any(|window| window == [0x0f, 0x05])
}

/// Whether `code` is libc's `syscall`: it shifts its arguments by one register, then makes the call, behind the
/// detour's jump.
pub fn is_generic_syscall(code: &[u8]) -> bool {
    code.get(entry_offset(code)..).is_some_and(|code| code.starts_with(&[0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7]))
        && kept_instruction(code).is_some()
}

/// Offset in `code` of the `syscall` instruction that a detour leaves in place.
pub fn kept_instruction(code: &[u8]) -> Option<usize> {
    let kept = entry_offset(code) + DETOUR_BYTES;
    let found = code.get(kept..)?.windows(2).position(|window| window == [0x0f, 0x05])?;
    Some(kept + found)
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
    fn libcs_syscall_is_called_behind_the_detour() {
        let moves = [0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2];
        let code = [&moves[..], &[0x4d, 0x89, 0xc8, 0x0f, 0x05, 0xc3]].concat();
        assert!(is_generic_syscall(&code));
        assert_eq!(kept_instruction(&code), Some(18));
        assert_eq!(kept_instruction(&[&ENDBR64[..], &code].concat()), Some(22));
        assert!(!is_generic_syscall(&[&moves[..12], &[0x0f, 0x05, 0xc3, 0, 0, 0]].concat()));
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
