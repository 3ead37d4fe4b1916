//! Programs that enter other namespaces, or restrict the files that they may use.
//!
//! Only a process with a single thread may enter a user namespace, or that of another process. So the library's own
//! threads end first. Other namespaces, a root of its own and Landlock's restrictions hold for the calling thread alone:
//! the library's threads, which would keep what the program has left behind, end just after such a call. From then on
//! nothing is placed.

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
    const FOR_ONE_THREAD: i32 = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_NEWUSER;
    /// From then on the thread's root and working directory are its own: chroot changes no other thread's.
    const CLONE_FS: i32 = 0x200;
    const CLONE_NEWNS: i32 = 0x2_0000;
    const CLONE_NEWIPC: i32 = 0x800_0000;
    const CLONE_NEWNET: i32 = 0x4000_0000;
    const LEAVES: i32 = CLONE_FS | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET;
    // SAFETY: the program makes this call itself, and answers for its arguments.
    let raw = || unsafe { sys::unshare(what) };
    match what {
        _ if what & FOR_ONE_THREAD != 0 => alone(raw),
        _ if what & LEAVES != 0 => leaving(EngineFailure::Namespaces, raw),
        _ => raw(),
    }
}

/// setns(2).
pub fn setns(fd: i32, kind: i32) -> Result<()> {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    alone(|| unsafe { sys::setns(fd, kind) })
}

/// landlock_restrict_self(2).
pub fn restrict_files(ruleset: i32, flags: u32) -> Result<()> {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    leaving(EngineFailure::Sandbox, || unsafe { sys::landlock_restrict_self(ruleset, flags) })
}

/// Whether a call concerns no thread of the library's.
fn concerns_none() -> bool {
    seccomp::is_raw() || !backing::has_threads() || child::is_new() || child::is_guest()
}

/// Runs `enter` after the library's threads have ended. The kernel refuses it to a program with several threads anyway.
fn alone(enter: impl Fn() -> Result<()>) -> Result<()> {
    if concerns_none() || libc::threads() > 1 + OURS {
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

/// Runs `enter`, after which the calling thread may do less than before, and ends the library's threads before anything
/// else of the program runs in the calling thread.
fn leaving(why: EngineFailure, enter: impl Fn() -> Result<()>) -> Result<()> {
    if concerns_none() {
        return enter();
    }
    own_stack::run(|| {
        let result = enter();
        if result.is_ok() {
            backing::stop(why);
        }
        result
    })
}
