//! Pages whose first-level entry would be a hit that changes nothing.
//!
//! Most references are to a handful of pages. Under LRU, using the entry that its set has used last changes nothing; under random
//! replacement, using any entry does. When such an entry's set was seen is remembered by page, and holds as long as nothing has
//! changed there.

use super::array::{Arrays, Seen};
use crate::allocate::PAGE_BITS;

const PAGES: usize = 64;
/// Address spaces stand above the numbers of pages of 4 KiB.
const NUMBER_BITS: u32 = pagelab_trace::ADDRESS_BITS - PAGE_BITS;

/// What was found lately on one side of a core.
#[derive(Clone, Debug)]
pub(super) struct Settled([(u64, Seen); PAGES]);

#[inline(always)]
const fn page(asid: u16, address: u64) -> u64 {
    (asid as u64) << NUMBER_BITS | address >> PAGE_BITS
}

impl Settled {
    pub(super) const NONE: Settled = Settled([(u64::MAX, Seen::NEVER); PAGES]);

    #[inline(always)]
    pub(super) fn has(&self, arrays: &Arrays, asid: u16, address: u64) -> bool {
        let page = page(asid, address);
        let (number, seen) = self.0[page as usize % PAGES];
        number == page && arrays.is_settled(seen)
    }

    /// The page of `address` was translated just now, by an entry whose set was `seen`.
    #[inline(always)]
    pub(super) fn keep(&mut self, asid: u16, address: u64, seen: Seen) {
        let page = page(asid, address);
        self.0[page as usize % PAGES] = (page, seen);
    }
}
