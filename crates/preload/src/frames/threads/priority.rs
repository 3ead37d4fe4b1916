//! The priority of the engine's threads: one above the program's, if the program is real-time.
//!
//! A fault inside a system call does not sleep while a signal is pending (a stop, a timer, work of io_uring): it is
//! repeated until its page is there. A real-time thread that does so leaves its processor to no thread of its own
//! priority. So the handler needs a higher one. So does the refiller, since the handler waits for its locks.
//!
//! The engine's threads have given up the right to raise themselves. So the thread of the program that raises itself, or
//! another one, raises them. When the program lowers its threads, the handler lowers both, for which it needs no right:
//! a program that gives up root after that must not keep a thread of a priority that it cannot have.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::boundary::span::Span;
use crate::boundary::sys;
use crate::boundary::sys::real_time::{self, HIGHEST};
use crate::frames::rest;
use crate::state::lock::Turn;

use super::requests::{self, Kind};
use super::{handler, refiller};

/// The highest real-time priority that a thread of the program is known to have; 0: none.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// The handler's descriptor of the list of threads. It is opened in time: later there may be no /proc.
static LIST: AtomicI32 = AtomicI32::new(NONE);
const NONE: i32 = -1;
/// One thread at a time follows a change: what another one changes meanwhile, it follows afterwards.
static FOLLOWS: Turn = Turn::new();
/// Whether the handler could not get a higher one.
static IS_LEVEL: AtomicBool = AtomicBool::new(false);

/// Whether the handler's priority is no higher than the program's.
pub fn is_level() -> bool {
    IS_LEVEL.load(Ordering::Relaxed)
}

/// In a forked child: forgets the parent's threads.
pub fn forget() {
    FOLLOWS.give();
    LIST.store(NONE, Ordering::Relaxed);
    rest::set_needed(false);
    PROGRAM.store(0, Ordering::Relaxed);
    IS_LEVEL.store(false, Ordering::Relaxed);
}

/// Learns the program's priority, before the handler starts. (What the calling thread starts may inherit none:
/// SCHED_RESET_ON_FORK.)
pub fn learn() {
    FOLLOWS.take();
    let mut highest = real_time::priority(0);
    if let Ok(list) = real_time::open_list() {
        highest = highest.max(real_time::highest(list, &[]).unwrap_or(0));
        sys::close(list);
    }
    PROGRAM.store(highest, Ordering::Release);
    FOLLOWS.give();
}

/// Raises the calling thread, which is the handler, before it gives up the right to do so. The refiller inherits it.
pub fn take() {
    LIST.store(real_time::open_list().unwrap_or(NONE), Ordering::Relaxed);
    if PROGRAM.load(Ordering::Acquire) > 0 {
        settle(&mut |priority| raise(0, priority));
    }
}

/// A thread of the program has another policy or priority: raises the engine's threads, or lowers them if no other thread
/// of the program needs them where they are. Runs with all signals blocked.
pub fn follow(tid: i32) {
    let Some(tid) = u32::try_from(tid).ok().filter(|tid| *tid == 0 || real_time::is_of_this_process(*tid)) else {
        return;
    };
    FOLLOWS.take();
    let (priority, known) = (real_time::priority(tid), PROGRAM.load(Ordering::Acquire));
    if priority > known {
        PROGRAM.store(priority, Ordering::Release);
        settle(&mut |priority| each_own(&mut |id| raise(id, priority)));
        // The thread may have no right to raise them, but its limit (RLIMIT_RTPRIO) may allow them to do so.
        if is_level() {
            let _ = requests::ask(Kind::Priority, Span::new(0, 0));
        }
    } else if priority < known {
        let _ = requests::ask(Kind::Priority, Span::new(0, 0));
    }
    FOLLOWS.give();
}

/// Puts the engine's threads as low as the program's threads are now, or above them where that failed before. (Only the
/// handler calls this.)
pub fn adjust() {
    let own = [handler::id(), refiller::id()];
    let Ok(highest) = real_time::highest(LIST.load(Ordering::Relaxed), &own) else { return };
    let known = PROGRAM.load(Ordering::Acquire);
    if highest > known || (highest == known && !is_level()) {
        return;
    }
    PROGRAM.store(highest, Ordering::Release);
    rest::set_needed(highest > 0);
    let are_above = each_own(&mut |id| match highest {
        0 => real_time::become_ordinary(id).is_ok(),
        _ => raise(id, highest),
    });
    IS_LEVEL.store(!are_above, Ordering::Relaxed);
}

/// Calls `change` for each of the engine's threads that there is; whether all of these calls returned true.
fn each_own(change: &mut dyn FnMut(u32) -> bool) -> bool {
    let mut all = true;
    for id in [handler::id(), refiller::id()].into_iter().filter(|id| *id != 0) {
        all &= change(id);
    }
    all
}

/// Calls `raise` with the program's highest priority, and again if another thread has changed it meanwhile: otherwise
/// the lower of two could be set last.
fn settle(raise: &mut dyn FnMut(i32) -> bool) {
    loop {
        let priority = PROGRAM.load(Ordering::Acquire);
        rest::set_needed(priority > 0);
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
