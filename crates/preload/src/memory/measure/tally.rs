//! Memory at the end of the process, summed up by region.

use core::cell::OnceCell;
use core::sync::atomic::Ordering::Relaxed;

use pagelab_abi::guest::{GuestFile, RegionSlot, UNCOUNTED};

use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::span::{Span, align_down};
use crate::boundary::sys::Result;
use crate::given_back::regions::{Place, account, bump, bump_size, huge_bytes};
use crate::given_back::scan::Sweep;
use crate::memory::tables;
use crate::state::layout::{Backing, Piece};

use super::folios::Folios;

/// The tile to which mappings and runs are being added.
#[derive(Clone, Copy)]
struct Open {
    tile: Span,
    slot: usize,
    mapped: usize,
    huge: usize,
    touched: bool,
}

/// The sums.
pub struct Tally {
    file: &'static GuestFile,
    open: Option<Open>,
    /// Opened for the first tile of a size between a base page and 2 MiB.
    folios: OnceCell<Option<Folios>>,
}

impl Tally {
    /// Empty sums for `file`.
    pub fn new(file: &'static GuestFile) -> Tally {
        let tally = Tally { file, open: None, folios: OnceCell::new() };
        tally.clear();
        tally
    }

    fn clear(&self) {
        for slot in self.file.regions.iter().take(self.file.region_count.load(Relaxed) as usize) {
            // The bounds stay: they also cover memory that was given back before.
            let numbers = [&slot.mapped, &slot.resident, &slot.whole_touched, &slot.as_asked];
            numbers.into_iter().chain(&slot.by_size).for_each(|field| field.store(0, Relaxed));
        }
    }

    /// Forgets all sums.
    pub fn reset(&mut self) {
        self.open = None;
        self.clear();
    }

