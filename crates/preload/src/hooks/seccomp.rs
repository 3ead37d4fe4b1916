//! Programs that install seccomp filters.
//!
//! A filter may kill the process for any system call that the program itself does not make. So just before the program
//! installs one (prctl, or seccomp(2) through libc's `syscall`), placement is measured for the last time, and memory
//! that needs the library becomes memory that does not. From then on a detoured call makes exactly the program's own
//! system call: no lock, no tables, no accounts. The same holds where the program has the kernel send its system calls
//! to a handler of its own (syscall user dispatch). If filters beyond the launcher's own exist when the image starts,
//! the library does nothing from the beginning. Filters set by a raw system call instruction are not noticed.

use pagelab_abi::guest::{EngineFailure, GuestWarning};
use pagelab_abi::plan::Flags;

use crate::backing;
use crate::boundary::span::Span;
use crate::boundary::stack;
use crate::boundary::sys::{self, Result, c};
use crate::memory::{calls, measure, tables};
use crate::state::{child, guest_file, own_stack, plan, seccomp as flags};

/// How long other threads may take to finish their present work.
const PATIENCE_NS: u64 = 100_000_000;

/// Prepares for a filter that the program is about to install. Returns the memory that was made for its heap.
fn enter() -> Span {
    flags::set_raw(true);
    // A child that has not met the guest has nothing that needs the library.
    if !child::is_new() {
        // Where no stack can be made, the caller's has to be enough.
        let _ = stack::install();
        own_stack::run(settle);
    }
    let opened = calls::open_heap();
    flags::set_active(true);
    opened
}

/// The last work of the guest in this image.
fn settle() {
    let begin = sys::monotonic_ns();
    while stack::has_others() && sys::monotonic_ns() < begin + PATIENCE_NS {
        core::hint::spin_loop();
    }
    if guest_file::is_own() && plan::has_flag(Flags::MEASURE) {
        measure::all();
        guest_file::warn(GuestWarning::Sandboxed, None, 0, 0);
    }
    backing::stop(EngineFailure::Sandbox);
    // Calls on reserved pages can only be emulated by more than one system call.
    let mut guest = tables::lock();
    if let Err(errno) = guest.demote_all() {
        guest_file::warn(GuestWarning::Fallback, Some(errno), 0, 0);
    }
    if let Some(heap) = &guest.heap {
        calls::publish_heap(heap.end(), heap.room());
    }
}

/// Whether the kernel will accept a filter: programs try impossible ones to learn what it supports.
fn can_succeed(filter: usize) -> bool {
    const PR_GET_NO_NEW_PRIVS: usize = 39;
    // SAFETY: this option only reads a flag.
    let no_new_privileges = unsafe { sys::prctl([PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0]) } == Ok(1);
    filter != 0 && (no_new_privileges || sys::geteuid() == 0)
}

/// Runs `install`, which, if `is_likely`, installs a filter, or makes memory calls wait for the program itself.
pub fn around(is_likely: bool, install: impl Fn() -> Result<usize>) -> Result<usize> {
    installing(is_likely, install, |_| true)
}

/// As [`around`]; `is_done` tells from the kernel's result whether there is a filter now.
fn installing(
    is_likely: bool,
    install: impl Fn() -> Result<usize>,
    is_done: impl Fn(usize) -> bool,
) -> Result<usize> {
    // A filter of a process that only shares this memory (vfork) is not this process's.
    if flags::is_raw() || child::is_guest() {
        return install();
    }
    let opened = if is_likely { Some(enter()) } else { None };
    let result = install();
    let is_filtered = result.is_ok_and(is_done);
    if !is_filtered && is_likely {
        // A child that meets the guest now has one as any other.
        flags::set_active(false);
    }
    if let Some(opened) = opened.filter(|opened| !(is_filtered || opened.is_empty() && child::is_new())) {
        own_stack::run(|| calls::close_heap(opened));
    }
    if is_filtered != is_likely {
        // The kernel refused the filter, or accepted it although it looked impossible.
        flags::set_active(is_filtered);
        flags::set_raw(is_filtered);
    }
    result
}

/// prctl with its five arguments.
pub fn prctl(args: [usize; 5]) -> Result<usize> {
    const PR_SET_SECCOMP: usize = 22;
    const STRICT: usize = 1;
    const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
    const OFF: usize = 0;
    const PR_SET_TSC: usize = 26;
    // SAFETY: the program makes this call itself, and answers for its arguments.
    let raw = || unsafe { sys::prctl(args) };
    match args {
        [option, ..] if option as u32 as usize == PR_SET_TSC => {
            sys::read_clocks_by_calls();
            raw()
        }
        // From then on the program's handler of SIGSYS gets all calls, and may know only its own.
        [option, mode, ..] if option as u32 as usize == PR_SET_SYSCALL_USER_DISPATCH => {
            installing(mode != OFF, raw, |_| mode != OFF)
        }
        [option, mode, filter, ..] if option & 0xffff_ffff == PR_SET_SECCOMP => {
            around(mode == STRICT || can_succeed(filter), raw)
        }
        _ => raw(),
    }
}

/// seccomp(2). Only operations that set a filter count, not queries.
pub fn seccomp(operation: usize, flags: usize, args: usize) -> Result<usize> {
    const SET_MODE_STRICT: u32 = 0;
    const SET_MODE_FILTER: u32 = 1;
    const TSYNC: usize = 1;
    const NEW_LISTENER: usize = 8;
    const TSYNC_ESRCH: usize = 16;
    // SAFETY: the program makes this call itself, and answers for its arguments.
    let raw = || unsafe { sys::seccomp(operation, flags, args) };
    match operation as u32 {
        SET_MODE_STRICT => around(flags == 0 && args == 0, raw),
        // With TSYNC alone, a positive result is the thread that cannot take the filter; else it is a descriptor.
        SET_MODE_FILTER => {
            let is_thread = flags & (TSYNC | NEW_LISTENER | TSYNC_ESRCH) == TSYNC;
            installing(can_succeed(args), raw, |value| value == 0 || !is_thread)
        }
        _ => raw(),
    }
}

/// Number of filters that this process is under, read only with system calls that the dynamic linker has just made:
/// open, read, close.
pub fn filters() -> u32 {
    let mut text = [0u8; 2048];
    let Ok(fd) = sys::open(c"/proc/self/status", c::O_RDONLY, 0) else { return 0 };
    let used = sys::read(fd, &mut text).unwrap_or(0);
    sys::close(fd);
    let number = |name: &[u8]| {
        let text = text.get(..used)?;
        let at = text.windows(name.len()).position(|window| window == name)?;
        let digits = text.get(at + name.len()..)?.iter().skip_while(|&&byte| byte == b'\t');
        Some(
            digits.take_while(|byte| byte.is_ascii_digit()).fold(0, |sum, &byte| sum * 10 + u32::from(byte - b'0')),
        )
    };
    // Before Linux 5.9 the kernel does not report the number, only whether there are filters.
    number(b"\nSeccomp_filters:").or_else(|| number(b"\nSeccomp:")).unwrap_or(0)
}
