//! H, M and C by window of 2 MiB.

use crate::pages::Pages;
use crate::table::Table;

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
    /// C: cycles of page walks, summed over all walkers.
    pub walk_cycles: u64,
}

impl Cost {
    /// Adds another cost.
    #[inline(always)]
    pub(super) fn add(&mut self, other: &Cost) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.walk_cycles += other.walk_cycles;
    }

    /// Adds a hit or a miss. (Which one is unpredictable, so there is no branch, and only one place changes.)
    #[inline(always)]
    pub(super) fn add_one(&mut self, is_hit: bool) {
        *std::hint::select_unpredictable(is_hit, &mut self.hits, &mut self.misses) += 1;
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

/// What is known of one window.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct Known {
    cost: Cost,
    /// Whether a walk went down to base pages, so that each of its tables has a frame.
    has_tables: bool,
}

/// Costs by the number of a window among all address spaces'; windows that were never requested lie between them,
/// without cost.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    numbers: Pages,
    known: Table<Known>,
}

impl Windows {
    pub(super) fn new() -> Windows {
        Windows { numbers: Pages::default(), known: Table::default() }
    }

    /// The number of the window that contains `address`.
    #[inline(always)]
    pub(super) fn number(&mut self, asid: u16, address: u64) -> u32 {
        let number = self.numbers.id(u64::from(asid) << NUMBER_BITS | address >> WINDOW_BITS);
        if number as usize >= self.known.len() {
            self.known.resize(self.numbers.len(), Known::default());
        }
        number
    }

    /// The cost of the window with this number.
    #[inline(always)]
    pub(super) fn cost(&mut self, number: u32) -> &mut Cost {
        &mut self.known[number as usize].cost
    }

    /// Whether the tables for base pages of the window with this number exist; from now on they do.
    #[inline(always)]
    pub(super) fn had_tables(&mut self, number: u32) -> bool {
        std::mem::replace(&mut self.known[number as usize].has_tables, true)
    }

    pub(super) fn finish(self) -> Vec<Window> {
        let mut windows: Vec<Window> = (0..)
            .zip(self.known.iter().map(|known| known.cost))
            .filter(|(_, cost)| *cost != Cost::default())
            .map(|(number, cost)| {
                let key = self.numbers.page(number);
                let start = (key & ((1 << NUMBER_BITS) - 1)) << WINDOW_BITS;
                Window { asid: (key >> NUMBER_BITS) as u16, start, cost }
            })
            .collect();
        windows.sort_unstable_by_key(|window| (window.asid, window.start));
        windows
    }
}
