//! The set of a line in a cache.

/// A function from line numbers to set numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Index {
    /// The lowest bits.
    Bits(u64),
    /// The remainder, for a number of sets that is no power of two.
    Remainder(u64),
    /// The lowest bits, and above them one parity of the line number's bits for each mask.
    Hashed {
        /// Mask of the lowest bits.
        low: u64,
        /// Number of the lowest bits.
        low_bits: u32,
        /// Masks over line numbers, the lowest result bit first.
        masks: Vec<u64>,
    },
}

impl Index {
    /// The plain index of `sets` sets (at least 1).
    pub const fn plain(sets: u64) -> Index {
        if sets.is_power_of_two() { Index::Bits(sets - 1) } else { Index::Remainder(sets) }
    }

    /// The index of `sets` sets, a power of two, whose highest bits are the parities of the *address* bits in `masks`.
    ///
    /// `None` if there are more masks than bits, or a mask has bits within the line (below `line_bits`).
    pub fn hashed(sets: u64, masks: &[u64], line_bits: u32) -> Option<Index> {
        let bits = sets.is_power_of_two().then(|| sets.trailing_zeros())?;
        let low_bits = bits.checked_sub(masks.len() as u32)?;
        if masks.iter().any(|mask| *mask == 0 || mask & ((1 << line_bits) - 1) != 0) {
            return None;
        }
        let masks = masks.iter().map(|mask| mask >> line_bits).collect();
        Some(Index::Hashed { low: (1 << low_bits) - 1, low_bits, masks })
    }

    /// The set of line `line`.
    #[inline]
    pub fn of(&self, line: u64) -> usize {
        match self {
            Index::Bits(mask) => (line & mask) as usize,
            Index::Remainder(sets) => (line % sets) as usize,
            Index::Hashed { low, low_bits, masks } => {
                let mut set = line & low;
                for (bit, mask) in masks.iter().enumerate() {
                    set |= u64::from((line & mask).count_ones() & 1) << (low_bits + bit as u32);
                }
                set as usize
            }
        }
    }

    /// Whether the set depends only on line-number bits below `bits`.
    pub fn is_within(&self, bits: u32) -> bool {
        match self {
            Index::Bits(mask) => mask >> bits == 0,
            Index::Remainder(_) => false,
            Index::Hashed { low, masks, .. } => masks.iter().fold(*low, |all, mask| all | mask) >> bits == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocs_example_has_sixteen_colours() {
        // ALLOC, section 2.1: 512 KiB, 8 ways, 64-byte lines: 1024 sets, index bits 6 to 15; four of them lie in the
        // page number.
        let index = Index::plain(1024);
        let sets: std::collections::BTreeSet<usize> = (0..64).map(|page| index.of(page << 6)).collect();
        assert_eq!(sets.len(), 16);
        assert!(index.is_within(10) && !index.is_within(9));
    }

    #[test]
    fn hashed_bits_are_parities_of_addresses() {
        let index = Index::hashed(1 << 10, &[1 << 16 | 1 << 20, 1 << 17], 6).unwrap();
        let set = |address: u64| index.of(address >> 6);
        assert_eq!(set(1 << 6 | 1 << 13), 1 | 1 << 7);
        assert_eq!([set(1 << 16), set(1 << 20), set(1 << 16 | 1 << 20), set(1 << 17)], [1 << 8, 1 << 8, 0, 1 << 9]);
        assert_eq!(Index::hashed(1 << 10, &[1 << 5], 6), None);
        assert_eq!(Index::hashed(12, &[1 << 8], 6), None);
        assert_eq!(Index::hashed(2, &[1 << 8, 1 << 9], 6), None);
    }

    #[test]
    fn other_numbers_of_sets_take_the_remainder() {
        let index = Index::plain(1536 / 12 * 11);
        assert_eq!(index.of(1408 + 3), 3);
        assert_eq!(Index::plain(1).of(99), 0);
    }
}
