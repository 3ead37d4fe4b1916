//! Arrays of translations: the entries of TLBs and page-walk caches.

use pagelab_trace::ADDRESS_BITS;

use super::behind::Missed;
use super::spec::{ArraySpec, WalkCacheSpec, shape};
use crate::allocate::PAGE_BITS;
use crate::cache::{EMPTY, Index, Place, Questions, Replacement, Sets};
use crate::cpu::Level;
use crate::table::Table;

/// Bits of a key that hold the page number; the address space and the size are above.
const NUMBER_BITS: u32 = ADDRESS_BITS - PAGE_BITS;

/// An array of entries of several sizes.
#[derive(Clone, Debug)]
pub(super) struct Array {
    sets: Sets,
    index: Index,
    /// Binary logarithms of the sizes that its entries can map, ascending.
    grains: Vec<u32>,
    fragments: bool,
}

/// Binary logarithm of the size that the last level of a walk maps for a page of `1 << page_bits` bytes.
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

    /// The size that an entry for a page of this size maps; `None` if the array does not hold such pages.
    ///
    /// A page of 64 KiB has sixteen entries in the table: an array with entries for 16 KiB holds it in four of them,
    /// one with entries for 4 KiB in sixteen. A page of 2 MiB has one entry in the table; only an array with entries
    /// for 2 MiB, or one that holds fragments, can hold it.
    pub(super) fn grain(&self, page_bits: u32) -> Option<u32> {
        let least = if self.fragments { PAGE_BITS } else { leaf(page_bits) };
        self.grains.iter().copied().rfind(|grain| (least..=page_bits).contains(grain))
    }

    #[inline]
    fn key(asid: u16, address: u64, grain: u32) -> u64 {
        u64::from(grain) << (NUMBER_BITS + 12) | u64::from(asid) << NUMBER_BITS | address >> grain
    }

    /// Whether there is an entry; if so, uses it.
    #[inline(always)]
    pub(super) fn touch(&mut self, asid: u16, address: u64, grain: u32) -> bool {
        self.sets.touch(self.index.of(address >> grain), Array::key(asid, address, grain), false).is_some()
    }

    /// Uses the entries of the walks that `asking` names, in their order, or inserts them. A walk whose entry was there
    /// starts at `start`; the others are then named by `asking`, whose new length is returned.
    #[inline(always)]
    pub(super) fn shorten(
        &mut self,
        asid: u16,
        walks: &mut [Missed],
        asking: &mut [u16],
        (grain, start): (u32, u32),
    ) -> usize {
        let mut left = 0;
        let start = start as u8;
        self.sets.use_or_insert_all(Asking {
            walks,
            asking,
            left: &mut left,
            asid,
            grain,
            start,
            index: &self.index,
        });
        left
    }

    /// Inserts an entry that is not there.
    #[inline(always)]
    pub(super) fn insert(&mut self, asid: u16, address: u64, grain: u32) {
        self.sets.insert(self.index.of(address >> grain), Array::key(asid, address, grain), false);
    }

    /// Uses an entry, or inserts it; returns whether it was there.
    #[inline(always)]
    pub(super) fn use_or_insert(&mut self, asid: u16, address: u64, grain: u32) -> bool {
        let was_there = self.touch(asid, address, grain);
        if !was_there {
            self.insert(asid, address, grain);
        }
        was_there
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.sets.check()
    }
}

/// Walks that ask a walk cache.
struct Asking<'a> {
    walks: &'a mut [Missed],
    asking: &'a mut [u16],
    /// The number of those without an entry, which come first in `asking`.
    left: &'a mut usize,
    asid: u16,
    grain: u32,
    /// Where a walk with an entry starts.
    start: u8,
    index: &'a Index,
}

