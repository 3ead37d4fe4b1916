//! A processor's own list of single pages (Linux: `struct per_cpu_pages`; 6.18, mm/page_alloc.c).

use std::collections::VecDeque;

/// A list takes at most 2⁵ batches from the zone at once (Linux: `CONFIG_PCP_BATCH_SCALE_MAX`).
const MOST_DOUBLINGS: u32 = 5;

/// A list that first hands out the pages that were freed last; its length adapts to the processor's requests.
#[derive(Clone, Debug)]
pub(super) struct ProcessorList {
    pages: VecDeque<u32>,
    batch: usize,
    /// Bounds of `high`.
    least: usize,
    most: usize,
    /// From this length on, pages go back to the zone.
    high: usize,
    /// Number of doublings of the next batch: requests since the last page was given back.
    doublings: u32,
    /// Pages given back recently; halved at each request.
    given_back: usize,
}

/// Pages moved at once between a list and a zone of `frames` pages: 63 above 1 GiB (Linux: `zone_batchsize`).
pub(super) fn batch(frames: u32) -> usize {
    let quarter = (frames >> 10).min(256) / 4;
    (1 << (quarter.max(1) * 3 / 2).max(2).ilog2()) - 1
}

impl ProcessorList {
    /// The list of one of `processors` in a zone of `frames` pages that reclaims below `low` (Linux: `zone_highsize`).
    pub(super) fn new(frames: u32, processors: usize, low: u64) -> ProcessorList {
        let batch = batch(frames);
        let least = (low as usize / processors).max(4 * batch);
        let most = (frames as usize / 8 / processors).max(least);
        ProcessorList { pages: VecDeque::new(), batch, least, most, high: least, doublings: 0, given_back: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        self.given_back /= 2;
        self.pages.pop_front()
    }

    /// Number of pages with which to fill it (Linux: `nr_pcp_alloc`). `scarce`: reclaim has begun, so the list must not
    /// grow.
    pub(super) fn refill(&mut self, scarce: bool) -> usize {
        let batch = self.batch << self.doublings;
        if !scarce {
            self.high = (self.high + batch).min(self.most);
        }
        let most = self.high.saturating_sub(self.pages.len() + self.batch).max(self.batch);
        if batch <= most && self.doublings < MOST_DOUBLINGS {
            self.doublings += 1;
        }
        batch.min(most)
    }

    /// Fills it, in the order in which they will be handed out.
    pub(super) fn extend(&mut self, pages: impl Iterator<Item = u32>) {
        self.pages.extend(pages);
    }

    /// Takes a page back; returned pages go to the zone (Linux: `free_frozen_page_commit`, `nr_pcp_high`,
    /// `nr_pcp_free`).
    pub(super) fn put(
        &mut self,
        page: u32,
        scarce: bool,
    ) -> std::iter::Rev<std::collections::vec_deque::Drain<'_, u32>> {
        self.doublings /= 2;
        self.pages.push_front(page);
        self.given_back = (self.given_back + 1).min(self.batch << MOST_DOUBLINGS);
        let count = self.pages.len();
        let high = if scarce {
            self.high = self.high.saturating_sub(self.given_back.max(self.batch)).max(self.least);
            self.high.min(4 * self.batch)
        } else {
            if count >= self.high {
                self.high = self.high.max((self.given_back + self.batch).clamp(self.least, self.most));
            }
            self.high
        };
        let many = self.given_back.min(high.saturating_sub(self.batch)).max(self.batch);
        self.last(if count < high { 0 } else { many })
    }

    /// The pages that an idle processor gives back (Linux: `decay_pcp_high`).
    pub(super) fn idle(&mut self) -> std::iter::Rev<std::collections::vec_deque::Drain<'_, u32>> {
        self.high = self.least;
        self.last(self.pages.len().saturating_sub(self.least))
    }

    /// The pages that were given back longest ago; the oldest come first.
    fn last(&mut self, count: usize) -> std::iter::Rev<std::collections::vec_deque::Drain<'_, u32>> {
        let from = self.pages.len().saturating_sub(count);
        self.pages.drain(from..).rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_those_of_linux() {
        // zone_batchsize() of 4 MiB, 64 MiB, 512 MiB, 1 GiB and 64 GiB.
        let sizes = [1 << 10, 1 << 14, 1 << 17, 1 << 18, 1 << 24];
        assert_eq!(sizes.map(batch), [1, 3, 31, 63, 63]);
    }

    #[test]
    fn it_grows_while_it_is_emptied_and_shrinks_when_memory_is_scarce() {
        let mut list = ProcessorList::new(1 << 20, 2, 8000);
        let refills: Vec<usize> = (0..7).map(|_| list.refill(false)).collect();
        assert_eq!(refills, [63, 126, 252, 504, 1008, 2016, 2016]);
        list.extend(0..20_000);
        assert!(list.put(20_000, false).count() >= 63);
        let mut kept = 0;
        while list.put(1, true).count() > 0 {
            kept = list.len();
        }
        assert!(kept < 400, "{kept}");
    }

    #[test]
    fn the_page_given_back_last_is_handed_out_first_and_the_first_goes_to_the_zone() {
        let mut list = ProcessorList::new(1 << 14, 1, 12);
        let mut gone: Vec<u32> = vec![];
        (0..40).for_each(|page| gone.extend(list.put(page, true)));
        assert_eq!(list.pop(), Some(39));
        assert!(gone.is_sorted() && gone.len() + list.len() == 39, "{gone:?}");
    }
}
