//! Arrays of translations.

use pagelab_trace::ADDRESS_BITS;

use super::spec::{ArraySpec, WalkCacheSpec, shape};
use crate::allocate::PAGE_BITS;
use crate::cache::{Index, Replacement, Sets};

/// Bits of a key that hold the page number; the address space and the size stand above.
const NUMBER_BITS: u32 = ADDRESS_BITS - PAGE_BITS;

/// An array of entries of several sizes.
#[derive(Clone, Debug)]
pub(super) struct Array {
    sets: Sets,
    index: Index,
    /// Binary logarithms of what its entries can map, ascending.
    grains: Vec<u32>,
    fragments: bool,
}

/// Binary logarithm of what the last level of a walk maps for a page of `1 << page_bits` bytes.
pub(super) const fn leaf(page_bits: u32) -> u32 {
    match page_bits {
        ..=20 => 12,
        21..=29 => 21,
        _ => 30,
    }
}

impl Array {
    fn build(entries: u64, ways: u64, replacement: Replacement, seed: u64) -> (Sets, Index) {
        let (sets, ways) = shape(entries, ways);
        (Sets::new(sets as usize, ways as usize, replacement, seed), Index::plain(sets))
    }

    pub(super) fn new(spec: &ArraySpec, seed: u64) -> Array {
        let (sets, index) = Array::build(spec.entries, spec.ways, spec.replacement, seed);
        let mut grains: Vec<u32> = spec.pages.iter().map(|bytes| bytes.trailing_zeros()).collect();
        grains.sort_unstable();
        Array { sets, index, grains, fragments: spec.fragments }
    }

    pub(super) fn of_walk_cache(spec: &WalkCacheSpec, seed: u64) -> Array {
        let (sets, index) = Array::build(spec.entries, spec.ways, spec.replacement, seed);
        Array { sets, index, grains: vec![spec.spans.trailing_zeros()], fragments: false }
    }

    /// What an entry for a page of this size maps; `None` if the array does not hold such pages.
    ///
    /// A page of 64 KiB has sixteen entries in the table: an array with entries for 16 KiB holds it in four of them, one with
    /// entries for 4 KiB in sixteen. A page of 2 MiB has one entry, which only an array for 2 MiB holds, or one that holds
    /// fragments.
    pub(super) fn grain(&self, page_bits: u32) -> Option<u32> {
        let least = if self.fragments { PAGE_BITS } else { leaf(page_bits) };
        self.grains.iter().copied().rfind(|grain| (least..=page_bits).contains(grain))
    }

    #[inline]
    fn key(asid: u16, address: u64, grain: u32) -> u64 {
        u64::from(grain) << (NUMBER_BITS + 12) | u64::from(asid) << NUMBER_BITS | address >> grain
    }

    /// Whether there is an entry; it is used.
    #[inline]
    pub(super) fn touch(&mut self, asid: u16, address: u64, grain: u32) -> bool {
        self.sets.touch(self.index.of(address >> grain), Array::key(asid, address, grain), false).is_some()
    }

    /// [`Sets::settled`] of an entry.
    fn settled(&self, asid: u16, address: u64, grain: u32) -> Option<(usize, u64)> {
        self.sets.settled(self.index.of(address >> grain), Array::key(asid, address, grain))
    }

    /// Puts an entry in, which is not there.
    #[inline]
    pub(super) fn insert(&mut self, asid: u16, address: u64, grain: u32) {
        self.sets.insert(self.index.of(address >> grain), Array::key(asid, address, grain), false);
    }

    /// Uses an entry, or puts it in.
    pub(super) fn use_or_insert(&mut self, asid: u16, address: u64, grain: u32) {
        if !self.touch(asid, address, grain) {
            self.insert(asid, address, grain);
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.sets.check()
    }
}

/// Where an entry stood in the arrays of a level, and what stood there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    array: u8,
    at: u32,
    word: u64,
}

/// The arrays of a level, by what they hold.
#[derive(Clone, Debug)]
pub(super) struct Arrays {
    arrays: Vec<Array>,
    /// For each page size: array and grain.
    table: [Option<(u8, u8)>; 31],
}

impl Arrays {
    pub(super) fn new<'a>(specs: impl Iterator<Item = &'a ArraySpec>, seed: u64) -> Arrays {
        let arrays: Vec<Array> =
            specs.enumerate().map(|(at, spec)| Array::new(spec, seed ^ (at as u64) << 40)).collect();
        let mut table = [None; 31];
        for (page_bits, entry) in table.iter_mut().enumerate() {
            let held =
                arrays.iter().enumerate().filter_map(|(at, array)| Some((at, array.grain(page_bits as u32)?)));
            *entry = held.max_by_key(|(_, grain)| *grain).map(|(at, grain)| (at as u8, grain as u8));
        }
        Arrays { arrays, table }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.arrays.is_empty()
    }

    /// What an entry for pages of this size maps.
    #[inline]
    pub(super) fn grain(&self, page_bits: u32) -> Option<u32> {
        self.table[page_bits as usize].map(|(_, grain)| u32::from(grain))
    }

    /// Whether there is an entry; it is used.
    #[inline]
    pub(super) fn touch(&mut self, asid: u16, address: u64, page_bits: u32) -> bool {
        match self.table[page_bits as usize] {
            Some((array, grain)) => self.arrays[usize::from(array)].touch(asid, address, u32::from(grain)),
            None => false,
        }
    }

    /// The place of an entry, if using it once more would change nothing.
    pub(super) fn settled(&self, asid: u16, address: u64, page_bits: u32) -> Option<Place> {
        let (array, grain) = self.table[page_bits as usize]?;
        let (at, word) = self.arrays[usize::from(array)].settled(asid, address, u32::from(grain))?;
        Some(Place { array, at: u32::try_from(at).ok()?, word })
    }

    /// Whether what was settled at a place still is.
    #[inline(always)]
    pub(super) fn is_settled(&self, place: Place) -> bool {
        self.arrays[usize::from(place.array)].sets.word(place.at as usize) == place.word
    }

    /// Puts an entry in, which is not there.
    #[inline]
    pub(super) fn insert(&mut self, asid: u16, address: u64, page_bits: u32) {
        if let Some((array, grain)) = self.table[page_bits as usize] {
            self.arrays[usize::from(array)].insert(asid, address, u32::from(grain));
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.arrays.iter().try_for_each(Array::check)
    }
}
