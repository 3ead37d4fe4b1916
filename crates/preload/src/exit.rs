//! The process's end: exit and exec. Placement is measured before the memory goes.

use core::sync::atomic::Ordering::Relaxed;

use pagelab_abi::guest::{Counter, State};
use pagelab_abi::plan::Flags;

use crate::environment::Stripped;
use crate::guest;
use crate::measure;
use crate::record;
use crate::sandbox;
use crate::sys::{self, Errno};

/// Whether the guest file is this process's: a child of vfork shares the parent's memory and must not touch it.
pub fn is_own_file() -> bool {
    record::file().is_some_and(|file| file.pid.load(Relaxed) == u64::from(sys::getpid()))
}

/// _exit.
pub fn leave(code: i32) -> ! {
    if sandbox::is_active() {
        sys::exit_group(code);
    }
    if guest::is_new_child() {
        guest::adopt_child();
    }
    if is_own_file() {
        if guest::has_flag(Flags::MEASURE) {
            measure::all();
        }
        if let Some(file) = record::file().filter(|file| file.state.load(Relaxed) == State::Active.code()) {
            record::set(&file.state, State::Exited.code());
        }
    }
    sys::exit_group(code)
}

/// Around an exec: measures, strips the environment where the policy is not inherited, and takes the state back when the
/// exec fails.
fn around(envp: usize, exec: &dyn Fn(usize) -> Errno) -> Errno {
    // A child between fork and exec has no file yet and gets none: nothing of it is worth a record.
    let own = !sandbox::is_active() && !guest::is_new_child() && is_own_file();
    let before = record::file().map_or(0, |file| file.state.load(Relaxed));
    if own {
        record::count(Counter::Execs);
        if guest::has_flag(Flags::MEASURE) {
            measure::all();
        }
        record::state(State::Execed);
    }
    let errno = if guest::has_flag(Flags::INHERIT_EXEC) || guest::plan().is_none() {
        exec(envp)
    } else {
        record::count(Counter::ExecsStripped);
        // SAFETY: the program's own null-terminated environment.
        match unsafe { Stripped::new(envp) } {
            Ok(stripped) => exec(stripped.pointer()),
            Err(errno) => errno,
        }
    };
    if own && let Some(file) = record::file() {
        record::set(&file.state, before);
        record::set(&file.end_ns, 0);
    }
    errno
}

/// execve.
pub fn execve(path: usize, argv: usize, envp: usize) -> Errno {
    // SAFETY: the program's own arguments.
    around(envp, &|envp| unsafe { sys::execve(path, argv, envp) })
}

/// execveat.
pub fn execveat(fd: i32, path: usize, argv: usize, envp: usize, flags: i32) -> Errno {
    // SAFETY: the program's own arguments.
    around(envp, &|envp| unsafe { sys::execveat(fd, path, argv, envp, flags) })
}

/// fexecve: as glibc does it on kernels that have execveat.
pub fn fexecve(fd: i32, argv: usize, envp: usize) -> Errno {
    const AT_EMPTY_PATH: i32 = 0x1000;
    if fd < 0 || argv == 0 || envp == 0 {
        return Errno::EINVAL;
    }
    execveat(fd, c"".as_ptr() as usize, argv, envp, AT_EMPTY_PATH)
}
