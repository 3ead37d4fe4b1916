//! Memory that the library's own threads lock for a moment. It counts against the program's limit on locked memory, so
//! a call of the program that is refused in such a moment is repeated.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::boundary::sys::{Errno, Result, task};

/// Number of such moments under way.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);
/// Number of such moments that have ended.
static ENDED: AtomicU32 = AtomicU32::new(0);
/// Most repetitions of a call: one that exceeds the limit by itself is refused, however busy the library's threads are.
const PATIENCE: usize = 100;
/// Time between two checks, ns. Nobody wakes the waiting thread, because the moments are so short.
const WAIT_NS: u64 = 50_000;

/// Runs `what`, which locks memory of the library and unlocks it again.
pub fn for_a_moment<T>(what: impl FnOnce() -> T) -> T {
    UNDER_WAY.fetch_add(1, Ordering::SeqCst);
    let result = what();
    ENDED.fetch_add(1, Ordering::SeqCst);
    UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Makes the program's `call`. Repeats it if it was refused for too much locked memory while the library had locked
/// some.
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

/// Whether such a moment is under way or has ended since their count was `before`; if one is under way, first waits for
/// a while.
#[cold]
fn was_ours(before: u32) -> bool {
    let under_way = UNDER_WAY.load(Ordering::SeqCst);
    if under_way != 0 {
        task::futex_wait_for(&UNDER_WAY, under_way, WAIT_NS);
    }
    under_way != 0 || ENDED.load(Ordering::SeqCst) != before
}

/// In a forked child: forgets the moments, which were the parent's.
pub fn forget() {
    UNDER_WAY.store(0, Ordering::SeqCst);
}
