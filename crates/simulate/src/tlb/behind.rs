//! The simulation of the levels behind the first, by batches.
//!
//! Results go back to the first level only if hardware merges entries by itself; and data caches must see walks between
//! references. In all other cases the pages that missed form a list: the second level takes the list as a whole, and
//! walks the pages that it does not have.

use super::array::leaf;
use super::core::{Core, Machine, leaf_number};
use super::windows::Windows;

/// Number of references whose misses are handled together.
pub(super) const BATCH: usize = 1024;
/// A reference touches two pages at most.
const MOST: usize = 2 * BATCH;

/// A translation that missed in the first level.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Missed {
    pub(super) address: u64,
    /// Number of the translation.
    pub(super) now: u64,
    /// Number of its window, after it is known.
    pub(super) window: u32,
    pub(super) page_bits: u8,
    /// Size of the entry: no more than both dimensions map.
    pub(super) entry_bits: u8,
    /// Binary logarithm of the size that the first entry read by its walk maps.
    pub(super) start: u8,
}

impl Missed {
    pub(super) const fn new(address: u64, now: u64, page_bits: u32, entry_bits: u32) -> Missed {
        Missed { address, now, window: 0, page_bits: page_bits as u8, entry_bits: entry_bits as u8, start: 0 }
    }

    /// Binary logarithm of the size that the last entry read by its walk maps.
    #[inline(always)]
    pub(super) const fn leaf(&self) -> u32 {
        leaf(self.page_bits as u32)
    }
}

/// The translations of a batch that missed.
#[derive(Clone, Debug)]
pub(super) struct List {
    /// One place more than a batch can fill.
    missed: Box<[Missed]>,
    length: usize,
    /// Its length in the batch before.
    before: usize,
    /// Whether the second level has each of them.
    found: Box<[bool]>,
    /// Numbers of the walks that ask a walk cache, and one place more.
    asking: Box<[u16]>,
}

impl List {
    pub(super) fn new() -> List {
        List {
            missed: vec![Missed::default(); MOST + 1].into(),
            length: 0,
            before: 0,
            found: vec![false; MOST].into(),
            asking: vec![0; MOST + 1].into(),
        }
    }

    /// Adds a miss.
    #[inline(always)]
    pub(super) fn add(&mut self, missed: Missed) {
        self.missed[self.length] = missed;
        self.length += 1;
    }

    /// All places, and the number of those that are taken.
    #[inline(always)]
    pub(super) fn free(&mut self) -> (&mut [Missed], usize) {
        (&mut self.missed, self.length)
    }

    /// Marks the first `length` places as taken.
    #[inline(always)]
    pub(super) fn grow_to(&mut self, length: usize) {
        self.length = length;
    }

    /// Whether so many of the batch before missed that remembering entries is not worth it: more than a quarter, or
    /// more than an eighth where they are not remembered now, because each change costs a look at all sets.
    const fn was_long(&self, is_in_order: bool) -> bool {
        self.before > if is_in_order { BATCH / 8 } else { BATCH / 4 }
    }
}

impl Core {
    /// Whether entries seldom stay where they were found.
    pub(super) fn misses_often(&self) -> bool {
        self.missed.as_ref().is_some_and(|list| list.was_long(self.is_in_order()))
    }

    /// Number of misses that wait for [`Core::go_behind`].
    pub(super) fn waiting(&self) -> usize {
        self.missed.as_ref().map_or(0, |list| list.length)
    }

    /// Passes the misses of one address space to the second level, and walks those that it lacks.
    #[inline(always)]
    pub(super) fn go_behind(&mut self, machine: &mut Machine, windows: &mut Windows, asid: u16) {
        let Some(mut list) = self.missed.take() else { return };
        let missed = &mut list.missed[..list.length];
        self.second.use_or_insert_all(asid, missed, &mut list.found[..missed.len()]);
        let (mut length, mut hits, mut misses) = (0, 0_u64, 0_u64);
        for at in 0..missed.len() {
            let mut one = missed[at];
            one.window = windows.number(asid, one.address);
            let is_hit = list.found[at];
            windows.cost(one.window).add_one(is_hit);
            // Sixteen bits for each size are enough for a batch.
            let shift = 16 * leaf_number(u32::from(one.page_bits));
            hits += u64::from(is_hit) << shift;
            misses += u64::from(!is_hit) << shift;
            missed[length] = one;
            length += usize::from(!is_hit);
        }
        for (number, sum) in self.counts.by_leaf.iter_mut().enumerate() {
            sum.hits += hits >> (16 * number) & 0xffff;
            sum.misses += misses >> (16 * number) & 0xffff;
        }
        let walks = &mut missed[..length];
        self.caches.start_all(asid, walks, machine.tables.top(), &mut list.asking);
        for one in walks {
            let cycles = self.walk(machine, windows, asid, one);
            windows.cost(one.window).walk_cycles += cycles;
            self.leaf_cost(u32::from(one.page_bits)).walk_cycles += cycles;
        }
        (list.before, list.length) = (list.length, 0);
        self.missed = Some(list);
    }
}
