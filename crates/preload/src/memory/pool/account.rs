//! Accounts of tiles that the program splits: counted at that time, and restored when they are whole again.

use pagelab_abi::guest::Counter;
use pagelab_abi::plan::Memory;

use crate::backing::thp::Collapsed;
use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::given_back::retire::{BASE_SPAN, Known, retire};
use crate::state::guest_file;

use super::Pool;

impl Pool {
    /// Accounts for the tiles of `span` as they are, just before the program gives it back or breaks up tiles at its
    /// edges.
    pub(super) fn part_with(&mut self, span: Span) {
        if self.align == PAGE && span.len() < BASE_SPAN {
            return;
        }
        let memory = if self.arenas.heap(span.start).is_some() { Memory::Arenas } else { Memory::Anon };
        let counts = |tile: Span| self.is_whole(tile) && !self.broken.overlaps(tile);
        let reserved = |run: Span| self.has_hugetlb(run);
        retire(memory, &self.layout, span, &Known { counts: &counts, reserved: &reserved });
        let ends = self.ends(span);
        for (piece, at) in ends.iter().zip([span.start, span.end - 1]) {
            let Some(tile) = piece.tile(at).filter(|tile| !self.hugetlb.covers(*tile)) else { continue };
            if tile.and(span) != tile && self.is_whole(tile) && !self.broken.overlaps(tile) {
                guest_file::count(Counter::TilesSplit);
                let _ = self.broken.insert(tile);
            }
        }
    }

    /// Whether one page could cover `tile`: all of it is mapped, and nothing is shut off.
    pub(super) fn is_whole(&self, tile: Span) -> bool {
        self.is_mapped(tile) && !self.shut.overlaps(tile)
    }

    /// Tiles that the program broke up and still uses: the first one, and their number.
    pub fn broken_in_use(&self) -> Option<(Span, usize)> {
        let (mut first, mut count, mut at) = (None, 0, 0);
        while let Some(run) = self.broken.next_after(at) {
            let mut start = run.start;
            while start < run.end {
                let tile = self.layout.piece(start).tile(start).unwrap_or(Span::new(start, run.end));
                if self.used.overlaps(tile) {
                    first = first.or(Some(tile));
                    count += 1;
                }
                start = tile.end.max(start + 1);
            }
            at = run.end;
        }
        Some((first?, count))
    }

    /// Whether the program broke `tile` up.
    pub fn is_broken(&self, tile: Span) -> bool {
        self.broken.overlaps(tile)
    }

    /// Handles a tile that is whole again, but contains small pages.
    pub(super) fn restore(&mut self, tile: Span) {
        let _ = self.broken.remove(tile);
        let collapsed = self.pending.push(tile);
        self.judge(tile, collapsed);
    }

    /// Collapses a tile that had to wait.
    pub(super) fn catch_up(&mut self) {
        if let Some((tile, collapsed)) = self.pending.work() {
            self.judge(tile, Some(collapsed));
        }
    }

    /// Records a tile that cannot become one page, because the program assembled it by moving memory.
    fn judge(&mut self, tile: Span, collapsed: Option<Collapsed>) {
        if collapsed == Some(Collapsed::Patchwork) {
            let _ = self.broken.insert(tile);
        }
    }
}
