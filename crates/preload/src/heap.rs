//! The program break: what brk and sbrk move, kept in the heap's pool.
//!
//! The kernel's own break is left alone. What is mapped here ends at a tile's end, the program sees its own break
//! inside; memory given back by lowering the break reads zero when it comes again.

use pagelab_abi::guest::Counter;
use pagelab_abi::plan::Memory;

use crate::arch::PAGE;
use crate::frames;
use crate::intervals::{Intervals, Span, align_down, align_up};
use crate::kernel;
use crate::layout::{Backing, Layout, Piece};
use crate::measure::{self, Known};
use crate::pool::demote;
use crate::record;
use crate::sys::{self, Errno, c};

/// The heap.
pub struct Heap {
    layout: Layout,
    /// The program's break.
    end: usize,
    /// Mapped from the base to here.
    mapped: usize,
    /// Tiles from the kernel's reserved pools.
    hugetlb: Intervals,
    /// What the program protected, as far as it is not read-write since.
    shut: Intervals,
    /// Holes that the program made, and what it mapped over the heap.
    foreign: Intervals,
}

impl Heap {
    /// An empty heap.
    pub fn new(layout: Layout) -> Heap {
        let base = layout.bounds().start;
        Heap {
            layout,
            end: base,
            mapped: base,
            hugetlb: Intervals::new(),
            shut: Intervals::new(),
            foreign: Intervals::new(),
        }
    }

    /// All addresses it may ever have.
    pub fn bounds(&self) -> Span {
        self.layout.bounds()
    }

    /// What is mapped.
    pub fn mapped(&self) -> Span {
        Span::new(self.bounds().start, self.mapped)
    }

