//! A memory of where the entries of pages were found recently.
//!
//! Most references are to a handful of pages. An entry that was found stays in place until another comes into its set,
//! and its use only stores the time, or nothing. So the entry is remembered by page, and not searched as long as no
//! other has come.

use super::array::{Arrays, Seen};
use crate::allocate::PAGE_BITS;

const PAGES: usize = 64;
/// Bits of the numbers of pages of 4 KiB; the address space is above.
const NUMBER_BITS: u32 = pagelab_trace::ADDRESS_BITS - PAGE_BITS;

/// The entries found recently on one side of a core.
#[derive(Clone, Debug)]
pub(super) struct Settled([(u64, Seen); PAGES]);

#[inline(always)]
const fn page(asid: u16, address: u64) -> u64 {
    (asid as u64) << NUMBER_BITS | address >> PAGE_BITS
}

impl Settled {
    pub(super) const NONE: Settled = Settled([(u64::MAX, Seen::NEVER); PAGES]);

    /// Uses the page's entry at the time `now`, if it is where it was found; returns whether it is.
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

    /// Remembers the entry of the page of `address`, which was `seen` in a translation just now.
    #[inline(always)]
    pub(super) fn keep(&mut self, asid: u16, address: u64, seen: Seen) {
        let page = page(asid, address);
        self.0[page as usize % PAGES] = (page, seen);
    }
}
