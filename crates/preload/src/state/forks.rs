//! Forks of libc that are under way, and the engine's start, which wait for each other: in a child that got a half-started
//! engine, nobody would complete it.
//!
//! The counts are among the words that the kernel clears in children, which therefore inherit none.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::boundary::sys::{self, Errno, Result, task};

use super::child::{self, APART, FORKS, cleared};

const NOBODY: u32 = 0;
const SOMEBODY: u32 = 1;
/// Time between two checks, ns.
const WAIT_NS: u64 = 1_000_000;
/// How long a start waits for forks, ns. A fork takes seconds at most; only that of the own thread, which a signal
/// handler interrupted, never ends.
const PATIENCE_NS: u64 = 10_000_000_000;

/// A fork begins; called before the process is copied, as the last of all handlers.
pub fn begin() {
    let (Some(forks), Some(apart)) = (cleared(FORKS), cleared(APART)) else { return };
    loop {
        forks.fetch_add(1, Ordering::SeqCst);
        if apart.load(Ordering::SeqCst) == NOBODY {
            return;
        }
        end();
        task::futex_wait_for(apart, SOMEBODY, WAIT_NS);
    }
}

/// The fork has ended; called in the parent only, as the first of all handlers.
pub fn end() {
    if let Some(forks) = cleared(FORKS) {
        // A child that a signal handler forked meanwhile, and that goes on with the interrupted fork, has no count; nor
        // does a fork that began before the words were there.
        let _ = forks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
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
        child::watch()?;
        let (forks, word) = cleared(FORKS).zip(cleared(APART)).ok_or(Errno::ENOMEM)?;
        let mask = sys::signal_mask(u64::MAX);
        while let Err(now) = word.compare_exchange(NOBODY, SOMEBODY, Ordering::SeqCst, Ordering::SeqCst) {
            task::futex_wait_for(word, now, WAIT_NS);
        }
        let (apart, begun) = (Apart { word, mask }, sys::monotonic_ns());
        loop {
            match forks.load(Ordering::SeqCst) {
                0 => return Ok(apart),
                _ if sys::monotonic_ns() - begun > PATIENCE_NS => return Err(Errno::EAGAIN),
                under_way => task::futex_wait_for(forks, under_way, WAIT_NS),
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
