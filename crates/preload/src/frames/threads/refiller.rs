//! The refiller: the thread that refills the pools, so that faults need not wait for that. It starts when it is first
//! needed.
//!
//! While it works, faults take longer: it uses processor time, it locks the process's memory, and if it runs beside the
//! handler, each move has to interrupt its processor. So work that is not urgent waits until the program touches no
//! fresh memory for a moment. Work is urgent if, at the pace of the last moment, pages would soon be missing.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::boundary::arch::PAGE;
use crate::boundary::sys;
use crate::boundary::sys::task;
use crate::frames::engine::{ENGINE, Engine, count_chunk};
use crate::frames::pool::Pools;
use crate::frames::pool::chunks::{self, SLOTS};
use crate::frames::pool::pools::Pool;
use crate::frames::rest;

use super::handler;
use super::thread::Thread;

static THREAD: Thread = Thread::new();
/// Number of calls; also the word at which it waits for one.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// Whether it sleeps, or is about to.
static ASLEEP: AtomicBool = AtomicBool::new(false);
/// Whether it must end.
static DISMISSED: AtomicBool = AtomicBool::new(false);

/// Whether pages are held ([`crate::frames::pool::grip`]) that must be released soon.
static TIDY: AtomicBool = AtomicBool::new(false);
/// Delay until they are released, ns.
const SOON: u64 = 20_000_000;
const NEVER: u64 = 3_600_000_000_000;
/// Length of a moment, ns: the interval at which it checks whether the program still touches fresh memory.
const MOMENT: u64 = 1_000_000;
/// If the last check was longer ago than this many moments, it does not show the pace.
const MOST_MOMENTS: u64 = 16;

/// In a forked child: forgets the thread, which is the parent's.
pub fn forget() {
    THREAD.forget();
    ASLEEP.store(false, Ordering::Relaxed);
    DISMISSED.store(false, Ordering::Relaxed);
    TIDY.store(false, Ordering::Relaxed);
}

/// Id of the refiller, or 0.
pub fn id() -> u32 {
    THREAD.id()
}

/// Requests the release of held pages. (Only the handler calls this.)
pub fn tidy_soon() {
    if !TIDY.swap(true, Ordering::Relaxed) {
        call();
    }
}

/// Calls the refiller because some pool is low. (Only the handler calls this.)
pub fn call() {
    if handler::works_alone() {
        return;
    }
    if THREAD.id() == 0 {
        // SAFETY: the thread does not run; `body` uses nothing but system calls and the library's own memory. If it
        // cannot be started, the handler does its work.
        let _ = unsafe { THREAD.start(body, 0) };
        return;
    }
    nudge();
}

/// Reports work that is not urgent. (Threads of the program call this; it starts no thread.)
pub fn nudge() {
    CALLS.fetch_add(1, Ordering::Release);
    if ASLEEP.load(Ordering::Acquire) {
        task::futex_wake_all(&CALLS);
    }
}

/// Ends the thread.
pub fn dismiss() {
    DISMISSED.store(true, Ordering::Release);
    CALLS.fetch_add(1, Ordering::Release);
    task::futex_wake_all(&CALLS);
    let _ = THREAD.join();
    DISMISSED.store(false, Ordering::Relaxed);
}

extern "C" fn body(_: usize) -> ! {
    task::set_name(c"pagelab-refill");
    let mut frames = [0u64; SLOTS];
    let mut pace = Pace { placed: 0, at_ns: 0 };
    while !DISMISSED.load(Ordering::Acquire) {
        rest::REFILLER.rest();
        let calls = CALLS.load(Ordering::Acquire);
        if !ENGINE.lock().pools.leaves_time(&mut pace) {
            // The memory that control groups leave may shrink at any time.
            ENGINE.lock().pools.keep_to_budgets();
            task::futex_wait_for(&AtomicU32::new(0), 0, MOMENT);
            continue;
        }
        if work(&mut frames) {
            continue;
        }
        ASLEEP.store(true, Ordering::Release);
        if !DISMISSED.load(Ordering::Acquire) {
            let wait = if TIDY.load(Ordering::Relaxed) { SOON } else { NEVER };
            task::futex_wait_for(&CALLS, calls, wait);
        }
        ASLEEP.store(false, Ordering::Release);
        if CALLS.load(Ordering::Acquire) == calls && TIDY.swap(false, Ordering::Relaxed) {
            ENGINE.lock().checks.grip.let_go();
        }
    }
    task::exit_thread()
}

