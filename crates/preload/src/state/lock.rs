//! The kinds of locks, and the two that several storeys take: the memory lock and the fork hold.
//!
//! A lock is a futex word, taken with all signals blocked. So a signal handler that maps memory, or that jumps out of
//! the interrupted call with `siglongjmp`, never finds a lock held by its own thread. This costs each governed call two
//! system calls (0.1 µs each). A lock that its own thread may take again would be cheaper, but such jumps would leave
//! it locked.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::boundary::sys::{Errno, Result};
use crate::boundary::{arch, stack, sys};

use super::child;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// The bare lock, for work that begins in one function and ends in another.
pub struct Turn {
    word: AtomicU32,
}

impl Turn {
    /// A free lock.
    pub const fn new() -> Turn {
        Turn { word: AtomicU32::new(FREE) }
    }

    /// Waits for it and takes it.
    pub fn take(&self) {
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..100 {
            if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return;
            }
            core::hint::spin_loop();
        }
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            sys::futex_wait(&self.word, CONTENDED);
        }
    }

    /// Releases it.
    pub fn give(&self) {
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            sys::futex_wake(&self.word);
        }
    }
}

/// A value behind the lock.
pub struct Locked<T> {
    turn: Turn,
    value: UnsafeCell<T>,
}

// SAFETY: only the guard reaches the value, and there is one guard at a time.
unsafe impl<T> Sync for Locked<T> {}

/// Proof that the lock is held; releases it, then restores the signal mask.
pub struct Guard<'a, T> {
    lock: &'a Locked<T>,
    /// The mask to restore; `None`: signals stay blocked.
    mask: Option<u64>,
}

impl<T> Locked<T> {
    /// An unlocked value.
    pub const fn new(value: T) -> Locked<T> {
        Locked { turn: Turn::new(), value: UnsafeCell::new(value) }
    }

    /// Blocks all signals and takes the lock.
    pub fn lock(&self) -> Guard<'_, T> {
        let mask = if stack::is_own() { None } else { Some(sys::block_signals()) };
        self.turn.take();
        Guard { lock: self, mask }
    }

    /// In a forked child, before anything else runs there: frees the lock. Returns whether some thread held it.
    pub fn reset_after_fork(&self) -> bool {
        self.turn.word.swap(FREE, Ordering::Relaxed) != FREE
    }
}

/// A value for the library's own threads only, which have all signals blocked for good.
pub struct Owned<T> {
    turn: Turn,
    value: UnsafeCell<T>,
}

// SAFETY: only the guard reaches the value, and there is one guard at a time.
unsafe impl<T> Sync for Owned<T> {}

/// Proof that the lock is held.
pub struct OwnedGuard<'a, T>(&'a Owned<T>);

impl<T> Owned<T> {
    /// An unlocked value.
    pub const fn new(value: T) -> Owned<T> {
        Owned { turn: Turn::new(), value: UnsafeCell::new(value) }
    }

    /// Takes the lock.
    pub fn lock(&self) -> OwnedGuard<'_, T> {
        self.turn.take();
        OwnedGuard(self)
    }

    /// Puts `value` in place without dropping the old one, and frees the lock.
    ///
    /// # Safety
    /// No thread holds the lock or will ask for it meanwhile.
    pub unsafe fn reset(&self, value: T) {
        // SAFETY: the caller promises that no other thread uses the value.
        unsafe { self.value.get().write(value) };
        self.turn.word.store(FREE, Ordering::Release);
    }
}

impl<T> Deref for OwnedGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, so this is the only access.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for OwnedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for OwnedGuard<'_, T> {
    fn drop(&mut self) {
        self.0.turn.give();
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, so this is the only access.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.turn.give();
        if let Some(mask) = self.mask {
            sys::restore_signals(mask);
        }
    }
}

/// The memory lock, under which heap, pools and the ranges of strategies change.
static MEMORY: Locked<()> = Locked::new(());

/// Holds the memory lock; a forked child is set up first.
pub fn hold_memory() -> Guard<'static, ()> {
    child::adopt();
    MEMORY.lock()
}

/// As [`hold_memory`], for callers in a process that is no new child, or that is just being set up.
pub fn hold_memory_at_once() -> Guard<'static, ()> {
    MEMORY.lock()
}

/// In a forked child, before anything else runs there: frees the memory lock. Returns whether some thread held it.
pub fn free_memory_lock() -> bool {
    MEMORY.reset_after_fork()
}

/// The turn of the thread that forks, or that holds forks back.
pub static FORK: Turn = Turn::new();

/// The thread that has the turn to fork; 0: none.
pub static FORKER: AtomicUsize = AtomicUsize::new(0);

/// Whether the calling thread has that turn.
pub fn is_forking() -> bool {
    FORKER.load(Ordering::Relaxed) == arch::thread_pointer()
}

/// The fork hold: while it exists, nobody forks (through libc), because a fork must not copy half-changed data. Signals
/// are blocked, because their handlers may fork.
pub struct ForkHold {
    mask: u64,
}

impl ForkHold {
    /// Waits for a fork under way. Must not be called with the memory lock held. EAGAIN: it is the calling thread's own,
    /// in a handler of the program that libc calls after the library's (the library was loaded late).
    pub fn new() -> Result<ForkHold> {
        if is_forking() {
            return Err(Errno::EAGAIN);
        }
        let mask = sys::block_signals();
        FORK.take();
        Ok(ForkHold { mask })
    }
}

impl Drop for ForkHold {
    fn drop(&mut self) {
        FORK.give();
        sys::restore_signals(self.mask);
    }
}

/// In a forked child, before anything else: frees the turn, which no thread there has.
pub fn free_fork_hold() {
    FORK.give();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn threads_take_turns() {
        let total = Arc::new(Locked::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let total = Arc::clone(&total);
                std::thread::spawn(move || {
                    for _ in 0..10_000 {
                        *total.lock() += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*total.lock(), 40_000);
    }

    #[test]
    fn the_signal_mask_comes_back() {
        let before = sys::signal_mask(0b10_0000_0000);
        drop(Locked::new(()).lock());
        assert_eq!(sys::signal_mask(before), 0b10_0000_0000);
    }
}
