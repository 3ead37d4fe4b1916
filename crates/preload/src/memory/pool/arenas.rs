//! malloc's thread arenas: recognised by glibc's mapping call, grown by whole tiles.
//!
//! glibc reserves a heap of 64 MiB without access (twice that, to cut out an aligned one). It gives access from the
//! bottom up, a few pages at a time, so the kernel never sees a whole empty tile for a huge page. Here the access is
//! extended to the end of the tile. This applies only to mappings that look exactly like such a heap: elsewhere a page
//! without access may be a guard.

use crate::boundary::span::{Span, align_down};
use crate::boundary::sys::{self, c};

/// Size and alignment of one heap of an arena (glibc's HEAP_MAX_SIZE on 64-bit machines).
pub const ARENA_BYTES: usize = 64 << 20;
const HEAPS: usize = (1 << 40) / ARENA_BYTES;

/// Whether glibc's `new_heap` makes requests like this one. A program that makes it too relies on the guards behind what
/// it opens, so the caller counts as well.
pub fn looks_like_arena(len: usize, prot: i32, flags: i32) -> bool {
    let wanted = c::MAP_PRIVATE | c::MAP_ANONYMOUS | c::MAP_NORESERVE;
    (len == ARENA_BYTES || len == 2 * ARENA_BYTES) && prot == c::PROT_NONE && flags == wanted
}

/// One heap.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Heap {
    /// Bytes from its start that the program made accessible.
    pub asked: u32,
    /// Bytes from its start that are accessible, plus one; 0: this is no arena's heap.
    open: u32,
}

impl Heap {
    /// Bytes accessible.
    pub fn open_bytes(&self) -> usize {
        (self.open as usize).saturating_sub(1)
    }

    /// Bytes that are accessible without a request: from the end of what the program asked for.
    fn rest_bytes(&self) -> usize {
        self.open_bytes().saturating_sub(self.asked as usize)
    }
}

/// The heaps of one pool, by their number in it; mapped when the first one is entered.
pub struct Arenas {
    base: usize,
    table: *mut Heap,
    /// No heap was entered from this number on.
    entered: usize,
}

impl Drop for Arenas {
    fn drop(&mut self) {
        if !self.table.is_null() {
            // SAFETY: nothing refers to the table any more.
            let _ = unsafe { sys::munmap(self.table as usize, HEAPS * size_of::<Heap>()) };
        }
    }
}

// SAFETY: the table belongs to this value alone, so it may move to another thread with it.
unsafe impl Send for Arenas {}

impl Arenas {
    /// No heaps; their pool begins at `base`.
    pub const fn new(base: usize) -> Arenas {
        Arenas { base, table: core::ptr::null_mut(), entered: 0 }
    }

