//! H, M and C by window of 2 MiB.

use crate::pages::{NONE, PageMap};

/// Binary logarithm of a window.
pub const WINDOW_BITS: u32 = 21;
const NUMBER_BITS: u32 = pagelab_trace::ADDRESS_BITS - WINDOW_BITS;

/// Cost of translation: MOSAIC, Table 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// H: translations that missed in the first level and hit in the second.
    pub hits: u64,
    /// M: translations that missed in both.
    pub misses: u64,
    /// C: cycles spent on walking the page tables, all walkers' together.
    pub walk_cycles: u64,
}

impl Cost {
    /// Adds another's.
    #[inline(always)]
    pub(super) fn add(&mut self, other: &Cost) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.walk_cycles += other.walk_cycles;
    }
}

/// The cost of one window of one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Address space.
    pub asid: u16,
    /// First address.
    pub start: u64,
    /// Cost of translations in it.
    pub cost: Cost,
}

#[derive(Clone, Debug)]
pub(super) struct Windows {
    numbers: PageMap,
    costs: Vec<(u64, Cost)>,
}

impl Windows {
    pub(super) fn new() -> Windows {
        Windows { numbers: PageMap::default(), costs: vec![] }
    }

    /// The number of the window of `address`.
    #[inline(always)]
    pub(super) fn number(&mut self, asid: u16, address: u64) -> u32 {
        let key = u64::from(asid) << NUMBER_BITS | address >> WINDOW_BITS;
        match self.numbers.get(key) {
            NONE => {
                let number = self.costs.len() as u64;
                self.costs.push((key, Cost::default()));
                self.numbers.set(key, number);
                number as u32
            }
            number => number as u32,
        }
    }

    /// The cost of the window that has this number.
    #[inline(always)]
    pub(super) fn cost(&mut self, number: u32) -> &mut Cost {
        &mut self.costs[number as usize].1
    }

    pub(super) fn finish(mut self) -> Vec<Window> {
        self.costs.sort_unstable_by_key(|(key, _)| *key);
        let window = |(key, cost): (u64, Cost)| Window {
            asid: (key >> NUMBER_BITS) as u16,
            start: (key & ((1 << NUMBER_BITS) - 1)) << WINDOW_BITS,
            cost,
        };
        self.costs.into_iter().map(window).collect()
    }
}
