//! Where the entries of pages were found lately.
//!
//! Most references are to a handful of pages. An entry that was found stays where it is until another comes into its set, and using
//! it is to note when, or nothing. So the entry is remembered by page, and need not be looked for as long as none has come.

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

    /// Uses the page's entry at the time `now`, if it is where it was found; whether it is.
    #[inline(always)]
    pub(super) fn use_again(&self, arrays: &mut Arrays, asid: u16, address: u64, now: u64) -> bool {
        let page = page(asid, address);
        let (number, seen) = self.0[page as usize % PAGES];
        let is_there = number == page && arrays.is_there(seen);
        if is_there {
            arrays.use_again(seen, now);
        }
        is_there
    }

    /// The page of `address` was translated just now, by an entry that was `seen`.
    #[inline(always)]
    pub(super) fn keep(&mut self, asid: u16, address: u64, seen: Seen) {
        let page = page(asid, address);
        self.0[page as usize % PAGES] = (page, seen);
    }
}
