//! Mapping the tiles that a request enters.

use pagelab_abi::guest::Counter;

use crate::backing;
use crate::boundary::arch::PMD;
use crate::boundary::span::{Span, align_up};
use crate::boundary::sys::Errno;
use crate::state::guest_file;
use crate::state::layout::{Backing, Piece};

use super::churn::SMALL;
use super::{Pool, first_of};

impl Pool {
    /// Maps the missing parts of the tiles that `part` (inside `piece`) enters; all of it is spare afterwards.
    pub(super) fn fill(&mut self, piece: &Piece, part: Span) -> Result<(), Errno> {
        match piece.backing {
            Backing::Hugetlb(bytes) => self.fill_hugetlb(piece, part, bytes),
            _ => self.fill_thp(piece, piece.whole_tiles(part), part),
        }
    }

    /// Maps the missing parts of `whole` as normal memory; the program requested `part` of it.
    pub(super) fn fill_thp(&mut self, piece: &Piece, whole: Span, part: Span) -> Result<(), Errno> {
        let mut at = whole.start;
        while at < whole.end {
            let occupied = first_of(self.used.next_after(at), self.spare.next_after(at));
            let gap = match occupied {
                Some(next) if next.start <= at => {
                    at = next.end;
                    continue;
                }
                Some(next) => Span::new(at, next.start.min(whole.end)),
                None => Span::new(at, whole.end),
            };
            self.fill_gap(piece, gap, part)?;
            at = gap.end;
        }
        Ok(())
    }

    fn fill_gap(&mut self, piece: &Piece, gap: Span, part: Span) -> Result<(), Errno> {
        let small_first = gap.len() == PMD
            && piece.backing == Backing::Thp(PMD)
            && part.and(gap).len() <= SMALL
            && self.churn.expects(gap);
        let mapped = if small_first { backing::map_small(gap) } else { backing::map_fresh(gap, piece.backing) };
        match mapped {
            Ok(()) => {
                let _ = self.spare.insert(gap);
                self.count_tiles(piece, gap);
                if small_first {
                    self.pending.wait(gap);
                }
                Ok(())
            }
            // There is no memory for the rest of the tile: the requested part is enough.
            Err(Errno::ENOMEM) if gap.and(part) != gap && !gap.and(part).is_empty() => {
                let needed = gap.and(part);
                backing::map_fresh(needed, piece.backing)?;
                let _ = self.spare.insert(needed);
                guest_file::count(Counter::FallbackNoMemory);
                Ok(())
            }
            Err(Errno::ENOMEM) if gap.and(part).is_empty() => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Counts the tiles of `gap`, which was mapped just now.
    pub(super) fn count_tiles(&mut self, piece: &Piece, gap: Span) {
        if !piece.backing.is_tiled() {
            return;
        }
        let tile = piece.backing.tile_bytes();
        let first = align_up(gap.start, tile).unwrap_or(gap.end);
        let whole = gap.end.saturating_sub(first) / tile;
        guest_file::add(Counter::TilesAsked, whole as u64);
        guest_file::add(Counter::TilesMaterialised, whole as u64);
        for end in [gap.start, gap.end - 1] {
            let Some(around) = piece.tile(end) else { continue };
            if around.and(gap) != around {
                guest_file::count(Counter::TilesRefilled);
                if self.is_plain(around) {
                    self.restore(around);
                }
            }
        }
    }

    /// Unmaps, after a failure, the spare memory of unused tiles in `span`.
    pub(super) fn give_up(&mut self, span: Span) {
        self.unmap_spare(self.widen(span));
    }
}