impl Questions for Asking<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.asking.len()
    }

    #[inline(always)]
    fn place(&self, nth: usize) -> Place {
        let address = self.walks[usize::from(self.asking[nth])].address;
        Place { set: self.index.of(address >> self.grain) as u32, key: Array::key(self.asid, address, self.grain) }
    }

    #[inline(always)]
    fn answer(&mut self, nth: usize, was_there: bool) {
        let number = self.asking[nth];
        let walk = &mut self.walks[usize::from(number)];
        walk.start = if was_there { self.start } else { walk.start };
        self.asking[*self.left] = number;
        *self.left += usize::from(!was_there);
    }
}

/// Misses that ask a second level.
struct Listed<'a> {
    missed: &'a [Missed],
    found: &'a mut [bool],
    asid: u16,
    table: &'a [Option<Held>; 31],
    index: &'a Index,
}

impl Questions for Listed<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.missed.len()
    }

    #[inline(always)]
    fn place(&self, nth: usize) -> Place {
        let Missed { address, entry_bits, .. } = self.missed[nth];
        let grain = self.table[usize::from(entry_bits)].map_or(0, |held| u32::from(held.grain));
        Place { set: self.index.of(address >> grain) as u32, key: Array::key(self.asid, address, grain) }
    }

    #[inline(always)]
    fn answer(&mut self, nth: usize, was_there: bool) {
        self.found[nth] = was_there;
    }
}

/// Number of counters of changes: sets whose numbers map to the same counter are counted together.
const COUNTERS: usize = 64;
/// Distance between the counters of the first sets of one array and the next.
const APART: usize = 29;

/// The place of an entry, and when it was seen there: the number of entries that had come into its set, or a set with
/// the same counter, and above it the number of the counter among [`COUNTERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    changes: u64,
    /// Its index among the uses of all ways.
    at: u32,
}

impl Seen {
    /// No place; also under a policy that must see each use.
    pub(super) const NEVER: Seen = Seen { changes: u64::MAX, at: 0 };
}

/// The arrays of a level that hold a page size.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Number of the first of them.
    array: u16,
    /// Their number: they are parts of one array.
    parts: u8,
    /// Binary logarithm of the size that an entry maps.
    grain: u8,
    /// Number of sets of each.
    sets: u32,
}

impl Held {
    /// The array for an address.
    #[inline(always)]
    fn array(self, address: u64) -> usize {
        let first = usize::from(self.array);
        if self.parts == 1 {
            return first;
        }
        first + ((address >> self.grain) / u64::from(self.sets) % u64::from(self.parts)) as usize
    }
}

/// The arrays of a level, by the page sizes that they hold.
#[derive(Clone, Debug)]
pub(super) struct Arrays {
    arrays: Vec<Array>,
    /// The arrays for each binary logarithm of the page size.
    table: [Option<Held>; 31],
    /// Number of entries that have come, times [`COUNTERS`], plus the counter's number.
    changes: [u64; COUNTERS],
    /// Time of the last use of each way; the first entry stands for no way. Under LRU this is the order of ways, which
    /// stay in place.
    uses: Table<u64>,
    /// Start of the uses of each array.
    begin: Vec<usize>,
    /// Whether this is a first level, where entries are remembered ([`Seen`]) and used far more often than searched;
    /// otherwise sets keep their order themselves.
    is_first: bool,
    /// Whether the sets of a first level under LRU keep their order themselves for now.
    in_order: bool,
}