/// The number of pages placed, and the time, at the last check.
struct Pace {
    placed: u64,
    at_ns: u64,
}

impl Pace {
    /// Pages placed per moment since the last check; `None`: that was too long or too short ago.
    fn of_late(&mut self, placed: u64, now_ns: u64) -> Option<u64> {
        let last = core::mem::replace(self, Pace { placed, at_ns: now_ns });
        let moments = now_ns.saturating_sub(last.at_ns) / MOMENT;
        match placed.saturating_sub(last.placed) {
            _ if moments > MOST_MOMENTS => None,
            0 => Some(0),
            _ if moments == 0 => None,
            pages => Some(pages.div_ceil(moments)),
        }
    }
}

/// Does one piece of work: a chunk for a pool that runs low. Returns whether there may be more work.
fn work(frames: &mut [u64; SLOTS]) -> bool {
    let mut engine = ENGINE.lock();
    #[cfg(feature = "expensive")]
    engine.pools.check("the refiller's work");
    let mut tools = engine.pools.tools;
    engine.pools.keep_to_budgets();
    let Some(pool) = engine.pools.next_to_refill() else { return false };
    engine.pools.make_room(pool);
    let Some(order) = engine.pools.order(pool) else { return false };
    drop(engine);
    // The handler's landing pages come first, then this thread's.
    tools.landing += 2 * PAGE;
    let begin = sys::monotonic_ns();
    let made = chunks::populate(&tools, &order, false, frames);
    let mut engine = ENGINE.lock();
    match made {
        Ok(made) => {
            count_chunk(&made, sys::monotonic_ns() - begin);
            engine.pools.take_in(order, &made, frames).is_ok()
        }
        Err(errno) => {
            engine.pools.cancel(order, errno);
            false
        }
    }
}

impl Pools {
    /// Whether the present work should be done now: the program touches no fresh memory, or so much that the work is
    /// urgent.
    fn leaves_time(&mut self, pace: &mut Pace) -> bool {
        let mut filling = self.pools().iter().flatten().filter(|pool| pool.is_filling()).peekable();
        if filling.peek().is_none() {
            return true;
        }
        let placed = self.pools().iter().flatten().map(|pool| pool.placed).sum();
        let of_late = pace.of_late(placed, sys::monotonic_ns());
        of_late == Some(0) || filling.any(|pool| pool.is_pressed(of_late.unwrap_or(0)))
    }

    /// Whether some pool runs low, so that the refiller should be called.
    pub fn needs_refill(&mut self) -> bool {
        let mut any = false;
        for pool in self.pools_mut().iter_mut().flatten() {
            any |= pool.needs_refill();
        }
        any
    }

    /// Shrinks the pools to their budgets, which may have become smaller with the process.
    fn keep_to_budgets(&mut self) {
        for at in 0..self.all.len() {
            if self.pool(at).is_some_and(|pool| pool.is_measured() || pool.is_limited()) {
                self.make_room(at);
            }
        }
    }

    /// The next pool to be filled up further.
    fn next_to_refill(&mut self) -> Option<usize> {
        self.pools_mut().iter_mut().position(|pool| pool.as_mut().is_some_and(Pool::takes_more))
    }
}

impl Engine {
    /// Whether pages are held that the refiller is to release. If there is no refiller, they are released now.
    pub fn holds(&mut self) -> bool {
        if handler::works_alone() {
            self.checks.grip.let_go();
        }
        self.checks.grip.holds()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_that_of_the_last_moments() {
        let mut pace = Pace { placed: 0, at_ns: 0 };
        assert_eq!(pace.of_late(5000, 100 * MOMENT), None, "the first look");
        assert_eq!(pace.of_late(5100, 101 * MOMENT), Some(100));
        assert_eq!(pace.of_late(5300, 105 * MOMENT), Some(50));
        assert_eq!(pace.of_late(5301, 109 * MOMENT), Some(1), "slow is not idle");
        assert_eq!(pace.of_late(5301, 110 * MOMENT), Some(0));
        assert_eq!(pace.of_late(5301, 110 * MOMENT + 1), Some(0), "still idle");
        assert_eq!(pace.of_late(5400, 110 * MOMENT + 2), None, "not for long enough");
        assert_eq!(pace.of_late(9000, 200 * MOMENT), None, "long ago");
    }
}
