//! One empty tile held back.
//!
//! A program that maps and unmaps a few pages in a loop would have its tile's two megabytes cleared by the kernel each
//! time. So the last tile that became empty after a small request stays, without access (the program's stale pointers
//! fault as ever); when it is wanted again, what the program had of it is zeroed by hand.

use crate::arch::PMD;
use crate::intervals::Span;
use crate::kernel;
use crate::layout::Backing;
use crate::measure::{self, Known};
use crate::sys::{self, c};
use pagelab_abi::plan::Memory;

use super::Pool;

/// Zeroing more than this by hand is not worth it.
const SMALL: usize = 256 << 10;

/// The tile.
#[derive(Clone, Copy)]
pub struct Kept {
    tile: Span,
    /// What the program had of it: the rest was never handed out.
    used: Span,
}

impl Pool {
    /// Instead of unmapping `wide` because `span`, the last used part of it, goes: true if it is kept.
    pub(super) fn keep(&mut self, span: Span, wide: Span) -> bool {
        let suitable = wide.len() == PMD
            && span.len() <= SMALL
            && self.layout.piece(wide.start).backing == Backing::Thp(PMD)
            && self.is_plain(wide)
            && self.used.covers(span)
            && !self.is_broken(wide);
        // SAFETY: nobody has anything in the tile from now on.
        if !suitable || unsafe { sys::mprotect(wide.start, wide.len(), c::PROT_NONE) }.is_err() {
            return false;
        }
        self.drop_kept();
        self.forget(wide);
        self.kept = Some(Kept { tile: wide, used: span });
        true
    }

    /// Really unmaps the kept tile.
    pub(super) fn drop_kept(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        measure::retire(Memory::Anon, &self.layout, kept.tile, &Known { counts: &|_| true, reserved: &|_| false });
        // SAFETY: nobody has anything in the tile.
        let _ = unsafe { sys::munmap(kept.tile.start, kept.tile.len()) };
    }

    /// Before something else happens at `span`: the kept tile and the anchor must not be in the way.
    pub(super) fn yield_kept(&mut self, span: Span) {
        self.yield_anchor(span);
        if self.kept.is_some_and(|kept| !kept.tile.and(span).is_empty()) {
            self.drop_kept();
        }
    }

    /// Before plain memory is mapped at `span`: the kept tile is spare again, if that is where it goes.
    pub(super) fn reuse_kept(&mut self, span: Span) {
        self.yield_anchor(span);
        let Some(kept) = self.kept.filter(|kept| !kept.tile.and(span).is_empty()) else { return };
        if self.layout.piece(kept.tile.start).backing != Backing::Thp(PMD) {
            return self.drop_kept();
        }
        // SAFETY: ours alone.
        if unsafe { sys::mprotect(kept.tile.start, kept.tile.len(), c::PROT_RW) }.is_err() {
            return self.drop_kept();
        }
        kernel::clear(kept.used);
        let _ = self.spare.insert(kept.tile);
        self.kept = None;
    }
}
