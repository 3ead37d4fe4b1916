//! The memory of a simulated machine: pages are placed when they are first touched, as a kernel does.

use std::collections::{HashMap, VecDeque};

use pagelab_frames::Want;

use crate::pages::{NONE, PageMap};

use super::PAGE_BITS;
use super::buddy::MAX_ORDER;
use super::history::History;
use super::kernel::Kernel;
use super::layout::Layout;
use super::past::aged;
use super::strategy::Strategy;

/// Bits of a page number; the address space is in the bits above.
const VPN_BITS: u32 = pagelab_trace::ADDRESS_BITS - PAGE_BITS;
/// Frames of pages that are too large for the zone's blocks lie from here on, as if they had been reserved.
const RESERVED: u64 = 1 << 36;

/// Binary logarithm of the pages of a block for page tables (Linux: a page block, 2 MiB).
const TABLE_BLOCK: usize = 9;

/// Counts of placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceCounts {
    /// Pages of 4 KiB, those of larger pages included.
    pub pages: u64,
    /// Pages that wanted a colour and got another, because there was none.
    pub fallbacks: u64,
    /// Pages with a saved frame or a saved colour.
    pub replayed: u64,
    /// Small pages in larger pages for which there was no free block: they get one all the same, as if compaction had
    /// made it.
    pub compacted: u64,
    /// Pages for which no memory was left: they lie beyond its end.
    pub beyond: u64,
}

/// The frames of pages, and the machine from which they come.
#[derive(Clone, Debug)]
pub struct Memory {
    kernel: Kernel,
    strategy: Strategy,
    layout: Layout,
    /// Frames taken from the kernel and not handed out yet, by colour; the oldest first.
    stock: Vec<VecDeque<u32>>,
    frames: PageMap,
    /// Frames of the larger pages, by number of their first page and size.
    large: HashMap<(u64, u32), u64>,
    /// Added to the kernel's frame numbers.
    base: u64,
    reserved: u64,
    beyond: u64,
    /// The rest of the block from which page tables are taken.
    for_tables: std::ops::Range<u32>,
    counts: PlaceCounts,
}

impl Memory {
    /// A machine with this history (drawn by `seed`), on which `strategy` places the program's pages.
    #[must_use]
    pub fn new(history: &History, strategy: Strategy, layout: Layout, seed: u64) -> Memory {
        Memory::on(aged(history, seed), strategy, layout)
    }

    /// As [`Memory::new`], on an existing machine.
    #[must_use]
    pub fn on(kernel: Kernel, strategy: Strategy, layout: Layout) -> Memory {
        let step = 1 << MAX_ORDER;
        Memory {
            kernel,
            stock: vec![VecDeque::new(); strategy.colours().count() as usize],
            // Beyond all saved frames, at a multiple of the largest block, so that buddies keep their alignment.
            base: strategy.largest_frame().map_or(0, |frame| (frame / step + 1) * step),
            strategy,
            layout,
            frames: PageMap::default(),
            large: HashMap::new(),
            reserved: RESERVED,
            for_tables: 0..0,
            beyond: 2 * RESERVED,
            counts: PlaceCounts::default(),
        }
    }

    /// The frame of page `vpn` (address / 4096) of an address space; the first request for it places the page.
    #[inline]
    pub fn frame(&mut self, asid: u16, vpn: u64) -> u64 {
        let page = u64::from(asid) << VPN_BITS | vpn;
        match self.frames.get(page) {
            NONE => self.place(asid, vpn, page),
            frame => frame,
        }
    }

    #[cold]
    #[inline(never)]
    fn place(&mut self, asid: u16, vpn: u64, page: u64) -> u64 {
        let frame = self.fault(asid, vpn, page);
        self.frames.set(page, frame);
        frame
    }

    fn fault(&mut self, asid: u16, vpn: u64, page: u64) -> u64 {
        self.counts.pages += 1;
        let order = self.layout.page_bits(vpn << PAGE_BITS) - PAGE_BITS;
        if order > 0 {
            let first = page >> order << order;
            let block = match self.large.get(&(first, order)) {
                Some(block) => *block,
                None => {
                    let block = self.block(order);
                    self.large.insert((first, order), block);
                    block
                }
            };
            return block + (page - first);
        }
        match self.strategy.want(asid, vpn) {
            Want::Frame(frame) => {
                self.counts.replayed += 1;
                frame
            }
            Want::Colour(colour) => {
                self.counts.replayed += u64::from(self.strategy.replays_colours());
                self.coloured(colour)
            }
            Want::Any => self.any(),
        }
    }

    /// Takes 2^`order` contiguous pages.
    fn block(&mut self, order: u32) -> u64 {
        if order as usize <= MAX_ORDER {
            if let Some(frame) = self.kernel.block(order as usize) {
                return self.base + u64::from(frame);
            }
            self.counts.compacted += 1 << order;
        }
        self.reserved = self.reserved.next_multiple_of(1 << order) + (1 << order);
        self.reserved - (1 << order)
    }

    fn any(&mut self) -> u64 {
        if let Some(page) = self.kernel.page(0) {
            return self.base + u64::from(page);
        }
        let fullest = self.stock.iter_mut().max_by_key(|list| list.len()).and_then(VecDeque::pop_front);
        if let Some(page) = fullest {
            return self.base + u64::from(page);
        }
        self.counts.beyond += 1;
        self.beyond += 1;
        self.beyond - 1
    }

