//! The priority of the engine's threads: one above the program's, if the program is real-time.
//!
//! A fault inside a system call does not sleep while a signal is pending (a stop, a timer, work of io_uring): it is
//! repeated until its page is there. A real-time thread that does so leaves its processor to no thread of its own
//! priority. So the handler needs a higher one. So does the refiller, since the handler waits for its locks.
//!
//! The engine's threads have given up the right to raise themselves. So the thread of the program that raises itself, or
//! another one, raises them.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::boundary::sys::real_time::{self, HIGHEST};

use super::{handler, refiller};

/// The highest real-time priority that a thread of the program is known to have had; 0: none.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// Whether the handler could not get a higher one.
static IS_LEVEL: AtomicBool = AtomicBool::new(false);

/// Whether the handler's priority is no higher than the program's.
pub fn is_level() -> bool {
    IS_LEVEL.load(Ordering::Relaxed)
}

/// In a forked child: forgets the parent's threads.
pub fn forget() {
    PROGRAM.store(0, Ordering::Relaxed);
    IS_LEVEL.store(false, Ordering::Relaxed);
}

/// Learns the priority of the calling thread, before it starts the handler. (What it starts may inherit none:
/// SCHED_RESET_ON_FORK.)
pub fn learn() {
    PROGRAM.fetch_max(real_time::priority(0), Ordering::AcqRel);
}

/// Raises the calling thread, which is the handler, before it gives up the right to do so. The refiller inherits it.
pub fn take() {
    if PROGRAM.load(Ordering::Acquire) > 0 {
        settle(&mut |priority| raise(0, priority));
    }
}

/// A thread of the program has another policy or priority: raises the engine's threads, if that is necessary. They are
/// never lowered, because other threads may still need them.
pub fn follow(tid: i32) {
    let Some(tid) = u32::try_from(tid).ok().filter(|tid| *tid == 0 || real_time::is_of_this_process(*tid)) else {
        return;
    };
    let priority = real_time::priority(tid);
    if priority == 0 || PROGRAM.fetch_max(priority, Ordering::AcqRel) >= priority {
        return;
    }
    settle(&mut |priority| {
        let mut above = true;
        for id in [handler::id(), refiller::id()].into_iter().filter(|id| *id != 0) {
            above &= raise(id, priority);
        }
        above
    });
}

/// Calls `raise` with the program's highest priority, and again if another thread has changed it meanwhile: otherwise
/// the lower of two could be set last.
fn settle(raise: &mut dyn FnMut(i32) -> bool) {
    loop {
        let priority = PROGRAM.load(Ordering::Acquire);
        IS_LEVEL.store(!raise(priority), Ordering::Relaxed);
        if PROGRAM.load(Ordering::Acquire) == priority {
            return;
        }
    }
}

/// Puts `thread` above `priority`. False: that is not permitted, or there is nothing above; then it is level with it.
fn raise(thread: u32, priority: i32) -> bool {
    if priority < HIGHEST && real_time::become_real_time(thread, priority + 1).is_ok() {
        return true;
    }
    let _ = real_time::become_real_time(thread, priority);
    false
}
