//! Calls that populate or lock memory: governed memory is placed first.

use crate::backing;
use crate::boundary::arch::PAGE;
use crate::boundary::span::{Span, align_down, align_up};
use crate::memory::tables;

fn pages(addr: usize, len: usize) -> Option<Span> {
    Some(Span::new(align_down(addr, PAGE), align_up(addr.checked_add(len)?, PAGE)?))
}

/// Pages of `[addr, addr + len)` are wanted now: those that a strategy governs are placed. (Before the program locks them,
/// too: nothing can be moved to locked memory.)
pub fn place_ahead(addr: usize, len: usize) {
    if let Some(span) = pages(addr, len) {
        backing::populate(span);
    }
}

/// The program has unlocked `[addr, addr + len)`.
pub fn unlocked(addr: usize, len: usize) {
    if let Some(span) = pages(addr, len) {
        backing::unlocked(span);
    }
}

/// Before mlockall.
pub fn before_lock_all(flags: usize) {
    const MCL_CURRENT: usize = 1;
    const MCL_FUTURE: usize = 2;
    const MCL_ONFAULT: usize = 4;
    if flags & MCL_FUTURE != 0 {
        // What was mapped in advance would not be locked when the program gets it.
        tables::lock().drop_spare();
    }
    if flags & (MCL_CURRENT | MCL_ONFAULT) == MCL_CURRENT {
        backing::populate_all();
    }
}

/// After mlockall or munlockall.
pub fn all_locked_or_unlocked() {
    backing::all_locked_or_unlocked();
}
