//! The kernel's page allocator: free lists, a list of single pages for each processor, and a reclaimable file cache.

use std::collections::VecDeque;

use pagelab_stats::stream::SplitMix64;

use super::buddy::Buddy;
use super::processor::ProcessorList;

/// Largest folio of a file, as a power of two of pages (Linux: `MAX_PAGECACHE_ORDER` with huge pages of 2 MiB).
pub(super) const LARGEST_FOLIO: usize = 9;
/// The fewest pages that Linux keeps free with transparent huge pages: 33 page blocks
/// (`set_recommended_min_free_kbytes`).
const LEAST_FREE: u64 = 33 << 9;

/// 2^order pages of a file.
type Folio = (u32, u8);

/// Free pages below which reclaim begins, and up to which it goes (Linux: `low` and `high` of
/// `__setup_per_zone_wmarks`).
#[derive(Clone, Copy, Debug)]
struct Watermarks {
    low: u64,
    high: u64,
}

impl Watermarks {
    fn of(frames: u32) -> Watermarks {
        let frames = u64::from(frames);
        let least = LEAST_FREE.min(frames / 20);
        let gap = (least / 4).max(frames / 1000);
        Watermarks { low: least + gap, high: least + 2 * gap }
    }
}

/// A zone with its processors' lists, and the file cache.
#[derive(Clone, Debug)]
pub struct Kernel {
    buddy: Buddy,
    lists: Vec<ProcessorList>,
    /// Files, the one read longest ago first; each is a list of its folios, the last one first.
    files: VecDeque<Vec<Folio>>,
    cached: u64,
    watermarks: Watermarks,
}

impl Kernel {
    /// A machine that has just started.
    #[must_use]
    pub fn new(frames: u32, processors: usize) -> Kernel {
        let (watermarks, processors) = (Watermarks::of(frames), processors.max(1));
        Kernel {
            buddy: Buddy::new(frames),
            lists: vec![ProcessorList::new(frames, processors, watermarks.low); processors],
            files: VecDeque::new(),
            cached: 0,
            watermarks,
        }
    }

    /// From now on clones take little memory: they have in common what none of them changes.
    #[must_use]
    pub fn shared(mut self) -> Kernel {
        self.buddy.share();
        self
    }

    /// Takes `count` single pages, anywhere, for good.
    pub(super) fn scatter(&mut self, count: u64, random: &mut SplitMix64) {
        let mut left = count.min(self.buddy.free());
        while left > 0 {
            left -= u64::from(self.buddy.take(random.below(u64::from(self.buddy.frames())) as u32));
        }
    }

    /// Takes a page for processor `processor`; `None` when memory is used up.
    pub fn page(&mut self, processor: usize) -> Option<u32> {
        if self.lists[processor].len() == 0 {
            self.make_room();
            let scarce = self.scarce();
            let count = self.lists[processor].refill(scarce);
            self.lists[processor].extend(std::iter::from_fn(|| self.buddy.allocate(0)).take(count));
        }
        // The other processors' lists are drained before memory counts as used up.
        let page = self.lists[processor].pop().or_else(|| self.lists.iter_mut().find_map(ProcessorList::pop));
        page.or_else(|| {
            while self.buddy.free() == 0 {
                let folio = self.oldest()?;
                self.buddy.release(folio.0, usize::from(folio.1));
            }
            self.buddy.allocate(0)
        })
    }

    /// Takes 2^`order` contiguous, aligned pages from the zone, not from the processors' lists.
    pub fn block(&mut self, order: usize) -> Option<u32> {
        self.buddy.allocate(order)
    }

    /// Takes a page back.
    pub fn release(&mut self, processor: usize, page: u32) {
        let scarce = self.scarce();
        self.lists[processor].put(page, scarce).for_each(|page| self.buddy.release(page, 0));
    }

    fn scarce(&self) -> bool {
        self.buddy.free() < self.watermarks.high
    }

    /// Drops the oldest folios, if fewer pages than the low watermark are free, until the high watermark is reached.
    fn make_room(&mut self) {
        if self.buddy.free() < self.watermarks.low {
            while self.buddy.free() < self.watermarks.high && self.forget_oldest() {}
        }
    }

