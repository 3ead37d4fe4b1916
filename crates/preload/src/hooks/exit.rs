//! The process's end by exit or exec. Placement is measured before the memory goes.

use core::sync::atomic::Ordering::Relaxed;

use pagelab_abi::guest::{Counter, EngineFailure, State};
use pagelab_abi::plan::Flags;

use crate::backing;
use crate::boundary::stack;
use crate::boundary::sys::{self, Errno, Result, c, task};
use crate::hooks::environment::{self, Strings, Stripped};
use crate::memory::measure;
use crate::state::lock::Turn;
use crate::state::{child, guest_file, own_stack, plan, seccomp};

/// One thread measures at a time: two in `_exit`, or one there and one in exec, would add to the same sums.
static MEASURING: Turn = Turn::new();

/// In a forked child: forgets that a thread of the parent was measuring.
pub fn forget() {
    MEASURING.give();
}

/// Ends the process as _exit does; measures first.
// SAFETY: as of the handler of forks in the child, beside which this lies.
#[unsafe(link_section = "pagelab_child")]
pub fn leave(code: i32) -> ! {
    // A child that never used the library has nothing to report that its parent's record does not have.
    if !seccomp::is_raw() && (guest_file::is_own() || runs_engine()) {
        // Without the library's own stacks nothing is measured: the caller's stack may be small.
        if stack::install().is_ok() {
            own_stack::run(finish);
        }
    }
    sys::exit_group(code)
}

fn finish() {
    // Never given back: any other thread that comes here waits for the end.
    MEASURING.take();
    if guest_file::file().is_some() && plan::has_flag(Flags::MEASURE) {
        measure::all();
    }
    part_from_children();
    if let Some(file) = guest_file::file().filter(|file| file.state.load(Relaxed) == State::Active.code()) {
        guest_file::set(&file.state, State::Exited.code());
    }
}

/// Whether this very process has the engine, and no parent whose memory it shares.
fn runs_engine() -> bool {
    backing::has_threads() && !child::is_new() && !child::is_guest()
}

/// Ends the engine in order where there are children. A child may use this very memory (CLONE_VM); it has a copy of the
/// userfaultfd, which keeps its faults waiting when the handler is gone.
fn part_from_children() {
    if backing::has_threads() && task::has_children() {
        backing::stop(EngineFailure::None);
    }
}

/// An exec that can succeed, as far as the file shows.
struct Attempt {
    /// State of the guest file before the attempt; `None`: the file is not this process's.
    before: Option<u64>,
}

impl Attempt {
    /// Begins an attempt: measures.
    fn begin() -> Attempt {
        let before = guest_file::file().map(|file| file.state.load(Relaxed));
        MEASURING.take();
        guest_file::count(Counter::Execs);
        if plan::has_flag(Flags::MEASURE) {
            measure::all();
        }
        guest_file::state(State::Execed);
        MEASURING.give();
        Attempt { before }
    }

    /// Takes the state back: the exec failed, and the process continues.
    fn undo(&self) {
        if let (Some(before), Some(file)) = (self.before, guest_file::file()) {
            guest_file::set(&file.state, before);
            guest_file::set(&file.end_ns, 0);
        }
    }
}

/// Makes an exec of the file at `path`. It measures first, strips the environment where the policy is not inherited,
/// and takes the state back if the exec fails. The exec itself is made on the caller's stack.
fn around(dir: i32, path: usize, flags: i32, envp: usize, exec: &dyn Fn(usize) -> Errno) -> Errno {
    /// An address at which there is no environment: the kernel refuses an exec with it, after it has opened the file.
    const NOWHERE: usize = 1;
    let raw = seccomp::is_raw();
    // An exec that cannot succeed gets no preparations: execvp tries every directory of PATH. (Before Linux 6.8 the
    // file is opened last.)
    if !raw {
        match exec(NOWHERE) {
            Errno::EFAULT if sys::may_be_executed(dir, path, flags) => {}
            Errno::EFAULT => return exec(envp),
            errno => return errno,
        }
    }
    // A child between fork and exec has no file yet and gets none: nothing in it is worth a record.
    let measures = !raw && !child::is_new() && guest_file::is_own();
    let attempt = if measures && stack::install().is_ok() {
        own_stack::run(Attempt::begin)
    } else {
        Attempt { before: None }
    };
    if !raw && runs_engine() && stack::install().is_ok() {
        own_stack::run(part_from_children);
    }
    // The library is not passed on to an image under the program's filter, where it could do nothing, nor to one that
    // would not find it: the dynamic linker would complain.
    let inherits = !raw && plan::has_flag(Flags::INHERIT_EXEC) && environment::is_within_reach();
    let errno = if inherits || plan::current().is_none() {
        exec(envp)
    } else if !raw && !environment::is_readable(envp) {
        Errno::EFAULT
    } else {
        guest_file::count(Counter::ExecsStripped);
        // SAFETY: the program's own null-terminated environment.
        match Stripped::new(unsafe { Strings::at(envp) }) {
            Ok(stripped) => exec(stripped.pointer()),
            // The environment has too many variables to be copied without a system call.
            Err(_) if raw => exec(envp),
            Err(errno) => errno,
        }
    };
    attempt.undo();
    errno
}

/// execve.
pub fn execve(path: usize, argv: usize, envp: usize) -> Errno {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    around(c::AT_FDCWD, path, 0, envp, &|envp| unsafe { sys::execve(path, argv, envp) })
}

/// execveat, which returns an error, or that the file could be executed, if that alone is asked.
pub fn execveat(fd: i32, path: usize, argv: usize, envp: usize, flags: i32) -> Result<()> {
    const AT_EXECVE_CHECK: i32 = 0x10000;
    // SAFETY: the program makes this call itself, and answers for its arguments.
    let call = |envp| unsafe { sys::execveat(fd, path, argv, envp, flags) };
    if flags & AT_EXECVE_CHECK != 0 {
        call(envp)
    } else {
        Err(around(fd, path, flags, envp, &|envp| refused(call(envp))))
    }
}

/// The error of an exec, which has returned.
fn refused(result: Result<()>) -> Errno {
    result.err().unwrap_or(Errno(0))
}

/// fexecve: as glibc does it on kernels that have execveat.
pub fn fexecve(fd: i32, argv: usize, envp: usize) -> Errno {
    const AT_EMPTY_PATH: i32 = 0x1000;
    if fd < 0 || argv == 0 || envp == 0 {
        return Errno::EINVAL;
    }
    refused(execveat(fd, c"".as_ptr() as usize, argv, envp, AT_EMPTY_PATH))
}