    fn slot(&self, addr: usize) -> Option<&'static mut Heap> {
        let index = addr.checked_sub(self.base)? / ARENA_BYTES;
        if self.table.is_null() || index >= HEAPS {
            return None;
        }
        // SAFETY: the table has `HEAPS` entries, is never unmapped while in use, and all calls hold the pool's lock; no
        // two results of this function are alive at once.
        Some(unsafe { &mut *self.table.add(index) })
    }

    /// Records that `span` was mapped as one or two heaps.
    pub fn enter(&mut self, span: Span) {
        if self.table.is_null() {
            let Ok(at) = sys::mmap_own(HEAPS * size_of::<Heap>()) else { return };
            self.table = at as *mut Heap;
        }
        for start in (span.start..span.end).step_by(ARENA_BYTES) {
            if let Some(slot) = self.slot(start) {
                *slot = Heap { asked: 0, open: 1 };
                self.entered = self.entered.max((start - self.base) / ARENA_BYTES + 1);
            }
        }
    }

    /// Records that `span` was unmapped or is used for something else.
    pub fn leave(&mut self, span: Span) {
        if self.table.is_null() {
            return;
        }
        let mut at = align_down(span.start, ARENA_BYTES);
        while at < span.end {
            if let Some(slot) = self.slot(at) {
                *slot = Heap::default();
            }
            at += ARENA_BYTES;
        }
    }

    /// Whether `addr` lies in an arena's heap.
    pub fn covers(&self, addr: usize) -> bool {
        self.slot(addr).is_some_and(|heap| heap.open > 0)
    }

    /// The first rest of a heap from `addr` on: accessible memory that the program did not ask for.
    pub fn next_rest(&self, addr: usize) -> Option<Span> {
        let first = addr.saturating_sub(self.base) / ARENA_BYTES;
        (first..self.entered).find_map(|number| {
            let start = self.base + number * ARENA_BYTES;
            let heap = self.slot(start)?;
            let rest = Span::new(start + heap.asked as usize, start + heap.open_bytes());
            (heap.rest_bytes() > 0 && rest.start >= addr).then_some(rest)
        })
    }

    /// Records that the rest of the heap around `addr` was closed.
    pub fn closed(&mut self, addr: usize) {
        if let Some(heap) = self.slot(addr).filter(|heap| heap.open > 0) {
            heap.open = heap.asked + 1;
        }
    }

    /// The heap around `addr` and its first address, if it is an arena's.
    pub fn heap(&mut self, addr: usize) -> Option<(&mut Heap, usize)> {
        let start = align_down(addr, ARENA_BYTES);
        let heap = self.slot(addr).filter(|heap| heap.open > 0)?;
        Some((heap, start))
    }
}

impl Heap {
    /// Whether a request for access to `asked`, in the heap that starts at `start`, is one by which glibc grows a heap.
    pub fn grows(&self, start: usize, asked: Span) -> bool {
        asked.start == start + self.asked as usize && asked.end <= start + ARENA_BYTES
    }

    /// Records that access reaches to `open_end` now; the program requested it up to `asked_end`.
    pub fn grown(&mut self, start: usize, asked_end: usize, open_end: usize) {
        self.asked = (asked_end - start) as u32;
        self.open = (open_end - start) as u32 + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 0x6100_0000_0000;

    #[test]
    fn only_glibcs_own_request_is_an_arena() {
        let flags = c::MAP_PRIVATE | c::MAP_ANONYMOUS | c::MAP_NORESERVE;
        assert!(looks_like_arena(2 * ARENA_BYTES, c::PROT_NONE, flags));
        assert!(looks_like_arena(ARENA_BYTES, c::PROT_NONE, flags));
        assert!(!looks_like_arena(ARENA_BYTES, c::PROT_RW, flags));
        assert!(!looks_like_arena(8 << 20, c::PROT_NONE, flags));
        assert!(!looks_like_arena(ARENA_BYTES, c::PROT_NONE, flags | c::MAP_STACK));
    }

    #[test]
    fn a_heap_grows_from_its_bottom_only() {
        let mut arenas = Arenas::new(BASE);
        assert!(arenas.heap(BASE).is_none());
        arenas.enter(Span::new(BASE, BASE + ARENA_BYTES));
        assert!(arenas.heap(BASE + ARENA_BYTES).is_none());
        let (heap, start) = arenas.heap(BASE + 5).unwrap();
        assert_eq!(start, BASE);
        assert!(heap.grows(start, Span::new(BASE, BASE + 4096)));
        heap.grown(start, BASE + 4096, BASE + (2 << 20));
        assert!(!heap.grows(start, Span::new(BASE, BASE + 4096)));
        assert!(heap.grows(start, Span::new(BASE + 4096, BASE + 8192)));
        assert_eq!(heap.open_bytes(), 2 << 20);
        assert_eq!(arenas.next_rest(BASE), Some(Span::new(BASE + 4096, BASE + (2 << 20))));
        assert_eq!(arenas.next_rest(BASE + 4097), None);
        arenas.closed(BASE);
        assert_eq!((arenas.next_rest(BASE), arenas.covers(BASE)), (None, true));
        arenas.leave(Span::new(BASE + ARENA_BYTES - 1, BASE + ARENA_BYTES));
        assert!(arenas.heap(BASE).is_none());
    }
}