    fn region(&self, slot: usize) -> Option<&'static RegionSlot> {
        self.file.regions.get(slot)
    }

    /// Adds one mapping, piece by piece.
    pub fn mapping(&mut self, place: &Place, span: Span, sweep: &mut Sweep<'_>) -> Result<()> {
        let Some(layout) = place.layout else { return self.part(place, None, span, sweep) };
        let mut result = Ok(());
        layout.each(span, &mut |piece, part| {
            if result.is_ok() {
                result = self.part(place, Some(&piece), part, sweep);
            }
        });
        result
    }

    /// Adds mapped bytes to the region of `piece`; returns the slot's number.
    pub fn mapped(&self, place: &Place, piece: Option<&Piece>, part: Span) -> Option<usize> {
        let number = account(self.file, place, piece)?;
        let slot = self.region(number)?;
        slot.start.fetch_min(part.start as u64, Relaxed);
        slot.end.fetch_max(part.end as u64, Relaxed);
        bump(&slot.mapped, part.len());
        Some(number)
    }

    /// Adds resident bytes of one page size; tiles are not counted.
    pub fn resident(&self, slot: usize, page_bytes: usize, bytes: usize) {
        let Some(slot) = self.region(slot) else { return };
        bump(&slot.resident, bytes);
        bump_size(&slot.by_size, page_bytes, bytes);
    }

    /// Marks the tiles of all regions as not counted.
    pub fn uncounted(&self) {
        let used = self.file.region_count.load(Relaxed) as usize;
        self.file.regions.iter().take(used).for_each(|slot| slot.whole_touched.store(UNCOUNTED, Relaxed));
    }

    fn part(&mut self, place: &Place, piece: Option<&Piece>, part: Span, sweep: &mut Sweep<'_>) -> Result<()> {
        let Some(slot) = self.mapped(place, piece, part) else { return Ok(()) };
        let backing = piece.map_or(Backing::Kernel, |piece| piece.backing);
        if let Some(piece) = piece
            && (PAGE + 1..PMD).contains(&backing.tile_bytes())
            && let Some(folios) = self.folios.get_or_init(|| Folios::open().ok())
        {
            return self.middle_sizes(piece, part, slot, sweep, folios);
        }
        let tiled = piece.filter(|_| backing.is_tiled());
        let mut last = part.start;
        sweep.each(part, &mut |run, huge| {
            let size = if huge { huge_bytes(backing, tables::has_hugetlb(run)) } else { PAGE };
            self.resident(slot, size, run.len());
            match tiled {
                Some(piece) => {
                    // Tiles between two runs are mapped, but were not touched.
                    self.cover_more(piece, Span::new(last, run.start), slot);
                    self.touch(piece, run, slot, size >= backing.tile_bytes());
                    last = run.end;
                }
                None if backing == Backing::Base => {
                    let pages = run.len() / PAGE;
                    if let Some(region) = self.region(slot) {
                        bump(&region.whole_touched, pages);
                        bump(&region.as_asked, if huge { 0 } else { pages });
                    }
                }
                None => {}
            }
        })?;
        if let Some(piece) = tiled {
            self.cover_more(piece, Span::new(last, part.end), slot);
        }
        Ok(())
    }

    /// Adds tiles of sizes between a base page and 2 MiB, one by one.
    fn middle_sizes(
        &self,
        piece: &Piece,
        part: Span,
        slot: usize,
        sweep: &mut Sweep<'_>,
        folios: &Folios,
    ) -> Result<()> {
        let mut last = 0;
        let bytes = piece.backing.tile_bytes();
        sweep.each(part, &mut |run, huge| {
            let mut at = run.start;
            while at < run.end {
                let around = Span::new(align_down(at, bytes), align_down(at, bytes) + bytes);
                let inside = around.and(Span::new(at, run.end));
                let whole = around.and(part) == around && !huge;
                let exact = whole && folios.covers(around);
                let size = if huge { PMD } else { around.len() };
                self.resident(slot, if huge || exact { size } else { PAGE }, inside.len());
                if around.start != last
                    && around.and(part) == around
                    && let Some(region) = self.region(slot)
                {
                    bump(&region.whole_touched, 1);
                    bump(&region.as_asked, usize::from(exact));
                }
                last = around.start;
                at = inside.end;
            }
        })
    }

    /// Closes the open tile; counts it if it is whole and was touched.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let Some(region) = self.region(open.slot) else { return };
        // Here these sizes cannot be distinguished from base pages.
        if (PAGE + 1..PMD).contains(&open.tile.len()) {
            return region.whole_touched.store(UNCOUNTED, Relaxed);
        }
        let as_asked = open.huge == open.tile.len();
        // Tiles that the program itself broke up were accounted for at that time.
        let broken = || tables::lock().pool(open.tile.start).is_some_and(|pool| pool.is_broken(open.tile));
        if open.touched && open.mapped == open.tile.len() && (as_asked || !broken()) {
            bump(&region.whole_touched, 1);
            bump(&region.as_asked, usize::from(as_asked));
        }
    }

    /// Closes the last tile: all have been seen.
    pub fn finish(&mut self) {
        self.close();
    }

    /// Records that `span` is mapped and not resident.
    fn cover_more(&mut self, piece: &Piece, span: Span, slot: usize) {
        self.advance(piece, span, slot, false, false);
    }

    /// Records that `run` is mapped and resident.
    fn touch(&mut self, piece: &Piece, run: Span, slot: usize, huge: bool) {
        self.advance(piece, run, slot, true, huge);
    }

    fn advance(&mut self, piece: &Piece, span: Span, slot: usize, touched: bool, huge: bool) {
        let tile_bytes = piece.backing.tile_bytes();
        let mut at = span.start;
        while at < span.end {
            // Tiles that the piece cuts, or the mapping's end outside a pool, cannot be one page.
            let Some(tile) = piece.tile(at) else {
                self.close();
                at = align_down(at, tile_bytes) + tile_bytes;
                continue;
            };
            let open = match &mut self.open {
                Some(open) if open.tile == tile && open.slot == slot => open,
                _ => {
                    self.close();
                    // Whole tiles that nothing touched need no examination.
                    if !touched && tile.and(span) == tile {
                        at = align_down(span.end, tile_bytes).max(tile.end);
                        continue;
                    }
                    self.open.insert(Open { tile, slot, mapped: 0, huge: 0, touched: false })
                }
            };
            let part = tile.and(Span::new(at, span.end));
            open.mapped += part.len();
            open.huge += if huge { part.len() } else { 0 };
            open.touched |= touched;
            at = part.end;
        }
    }
}
