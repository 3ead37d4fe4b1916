//! Strategies that need numbers only: page colouring, bin hopping, random colours.

use super::{Strategy, Want};
use crate::mix::{mix, mix_below};
use pagelab_abi::plan::StrategyKind;

/// The parameters of a strategy that reads no lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Number of colours.
    pub colours: u32,
    /// Colour of the first page; `None`: drawn from the seed.
    pub first: Option<u32>,
    /// Seed of what is drawn.
    pub seed: u64,
    /// The process whose id turns the colours; `None`: nothing turns them.
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

    /// Shifted by a hash of the process id, to keep processes with equal layouts apart (ALLOC, section 2). A shift and
    /// not an XOR, because runs of consecutive colours survive it for every number of colours.
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
