//! Forks of libc that are under way, and the engine's start, which wait for each other: in a child that got a half-started
//! engine, nobody would complete it.
//!
//! The counts are among the words that the kernel clears in children, which therefore inherit none.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::boundary::sys::{self, Errno, Result, task};

use super::child;

const NOBODY: u32 = 0;
const SOMEBODY: u32 = 1;
/// Time between two checks, ns.
const WAIT_NS: u64 = 1_000_000;
/// How long a start waits for forks, ns. A fork takes seconds at most; only that of the own thread, which a signal
/// handler interrupted, never ends.
const PATIENCE_NS: u64 = 10_000_000_000;

/// A fork begins; called before the process is copied, as the last of all handlers.
pub fn begin() {
    let Some(words) = child::cleared() else { return };
    loop {
        words.forks.fetch_add(1, Ordering::SeqCst);
        if words.apart.load(Ordering::SeqCst) == NOBODY {
            return;
        }
        end();
        task::futex_wait_for(&words.apart, SOMEBODY, WAIT_NS);
    }
}

/// The fork has ended; called in the parent only, as the first of all handlers.
pub fn end() {
    if let Some(words) = child::cleared() {
        words.forks.fetch_sub(1, Ordering::SeqCst);
    }
}

/// While it exists, no fork of libc is under way, and no other thread has one; signals are blocked.
pub struct Apart {
    word: &'static AtomicU32,
    mask: u64,
}

impl Apart {
    /// Waits for other threads that have one, and for forks. EAGAIN: a fork does not end.
    pub fn new() -> Result<Apart> {
        let words = child::cleared().ok_or(Errno::ENOMEM)?;
        let apart = Apart { word: &words.apart, mask: sys::signal_mask(u64::MAX) };
        while let Err(now) = words.apart.compare_exchange(NOBODY, SOMEBODY, Ordering::SeqCst, Ordering::SeqCst) {
            task::futex_wait_for(&words.apart, now, WAIT_NS);
        }
        let begun = sys::monotonic_ns();
        loop {
            match words.forks.load(Ordering::SeqCst) {
                0 => return Ok(apart),
                _ if sys::monotonic_ns() - begun > PATIENCE_NS => return Err(Errno::EAGAIN),
                forks => task::futex_wait_for(&words.forks, forks, WAIT_NS),
            }
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.word.store(NOBODY, Ordering::SeqCst);
        task::futex_wake_all(self.word);
        sys::signal_mask(self.mask);
    }
}
