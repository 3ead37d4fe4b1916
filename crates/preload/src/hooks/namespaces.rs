//! Programs that enter other namespaces. Only a process with a single thread may enter a user namespace, or that of
//! another process. So the library's own threads end first, and from then on nothing is placed.

use core::sync::atomic::AtomicU32;

use pagelab_abi::guest::EngineFailure;

use crate::backing;
use crate::boundary::libc;
use crate::boundary::sys::{self, Errno, Result, task};
use crate::state::{child, own_stack, seccomp};

/// The library's threads in a process: the handler and the refiller.
const OURS: usize = 2;

/// unshare(2).
pub fn unshare(what: i32) -> Result<()> {
    const CLONE_VM: i32 = 0x100;
    const CLONE_SIGHAND: i32 = 0x800;
    const CLONE_THREAD: i32 = 0x1_0000;
    const CLONE_NEWUSER: i32 = 0x1000_0000;
    // SAFETY: the program makes this call itself, and answers for its arguments.
    let raw = || unsafe { sys::unshare(what) };
    if what & (CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_NEWUSER) == 0 { raw() } else { alone(raw) }
}

/// setns(2).
pub fn setns(fd: i32, kind: i32) -> Result<()> {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    alone(|| unsafe { sys::setns(fd, kind) })
}

/// Runs `enter` after the library's threads have ended. The kernel refuses it to a program with several threads anyway.
fn alone(enter: impl Fn() -> Result<()>) -> Result<()> {
    if seccomp::is_raw() || !backing::has_threads() || child::is_guest() || libc::threads() > 1 + OURS {
        return enter();
    }
    own_stack::run(|| backing::stop(EngineFailure::Namespaces));
    // The kernel still counts a thread for a moment after its end.
    for _ in 0..100 {
        match enter() {
            Err(Errno::EINVAL) => task::futex_wait_for(&AtomicU32::new(0), 0, 1_000_000),
            result => return result,
        }
    }
    enter()
}