    /// Takes a frame of `colour`: from the stock, otherwise from the kernel, page by page until one has it; the others
    /// go to the stock.
    fn coloured(&mut self, colour: u32) -> u64 {
        loop {
            if let Some(page) = self.stock[colour as usize].pop_front() {
                return self.base + u64::from(page);
            }
            let Some(page) = self.kernel.page(0) else {
                self.counts.fallbacks += 1;
                return self.any();
            };
            let found = self.strategy.colours().of(self.base + u64::from(page));
            self.stock[found as usize].push_back(page);
        }
    }

    /// Whether the naturally aligned 2^`order` pages around `vpn` have been placed, and lie in an aligned block of
    /// memory in their order.
    pub(crate) fn is_contiguous(&mut self, asid: u16, vpn: u64, order: u32) -> bool {
        let first = u64::from(asid) << VPN_BITS | vpn >> order << order;
        let frame = self.frames.get(first);
        frame != NONE
            && frame.is_multiple_of(1 << order)
            && (1..1 << order).all(|page| self.frames.get(first + page) == frame + page)
    }

    /// Whether no two pages have the same frame.
    #[must_use]
    pub fn never_shares_frames(&self) -> bool {
        !self.strategy.shares_frames()
    }

    /// Counts of the pages placed so far.
    #[must_use]
    pub const fn counts(&self) -> PlaceCounts {
        self.counts
    }

    /// Page sizes.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Takes a frame for a page table. The kernel groups unmovable pages, so tables do not lie between pages.
    pub(crate) fn table_frame(&mut self) -> u64 {
        if self.for_tables.is_empty()
            && let Some(first) = self.kernel.block(TABLE_BLOCK)
        {
            self.for_tables = first..first + (1 << TABLE_BLOCK);
        }
        match self.for_tables.next() {
            Some(page) => self.base + u64::from(page),
            None => self.any(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocate::Extent;
    use pagelab_abi::plan::StrategyKind;
    use pagelab_policy::types::{ByNumbers, Frames, Strategy as Named};

    fn memory(frames: &Frames, layout: Layout, seed: u64) -> Memory {
        let history = History { memory_bytes: 64 << 20, ..History::default() };
        Memory::new(&history, Strategy::new(frames, 16, seed).unwrap(), layout, seed)
    }

    fn by_numbers(kind: StrategyKind) -> Named {
        Named::ByNumbers(ByNumbers { seed: 1, ..ByNumbers::of(kind) })
    }

    fn named(strategy: Named) -> Frames {
        Frames { strategy, ..Frames::default() }
    }

    #[test]
    fn pages_keep_their_frames_and_share_none() {
        for strategy in [Named::Kernel, by_numbers(StrategyKind::Random), by_numbers(StrategyKind::PageColoring)] {
            let mut memory = memory(&named(strategy), Layout::default(), 9);
            let frames: Vec<u64> = (0..2000).map(|page| memory.frame((page % 3) as u16, page * 7)).collect();
            assert!((0..2000_u64).all(|page| memory.frame((page % 3) as u16, page * 7) == frames[page as usize]));
            assert_eq!(frames.iter().collect::<std::collections::HashSet<_>>().len(), 2000);
            assert_eq!(memory.counts(), PlaceCounts { pages: 2000, ..PlaceCounts::default() });
        }
    }

    #[test]
    fn colours_are_as_wanted_whatever_the_history() {
        for seed in 0..4 {
            let mut coloured = memory(&named(by_numbers(StrategyKind::PageColoring)), Layout::default(), seed);
            assert!((5..3000).all(|page| coloured.frame(0, page) % 16 == page % 16));
            let first = pagelab_policy::types::FirstBin::Colour(3);
            let hopping = Named::ByNumbers(ByNumbers { first, ..ByNumbers::of(StrategyKind::BinHopping) });
            let mut hopping = memory(&named(hopping), Layout::default(), seed);
            assert!((0..3000).all(|nth| hopping.frame(0, nth * 31) % 16 == (nth + 3) % 16));
        }
    }

    #[test]
    fn memory_that_is_used_up_is_told() {
        let mut memory = memory(&named(by_numbers(StrategyKind::PageColoring)), Layout::default(), 1);
        let free = memory.kernel.available();
        (0..free).for_each(|page| _ = memory.frame(0, page * 16));
        let counts = memory.counts();
        assert!(counts.fallbacks > free / 2 && counts.beyond == 0, "{counts:?}");
        memory.frame(0, 1 << 30);
        assert_eq!(memory.counts().beyond, 1);
    }

    #[test]
    fn large_pages_are_contiguous_and_aligned() {
        let extents = vec![
            Extent { start: 0, end: 4 << 20, page_bits: 21 },
            Extent { start: 1 << 30, end: 2 << 30, page_bits: 30 },
            Extent { start: 4 << 20, end: 5 << 20, page_bits: 16 },
        ];
        let mut memory = memory(&Frames::default(), Layout::new(extents, 12).unwrap(), 2);
        for (first, pages) in [(0, 512), (512, 512), (1 << 18, 1 << 18), (1024, 16)] {
            let frame = memory.frame(0, first);
            assert!(frame.is_multiple_of(pages));
            assert!((0..pages).step_by(7).all(|page| memory.frame(0, first + page) == frame + page));
        }
    }
}
