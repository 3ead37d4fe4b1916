//! Page runs, and their construction.

use crate::reference::ADDRESS_BITS;

/// Bits of a run's page that number the page; the other 12 are the address space.
pub const NUMBER_BITS: u32 = 52;
/// Address spaces are 0 to 4095.
pub const MAX_ASID: u16 = (1 << (64 - NUMBER_BITS)) - 1;
/// The smallest page (16 bytes) and the largest (1 TiB) that runs may have, as shifts.
pub const PAGE_BITS: std::ops::RangeInclusive<u32> = 4..=40;

/// Bits of the numbers of pages of `1 << page_bits` bytes: addresses have [`ADDRESS_BITS`].
pub const fn number_bits(page_bits: u32) -> u32 {
    ADDRESS_BITS - page_bits
}

/// The fault of a page number that no address has: cut, or shifted into the address space, it would be another page.
pub(crate) fn no_page(number: u64, page_bits: u32) -> Option<String> {
    let bits = number_bits(page_bits);
    (number >> bits != 0).then(|| {
        let bytes = 1_u64 << page_bits;
        format!("{number:#x} is no page number: those of pages of {bytes} bytes have {bits} bits")
    })
}

/// The bits of a run's page that number it.
pub(crate) const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// Consecutive references to one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Run {
    /// Virtual page number (bits 0–51) and address space (bits 52–63).
    pub page: u64,
    /// How many consecutive references; at least 1.
    pub count: u64,
}

impl Run {
    /// A run of `count` references to page `number` of address space `asid` (0 to [`MAX_ASID`]).
    #[inline]
    pub const fn new(asid: u16, number: u64, count: u64) -> Run {
        Run { page: number & NUMBER_MASK | (asid as u64) << NUMBER_BITS, count }
    }

    /// The address space.
    #[inline]
    pub const fn asid(self) -> u16 {
        (self.page >> NUMBER_BITS) as u16
    }

    /// The virtual page number.
    #[inline]
    pub const fn number(self) -> u64 {
        self.page & NUMBER_MASK
    }
}

/// The first page that a source does not have: never a real one, because addresses have 56 bits and pages at least 16
/// bytes.
const NO_PAGE: u64 = u64::MAX;
const _: () = assert!(ADDRESS_BITS - *PAGE_BITS.start() <= NUMBER_BITS);

/// Puts together consecutive references to the same page.
#[derive(Debug)]
pub struct RunBuilder {
    page: u64,
    count: u64,
}

impl Default for RunBuilder {
    fn default() -> Self {
        RunBuilder { page: NO_PAGE, count: 0 }
    }
}

impl RunBuilder {
    /// `count` more references to `page` (with its address space); a run that this ends goes to `runs`.
    #[inline]
    pub fn push(&mut self, page: u64, count: u64, runs: &mut Vec<Run>) {
        // A count that would not fit begins another run.
        let (sum, wraps) = self.count.overflowing_add(count);
        if page == self.page && !wraps {
            self.count = sum;
        } else {
            self.finish(runs);
            (self.page, self.count) = (page, count);
        }
    }

    /// No more references: the last run goes to `runs`.
    #[inline]
    pub fn finish(&mut self, runs: &mut Vec<Run>) {
        if self.count > 0 {
            runs.push(Run { page: self.page, count: self.count });
        }
        self.count = 0;
        self.page = NO_PAGE;
    }
}
