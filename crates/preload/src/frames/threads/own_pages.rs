//! Pages of our own that are always missing: the bell, and where pages of the pool pass through.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Result, c, task};
use crate::frames::kernel::uffd::Uffd;

/// Pages moved out at a time: the size of a transit area.
pub const TRANSIT: usize = 64;

static YARD: AtomicUsize = AtomicUsize::new(0);

/// Pages of the yard: the bell; for each of our threads a landing page and a locked one; two transit areas, the second
/// locked.
const YARD_PAGES: usize = FIRST_TRANSIT + 2 * TRANSIT;
/// The first page of the transit areas.
pub const FIRST_TRANSIT: usize = 5;
/// Where it lies; 0: nowhere.
pub fn address() -> usize {
    YARD.load(Ordering::Relaxed)
}

/// Maps the yard: pages that are always missing.
pub fn map(uffd: Uffd, is_pinned: bool) -> Result<usize> {
    let bytes = YARD_PAGES * PAGE;
    let yard = sys::mmap_own(bytes)?;
    // SAFETY: a fresh mapping of our own; children make theirs.
    unsafe { sys::madvise(yard, bytes, c::MADV_DONTFORK) }?;
    if is_pinned {
        lock_yard(yard);
    }
    uffd.register(Span::new(yard, yard + bytes))?;
    YARD.store(yard, Ordering::Relaxed);
    Ok(yard)
}

/// Somebody's memory is to be pinned: so are the pages that the pool's pages pass through.
pub fn lock() {
    lock_yard(YARD.load(Ordering::Relaxed));
}

/// Locks those pages of the yard that are to be locked, and unlocks the others: pages can be moved between locked memory and
/// locked memory only.
fn lock_yard(yard: usize) {
    let page = |number: usize| yard + number * PAGE;
    for (first, pages) in [(2, 1), (4, 1), (FIRST_TRANSIT + TRANSIT, TRANSIT)] {
        let _ = task::mlock(page(first), pages * PAGE, true);
    }
    for (first, pages) in [(0, 2), (3, 1), (FIRST_TRANSIT, TRANSIT)] {
        let _ = task::munlock(page(first), pages * PAGE);
    }
}
