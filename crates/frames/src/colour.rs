//! The colour of a frame: the sets of a physically indexed cache to which its lines map.

use pagelab_abi::plan::{MOST_COLOURS, Plan, Strategy};

/// Most XOR masks there can be: one for each bit of the largest colour.
pub const MOST_MASKS: usize = 16;

/// A function from frame numbers to colours `0..count`.
///
/// Low bits: `pfn mod count`, any count; right for caches indexed by address bits, whose number of colours is
/// size / (ways × page size). Masks: bit i of the colour is the parity of `pfn & masks[i]`; right for hashed indexes
/// (Intel's last-level slices, AMD's L3), whose functions are XORs of address bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colours {
    count: u32,
    masks: [u64; MOST_MASKS],
    mask_count: u8,
    low_bits: u64,
}

impl Colours {
    /// One colour for all frames.
    pub const ONE: Colours = Colours { count: 1, masks: [0; MOST_MASKS], mask_count: 0, low_bits: 0 };

    /// `pfn mod count`; `None` unless `count` is in `1..=`[`MOST_COLOURS`].
    pub const fn low_bits(count: u32) -> Option<Colours> {
        if count == 0 || count > MOST_COLOURS {
            return None;
        }
        let low_bits = if count.is_power_of_two() { count as u64 - 1 } else { 0 };
        Some(Colours { count, masks: [0; MOST_MASKS], mask_count: 0, low_bits })
    }

    /// Bit i = parity of `pfn & masks[i]`; `None` without masks or with more than [`MOST_MASKS`].
    ///
    /// Masks that depend on each other leave colours that no frame has: see [`Colours::is_onto`].
    pub fn masked(masks: impl IntoIterator<Item = u64>) -> Option<Colours> {
        let mut table = [0; MOST_MASKS];
        let mut used = 0u8;
        for mask in masks {
            *table.get_mut(usize::from(used))? = mask;
            used += 1;
        }
        if used == 0 {
            return None;
        }
        Some(Colours { count: 1 << used, masks: table, mask_count: used, low_bits: 0 })
    }

    /// The colour function of a plan's strategy; `None` for numbers that no valid plan has.
    pub fn of_plan(plan: &Plan<'_>, strategy: &Strategy) -> Option<Colours> {
        if strategy.masks.is_empty() {
            return Colours::low_bits(strategy.colours);
        }
        Colours::masked(plan.words(strategy.masks).iter())
    }

    /// Number of colours, at least 1.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The XOR masks; empty for low bits.
    pub fn masks(&self) -> &[u64] {
        self.masks.get(..usize::from(self.mask_count)).unwrap_or(&[])
    }

    /// The colour of frame `pfn`.
    #[inline]
    pub fn of(&self, pfn: u64) -> u32 {
        if self.low_bits != 0 {
            return (pfn & self.low_bits) as u32;
        }
        if self.mask_count == 0 {
            return pfn.checked_rem(u64::from(self.count)).unwrap_or(0) as u32;
        }
        let mut colour = 0;
        for (bit, mask) in self.masks().iter().enumerate() {
            colour |= ((pfn & mask).count_ones() & 1) << bit;
        }
        colour
    }

    /// Whether every colour has frames: the masks are linearly independent over GF(2).
    pub fn is_onto(&self) -> bool {
        let mut rows = self.masks;
        for at in 0..usize::from(self.mask_count) {
            let Some(&row) = rows.get(at) else { return false };
            if row == 0 {
                return false;
            }
            let lead = row & row.wrapping_neg();
            for other in rows.iter_mut().skip(at + 1) {
                if *other & lead != 0 {
                    *other ^= row;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_bits_take_any_count() {
        // ALLOC, section 2: a cache of 1,024 sets of 64 bytes has 16 colours, the four low bits of the page index.
        let sixteen = Colours::low_bits(16).unwrap();
        assert_eq!([0, 1, 15, 16, 0x12345].map(|pfn| sixteen.of(pfn)), [0, 1, 15, 0, 5]);
        let twelve = Colours::low_bits(12).unwrap();
        assert_eq!([11, 12, 25].map(|pfn| twelve.of(pfn)), [11, 0, 1]);
        assert_eq!(Colours::low_bits(1).unwrap().of(77), 0);
        assert_eq!(Colours::low_bits(0), None);
        assert_eq!(Colours::low_bits(MOST_COLOURS + 1), None);
        assert_eq!(Colours::low_bits(MOST_COLOURS).unwrap().of(u64::MAX), MOST_COLOURS - 1);
    }

    #[test]
    fn masks_are_parities() {
        let colours = Colours::masked([0b1_0001, 0b10_0010]).unwrap();
        assert_eq!((colours.count(), colours.masks()), (4, &[0b1_0001, 0b10_0010][..]));
        assert_eq!([0b0, 0b1, 0b1_0001, 0b10, 0b10_0001].map(|pfn| colours.of(pfn)), [0, 1, 0, 2, 3]);
        assert_eq!(Colours::masked([]), None);
        assert_eq!(Colours::masked([1; 17]), None);
        assert_eq!(Colours::masked([1; 16]).unwrap().count(), MOST_COLOURS);
    }

    #[test]
    fn single_bit_masks_are_the_low_bits() {
        let (low, masked) = (Colours::low_bits(64).unwrap(), Colours::masked((0..6).map(|bit| 1 << bit)).unwrap());
        assert!((0..5000).all(|pfn| low.of(pfn) == masked.of(pfn)));
    }

    #[test]
    fn dependent_masks_are_recognised() {
        let onto = |masks: &[u64]| {
            let colours = Colours::masked(masks.iter().copied()).unwrap();
            let reached: std::collections::BTreeSet<u32> = (0..256).map(|pfn| colours.of(pfn)).collect();
            assert_eq!(colours.is_onto(), reached.len() == colours.count() as usize, "{masks:?}");
            colours.is_onto()
        };
        assert!(onto(&[0b01, 0b11]));
        assert!(onto(&[0b110, 0b011, 0b1000_0001]));
        assert!(!onto(&[0b110, 0b011, 0b101]));
        assert!(!onto(&[0b110, 0]));
        assert!(Colours::low_bits(12).unwrap().is_onto());
    }
}
