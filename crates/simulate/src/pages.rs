//! Dense page numbers, so that all state of pages is in arrays; and maps from pages to numbers.

use std::hash::{BuildHasher, RandomState};

use crate::cpu;
use crate::table::Table;

const CHUNK_BITS: u32 = 6;
/// Pages of one chunk: neighbours share an entry of the directory and are together in every array.
const CHUNK: usize = 1 << CHUNK_BITS;

/// Number of pages by which the directory is prefetched.
const AHEAD: usize = 12;

/// A page's number inside the simulator: below [`Pages::len`], with holes for pages that were never seen.
pub type Id = u32;

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Chunk number + 1; 0 is an empty entry.
    key: u64,
    chunk: u32,
}

/// The directory of chunks: open addressing, linear probing, at most half full.
#[derive(Clone, Debug)]
pub struct Pages {
    entries: Table<Entry>,
    shift: u32,
    multiplier: u64,
    keys: Vec<u64>,
}

impl Default for Pages {
    fn default() -> Self {
        // A random odd multiplier, so that no trace can be built in which every probe is long.
        let multiplier = RandomState::new().hash_one(0_u64) | 1;
        Self { entries: Table::new(64, EMPTY), shift: u64::BITS - 6, multiplier, keys: Vec::new() }
    }
}

const EMPTY: Entry = Entry { key: 0, chunk: 0 };

impl Pages {
    /// Length of arrays with a place for each page seen so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len() * CHUNK
    }

    /// The number of `page`, a new one if it was never seen.
    #[inline(always)]
    pub fn id(&mut self, page: u64) -> Id {
        let chunk = match self.look_up(page) {
            Ok(chunk) => chunk,
            Err(at) => self.insert((page >> CHUNK_BITS) + 1, at),
        };
        chunk << CHUNK_BITS | (page as u32 & (CHUNK as u32 - 1))
    }

    /// The numbers of `pages`.
    #[inline(always)]
    pub fn ids(&mut self, pages: &[u64], ids: &mut [Id]) {
        for (nth, (id, &page)) in ids.iter_mut().zip(pages).enumerate() {
            if let Some(&soon) = pages.get(nth + AHEAD) {
                cpu::prefetch(&self.entries, self.home((soon >> CHUNK_BITS) + 1));
            }
            *id = self.id(page);
        }
    }

    /// The number of `page`, if its chunk was seen.
    #[inline(always)]
    pub fn find(&self, page: u64) -> Option<Id> {
        self.look_up(page).ok().map(|chunk| chunk << CHUNK_BITS | (page as u32 & (CHUNK as u32 - 1)))
    }

    /// The chunk of `page`, or the free entry for it.
    #[inline(always)]
    fn look_up(&self, page: u64) -> Result<u32, usize> {
        let key = (page >> CHUNK_BITS) + 1;
        let mut at = self.home(key);
        loop {
            let entry = self.entries[at];
            if entry.key == key {
                return Ok(entry.chunk);
            }
            if entry.key == 0 {
                return Err(at);
            }
            at = (at + 1) & (self.entries.len() - 1);
        }
    }

    /// The page that has this number.
    #[must_use]
    pub fn page(&self, id: Id) -> u64 {
        (self.keys[id as usize >> CHUNK_BITS] - 1) << CHUNK_BITS | u64::from(id) & (CHUNK as u64 - 1)
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(self.multiplier) >> self.shift) as usize
    }

    #[cold]
    fn insert(&mut self, key: u64, at: usize) -> u32 {
        let chunk = u32::try_from(self.keys.len()).ok().filter(|&chunk| chunk < 1 << (u32::BITS - CHUNK_BITS - 1));
        let chunk =
            chunk.expect("fewer than 2^31 pages: the arrays of pages would not fit into memory long before");
        self.keys.push(key);
        self.entries[at] = Entry { key, chunk };
        if self.keys.len() * 2 > self.entries.len() {
            self.grow();
        }
        chunk
    }

    fn grow(&mut self) {
        let length = self.entries.len() * 2;
        self.shift -= 1;
        self.entries = Table::new(length, EMPTY);
        for (chunk, &key) in (0..).zip(&self.keys) {
            let mut at = self.home(key);
            while self.entries[at].key != 0 {
                at = (at + 1) & (length - 1);
            }
            self.entries[at] = Entry { key, chunk };
        }
    }
}

/// [`PageMap::get`] of a page without a number.
pub(crate) const NONE: u64 = u64::MAX;

/// A number for each page, such as its frame; one map for pages of all address spaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageMap {
    pages: Pages,
    numbers: Table<u64>,
}

impl PageMap {
    /// The number of `page`, or [`NONE`].
    #[inline(always)]
    pub(crate) fn get(&self, page: u64) -> u64 {
        self.pages.find(page).map_or(NONE, |id| self.numbers[id as usize])
    }

    pub(crate) fn set(&mut self, page: u64, number: u64) {
        let id = self.pages.id(page);
        self.numbers.resize(self.pages.len(), NONE);
        self.numbers[id as usize] = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        #[test]
        fn every_page_keeps_its_own_number(pages in proptest::collection::vec(
            prop_oneof![0..2000_u64, any::<u64>()], 1..1000,
        )) {
            let mut table = Pages::default();
            let mut known = HashMap::new();
            for &page in &pages {
                let id = table.id(page);
                prop_assert_eq!(*known.entry(page).or_insert(id), id);
                prop_assert_eq!(table.find(page), Some(id));
                prop_assert!((id as usize) < table.len());
                prop_assert_eq!(table.page(id), page);
            }
        }
    }

    #[test]
    fn what_is_set_is_found() {
        let mut map = PageMap::default();
        let pages: Vec<u64> = (0..5000_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8).collect();
        pages.iter().enumerate().for_each(|(i, page)| map.set(*page, i as u64));
        let copy = map.clone();
        for (i, page) in pages.iter().enumerate() {
            assert_eq!((map.get(*page), copy.get(*page)), (i as u64, i as u64));
        }
        assert_eq!((map.get(77), map.get(pages[0] ^ 1)), (NONE, NONE));
    }
}
