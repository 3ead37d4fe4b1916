//! Strategies that need only numbers: page colouring, bin hopping, random colours.

use super::{Strategy, Want};
use pagelab_abi::plan::StrategyKind;

/// The parameters of a strategy that reads no lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Number of colours.
    pub colours: u32,
    /// Colour of the first page; `None`: drawn from the seed.
    pub first: Option<u32>,
    /// Seed of the random draws.
    pub seed: u64,
    /// The process whose id turns the colours; `None`: they are not turned.
    pub hashed_pid: Option<u32>,
}

/// A strategy that needs numbers only.
#[derive(Clone, Copy, Debug)]
pub enum Numbered {
    /// The virtual page's colour.
    PageColoring(PageColoring),
    /// The next colour.
    BinHopping(BinHopping),
    /// A random colour for each page.
    Random(Random),
}

impl Numbered {
    /// The strategy of this kind; `None` for those that read lists, and for modules.
    pub fn new(kind: StrategyKind, numbers: Numbers) -> Option<Numbered> {
        let Numbers { colours, first, seed, hashed_pid } = numbers;
        Some(match kind {
            StrategyKind::PageColoring => Numbered::PageColoring(match hashed_pid {
                Some(pid) => PageColoring::hashed(colours, pid),
                None => PageColoring::new(colours),
            }),
            StrategyKind::BinHopping => Numbered::BinHopping(match first {
                Some(first) => BinHopping::starting_at(colours, first),
                None => BinHopping::seeded(colours, seed),
            }),
            StrategyKind::Random => Numbered::Random(Random::new(colours, seed)),
            StrategyKind::Modulo | StrategyKind::Exact | StrategyKind::Module => return None,
        })
    }
}

dispatch! { Numbered { PageColoring, BinHopping, Random } }

/// Page colouring: a page gets the colour of its virtual address, so that neighbouring pages never compete.
///
/// `(vpn + shift) mod colours` (ALLOC, section 2: the virtual page index's own cache colour).
#[derive(Clone, Copy, Debug)]
pub struct PageColoring {
    colours: u64,
    shift: u64,
}

impl PageColoring {
    /// The plain virtual colour (0 colours count as 1).
    pub fn new(colours: u32) -> PageColoring {
        PageColoring { colours: u64::from(colours.max(1)), shift: 0 }
    }

    /// The virtual colour shifted by a hash of the process id, to keep processes with equal layouts apart (ALLOC,
    /// section 2). It is a shift and not an XOR, because runs of consecutive colours survive it for every number of
    /// colours.
    pub fn hashed(colours: u32, pid: u32) -> PageColoring {
        PageColoring { shift: u64::from(mix_below(u64::from(pid), colours)), ..PageColoring::new(colours) }
    }
}

impl Strategy for PageColoring {
    #[inline]
    fn want(&mut self, vpn: u64) -> Want {
        Want::Colour(vpn.wrapping_add(self.shift).checked_rem(self.colours).unwrap_or(0) as u32)
    }

    fn take_back(&mut self, _count: usize) {}

    fn is_by_address(&self) -> bool {
        true
    }

    fn period(&self) -> u64 {
        self.colours
    }
}

/// Bin hopping: each page gets the colour after the last page's, at any address (ALLOC, section 2).
#[derive(Clone, Copy, Debug)]
pub struct BinHopping {
    colours: u64,
    next: u64,
}

impl BinHopping {
    /// Begins with bin `first` modulo the number of colours (0 colours count as 1).
    pub fn starting_at(colours: u32, first: u32) -> BinHopping {
        let colours = u64::from(colours.max(1));
        BinHopping { colours, next: u64::from(first).checked_rem(colours).unwrap_or(0) }
    }

    /// Begins with a bin drawn from `seed`.
    pub fn seeded(colours: u32, seed: u64) -> BinHopping {
        BinHopping::starting_at(colours, mix_below(seed, colours))
    }
}

impl Strategy for BinHopping {
    #[inline]
    fn want(&mut self, _vpn: u64) -> Want {
        let colour = self.next;
        self.next = if colour + 1 == self.colours { 0 } else { colour + 1 };
        Want::Colour(colour as u32)
    }

    fn take_back(&mut self, count: usize) {
        let back = (count as u64).checked_rem(self.colours).unwrap_or(0);
        self.next = if self.next >= back { self.next - back } else { self.next + self.colours - back };
    }

    fn is_by_address(&self) -> bool {
        false
    }

    fn period(&self) -> u64 {
        1
    }
}

/// Random colours: a hash of seed and address, so that they do not depend on the order of faults.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    colours: u32,
    key: u64,
}

impl Random {
    /// Colours drawn by `seed` (0 colours count as 1).
    pub fn new(colours: u32, seed: u64) -> Random {
        Random { colours: colours.max(1), key: mix(seed) }
    }
}

impl Strategy for Random {
    #[inline]
    fn want(&mut self, vpn: u64) -> Want {
        Want::Colour(mix_below(self.key ^ vpn, self.colours))
    }

    fn take_back(&mut self, _count: usize) {}

    fn is_by_address(&self) -> bool {
        true
    }

    fn period(&self) -> u64 {
        0
    }
}

/// The finaliser of SplitMix64: every bit of the input changes about half of the output's bits (Steele, Lea, Flood:
/// Fast Splittable Pseudorandom Number Generators, 2014, figure 17).
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// `value` mixed, then reduced to `0..bound` without the low bits' bias (`bound` 0 counts as 1).
const fn mix_below(value: u64, bound: u32) -> u32 {
    ((mix(value) as u128 * bound as u128) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_splitmix64() {
        // The first outputs of the reference generator with seed 0.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn reduced_values_stay_below_the_bound() {
        for bound in [1, 2, 3, 16, 1000] {
            let mut seen = std::collections::BTreeSet::new();
            for value in 0..20_000 {
                seen.insert(mix_below(value, bound));
            }
            assert_eq!(seen.len(), bound as usize);
            assert!(seen.iter().all(|value| *value < bound));
        }
        assert_eq!(mix_below(7, 0), 0);
    }
}
