//! Memory that the program wants to come in, or to stay: placed first, where a strategy governs it.

use crate::arch::PAGE;
use crate::frames;
use crate::intervals::{Span, align_down, align_up};
use crate::sys::{Result, task};

/// Pages of `[addr, addr + len)` are wanted now: those that a strategy governs are placed.
pub fn place_ahead(addr: usize, len: usize) {
    if let Some(end) = align_up(addr.saturating_add(len), PAGE) {
        frames::populate(Span::new(align_down(addr, PAGE), end));
    }
}

/// mlock and mlock2: what they would bring in is placed first, because nothing can be moved to locked memory.
pub fn mlock(addr: usize, len: usize, flags: usize) -> Result<()> {
    if flags == 0 {
        place_ahead(addr, len);
    }
    task::mlock_with(addr, len, flags)
}

/// munlock.
pub fn munlock(addr: usize, len: usize) -> Result<()> {
    task::munlock(addr, len)?;
    if let Some(end) = align_up(addr.saturating_add(len), PAGE) {
        frames::unlocked(Span::new(align_down(addr, PAGE), end));
    }
    Ok(())
}

/// munlockall.
pub fn munlock_all() -> Result<()> {
    task::munlock_all()?;
    frames::all_locked_or_unlocked();
    Ok(())
}

/// mlockall.
pub fn mlock_all(flags: usize) -> Result<()> {
    const MCL_CURRENT: usize = 1;
    const MCL_ONFAULT: usize = 4;
    if flags & (MCL_CURRENT | MCL_ONFAULT) == MCL_CURRENT {
        frames::populate_all();
    }
    task::mlock_all(flags)?;
    frames::all_locked_or_unlocked();
    Ok(())
}