    /// Its layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Changes what applies to memory from now on.
    pub fn set_layout(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// The break.
    pub fn end(&self) -> usize {
        self.end
    }

    /// Moves the break to `wanted` as brk(2) does: the new break, or the old one if that cannot be.
    pub fn set(&mut self, wanted: usize) -> usize {
        let bounds = self.bounds();
        if wanted < bounds.start || wanted > bounds.end {
            return self.end;
        }
        let moved = if wanted > self.mapped { frames::frugally(|| self.grow(wanted)) } else { self.shrink(wanted) };
        match moved {
            Ok(()) => self.end = wanted,
            Err(errno) => kernel::fallback(errno, wanted.saturating_sub(self.end)),
        }
        self.end
    }

    fn grow(&mut self, wanted: usize) -> Result<(), Errno> {
        let page_end = align_up(wanted, PAGE).ok_or(Errno::ENOMEM)?;
        let before = self.mapped;
        while self.mapped < page_end {
            let piece = self.layout.piece(self.mapped);
            let part = Span::new(self.mapped, page_end.min(piece.span.end));
            if let Some(tile) = self.reserved_tile(&piece) {
                self.mapped = tile.end;
                record::count(Counter::TilesAsked);
                continue;
            }
            let wide = Span::new(part.start, piece.whole_tiles(part).end);
            let mapped = match kernel::map_fresh(wide, piece.backing) {
                Ok(()) => wide,
                Err(Errno::ENOMEM) if wide != part => match kernel::map_fresh(part, piece.backing) {
                    Ok(()) => part,
                    Err(errno) => return self.undo(before, errno),
                },
                Err(errno) => return self.undo(before, errno),
            };
            self.mapped = mapped.end;
            count_tiles(&piece, mapped);
        }
        Ok(())
    }

    /// Maps one tile from the reserved pool at the end of what is mapped, if the policy wants that and there is one.
    fn reserved_tile(&mut self, piece: &Piece) -> Option<Span> {
        let Backing::Hugetlb(bytes) = piece.backing else { return None };
        let tile = piece.tile(self.mapped).filter(|tile| tile.start == self.mapped)?;
        self.hugetlb.reserve(4).ok()?;
        kernel::map_hugetlb(tile, bytes).ok()?;
        let _ = self.hugetlb.insert(tile);
        Some(tile)
    }

    /// Whether any of `span` comes from a reserved pool.
    pub fn has_hugetlb(&self, span: Span) -> bool {
        self.hugetlb.overlaps(span)
    }

    /// Calls `visit` with every tile from a reserved pool, and whether its protection is anything but read and write.
    pub fn each_hugetlb(&self, visit: &mut dyn FnMut(Span, bool)) {
        let mut at = 0;
        while let Some(run) = self.hugetlb.next_after(at) {
            let bytes = self.layout.piece(run.start).backing.tile_bytes();
            for start in (run.start..run.end).step_by(bytes) {
                let tile = Span::new(start, start + bytes);
                visit(tile, self.shut.overlaps(tile));
            }
            at = run.end;
        }
    }

    /// None of them comes from a reserved pool any more.
    pub fn all_demoted(&mut self) {
        self.hugetlb = Intervals::new();
    }

    /// mprotect or pkey_mprotect (`key` ≥ 0) of whole pages.
    pub fn protect(&mut self, span: Span, prot: i32, key: i32) -> Result<(), Errno> {
        self.shut.reserve(4).map_err(|_| Errno::ENOMEM)?;
        self.demote_edges(span)?;
        if key >= 0 {
            // What a key closes cannot be read for a copy later.
            self.demote_inside(span)?;
        }
        kernel::protect(span, prot, key)?;
        let _ = if prot == c::PROT_RW && key < 0 { self.shut.remove(span) } else { self.shut.insert(span) };
        Ok(())
    }

    /// Before the program unmaps `span`, moves it away or maps something else there.
    pub fn part_with(&mut self, span: Span) -> Result<(), Errno> {
        self.foreign.reserve(4).map_err(|_| Errno::ENOMEM)?;
        self.demote_edges(span)?;
        let own = span.and(self.mapped());
        if !own.is_empty() {
            let _ = self.foreign.insert(own);
        }
        Ok(())
    }

    /// Makes normal memory of every reserved page that `span` cuts.
    fn demote_edges(&mut self, span: Span) -> Result<(), Errno> {
        for at in [span.start, span.end - 1] {
            let tile = self.layout.piece(at).tile(at);
            if let Some(tile) = tile.filter(|tile| tile.and(span) != *tile && self.hugetlb.covers(*tile)) {
                demote(tile, &mut self.hugetlb, self.shut.overlaps(tile))?;
            }
        }
        Ok(())
    }

    fn demote_inside(&mut self, span: Span) -> Result<(), Errno> {
        while let Some(run) = first_inside(&self.hugetlb, span) {
            let tile = self.layout.piece(run.start).tile(run.start).ok_or(Errno::EINVAL)?;
            demote(tile, &mut self.hugetlb, self.shut.overlaps(tile))?;
        }
        Ok(())
    }

    /// MADV_DONTNEED where reserved pages are concerned: the kernel zeroes whole ones only.
    pub fn discard(&mut self, span: Span) -> Result<(), Errno> {
        let mut at = span.start;
        while at < span.end {
            let bytes = self.layout.piece(at).backing.tile_bytes();
            let start = align_down(at, bytes);
            let tile = Span::new(start, start + bytes);
            let part = tile.and(Span::new(at, span.end));
            let cut = part != tile && self.hugetlb.covers(tile);
            if cut && self.shut.overlaps(tile) {
                demote(tile, &mut self.hugetlb, self.shut.overlaps(tile))?;
            }
            if cut && self.hugetlb.covers(tile) {
                kernel::clear(part);
                record::count(Counter::HugetlbEmulated);
            } else {
                // SAFETY: the program gives up the contents.
                unsafe { sys::madvise(part.start, part.len(), c::MADV_DONTNEED) }?;
            }
            at = part.end;
        }
        Ok(())
    }

    fn undo(&mut self, before: usize, errno: Errno) -> Result<(), Errno> {
        if self.mapped > before {
            // SAFETY: mapped a moment ago, above the program's break.
            let _ = unsafe { sys::munmap(before, self.mapped - before) };
            self.mapped = before;
        }
        Err(errno)
    }

    fn shrink(&mut self, wanted: usize) -> Result<(), Errno> {
        if wanted >= self.end {
            return Ok(());
        }
        let from = align_up(wanted, PAGE).ok_or(Errno::ENOMEM)?;
        let mut keep = from;
        if from > self.bounds().start {
            let piece = self.layout.piece(from - 1);
            keep = piece.whole_tiles(Span::new(from - 1, from)).end.min(self.mapped);
        }
        self.renew(Span::new(from, align_up(self.end, PAGE).unwrap_or(keep).min(keep)))?;
        if keep < self.mapped {
            let mapped = self.mapped();
            let counts = |tile: Span| tile.and(mapped) == tile;
            let reserved = |run: Span| self.has_hugetlb(run);
            let known = Known { counts: &counts, reserved: &reserved };
            measure::retire(Memory::Heap, &self.layout, Span::new(keep, self.mapped), &known);
            let given = Span::new(keep, self.mapped);
            // SAFETY: whole tiles above the new break: the program gives them back.
            frames::giving(given, || unsafe { sys::munmap(given.start, given.len()) })?;
            let all = [&mut self.hugetlb, &mut self.shut, &mut self.foreign];
            for set in all {
                let _ = set.remove(given);
            }
            self.mapped = keep;
        }
        Ok(())
    }

    /// Makes what was given up of the last tile as good as new: it stays mapped, and may be the program's again.
    fn renew(&mut self, stale: Span) -> Result<(), Errno> {
        let mut at = stale.start;
        while let Some(run) = first_inside(&self.foreign, Span::new(at, stale.end)) {
            // SAFETY: the program gives up what it put there; another break would have unmapped it.
            let _ = unsafe { sys::munmap(run.start, run.len()) };
            kernel::map_fresh(run, self.layout.piece(run.start).backing)?;
            let _ = self.foreign.remove(run);
            let _ = self.shut.remove(run);
            at = run.end;
        }
        while let Some(run) = first_inside(&self.shut, stale) {
            self.demote_edges(run)?;
            kernel::protect(run, c::PROT_RW, -1)?;
            let _ = self.shut.remove(run);
        }
        kernel::clear(stale);
        Ok(())
    }

    /// After a fork that caught another thread in the middle of a change: what is mapped without a hole is the heap.
    pub fn rebuild(&mut self) {
        let base = self.bounds().start;
        let mut mapped = base;
        let _ = crate::maps::each(&mut |mapping| {
            if mapping.span.start == mapped {
                mapped = mapping.span.end;
            }
            true
        });
        (self.shut, self.foreign) = (Intervals::new(), Intervals::new());
        self.mapped = mapped.max(base);
        self.end = self.end.min(self.mapped);
    }
}

fn first_inside(set: &Intervals, span: Span) -> Option<Span> {
    set.next_after(span.start).map(|run| run.and(span)).filter(|run| !run.is_empty())
}

fn count_tiles(piece: &Piece, span: Span) {
    if matches!(piece.backing, Backing::Thp(_) | Backing::Hugetlb(_)) {
        let tiles = (span.len() / piece.backing.tile_bytes()) as u64;
        record::add(Counter::TilesAsked, tiles);
        record::add(Counter::TilesMaterialised, tiles);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_abi::plan::{Plan, PlanSpec, SectionSpec, Via};

    /// A heap of its own for each test, in address room that nothing else uses.
    fn heap(number: usize, page_bytes: u64) -> Heap {
        let section = SectionSpec::uniform(Memory::Heap, page_bytes, Via::Thp);
        let bytes = PlanSpec { sections: vec![section], ..PlanSpec::default() }.encode().unwrap();
        let plan = Plan::parse(bytes.leak()).unwrap();
        let section = plan.section_for(Memory::Heap, 0).unwrap();
        Heap::new(Layout::new(plan, section, 0x4000_0000_0000 + (number << 36), 1 << 32))
    }

    fn fill(from: usize, to: usize) {
        // SAFETY: the test's own heap.
        unsafe { core::ptr::write_bytes(from as *mut u8, 0xa5, to - from) };
    }

    fn is_zero(from: usize, to: usize) -> bool {
        // SAFETY: the test's own heap.
        unsafe { core::slice::from_raw_parts(from as *const u8, to - from) }.iter().all(|&byte| byte == 0)
    }

    #[test]
    fn regrown_memory_is_zero_whatever_the_page_size() {
        for (number, page_bytes) in [(0, 4096), (1, 2 << 20)] {
            let mut heap = heap(number, page_bytes);
            let base = heap.end();
            assert_eq!(heap.set(base + 5_000_000), base + 5_000_000);
            fill(base, base + 5_000_000);
            assert_eq!(heap.set(base + 1_000_001), base + 1_000_001);
            assert_eq!(heap.set(base + 6_000_000), base + 6_000_000);
            let boundary = base + 1_003_520;
            assert!(is_zero(boundary, base + 6_000_000));
            assert!(!is_zero(base + 1_000_001, boundary), "the rest of the page stays, as natively");
            assert_eq!(heap.set(base), base);
            assert_eq!(heap.set(base + 4096), base + 4096);
            assert!(is_zero(base, base + 4096));
        }
    }

    #[test]
    fn it_ends_with_a_tile_and_gives_tiles_back() {
        let mut heap = heap(2, 2 << 20);
        let base = heap.end();
        heap.set(base + 100);
        assert_eq!(heap.mapped().len(), 2 << 20);
        heap.set(base + (9 << 20));
        assert_eq!(heap.mapped().len(), 10 << 20);
        heap.set(base + (3 << 20));
        assert_eq!(heap.mapped().len(), 4 << 20);
        heap.set(base);
        assert_eq!(heap.mapped().len(), 0);
    }

    #[test]
    fn impossible_breaks_change_nothing() {
        let mut heap = heap(3, 4096);
        let base = heap.end();
        heap.set(base + 4096);
        for wanted in [0, base - 1, base + (1 << 33), usize::MAX] {
            assert_eq!(heap.set(wanted), base + 4096);
        }
    }
}
