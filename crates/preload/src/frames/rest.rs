//! Rests of the engine's threads in a real-time program. The kernel ends such a program if one of its threads has not
//! slept for RLIMIT_RTTIME, and all threads of lower priorities wait for these.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::boundary::sys::{self, task};

static NEEDED: AtomicBool = AtomicBool::new(false);
/// Work between two rests, and a rest, ns.
const WORK: u64 = 5_000_000;
const REST: u64 = 50_000;

/// Rests of one thread.
pub struct Rests {
    /// When it rested last, ns.
    last: AtomicU64,
}

/// The handler's.
pub static HANDLER: Rests = Rests { last: AtomicU64::new(0) };
/// The refiller's.
pub static REFILLER: Rests = Rests { last: AtomicU64::new(0) };

/// Whether the engine's threads are real-time.
pub fn set_needed(is: bool) {
    NEEDED.store(is, Ordering::Relaxed);
}

impl Rests {
    /// Sleeps for a moment if the calling thread, whose rests these are, has been at work for long.
    pub fn rest(&self) {
        if !NEEDED.load(Ordering::Relaxed) {
            return;
        }
        if sys::monotonic_ns().saturating_sub(self.last.load(Ordering::Relaxed)) > WORK {
            task::futex_wait_for(&AtomicU32::new(0), 0, REST);
            self.last.store(sys::monotonic_ns(), Ordering::Relaxed);
        }
    }
}
