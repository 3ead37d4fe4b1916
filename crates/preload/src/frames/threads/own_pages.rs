//! Pages of the library's own that are always missing: one for sending requests, and those through which pages of the
//! pool pass.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::boundary::arch::PAGE;
use crate::boundary::own::Fresh;
use crate::boundary::span::Span;
use crate::boundary::sys::{Result, task};
use crate::frames::kernel::uffd::Uffd;

/// Number of pages moved out at a time: the size of a transit area.
pub const TRANSIT: usize = 64;

static AREA: AtomicUsize = AtomicUsize::new(0);
/// Whether some memory is pinned.
static PINS: AtomicBool = AtomicBool::new(false);

/// Number of these pages: one for requests; for each of the library's threads a landing page and a locked one; two
/// transit areas, the second locked.
const PAGES: usize = FIRST_TRANSIT + 2 * TRANSIT;
/// The first page of the transit areas.
pub const FIRST_TRANSIT: usize = 5;
/// Address of these pages; 0: there are none.
pub fn address() -> usize {
    AREA.load(Ordering::Relaxed)
}

/// Maps them, and registers them.
pub fn map(uffd: Uffd, is_pinned: bool) -> Result<usize> {
    let room = Fresh::map(PAGES * PAGE)?.into_room();
    // Forked children make their own pages.
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

/// Unregisters them, because the handler ends: threads that wait at one of these pages continue, even if a child has a
/// copy of the descriptor.
pub fn release(uffd: Uffd) {
    let area = AREA.load(Ordering::Relaxed);
    let _ = uffd.unregister(Span::new(area, area + PAGES * PAGE));
}

/// Locks the pages through which the pool's pages pass, because some memory is to be pinned.
pub fn lock() {
    PINS.store(true, Ordering::Relaxed);
    lock_area(AREA.load(Ordering::Relaxed));
}

/// Restores the locks after the program has locked or unlocked all memory. The pages count against its limit only where
/// memory is pinned.
pub fn relock() {
    let area = AREA.load(Ordering::Relaxed);
    if PINS.load(Ordering::Relaxed) {
        lock_area(area);
    } else {
        let _ = task::munlock(area, PAGES * PAGE);
    }
}

/// Locks those of the pages that must be locked, and unlocks the others: pages can be moved from locked memory only to
/// locked memory.
fn lock_area(area: usize) {
    let page = |number: usize| area + number * PAGE;
    for (first, pages) in [(2, 1), (4, 1), (FIRST_TRANSIT + TRANSIT, TRANSIT)] {
        let _ = task::mlock(page(first), pages * PAGE, true);
    }
    for (first, pages) in [(0, 2), (3, 1), (FIRST_TRANSIT, TRANSIT)] {
        let _ = task::munlock(page(first), pages * PAGE);
    }
}