    fn oldest(&mut self) -> Option<Folio> {
        while self.files.front().is_some_and(Vec::is_empty) {
            self.files.pop_front();
        }
        let folio = self.files.front_mut()?.pop()?;
        self.cached -= 1 << folio.1;
        Some(folio)
    }

    fn free_folio(&mut self, (page, order): Folio) {
        match order {
            // The reclaiming thread runs on the last processor.
            0 => self.release(self.lists.len() - 1, page),
            order => self.buddy.release(page, usize::from(order)),
        }
    }

    /// Drops the oldest folio; false if there is none.
    pub(super) fn forget_oldest(&mut self) -> bool {
        let oldest = self.oldest();
        oldest.map(|folio| self.free_folio(folio)).is_some()
    }

    /// Deletes the file that is `nth` in age (modulo the number of files).
    pub(super) fn delete(&mut self, nth: u64) {
        let Some(nth) = nth.checked_rem(self.files.len() as u64) else { return };
        for folio in std::mem::take(&mut self.files[nth as usize]) {
            self.cached -= 1 << folio.1;
            self.free_folio(folio);
        }
    }

    /// Adds a file that was read: its folios in order.
    pub(super) fn cache(&mut self, mut folios: Vec<Folio>) {
        self.cached += folios.iter().map(|folio| 1_u64 << folio.1).sum::<u64>();
        folios.reverse();
        self.files.push_back(folios);
    }

    /// Takes a folio for a file; reclaims no memory to make room for one of its size.
    pub(super) fn folio(&mut self, processor: usize, order: usize) -> Option<u32> {
        if order == 0 {
            return self.page(processor);
        }
        self.make_room();
        self.buddy.allocate(order)
    }

    /// Simulates an idle moment, in which the lists shrink.
    pub(super) fn rest(&mut self) {
        for list in &mut self.lists {
            list.idle().for_each(|page| self.buddy.release(page, 0));
        }
    }

    /// Number of pages of files.
    pub(super) const fn cached(&self) -> u64 {
        self.cached
    }

    /// Number of pages that are free or belong only to the file cache.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.buddy.free() + self.cached + self.lists.iter().map(|list| list.len() as u64).sum::<u64>()
    }

    /// The zone.
    #[must_use]
    pub const fn zone(&self) -> &Buddy {
        &self.buddy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_pages_are_handed_out_again_first() {
        let mut kernel = Kernel::new(1 << 18, 2);
        let pages: Vec<u32> = (0..4).map_while(|_| kernel.page(0)).collect();
        pages.iter().for_each(|page| kernel.release(0, *page));
        assert_eq!((0..4).map_while(|_| kernel.page(0)).collect::<Vec<_>>(), [3, 2, 1, 0]);
        // The other processor has its own batch, behind the first one's.
        assert_eq!(kernel.page(1), Some(63));
    }

    #[test]
    fn watermarks_are_those_of_linux() {
        // A zone of 21,071 MiB with min 14,769 of 16,896 pages (the rest is DMA32's) had low − min = high − low =
        // 5,394.
        let marks = Watermarks::of(5_394_266);
        assert_eq!((marks.low - LEAST_FREE, marks.high - marks.low), (5394, 5394));
        assert_eq!(Watermarks::of(1 << 18).low, (1 << 18) / 20 * 5 / 4);
    }

    #[test]
    fn files_make_room_oldest_first_and_memory_is_used_to_its_last_page() {
        let mut kernel = Kernel::new(1 << 14, 2);
        for _ in 0..40 {
            let file = (0..16).filter_map(|_| kernel.folio(0, 5)).map(|page| (page, 5)).collect();
            kernel.cache(file);
        }
        assert!(kernel.zone().free() >= kernel.watermarks.low && kernel.cached() > 12_000);
        assert_eq!(kernel.zone().check(), Ok(()));
        let free = kernel.available();
        let mut pages: Vec<u32> = std::iter::from_fn(|| kernel.page(1)).collect();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!((pages.len() as u64, free), (1 << 14, 1 << 14));
    }
}
