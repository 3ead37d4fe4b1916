//! Sorting what came back: pages are zeroed, their frames looked up, and they are free again.

use pagelab_abi::plan::MAX_STRATEGIES;
use pagelab_frames::{End, Run, SlotId};

use crate::arch::PAGE;
use crate::intervals::Span;
use crate::sys::nodes as calls;

use super::engine::Engine;
use super::nodes;
use super::offers::{self, Offer};
use super::pagemap::Pagemap;
use super::store::{self, SLOTS};
use super::tally;

/// Slots of an offer whose pages are there, to be sorted: the sorter's alone.
pub struct Sorting {
    /// Whose slots.
    pub offer: &'static Offer,
    /// The first one.
    pub first: usize,
    /// One past the last one.
    pub end: usize,
    /// Where the first one is.
    pub address: usize,
}

impl Sorting {
    /// Zeroes the pages and looks up their frames, from the beginning of `frames` on. Needs no lock.
    pub fn work(&self, pagemap: Pagemap, frames: &mut [u64; SLOTS]) {
        frames.fill(0);
        let Some(words) = frames.get_mut(..self.end - self.first) else { return };
        if pagemap.read(self.address, words).is_err() {
            words.fill(0);
        }
        self.send_home(words);
        let mut at = self.address;
        for run in words.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
            let span = Span::new(at, at + run.len() * PAGE);
            if run.first() == Some(&0) {
                // They may be in swap.
                store::discard(span);
            } else {
                // SAFETY: pages of ours that are present: nobody waits for the handler here.
                unsafe { core::ptr::write_bytes(span.start as *mut u8, 0, span.len()) };
            }
            at = span.end;
        }
    }
}

impl Sorting {
    /// Pages of another node than the pool's are the kernel's again: 0 in `frames`.
    fn send_home(&self, frames: &mut [u64]) {
        let mut found = [-1i32; SLOTS];
        let Some(found) = found.get_mut(..frames.len()).filter(|_| nodes::are_several()) else { return };
        let node = self.offer.chunk().1 / MAX_STRATEGIES;
        if calls::of_pages(self.address, found).is_ok() {
            for (frame, _) in frames.iter_mut().zip(found).filter(|(_, there)| **there != node as i32) {
                *frame = 0;
            }
        }
    }
}

impl Engine {
    /// Takes in what was sorted, found on `frames`. True: there were pages.
    pub fn end_sorting(&mut self, sorting: &Sorting, frames: &[u64; SLOTS]) -> bool {
        let offer = sorting.offer;
        let (number, at) = offer.chunk();
        let mut found = false;
        if let Some(Some(pool)) = self.pools.get_mut(at) {
            let pages = frames.iter().zip(sorting.first..sorting.end);
            // Backwards: of each colour, the page with the lowest address comes to be the first.
            for (frame, index) in pages.rev() {
                let slot = SlotId::new(number, index as u32);
                if *frame != 0 && pool.stock.add(slot, *frame, End::Front).is_ok() {
                    tally::frames(offer.whose(index), |counts| &counts.harvested_pages, 1);
                    found = true;
                } else {
                    pool.stock.emptied(Run::one(slot));
                }
            }
            pool.starving &= !found;
        }
        offer.ends(sorting.end);
        found
    }

    /// Sorts what came back for pool `at`, here and now. True: there were pages.
    pub fn collect(&mut self, at: usize) -> bool {
        let mut found = false;
        while let Some(sorting) = offers::begin(Some(at)) {
            let mut frames = self.frames;
            sorting.work(self.tools.pagemap, &mut frames);
            found |= self.end_sorting(&sorting, &frames);
        }
        found
    }
}
