//! The heap: brk and sbrk, with a program break in the heap's pool.
//!
//! The kernel's own break is not moved. The mapped memory ends at a tile's end, and the program's break lies inside.
//! Memory given back by lowering the break is unmapped, as without the library, and mapped anew when the break rises
//! again. It cannot stay mapped: the kernel may still refer to its pages, and its mapping has the program's settings.

use core::sync::atomic::{AtomicUsize, Ordering};

use pagelab_abi::guest::Counter;
use pagelab_abi::plan::Memory;

use crate::backing;
use crate::backing::hugetlb;
use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::own::store_for_forks;
use crate::boundary::span::{Span, align_up};
use crate::boundary::sys::{self, Errno, c};
use crate::boundary::{mapping, maps};
use crate::given_back::retire::{Known, retire};
use crate::memory::pool::{Pending, demote};
use crate::state::guest_file;
use crate::state::intervals::Intervals;
use crate::state::layout::{Backing, Layout, Piece};

/// End of the governed heap's memory, for use without a lock (after a seccomp filter); 0: not governed.
pub static HEAP_ROOM: AtomicUsize = AtomicUsize::new(0);

/// The heap.
pub struct Heap {
    layout: Layout,
    /// The program's break.
    end: usize,
    /// End of the mapped memory, which begins at the base.
    mapped: usize,
    /// Tiles from the kernel's reserved pools.
    hugetlb: Intervals,
    /// Memory that the program protected, and that has not become read-write again.
    shut: Intervals,
    /// Holes that the program made, and mappings that it put over the heap.
    foreign: Intervals,
    /// Start of the part of the last reserved page that the program gave back and that the kernel cannot unmap; it
    /// reaches to the end of the mapped memory (`usize::MAX`: there is no such part).
    stale: usize,
    /// The break that is being set, while memory for it is mapped or unmapped; 0: none. A fork may meet that.
    wanted: usize,
    pending: Pending,
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
            stale: usize::MAX,
            wanted: 0,
            pending: Pending::new(),
        }
    }

    /// All addresses that it may ever have.
    pub fn bounds(&self) -> Span {
        self.layout.bounds()
    }

    /// Mapped memory.
    pub fn mapped(&self) -> Span {
        Span::new(self.bounds().start, self.mapped)
    }

    /// The highest break for which nothing need be mapped.
    pub fn room(&self) -> usize {
        self.mapped.min(self.stale).max(self.end)
    }

    /// Its layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Changes the layout for memory that is mapped from now on.
    pub fn set_layout(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// The break.
    pub fn end(&self) -> usize {
        self.end
    }

    /// Moves the break to `wanted` as brk(2) does. EINVAL: no heap reaches there.
    pub fn set(&mut self, wanted: usize) -> Result<(), Errno> {
        let bounds = self.bounds();
        if wanted < bounds.start || wanted > bounds.end {
            return Err(Errno::EINVAL);
        }
        self.pending.work();
        let result = match () {
            () if wanted <= self.end => {
                store_for_forks(&mut self.wanted, wanted);
                self.shrink(wanted)
            }
            () => backing::retry_when_short(|| self.grow(wanted)),
        };
        if result.is_ok() {
            store_for_forks(&mut self.end, wanted);
        }
        store_for_forks(&mut self.wanted, 0);
        result
    }

    /// Bytes mapped in advance.
    pub fn spare_bytes(&self) -> usize {
        self.mapped.saturating_sub(align_up(self.end, PAGE).unwrap_or(self.mapped))
    }

    /// Records the break that threads have set without the tables. What they gave back was not unmapped: it goes now.
    pub fn was_moved(&mut self, end: usize) {
        let page_end = align_up(end, PAGE).unwrap_or(end);
        let is_same = end == self.end;
        (self.end, self.mapped) = (end, self.mapped.max(page_end));
        if !is_same && page_end < self.mapped {
            let _ = self.cut(page_end);
        }
    }

    fn grow(&mut self, wanted: usize) -> Result<(), Errno> {
        let page_end = align_up(wanted, PAGE).ok_or(Errno::ENOMEM)?;
        // As the kernel, which keeps a page clear between the break and the program's next mapping.
        let crosses = align_up(self.end, PAGE).is_some_and(|end| end < page_end);
        if crosses && page_end >= self.mapped && sys::is_mapped(page_end, PAGE).is_ok() {
            return Err(Errno::EEXIST);
        }
        if page_end > self.stale {
            self.cut(self.stale)?;
        }
        let before = self.mapped;
        while self.mapped < page_end {
            let (piece, part, wide) = self.next_piece(page_end);
            // While `wanted` says so, what a forked child finds here is the library's: the place was free.
            store_for_forks(&mut self.wanted, 0);
            if sys::is_mapped(part.start, PAGE).is_ok() {
                return self.undo(before, Errno::EEXIST);
            }
            store_for_forks(&mut self.wanted, wanted);
            if let Some(tile) = self.reserved_tile(&piece) {
                store_for_forks(&mut self.mapped, tile.end);
                guest_file::count(Counter::TilesAsked);
                continue;
            }
            let mapped = match self.map_fresh(wide, piece.backing) {
                Ok(()) => wide,
                Err(_) if wide != part => match self.map_fresh(part, piece.backing) {
                    Ok(()) => part,
                    Err(errno) => return self.undo(before, errno),
                },
                Err(errno) => return self.undo(before, errno),
            };
            count_tiles(&piece, mapped);
            // The tile at the break is whole again.
            if let Some(tile) =
                piece.tile(wide.start).filter(|tile| tile.start < wide.start && tile.end <= mapped.end)
                && tile.len() == PMD
                && !self.foreign.overlaps(tile)
                && !self.shut.overlaps(tile)
            {
                guest_file::count(Counter::TilesRefilled);
                self.pending.push(tile);
            }
        }
        Ok(())
    }

    /// What is mapped next on the way to `page_end`: its piece, the part that is needed, and that with its whole tiles.
    fn next_piece(&self, page_end: usize) -> (Piece, Span, Span) {
        let piece = self.layout.piece(self.mapped);
        let part = Span::new(self.mapped, page_end.min(piece.span.end));
        (piece, part, Span::new(part.start, piece.whole_tiles(part).end))
    }

    /// Maps `span`, at the end of the mapped memory. That is noted before the advice, which takes longer: see
    /// [`Heap::rebuild`].
    fn map_fresh(&mut self, span: Span, backing: Backing) -> Result<(), Errno> {
        mapping::map_at(span, c::PROT_RW, 0)?;
        store_for_forks(&mut self.mapped, span.end);
        backing::apply(span, backing);
        Ok(())
    }

    /// Unmaps everything from `from` on; a reserved page that it cuts becomes normal memory first.
    fn cut(&mut self, from: usize) -> Result<(), Errno> {
        if let Some(tile) = self.tile_at(from).filter(|tile| tile.start < from) {
            demote(tile, &mut self.hugetlb, self.shut.overlaps(tile))?;
        }
        self.give(Span::new(from, self.mapped))
    }

    /// Unmaps `given`, the end of the mapped memory.
    fn give(&mut self, given: Span) -> Result<(), Errno> {
        // Not only brk comes here. A forked child may use the room before it asks for the tables, even if the fork caught
        // this call: so the room is low before the memory goes.
        HEAP_ROOM.fetch_min(given.start, Ordering::AcqRel);
        // SAFETY: the memory lies above the break: the program has given it back.
        backing::give_back(given, || unsafe { sys::munmap(given.start, given.len()) })?;
        let all = [&mut self.hugetlb, &mut self.shut, &mut self.foreign];
        for set in all {
            let _ = set.remove(given);
        }
        self.pending.forget(given);
        self.mapped = given.start;
        self.stale = usize::MAX;
        Ok(())
    }

    /// Maps one tile from the reserved pool at the end of the mapped memory, if the policy wants that and the pool has
    /// one.
    fn reserved_tile(&mut self, piece: &Piece) -> Option<Span> {
        let Backing::Hugetlb(bytes) = piece.backing else { return None };
        let tile = piece.tile(self.mapped).filter(|tile| tile.start == self.mapped)?;
        self.hugetlb.reserve(4).ok()?;
        hugetlb::map(tile, bytes).ok()?;
        let _ = self.hugetlb.insert(tile);
        Some(tile)
    }

    /// Whether any of `span` comes from a reserved pool.
    pub fn has_hugetlb(&self, span: Span) -> bool {
        self.hugetlb.overlaps(span)
    }

    /// The reserved page around `addr`; a child that does not inherit the policy may have some, too.
    fn tile_at(&self, addr: usize) -> Option<Span> {
        self.layout.inherited().piece(addr).tile(addr).filter(|tile| self.hugetlb.covers(*tile))
    }

    /// Calls `visit` with every tile from a reserved pool, and whether its protection differs from read and write.
    pub fn each_hugetlb(&self, visit: &mut dyn FnMut(Span, bool)) {
        let mut at = 0;
        while let Some(run) = self.hugetlb.next_after(at) {
            let bytes = self.layout.inherited().piece(run.start).backing.tile_bytes();
            for start in (run.start..run.end).step_by(bytes) {
                let tile = Span::new(start, start + bytes);
                visit(tile, self.shut.overlaps(tile));
            }
            at = run.end;
        }
    }

    /// Records that none of its tiles comes from a reserved pool any more.
    pub fn all_demoted(&mut self) {
        self.hugetlb = Intervals::new();
        if self.stale < self.mapped {
            let _ = self.cut(self.stale);
        }
    }

    /// Makes all reserved pages normal memory, and unmaps the parts of them that were held.
    pub fn settle(&mut self) -> Result<(), Errno> {
        self.demote_all(self.mapped())?;
        if self.stale < self.mapped { self.cut(self.stale) } else { Ok(()) }
    }

    /// mprotect or pkey_mprotect (`key` ≥ 0) of whole pages.
    pub fn protect(&mut self, wide: Span, prot: i32, key: i32) -> Result<(), Errno> {
        let span = self.own(wide);
        if span.is_empty() {
            return Err(Errno::ENOMEM);
        }
        self.shut.reserve(4).map_err(|_| Errno::ENOMEM)?;
        self.demote_edges(span)?;
        if key >= 0 {
            // Memory that a key closes cannot be read for a copy later.
            self.demote_all(span)?;
        }
        let result = mapping::protect(span, prot, key);
        match result {
            Ok(()) if prot == c::PROT_RW && key < 0 => {
                let _ = self.shut.remove(span);
            }
            // The kernel stops at a hole, and has changed what lies before it.
            Ok(()) | Err(Errno::ENOMEM) => {
                let _ = self.shut.insert(span);
            }
            Err(_) => {}
        }
        result?;
        // Above the break nothing would be mapped without the library.
        if span == wide { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Prepares `span`, where the program has nothing, for a mapping of the program's: memory mapped in advance must
    /// not be in the way, and the new mapping must not be taken for the library's later.
    pub fn make_way(&mut self, span: Span) -> Result<(), Errno> {
        let spare = Span::new(self.own(self.bounds()).end, self.mapped);
        if span.and(spare).is_empty() { Ok(()) } else { self.cut(spare.start) }
    }

    /// Unmaps memory mapped in advance, if any of it lies in `span` and none is part of a reserved page; returns whether
    /// it did.
    pub fn drop_spare(&mut self, span: Span) -> bool {
        let spare = Span::new(self.own(self.bounds()).end, self.mapped);
        !span.and(spare).is_empty() && !self.hugetlb.overlaps(spare) && self.cut(spare.start).is_ok()
    }

    /// Prepares `span` for being unmapped, moved away or replaced by another mapping of the program's. If that succeeds,
    /// [`Heap::part_with`] follows.
    pub fn prepare(&mut self, span: Span) -> Result<(), Errno> {
        let own = self.own(span);
        self.make_way(span)?;
        if own.is_empty() {
            return Ok(());
        }
        for set in [&mut self.foreign, &mut self.hugetlb, &mut self.shut] {
            set.reserve(4).map_err(|_| Errno::ENOMEM)?;
        }
        self.demote_edges(own)
    }

    /// Records that `span` was unmapped, moved away or replaced.
    pub fn part_with(&mut self, span: Span) {
        let own = self.own(span);
        if own.is_empty() {
            return;
        }
        let _ = self.foreign.insert(own);
        // Reserved pages in it went, too: their replacement is no such page, whatever its protection.
        let _ = self.hugetlb.remove(own);
        let _ = self.shut.remove(own);
        self.pending.forget(own);
    }

    /// After a call that was to replace or move `span` and failed: records the parts of it that are not mapped any more.
    pub fn recheck(&mut self, span: Span) {
        mapping::each_hole(self.own(span), &mut |hole| self.part_with(hole));
    }

    /// Makes every reserved page that `span` cuts normal memory.
    fn demote_edges(&mut self, span: Span) -> Result<(), Errno> {
        for at in [span.start, span.end - 1] {
            if let Some(tile) = self.tile_at(at).filter(|tile| tile.and(span) != *tile) {
                demote(tile, &mut self.hugetlb, self.shut.overlaps(tile))?;
            }
        }
        Ok(())
    }

    /// Makes every reserved page that `span` touches normal memory.
    pub fn demote_all(&mut self, span: Span) -> Result<(), Errno> {
        while let Some(run) = first_inside(&self.hugetlb, span) {
            let tile = self.tile_at(run.start).ok_or(Errno::EINVAL)?;
            demote(tile, &mut self.hugetlb, self.shut.overlaps(tile))?;
        }
        Ok(())
    }

    /// MADV_DONTNEED (or similar `advice`) on reserved pages. For a part of such a page the kernel returns success and
    /// does nothing, so the page becomes normal memory first.
    pub fn discard(&mut self, span: Span, advice: i32) -> Result<(), Errno> {
        self.demote_edges(span)?;
        // SAFETY: the program gives up the contents.
        unsafe { sys::madvise(span.start, span.len(), advice) }
    }

    /// The program's own part of `span`: below its break.
    pub fn own(&self, span: Span) -> Span {
        span.and(Span::new(self.bounds().start, align_up(self.end, PAGE).unwrap_or(self.end)))
    }

    fn undo(&mut self, before: usize, errno: Errno) -> Result<(), Errno> {
        if self.mapped > before {
            // SAFETY: the memory was mapped a moment ago, above the program's break.
            let _ = unsafe { sys::munmap(before, self.mapped - before) };
            self.mapped = before;
        }
        Err(errno)
    }

    fn shrink(&mut self, wanted: usize) -> Result<(), Errno> {
        let from = align_up(wanted, PAGE).ok_or(Errno::ENOMEM)?;
        if from >= align_up(self.end, PAGE).ok_or(Errno::ENOMEM)? {
            return Ok(());
        }
        let mut from = from;
        if let Some(tile) = self.tile_at(from).filter(|tile| tile.start < from) {
            // The kernel cannot unmap part of it: that is done when the break is raised again.
            self.stale = self.stale.min(from);
            guest_file::count(Counter::HugetlbEmulated);
            from = tile.end.min(self.mapped);
        }
        if from == self.mapped {
            return Ok(());
        }
        let mapped = self.mapped();
        let counts = |tile: Span| tile.and(mapped) == tile;
        let reserved = |run: Span| self.has_hugetlb(run);
        let known = Known { counts: &counts, reserved: &reserved };
        retire(Memory::Heap, &self.layout, Span::new(from, self.mapped), &known);
        let stale = self.stale;
        self.give(Span::new(from, self.mapped))?;
        self.stale = if stale < from { stale } else { usize::MAX };
        Ok(())
    }

    /// After a fork that caught another thread in the middle of a change. The break is one word, and stays: malloc relies
    /// on it. But if it was being lowered, what lies above may be gone, so it is low now. All below it counts as something
    /// that the program may have changed. If memory above it is left in part, or has contents, it is unmapped before
    /// the break rises over it.
    pub fn rebuild(&mut self) {
        let wanted = core::mem::take(&mut self.wanted);
        let was_lowered = wanted != 0 && wanted < self.end;
        if was_lowered {
            self.end = wanted;
        }
        let page_end = align_up(self.end, PAGE).unwrap_or(self.end);
        let own = self.own(self.bounds());
        self.mapped = self.mapped.max(page_end);
        let is_mapped = |span: Span| sys::is_mapped(span.start, span.len()).is_ok();
        if let Some(end) = align_up(wanted, PAGE).filter(|&end| end > self.mapped) {
            // What was mapped, but not noted yet. (The page at the new break was free, and so was the first one here.)
            let (piece, part, wide) = self.next_piece(end);
            let tile = piece.tile(part.start).filter(|tile| tile.start == part.start);
            let found = [Some(wide), tile, Some(part)].into_iter().flatten().find(|&span| is_mapped(span));
            self.mapped = found.map_or(self.mapped, |span| span.end);
        }
        let above = Span::new(page_end, self.mapped);
        if !above.is_empty() && (was_lowered || !is_mapped(above)) {
            self.stale = self.stale.min(page_end);
        }
        if self.stale >= self.mapped {
            self.stale = usize::MAX;
        }
        (self.shut, self.foreign) = (Intervals::new(), Intervals::new());
        self.pending = Pending::new();
        let (mapped, mut reserved, mut is_whole) = (self.mapped(), Intervals::new(), true);
        let read = maps::each(&mut |mapping| {
            let span = mapping.span.and(mapped);
            if !span.is_empty() && mapping.is_reserved() {
                is_whole &= reserved.reserve(4).is_ok() && reserved.insert(span).is_ok();
            }
            mapping.span.end < mapped.end
        });
        if read.is_ok() && is_whole {
            self.hugetlb = reserved;
        }
        if !own.is_empty() && self.foreign.reserve(4).is_ok() && self.shut.reserve(4).is_ok() {
            let _ = self.foreign.insert(own);
            let _ = self.shut.insert(own);
        }
    }
}

fn first_inside(set: &Intervals, span: Span) -> Option<Span> {
    set.next_after(span.start).map(|run| run.and(span)).filter(|run| !run.is_empty())
}

fn count_tiles(piece: &Piece, span: Span) {
    if matches!(piece.backing, Backing::Thp(_) | Backing::Hugetlb(_)) {
        let tiles = (span.len() / piece.backing.tile_bytes()) as u64;
        guest_file::add(Counter::TilesAsked, tiles);
        guest_file::add(Counter::TilesMaterialised, tiles);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_abi::plan::{Plan, PlanSpec, RunSpec, SectionSpec, Via};

    /// A separate heap for each test, at addresses that nothing else uses.
    fn heap(number: usize, page_bytes: u64) -> Heap {
        let section = SectionSpec::uniform(Memory::Heap, page_bytes, Via::Thp);
        let bytes =
            PlanSpec { sections: vec![section], ..PlanSpec::default() }.encode(&RunSpec::default()).unwrap();
        let plan = Plan::parse(bytes.leak()).unwrap();
        let section = plan.section_for(Memory::Heap, 0).unwrap();
        Heap::new(Layout::new(plan, section, 0x4000_0000_0000 + (number << 36), 1 << 32))
    }

    fn set(heap: &mut Heap, wanted: usize) {
        assert_eq!((heap.set(wanted), heap.end()), (Ok(()), wanted));
    }

    fn fill(from: usize, to: usize) {
        // SAFETY: the bytes lie in the test's own heap, below its break.
        unsafe { core::ptr::write_bytes(from as *mut u8, 0xa5, to - from) };
    }

    fn is_zero(from: usize, to: usize) -> bool {
        // SAFETY: the bytes lie in the test's own heap, below its break.
        unsafe { core::slice::from_raw_parts(from as *const u8, to - from) }.iter().all(|&byte| byte == 0)
    }

    #[test]
    fn regrown_memory_is_zero_whatever_the_page_size() {
        for (number, page_bytes) in [(0, 4096), (1, 2 << 20)] {
            let mut heap = heap(number, page_bytes);
            let base = heap.end();
            set(&mut heap, base + 5_000_000);
            fill(base, base + 5_000_000);
            set(&mut heap, base + 1_000_001);
            set(&mut heap, base + 6_000_000);
            let boundary = base + 1_003_520;
            assert!(is_zero(boundary, base + 6_000_000));
            assert!(!is_zero(base + 1_000_001, boundary), "the rest of the page stays, as natively");
            set(&mut heap, base);
            set(&mut heap, base + 4096);
            assert!(is_zero(base, base + 4096));
        }
    }

    #[test]
    fn it_ends_with_a_tile_and_gives_tiles_back() {
        let mut heap = heap(2, 2 << 20);
        let base = heap.end();
        set(&mut heap, base + 100);
        assert_eq!(heap.mapped().len(), 2 << 20);
        set(&mut heap, base + (9 << 20));
        assert_eq!(heap.mapped().len(), 10 << 20);
        set(&mut heap, base + (3 << 20));
        assert_eq!(heap.mapped().len(), 3 << 20, "what is given back is unmapped, as natively");
        set(&mut heap, base + (3 << 20) + 1);
        assert_eq!(heap.mapped().len(), 4 << 20);
        set(&mut heap, base);
        assert_eq!(heap.mapped().len(), 0);
    }

    #[test]
    fn a_break_that_a_fork_caught_moving_can_be_moved() {
        for (number, page_bytes) in [(4, 4096), (5, 2 << 20)] {
            let mut heap = heap(number, page_bytes);
            let base = heap.end();
            set(&mut heap, base + (5 << 20));
            fill(base, base + (5 << 20));
            // Lowered, but not noted: the memory is gone.
            heap.wanted = base + (3 << 20);
            // SAFETY: the test's own heap, above the break that is being set.
            unsafe { sys::munmap(heap.wanted, heap.mapped - heap.wanted) }.unwrap();
            heap.rebuild();
            assert_eq!(heap.end(), base + (3 << 20));
            set(&mut heap, base + (5 << 20));
            assert!(is_zero(base + (3 << 20), base + (5 << 20)) && !is_zero(base, base + (3 << 20)));
            // About to be lowered: the contents are still there.
            fill(base, base + (5 << 20));
            heap.wanted = base + (3 << 20);
            heap.rebuild();
            set(&mut heap, base + (5 << 20));
            assert!(is_zero(base + (3 << 20), base + (5 << 20)));
            // Raised, but not noted.
            heap.wanted = heap.mapped + 100;
            let (_, _, wide) = heap.next_piece(heap.mapped + 4096);
            mapping::map_at(wide, c::PROT_RW, 0).unwrap();
            heap.rebuild();
            assert_eq!((heap.end(), heap.mapped), (base + (5 << 20), wide.end));
            set(&mut heap, base + (7 << 20));
            // Not raised after all: some of what was mapped for that is left.
            heap.mapped = base + (12 << 20);
            let left = Span::new(base + (8 << 20), base + (10 << 20));
            mapping::map_at(left, c::PROT_RW, 0).unwrap();
            heap.rebuild();
            set(&mut heap, base + (11 << 20));
            fill(base, base + (11 << 20));
        }
    }

    #[test]
    fn impossible_breaks_change_nothing() {
        let mut heap = heap(3, 4096);
        let base = heap.end();
        set(&mut heap, base + 4096);
        for wanted in [0, base - 1, base + (1 << 33), usize::MAX] {
            assert_eq!((heap.set(wanted), heap.end()), (Err(Errno::EINVAL), base + 4096));
        }
    }
}
