//! Threads of the library in the program's process.
//!
//! They are made by clone(2), not by libc, which does not know them: main's pthread_exit does not wait for them, and no
//! signal reaches them. They run on their own stacks, which a fork does not copy, and use no thread-local storage.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::boundary::arch::PAGE;
use crate::boundary::own::Fresh;
use crate::boundary::sys::{self, Result, c, task};

const STACK: usize = 128 << 10;

/// One thread.
pub struct Thread {
    /// Its id while it runs.
    tid: AtomicU32,
    /// Its stack, kept for the next start.
    base: AtomicUsize,
}

impl Thread {
    /// A thread that does not run.
    pub const fn new() -> Thread {
        Thread { tid: AtomicU32::new(0), base: AtomicUsize::new(0) }
    }

    /// Its id, or 0.
    pub fn id(&self) -> u32 {
        self.tid.load(Ordering::Acquire)
    }

    /// After a fork: forgets the thread and its stack, which are the parent's.
    pub fn forget(&self) {
        self.tid.store(0, Ordering::Relaxed);
        self.base.store(0, Ordering::Relaxed);
    }

    /// Starts the thread, with all signals blocked, at `entry(argument)`.
    ///
    /// # Safety
    /// The thread does not run; `entry` uses no thread-local storage.
    pub unsafe fn start(&self, entry: extern "C" fn(usize) -> !, argument: usize) -> Result<()> {
        let base = match self.base.load(Ordering::Relaxed) {
            0 => {
                let base = stack()?;
                self.base.store(base, Ordering::Relaxed);
                base
            }
            base => base,
        };
        let mask = sys::block_signals();
        // SAFETY: the stack is this thread's alone; `self` is part of a static, so `tid` outlives the thread.
        let started = unsafe { task::start_thread(base + STACK, &self.tid, entry, argument) };
        sys::restore_signals(mask);
        started.map(drop)
    }

    /// Waits for the thread's end, at most a second or so. Returns whether it has ended.
    pub fn join(&self) -> bool {
        for _ in 0..100 {
            match self.id() {
                0 => return true,
                tid => task::futex_wait_for(&self.tid, tid, 10_000_000),
            }
        }
        false
    }
}

/// Maps a stack with a page without access below it.
fn stack() -> Result<usize> {
    let mut stack = Fresh::map(STACK)?.into_room();
    stack.protect(PAGE, c::PROT_NONE)?;
    stack.hide_from_children()?;
    Ok(stack.keep().start)
}

#[cfg(test)]
mod tests {
    use super::*;

    static SEEN: AtomicUsize = AtomicUsize::new(0);
    static DESCRIPTORS: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn body(argument: usize) -> ! {
        task::set_name(c"pagelab-test");
        let _ = task::close_range(3, u32::MAX);
        DESCRIPTORS.store(sys::open(c"/dev/null", c::O_RDONLY, 0).unwrap_or(-1) as usize, Ordering::Relaxed);
        SEEN.store(argument, Ordering::Release);
        task::exit_thread()
    }

    #[test]
    fn a_thread_has_descriptors_of_its_own() {
        static THREAD: Thread = Thread::new();
        let kept = sys::open(c"/dev/null", c::O_RDONLY, 0).unwrap();
        for turn in 1..=3 {
            // SAFETY: the thread does not run; the body uses nothing but system calls.
            unsafe { THREAD.start(body, 1234 + turn) }.unwrap();
            assert!(THREAD.join());
            assert_eq!(SEEN.load(Ordering::Acquire), 1234 + turn);
        }
        assert_eq!(DESCRIPTORS.load(Ordering::Relaxed), 3, "it closed everything, in its own table");
        assert!(task::dup_above(kept, 100).is_ok_and(|copy| copy >= 100), "ours is still open");
    }
}
