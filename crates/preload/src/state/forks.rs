//! Forks of libc that are under way, and the engine's start, which wait for each other: in a child that got a half-started
//! engine, nobody would complete it.
//!
//! The counts are among the words that the kernel clears in children, which therefore inherit none.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::boundary::libc;
use crate::boundary::sys::{self, Errno, Result, task};

use super::child::{self, APART, cleared};

const NOBODY: u32 = 0;
const SOMEBODY: u32 = 1;
/// Time between two checks, ns.
const WAIT_NS: u64 = 1_000_000;
/// How long a start waits for forks, ns. A fork takes seconds at most; only one that another thread left by a jump never
/// ends.
const PATIENCE_NS: u64 = 10_000_000_000;

/// The forks that are under way. They are one word: a signal handler that forks as well may interrupt any step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Forks {
    all: u16,
    /// Those of the thread `forker` among them.
    own: u16,
    /// The thread whose forks are counted beside those of all; 0: none.
    forker: u32,
}

impl Forks {
    const fn of(word: u64) -> Forks {
        Forks { all: word as u16, own: (word >> 16) as u16, forker: (word >> 32) as u32 }
    }

    const fn word(self) -> u64 {
        self.all as u64 | (self.own as u64) << 16 | (self.forker as u64) << 32
    }

    /// After a fork of thread `me` has begun, which becomes the forker if there is none.
    fn begun(self, me: Option<u32>) -> Forks {
        let all = self.all.saturating_add(1);
        match me {
            Some(me) if self.forker == me || self.forker == 0 => {
                Forks { all, own: self.own.saturating_add(1), forker: me }
            }
            _ => Forks { all, ..self },
        }
    }

    /// After a fork of thread `me` has ended. `None`: it has no count. (A child that a signal handler forked meanwhile,
    /// and that goes on with the interrupted fork, has none; nor has a fork that began before the word was there.)
    fn ended(self, me: Option<u32>) -> Option<Forks> {
        if self.own > 0 && me == Some(self.forker) {
            let forker = if self.own == 1 { 0 } else { self.forker };
            return Some(Forks { all: self.all - 1, own: self.own - 1, forker });
        }
        (self.all > self.own).then(|| Forks { all: self.all - 1, ..self })
    }

    /// Those that thread `me` has to wait for. Its own are not at the copy of the process: it has left them by a jump,
    /// or its signal handler asks. (Those of a thread that is not the forker are not told from others'.)
    fn to_wait_for(self, me: Option<u32>) -> u16 {
        self.all.saturating_sub(if me == Some(self.forker) { self.own } else { 0 })
    }
}

fn change(word: &AtomicU64, how: impl Fn(Forks) -> Option<Forks>) {
    let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| how(Forks::of(now)).map(Forks::word));
}

/// A fork begins; called before the process is copied, as the last of all handlers.
pub fn begin() {
    let (Some(forks), Some(apart)) = (child::forks(), cleared(APART)) else { return };
    let me = libc::id_of_this_thread();
    loop {
        change(forks, |now| Some(now.begun(me)));
        if apart.load(Ordering::SeqCst) == NOBODY {
            return;
        }
        change(forks, |now| now.ended(me));
        task::futex_wait_for(apart, SOMEBODY, WAIT_NS);
    }
}

/// The fork has ended; called in the parent only, as the first of all handlers.
pub fn end() {
    if let Some(forks) = child::forks() {
        let me = libc::id_of_this_thread();
        change(forks, |now| now.ended(me));
    }
}

/// While it exists, no fork of another thread is under way in libc, and no other thread has an `Apart`; signals are
/// blocked.
pub struct Apart {
    word: &'static AtomicU32,
    mask: u64,
}

impl Apart {
    /// Waits for other threads that have one, and for their forks. EAGAIN: a fork does not end.
    pub fn new() -> Result<Apart> {
        child::watch()?;
        let (forks, word) = child::forks().zip(cleared(APART)).ok_or(Errno::ENOMEM)?;
        let mask = sys::block_signals();
        while let Err(now) = word.compare_exchange(NOBODY, SOMEBODY, Ordering::SeqCst, Ordering::SeqCst) {
            task::futex_wait_for(word, now, WAIT_NS);
        }
        let (apart, begun) = (Apart { word, mask }, sys::monotonic_ns());
        let me = libc::id_of_this_thread();
        while Forks::of(forks.load(Ordering::SeqCst)).to_wait_for(me) > 0 {
            if sys::monotonic_ns() - begun > PATIENCE_NS {
                return Err(Errno::EAGAIN);
            }
            task::futex_wait_for(word, SOMEBODY, WAIT_NS);
        }
        Ok(apart)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.word.store(NOBODY, Ordering::SeqCst);
        task::futex_wake_all(self.word);
        sys::restore_signals(self.mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Forks = Forks { all: 0, own: 0, forker: 0 };

    #[test]
    fn forks_of_signal_handlers_within_forks_leave_no_count() {
        let (me, other) = (Some(7), Some(8));
        let forking = NONE.begun(me);
        assert_eq!(forking, Forks { all: 1, own: 1, forker: 7 });
        assert_eq!(forking.begun(me).ended(me), Some(forking), "its handler's");
        assert_eq!(forking.begun(other), Forks { all: 2, own: 1, forker: 7 });
        assert_eq!(forking.begun(other).ended(other), Some(forking));
        assert_eq!(forking.begun(other).ended(me), Some(Forks { all: 1, own: 0, forker: 0 }));
        assert_eq!(forking.ended(me), Some(NONE));
        assert_eq!((NONE.ended(me), forking.ended(other), NONE.begun(None).ended(me)), (None, None, Some(NONE)));
        assert_eq!([me, other, None].map(|thread| forking.begun(other).to_wait_for(thread)), [1, 2, 2]);
        assert_eq!(Forks::of(forking.begun(other).word()), forking.begun(other));
    }

    #[test]
    fn forks_of_many_threads_are_counted() {
        let word = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for id in 1..=4 {
                let word = &word;
                scope.spawn(move || {
                    for _ in 0..1000 {
                        change(word, |now| Some(now.begun(Some(id)).begun(Some(id))));
                        change(word, |now| now.ended(Some(id)).and_then(|now| now.ended(Some(id))));
                    }
                });
            }
        });
        assert_eq!(word.load(Ordering::SeqCst), 0);
    }
}
