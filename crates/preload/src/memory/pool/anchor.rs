//! The anchor: one inaccessible page that keeps page tables alive while the pool is empty.
//!
//! When the last mapping of a stretch of addresses goes, the kernel frees the page tables of that stretch, and the next
//! first touch makes them again. For three levels this costs 2.9 µs per pair of mmap and munmap (Linux 6.18). Outside a
//! pool a program's mappings lie beside its libraries, which keep the tables; in an otherwise empty pool nothing does.
//! A mapping is enough; no page of it need be resident.

use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::mapping;
use crate::boundary::span::{Span, align_down};
use crate::boundary::sys::{self, c};
use crate::state::layout::Backing;

use super::Pool;

/// Addresses that one page of second-level entries covers.
const STRETCH: usize = 1 << 30;

/// The inaccessible page.
#[derive(Clone, Copy, Default)]
pub struct Anchor {
    at: Option<usize>,
    /// Whether it was in the way once when it was near: from then on it stays far from the addresses of first fit.
    far: bool,
}

pub(super) fn page(at: usize) -> Span {
    Span::new(at, at + PAGE)
}

fn stretch(addr: usize) -> Span {
    let start = align_down(addr, STRETCH);
    Span::new(start, start + STRETCH)
}

impl Pool {
    /// Maps an anchor if `gone`, which is about to be unmapped, is the last mapping in its stretch.
    pub(super) fn anchor(&mut self, gone: Span) {
        let stretch = stretch(gone.start).and(self.bounds());
        if self.anchor.at.is_some_and(|at| at < stretch.end) || self.has_others(stretch, gone) {
            return;
        }
        let Some(at) = self.holding_place(stretch, gone) else { return };
        self.remove_anchor();
        // The anchor only saves time; everything works without it.
        let mapped = mapping::map_at(page(at), c::PROT_NONE, c::MAP_NORESERVE);
        self.anchor.at = mapped.is_ok().then_some(at);
    }

    /// Whether any mapping but `gone` keeps the tables of `stretch`.
    fn has_others(&self, stretch: Span, gone: Span) -> bool {
        [&self.used, &self.spare].into_iter().any(|set| {
            let before = set.next_after(stretch.start).is_some_and(|first| first.start < gone.start);
            before || set.next_after(gone.end).is_some_and(|next| next.start < stretch.end)
        })
    }

    /// The anchor's address: where small pages were, the end of the same page of entries; otherwise the end of the
    /// stretch. Never where the program had memory: it may map something there past libc's memory calls (shmat).
    fn holding_place(&self, stretch: Span, gone: Span) -> Option<usize> {
        let untouched = self.untouched.max(gone.end);
        let free =
            |at: &usize| *at >= untouched && page(*at).and(stretch) == page(*at) && !self.used.overlaps(page(*at));
        let near = align_down(gone.end - 1, PMD) + PMD - PAGE;
        let small = |at: &usize| matches!(self.layout.piece(*at).backing, Backing::Kernel | Backing::Base);
        Some(near).filter(|at| !self.anchor.far && free(at) && small(at)).or(Some(stretch.end - PAGE)).filter(free)
    }

    /// Unmaps the anchor.
    pub(super) fn remove_anchor(&mut self) {
        if let Some(at) = self.anchor.at.take() {
            // SAFETY: the page is the library's alone: a mapping there removes the anchor first.
            let _ = unsafe { sys::munmap(at, PAGE) };
        }
    }

    /// Removes the anchor if it is in the way of a change at `span` or in its tiles.
    pub(super) fn keep_anchor_off(&mut self, span: Span) {
        let Some(at) = self.anchor.at else { return };
        let around = self.align;
        if at < align_down(span.start, around) || at >= span.end.saturating_add(around) || span.is_empty() {
            return;
        }
        let [first, last] = self.ends(span);
        if at >= first.whole_tiles(page(span.start)).start && at < last.whole_tiles(page(span.end - 1)).end {
            self.anchor.far = true;
            self.remove_anchor();
        }
    }
}
