//! Page sizes by address.

use super::PAGE_BITS;

/// Page sizes that can be requested, as powers of two: 4 KiB to 1 GiB.
pub const PAGE_SIZES: std::ops::RangeInclusive<u32> = PAGE_BITS..=30;

/// A range of addresses with pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First address, a multiple of the page size.
    pub start: u64,
    /// One past the last address, a multiple of the page size.
    pub end: u64,
    /// Binary logarithm of the page size.
    pub page_bits: u32,
}

/// Page sizes of an address space: extents, and one size for addresses outside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    extents: Vec<Extent>,
    otherwise: u32,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout::uniform(PAGE_BITS)
    }
}

impl Layout {
    /// Pages of one size everywhere.
    #[must_use]
    pub const fn uniform(page_bits: u32) -> Layout {
        Layout { extents: vec![], otherwise: page_bits }
    }

    /// Extents in any order. If an extent cuts a page of the size `otherwise`, the rest of that page has 4 KiB pages.
    ///
    /// # Errors
    /// Extents that are not aligned, empty, or overlap; sizes that do not exist.
    pub fn new(mut extents: Vec<Extent>, otherwise: u32) -> Result<Layout, String> {
        extents.sort_by_key(|extent| extent.start);
        for Extent { start, end, page_bits } in &extents {
            if !PAGE_SIZES.contains(page_bits) {
                return Err(format!("pages of 2^{page_bits} bytes; allowed: 4 KiB to 1 GiB"));
            }
            if start >= end || !start.is_multiple_of(1 << page_bits) || !end.is_multiple_of(1 << page_bits) {
                return Err(format!("{start:#x}-{end:#x}: no whole pages of {} bytes", 1_u64 << page_bits));
            }
        }
        if let Some(pair) = extents.windows(2).find(|pair| pair[0].end > pair[1].start) {
            return Err(format!("{:#x}-{:#x} overlaps with {:#x}", pair[0].start, pair[0].end, pair[1].start));
        }
        if !PAGE_SIZES.contains(&otherwise) {
            return Err(format!("pages of 2^{otherwise} bytes; allowed: 4 KiB to 1 GiB"));
        }
        Ok(Layout { extents, otherwise })
    }

    /// The size of all pages, if there is only one.
    #[must_use]
    pub const fn uniform_bits(&self) -> Option<u32> {
        if self.extents.is_empty() { Some(self.otherwise) } else { None }
    }

    /// Binary logarithm of the size of the page at `address`.
    #[must_use]
    pub fn page_bits(&self, address: u64) -> u32 {
        let after = self.extents.partition_point(|extent| extent.start <= address);
        if let Some(extent) = after.checked_sub(1).and_then(|at| self.extents.get(at))
            && address < extent.end
        {
            return extent.page_bits;
        }
        let (start, end) = self.page(address, self.otherwise);
        let before =
            after.checked_sub(1).and_then(|at| self.extents.get(at)).is_none_or(|extent| extent.end <= start);
        let behind = self.extents.get(after).is_none_or(|extent| extent.start >= end);
        if before && behind { self.otherwise } else { PAGE_BITS }
    }

    const fn page(&self, address: u64, bits: u32) -> (u64, u64) {
        let start = address >> bits << bits;
        (start, start + (1 << bits))
    }

    /// The size of all pages in the naturally aligned `1 << window_bits` bytes around `address`; `None` if there are
    /// several sizes.
    #[must_use]
    pub fn window(&self, address: u64, window_bits: u32) -> Option<u32> {
        let (start, end) = self.page(address, window_bits);
        let bits = self.page_bits(start);
        let cut = |edge: u64| start < edge && edge < end;
        let uniform = !self.extents.iter().any(|extent| cut(extent.start) || cut(extent.end));
        uniform.then_some(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M2: u64 = 2 << 20;

    #[test]
    fn extents_decide_and_the_rest_is_otherwise() {
        let layout = Layout::new(vec![Extent { start: M2, end: 3 * M2, page_bits: 21 }], 12).unwrap();
        assert_eq!([0, M2 - 1, M2, 3 * M2 - 1, 3 * M2].map(|at| layout.page_bits(at)), [12, 12, 21, 21, 12]);
        assert_eq!(layout.window(M2 + 5, 21), Some(21));
        assert_eq!(layout.window(M2, 30), None);
        assert_eq!(Layout::uniform(16).window(M2, 21), Some(16));
    }

    #[test]
    fn what_an_extent_leaves_of_a_larger_page_is_small() {
        let layout = Layout::new(vec![Extent { start: M2, end: M2 + 4096, page_bits: 12 }], 21).unwrap();
        assert_eq!([0, M2, M2 + 8192, 2 * M2].map(|at| layout.page_bits(at)), [21, 12, 12, 21]);
    }

    #[test]
    fn bad_extents_are_refused() {
        let new = |start, end, page_bits| Layout::new(vec![Extent { start, end, page_bits }], 12).unwrap_err();
        assert!(new(4096, M2, 21).contains("whole pages"));
        assert!(new(M2, M2, 21).contains("whole pages"));
        assert!(new(0, M2, 31).contains("allowed"));
        let [a, b] = [0, 4096].map(|start| Extent { start, end: start + 8192, page_bits: 12 });
        assert!(Layout::new(vec![a, b], 12).unwrap_err().contains("overlaps"));
    }
}
