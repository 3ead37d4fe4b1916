//! mremap: inside a pool, out of one, into one.

use pagelab_abi::guest::Counter;

use crate::arch::PAGE;
use crate::frames;
use crate::guest::{self, HEAP};
use crate::intervals::{Span, align_up};
use crate::pool::carry;
use crate::record;
use crate::sys::{self, Errno, Result, c};

use super::{madvise, mmap, munmap, part_with_heap, pool_span};

/// mremap; `new` counts only with MREMAP_FIXED or MREMAP_DONTUNMAP.
pub fn mremap(old: usize, old_len: usize, new_len: usize, flags: i32, new: usize) -> Result<usize> {
    let result = match moved(old, old_len, new_len, flags, new) {
        // Locked memory may not grow beyond the limit on that; but it was us who locked it.
        Err(Errno::EAGAIN) if frames::unpin(old, old_len) => moved(old, old_len, new_len, flags, new),
        result => result,
    };
    if flags & c::MREMAP_DONTUNMAP == 0 && result.is_ok_and(|at| at != old) {
        frames::hints::forget(old, old_len);
    }
    result
}

fn moved(old: usize, old_len: usize, new_len: usize, flags: i32, new: usize) -> Result<usize> {
    let from_pool = pool_span(old, old_len);
    let into_pool = flags & c::MREMAP_FIXED != 0 && guest::touches_pools(new, new_len);
    let length = align_up(new_len, PAGE).filter(|&len| len != 0);
    let known = flags & !(c::MREMAP_MAYMOVE | c::MREMAP_FIXED | c::MREMAP_DONTUNMAP) == 0;
    if let (Some(span), Some(length), true) = (from_pool, length, known) {
        let mut guest = guest::lock();
        let whole = guest.pool(old).filter(|pool| span.and(pool.bounds()) == span);
        if let Some(pool) = whole {
            record::count(Counter::MremapGoverned);
            match flags {
                0 => return pool.remap(span, length, false),
                c::MREMAP_MAYMOVE => return frames::frugally(|| pool.remap(span, length, true)),
                // A wish for an address without MREMAP_FIXED is only a hint.
                DUPLICATE if length == span.len() => return pool.duplicate(span),
                _ => {}
            }
        }
    }
    if from_pool.is_none() && !into_pool {
        part_with_heap(old, old_len, false)?;
        if flags & c::MREMAP_FIXED != 0 {
            part_with_heap(new, new_len, false)?;
        }
        // SAFETY: the program's own request.
        return unsafe { sys::mremap(old, old_len, new_len, flags, new) };
    }
    aimed(Span::new(old, old.saturating_add(old_len)), new_len, flags, new)
}

const DUPLICATE: i32 = c::MREMAP_MAYMOVE | c::MREMAP_DONTUNMAP;

/// Whether the kernel would look at a move to a place of the program's own, instead of refusing its arguments.
fn is_possible(old: Span, new_len: usize, flags: i32, new: usize) -> bool {
    let Some(len) = align_up(new_len, PAGE) else { return false };
    let Some(end) = new.checked_add(len) else { return false };
    let known = flags & !(DUPLICATE | c::MREMAP_FIXED) == 0 && flags & c::MREMAP_MAYMOVE != 0;
    let same = flags & c::MREMAP_DONTUNMAP == 0 || len == old.len();
    known && same && len > 0 && new.is_multiple_of(PAGE) && old.and(Span::new(new, end)).is_empty()
}

/// mremap with MREMAP_FIXED, from a pool or into one.
fn aimed(old: Span, new_len: usize, flags: i32, new: usize) -> Result<usize> {
    let mut guest = guest::lock();
    let from = pool_span(old.start, old.len()).filter(|span| is_possible(*span, new_len, flags, new));
    if let Some(span) = from.filter(|_| flags & c::MREMAP_FIXED != 0)
        && let Some(pool) = guest.pool(span.start).filter(|pool| pool.has_hugetlb(span))
    {
        if pool.is_plain_at(span) {
            drop(guest);
            return copy_to(span, new_len, new, flags & c::MREMAP_DONTUNMAP != 0);
        }
        pool.demote_all(span)?;
    }
    let plain = from.is_some_and(|span| guest.pool(span.start).is_some_and(|pool| pool.is_plain_at(span)));
    let end = align_up(new.saturating_add(new_len), PAGE).unwrap_or(new);
    let target = Span::new(new, end);
    if flags & c::MREMAP_FIXED != 0 {
        let inside = |span: Span| (!span.is_empty()).then_some(span);
        if let (Some(heap), Some(part)) = (&mut guest.heap, inside(target.and(HEAP))) {
            heap.part_with(part)?;
        }
        for pool in guest.pools.iter_mut().flatten() {
            if let Some(part) = inside(target.and(pool.bounds())) {
                pool.before_move_in(part)?;
            }
        }
    }
    // SAFETY: the program's own request.
    let at = match unsafe { sys::mremap(old.start, old.len(), new_len, flags, new) } {
        Err(Errno::EFAULT) if flags & c::MREMAP_FIXED != 0 && from.is_some() => {
            carry(from.unwrap_or(old), Span::new(new, end), flags)?;
            new
        }
        result => {
            let at = result?;
            frames::moved(from.unwrap_or(old), at, flags & c::MREMAP_DONTUNMAP != 0);
            at
        }
    };
    if flags & c::MREMAP_DONTUNMAP == 0
        && let Some(span) = from
        && let Some(pool) = guest.pool(span.start)
    {
        pool.moved_away(span);
    }
    let target = Span::new(at, align_up(at.saturating_add(new_len), PAGE).unwrap_or(at));
    for pool in guest.pools.iter_mut().flatten() {
        let part = target.and(pool.bounds());
        if part.is_empty() {
            continue;
        }
        pool.moved_in(part, plain);
    }
    Ok(at)
}

/// mremap to a fixed place out of reserved pages: a copy, because they cannot be moved.
fn copy_to(old: Span, new_len: usize, new: usize, keep: bool) -> Result<usize> {
    let flags = c::MAP_PRIVATE | c::MAP_ANONYMOUS | c::MAP_FIXED;
    let at = mmap(new, new_len, c::PROT_RW, flags, -1, 0)?;
    // SAFETY: the program's own memory on both sides; it asked for the move, and mremap forbids overlaps.
    unsafe { core::ptr::copy_nonoverlapping(old.start as *const u8, at as *mut u8, old.len().min(new_len)) };
    record::count(Counter::HugetlbEmulated);
    if keep {
        madvise(old.start, old.len(), c::MADV_DONTNEED)?;
    } else {
        munmap(old.start, old.len())?;
    }
    Ok(at)
}
