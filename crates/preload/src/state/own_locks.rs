//! Memory that the library's own threads lock for a moment. It counts against the program's limit on locked memory: a call of the
//! program that is refused just then is made again.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::boundary::sys::{Errno, Result, task};

/// Moments under way.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);
/// Moments that have ended.
static ENDED: AtomicU32 = AtomicU32::new(0);
/// Calls made again, at most: a call that is too much by itself is refused, however much our threads have to do.
const PATIENCE: usize = 100;
/// Nobody wakes who waits: the moments are this short.
const WAIT_NS: u64 = 50_000;

/// Does `what`, which locks memory of our own and unlocks it again.
pub fn for_a_moment<T>(what: impl FnOnce() -> T) -> T {
    UNDER_WAY.fetch_add(1, Ordering::SeqCst);
    let result = what();
    ENDED.fetch_add(1, Ordering::SeqCst);
    UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Makes the program's `call`; again, if it was refused as too much locked memory is, while some was ours.
pub fn apart_from<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let mut patience = PATIENCE;
    loop {
        let before = ENDED.load(Ordering::SeqCst);
        let result = call();
        let is_refused = matches!(result, Err(Errno::EAGAIN | Errno::ENOMEM));
        if !is_refused || patience == 0 || !was_ours(before) {
            return result;
        }
        patience -= 1;
    }
}

/// Whether memory of ours was locked at any time since `before` moments had ended; waits while it is.
#[cold]
fn was_ours(before: u32) -> bool {
    let under_way = UNDER_WAY.load(Ordering::SeqCst);
    if under_way != 0 {
        task::futex_wait_for(&UNDER_WAY, under_way, WAIT_NS);
    }
    under_way != 0 || ENDED.load(Ordering::SeqCst) != before
}

/// In a forked child: the moments were the parent's.
pub fn forget() {
    UNDER_WAY.store(0, Ordering::SeqCst);
}
