//! Pages of our own that are always missing: the one that requests are sent by, and those that pages of the pool pass
//! through.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::boundary::arch::PAGE;
use crate::boundary::own::Fresh;
use crate::boundary::span::Span;
use crate::boundary::sys::{Result, task};
use crate::frames::kernel::uffd::Uffd;

/// Pages moved out at a time: the size of a transit area.
pub const TRANSIT: usize = 64;

static AREA: AtomicUsize = AtomicUsize::new(0);
/// Some memory is pinned.
static PINS: AtomicBool = AtomicBool::new(false);

/// The pages: the one that requests are sent by; for each of our threads a landing page and a locked one; two transit
/// areas, the second locked.
const PAGES: usize = FIRST_TRANSIT + 2 * TRANSIT;
/// The first page of the transit areas.
pub const FIRST_TRANSIT: usize = 5;
/// Its address; 0: none.
pub fn address() -> usize {
    AREA.load(Ordering::Relaxed)
}

/// Maps them, and registers them.
pub fn map(uffd: Uffd, is_pinned: bool) -> Result<usize> {
    let room = Fresh::map(PAGES * PAGE)?.into_room();
    // Children make theirs.
    room.hide_from_children()?;
    let span = room.keep();
    let area = span.start;
    PINS.store(is_pinned, Ordering::Relaxed);
    if is_pinned {
        lock_area(area);
    }
    uffd.register(span)?;
    AREA.store(area, Ordering::Relaxed);
    Ok(area)
}

/// The handler ends: who waits at one of these pages goes on, even if a child has a copy of the descriptor.
pub fn release(uffd: Uffd) {
    let area = AREA.load(Ordering::Relaxed);
    let _ = uffd.unregister(Span::new(area, area + PAGES * PAGE));
}

/// Somebody's memory is to be pinned: so are the pages that the pool's pages pass through.
pub fn lock() {
    PINS.store(true, Ordering::Relaxed);
    lock_area(AREA.load(Ordering::Relaxed));
}

/// The program has locked all memory, or unlocked it: these pages are as before, and count against its limit only where memory
/// is pinned.
pub fn relock() {
    let area = AREA.load(Ordering::Relaxed);
    if PINS.load(Ordering::Relaxed) {
        lock_area(area);
    } else {
        let _ = task::munlock(area, PAGES * PAGE);
    }
}

/// Locks those of them that are to be locked, and unlocks the others: pages can be moved between locked memory and
/// locked memory only.
fn lock_area(area: usize) {
    let page = |number: usize| area + number * PAGE;
    for (first, pages) in [(2, 1), (4, 1), (FIRST_TRANSIT + TRANSIT, TRANSIT)] {
        let _ = task::mlock(page(first), pages * PAGE, true);
    }
    for (first, pages) in [(0, 2), (3, 1), (FIRST_TRANSIT, TRANSIT)] {
        let _ = task::munlock(page(first), pages * PAGE);
    }
}
