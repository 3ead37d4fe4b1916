//! Pages whose first-level entry would be a hit that changes nothing.
//!
//! Most references are to a handful of pages. Under LRU, using the entry that its set has used last changes nothing; under random
//! replacement, using any entry does. Where such an entry stood is remembered by page, and holds as long as it still stands there.

use super::array::{Arrays, Place};
use crate::allocate::PAGE_BITS;

const PAGES: usize = 64;
/// Address spaces stand above the numbers of pages of 4 KiB.
const NUMBER_BITS: u32 = pagelab_trace::ADDRESS_BITS - PAGE_BITS;

/// What was found lately on one side of a core.
#[derive(Clone, Debug)]
pub(super) struct Settled([Option<(u64, Place)>; PAGES]);

#[inline(always)]
const fn page(asid: u16, address: u64) -> u64 {
    (asid as u64) << NUMBER_BITS | address >> PAGE_BITS
}

impl Settled {
    pub(super) const NONE: Settled = Settled([None; PAGES]);

    #[inline(always)]
    pub(super) fn has(&self, arrays: &Arrays, asid: u16, address: u64) -> bool {
        let page = page(asid, address);
        matches!(self.0[page as usize % PAGES], Some((number, place)) if number == page && arrays.is_settled(place))
    }

    /// The page of `address` was translated just now, by an entry for pages of `1 << page_bits` bytes.
    pub(super) fn keep(&mut self, arrays: &Arrays, asid: u16, address: u64, page_bits: u32) {
        let page = page(asid, address);
        self.0[page as usize % PAGES] = arrays.settled(asid, address, page_bits).map(|place| (page, place));
    }
}