impl Arrays {
    pub(super) fn new<'a>(specs: impl Iterator<Item = &'a ArraySpec>, is_first: bool, seed: u64) -> Arrays {
        // Each part with the number of its array.
        let parts: Vec<(usize, ArraySpec)> =
            specs.enumerate().flat_map(|(at, spec)| spec.split().into_iter().map(move |part| (at, part))).collect();
        let arrays: Vec<Array> =
            parts.iter().enumerate().map(|(at, (_, part))| Array::new(part, seed ^ (at as u64) << 40)).collect();
        let mut table = [None; 31];
        for (page_bits, entry) in table.iter_mut().enumerate() {
            let grains = arrays.iter().map(|array| array.grain(page_bits as u32));
            let held: Vec<_> = grains.enumerate().filter_map(|(at, grain)| Some((at, grain?))).collect();
            let Some(grain) = held.iter().map(|(_, grain)| *grain).max() else { continue };
            // One array holds a size: the arrays with this grain are its parts, next to each other.
            let mut holding = held.iter().filter(|(_, held)| *held == grain).map(|(at, _)| *at);
            let Some(first) = holding.next() else { continue };
            let more = holding.filter(|at| parts[*at].0 == parts[first].0).count();
            let (sets, _) = shape(parts[first].1.entries, parts[first].1.ways);
            *entry =
                Some(Held { array: first as u16, parts: 1 + more as u8, grain: grain as u8, sets: sets as u32 });
        }
        let mut begin = vec![1];
        for (_, part) in &parts {
            let (sets, ways) = shape(part.entries, part.ways);
            begin.push(begin[begin.len() - 1] + (sets * ways) as usize);
        }
        let uses = Table::new(begin[parts.len()], 0);
        Arrays {
            arrays,
            table,
            changes: std::array::from_fn(|counter| counter as u64),
            uses,
            begin,
            is_first,
            in_order: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.arrays.is_empty()
    }

    /// Size mapped by an entry for pages of this size.
    #[inline]
    pub(super) fn grain(&self, page_bits: u32) -> Option<u32> {
        self.table[page_bits as usize].map(|held| u32::from(held.grain))
    }

    /// Uses an entry at the time `now`, if it is there.
    #[inline(always)]
    pub(super) fn touch(&mut self, asid: u16, address: u64, page_bits: u32, now: u64) -> Option<Seen> {
        let held = self.table[page_bits as usize]?;
        let (number, grain) = (held.array(address), u32::from(held.grain));
        let array = &mut self.arrays[number];
        let (set, key) = (array.index.of(address >> grain), Array::key(asid, address, grain));
        if !self.is_first || array.sets.is_tree() {
            return array.sets.touch(set, key, false).map(|_| Seen::NEVER);
        }
        let at = self.begin[number] + set * array.sets.ways() + array.sets.find(set, key)?;
        self.uses[at] = now;
        Some(Seen { changes: self.changes[(set + number * APART) % COUNTERS], at: at as u32 })
    }

    /// Uses an entry of a first level at the time `now`, or inserts it; returns whether it was there.
    #[inline(always)]
    pub(super) fn use_or_insert(&mut self, asid: u16, address: u64, page_bits: u32, now: u64) -> (bool, Seen) {
        let Some(held) = self.table[page_bits as usize] else { return (false, Seen::NEVER) };
        let (number, grain) = (held.array(address), u32::from(held.grain));
        if self.in_order && self.arrays[number].sets.is_ordered() {
            return (self.use_or_insert_in_order::<{ Level::Baseline as u8 }>(held, asid, address), Seen::NEVER);
        }
        let array = &mut self.arrays[number];
        if !array.sets.is_ordered() {
            return match self.touch(asid, address, page_bits, now) {
                Some(seen) => (true, seen),
                None => (false, self.insert(asid, address, page_bits, now)),
            };
        }
        let (set, key) = (array.index.of(address >> grain), Array::key(asid, address, grain));
        let first = self.begin[number] + set * array.sets.ways();
        let words = array.sets.ordered(set);
        let uses = &mut self.uses[first..][..words.len()];
        let (was_there, way) = match words.len() {
            4 => found_or_oldest::<4>(words, uses, key << 1, now),
            8 => found_or_oldest::<8>(words, uses, key << 1, now),
            _ => {
                let found = words.iter().position(|word| *word == key << 1);
                let way = found.unwrap_or_else(|| oldest(uses));
                (words[way], uses[way]) = (key << 1, now);
                (found.is_some(), way)
            }
        };
        let changes = &mut self.changes[(set + number * APART) % COUNTERS];
        *changes += COUNTERS as u64 * u64::from(!was_there);
        (was_there, Seen { changes: *changes, at: (first + way) as u32 })
    }

    #[inline(always)]
    fn use_or_insert_in_order<const LEVEL: u8>(&mut self, held: Held, asid: u16, address: u64) -> bool {
        let (array, grain) = (&mut self.arrays[held.array(address)], u32::from(held.grain));
        array.sets.use_or_insert::<LEVEL>(array.index.of(address >> grain), Array::key(asid, address, grain))
    }

    /// As [`Arrays::use_or_insert`], after [`Arrays::put_in_order`], without remembering the entry; for code that is
    /// compiled for `LEVEL`.
    #[inline(always)]
    pub(super) fn use_fresh<const LEVEL: u8>(&mut self, asid: u16, address: u64, page_bits: u32, now: u64) -> bool {
        match self.table[page_bits as usize] {
            None => false,
            Some(held) if self.arrays[held.array(address)].sets.is_ordered() => {
                self.use_or_insert_in_order::<LEVEL>(held, asid, address)
            }
            Some(_) => self.use_or_insert(asid, address, page_bits, now).0,
        }
    }

    /// From now on the sets of a first level under LRU keep their order themselves, which is cheaper where entries
    /// seldom stay; places seen so far are forgotten.
    pub(super) fn put_in_order(&mut self) {
        if std::mem::replace(&mut self.in_order, true) {
            return;
        }
        self.changes.iter_mut().for_each(|changes| *changes += COUNTERS as u64);
        for (array, begin) in self.arrays.iter_mut().zip(&self.begin).filter(|(array, _)| array.sets.is_ordered()) {
            let ways = array.sets.ways();
            for (set, uses) in self.uses[*begin..].chunks(ways).take(array.sets.len()).enumerate() {
                let words = array.sets.ordered(set);
                let mut ordered: Vec<(u64, usize, u64)> =
                    (0..).zip(uses).zip(&*words).map(|((way, at), word)| (*at, way, *word)).collect();
                // Of ways that were never used the first is taken first: it is the last.
                ordered.sort_unstable_by(|one, other| other.cmp(one));
                words.iter_mut().zip(ordered).for_each(|(word, (_, _, there))| *word = there);
            }
        }
    }

    /// Whether the sets keep their order themselves now.
    #[inline(always)]
    pub(super) const fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// Undoes [`Arrays::put_in_order`] at the time `now`.
    #[inline(always)]
    pub(super) fn keep_places(&mut self, now: u64) {
        if self.in_order {
            self.restore_places(now);
        }
    }

    #[cold]
    fn restore_places(&mut self, now: u64) {
        self.in_order = false;
        for (array, begin) in self.arrays.iter_mut().zip(&self.begin).filter(|(array, _)| array.sets.is_ordered()) {
            let ways = array.sets.ways();
            let count = array.sets.len();
            for (set, uses) in self.uses[*begin..].chunks_mut(ways).take(count).enumerate() {
                // No more ways are full than there were translations.
                for ((age, at), word) in (0..).zip(uses).zip(array.sets.ordered(set)) {
                    *at = if *word == EMPTY { 0 } else { now - age };
                }
            }
        }
    }

    /// Uses the entries of `missed`, in their order, or inserts them; `found` gets whether each was there.
    #[inline(always)]
    pub(super) fn use_or_insert_all(&mut self, asid: u16, missed: &[Missed], found: &mut [bool]) {
        let [Array { sets, index, .. }] = &mut self.arrays[..] else {
            return self.each(asid, missed, found);
        };
        let table = &self.table;
        if missed.iter().all(|one| table[usize::from(one.entry_bits)].is_some()) {
            sets.use_or_insert_all(Listed { missed, found, asid, table, index });
        } else {
            self.each(asid, missed, found);
        }
    }

    fn each(&mut self, asid: u16, missed: &[Missed], found: &mut [bool]) {
        for (one, found) in missed.iter().zip(found) {
            *found = self.in_second(asid, one);
        }
    }

    /// Uses an entry of a second level, or inserts it; returns whether it was there.
    #[inline(always)]
    pub(super) fn in_second(&mut self, asid: u16, one: &Missed) -> bool {
        let bits = u32::from(one.entry_bits);
        let was_there = self.touch(asid, one.address, bits, one.now).is_some();
        if !was_there {
            self.insert(asid, one.address, bits, one.now);
        }
        was_there
    }

    /// Whether an entry that was seen is still where it was.
    #[inline(always)]
    pub(super) fn is_there(&self, seen: Seen) -> bool {
        self.changes[seen.changes as usize % COUNTERS] == seen.changes
    }

    /// Uses an entry that is there.
    #[inline(always)]
    pub(super) fn use_again(&mut self, seen: Seen, now: u64) {
        self.uses[seen.at as usize] = now;
    }

    /// Inserts an entry that is not there, and uses it.
    #[inline(always)]
    pub(super) fn insert(&mut self, asid: u16, address: u64, page_bits: u32, now: u64) -> Seen {
        let Some(held) = self.table[page_bits as usize] else { return Seen::NEVER };
        let (number, grain) = (held.array(address), u32::from(held.grain));
        let array = &mut self.arrays[number];
        let (set, key) = (array.index.of(address >> grain), Array::key(asid, address, grain));
        if !self.is_first {
            array.sets.insert(set, key, false);
            return Seen::NEVER;
        }
        let changes = &mut self.changes[(set + number * APART) % COUNTERS];
        *changes += COUNTERS as u64;
        let first = self.begin[number] + set * array.sets.ways();
        let way = if array.sets.is_ordered() {
            // A way that was never used is taken first.
            let uses = &self.uses[first..first + array.sets.ways()];
            let way = oldest(uses);
            array.sets.put(set, way, key);
            way
        } else {
            array.sets.insert(set, key, false);
            match array.sets.find(set, key) {
                Some(way) if !array.sets.is_tree() => way,
                _ => return Seen::NEVER,
            }
        };
        self.uses[first + way] = now;
        Seen { changes: *changes, at: (first + way) as u32 }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.arrays.iter().try_for_each(Array::check)
    }
}

