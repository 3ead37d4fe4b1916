//! The lock under which heap, pools and the ranges of strategies change.

use crate::state::lock::{Guard, Locked};

use super::child;

static LOCK: Locked<()> = Locked::new(());

/// Holds the lock; a forked child is set up first.
pub fn hold() -> Guard<'static, ()> {
    child::adopt();
    LOCK.lock()
}

/// As [`hold`], where the process is no child that has not met the guest, or is about to.
pub fn hold_at_once() -> Guard<'static, ()> {
    LOCK.lock()
}

/// In a forked child, before anything else runs there: frees the lock; says whether some thread held it.
pub fn reset_after_fork() -> bool {
    LOCK.reset_after_fork()
}