/// Uses the way of `word` at the time `now`, or puts the word into the way used longest ago. Returns whether it was
/// there, and the way.
///
/// Both results are computed, because neither is predictable. All ways are written: a value written by one instruction
/// can be read by one instruction before it is in the cache.
#[inline(always)]
fn found_or_oldest<const W: usize>(words: &mut [u64], uses: &mut [u64], word: u64, now: u64) -> (bool, usize) {
    let (Ok(words), Ok(uses)) = (<&mut [u64; W]>::try_from(words), <&mut [u64; W]>::try_from(uses)) else {
        return (false, 0);
    };
    let (old, times) = (*words, *uses);
    let found = old.iter().zip(0..).fold(0_u32, |found, (there, way)| found | u32::from(*there == word) << way);
    // Times are below 2^58, so the smallest of these is the first of the oldest ways.
    let oldest = times.iter().zip(0..).fold(u64::MAX, |least, (at, way)| least.min(at << 6 | way)) as u32 & 63;
    let way = std::hint::select_unpredictable(found != 0, found.trailing_zeros(), oldest) as usize;
    (words[way % W], uses[way % W]) = (word, now);
    (found != 0, way)
}

/// The first of the smallest times.
#[inline(always)]
fn oldest(uses: &[u64]) -> usize {
    let mut found = (uses[0], 0);
    for (way, at) in uses.iter().copied().enumerate() {
        found = if at < found.0 { (at, way) } else { found };
    }
    found.1
}
