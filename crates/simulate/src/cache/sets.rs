//! Sets of ways, shared by caches and TLBs.
//!
//! A way is one word: a key of 63 bits and a flag (dirty, for caches) in the lowest bit. Under LRU the ways of a set
//! are in the order of their last use, the most recent first. So one comparison finds the way that is hit most often, a
//! victim costs no search, and there is no list or counter beside the keys. The other policies leave keys in their
//! ways.

mod all;
pub(super) mod lru;

pub(crate) use all::{Place, Questions};
use serde::{Deserialize, Serialize};

use crate::cpu;
use crate::table::Table;
use pagelab_stats::stream::SplitMix64;

/// An empty way. No key is that large.
pub(crate) const EMPTY: u64 = u64::MAX;
/// Words of a cache line of the processor that runs the simulator.
const LINE_WORDS: usize = 8;
/// Keys lie below this.
pub(crate) const KEY_LIMIT: u64 = (1 << 63) - 1;
/// Most ways under a tree: one word has the nodes for 64.
pub(crate) const MOST_TREE_WAYS: usize = 64;

/// Replacement in a full set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// The one used longest ago.
    #[default]
    Lru,
    /// The one to which a binary tree of bits points, each bit away from the half used last; a power of two of ways.
    TreePlru,
    /// One drawn with equal chances.
    Random,
}

/// Bits of a tree, or the state of a generator.
#[derive(Clone, Debug)]
enum Order {
    Lru,
    Tree(Vec<u64>),
    Random(SplitMix64),
}

/// `sets × ways` words.
#[derive(Clone, Debug)]
pub struct Sets {
    ways: usize,
    /// The words, after as many unused ones as put the first set at the beginning of a cache line.
    words: Table<u64>,
    first: usize,
    order: Order,
}

/// The entry evicted from a full set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its key.
    pub key: u64,
    /// Its flag.
    pub flag: bool,
}

impl Victim {
    #[inline]
    const fn of(word: u64) -> Option<Victim> {
        if word == EMPTY { None } else { Some(Victim { key: word >> 1, flag: word & 1 == 1 }) }
    }
}

impl Sets {
    /// Empty sets. `ways` is a power of two up to 64 for [`Replacement::TreePlru`]; `seed` is for
    /// [`Replacement::Random`].
    ///
    /// # Panics
    /// If there are no ways, or a number that a tree cannot have: specifications are checked before.
    pub fn new(sets: usize, ways: usize, replacement: Replacement, seed: u64) -> Sets {
        assert!(ways > 0, "a set has ways");
        let order = match replacement {
            Replacement::Lru => Order::Lru,
            Replacement::TreePlru => {
                assert!(ways.is_power_of_two() && ways <= MOST_TREE_WAYS, "a tree has 2, 4, 8, 16, 32 or 64 ways");
                Order::Tree(vec![0; sets])
            }
            Replacement::Random => Order::Random(SplitMix64::new(seed)),
        };
        let words = Table::new(sets * ways + LINE_WORDS - 1, EMPTY);
        let first = words.as_ptr().addr().wrapping_neg() / size_of::<u64>() % LINE_WORDS;
        Sets { ways, words, first, order }
    }

    /// Ways of each set.
    pub(crate) fn ways(&self) -> usize {
        self.ways
    }

    /// Number of sets.
    pub(crate) fn len(&self) -> usize {
        (self.words.len() - (LINE_WORDS - 1)) / self.ways
    }

    /// Whether a set's words are in the order of their last use.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(self.order, Order::Lru)
    }

    /// Whether two uses of an entry may change more than one.
    #[inline(always)]
    pub(crate) fn is_tree(&self) -> bool {
        matches!(self.order, Order::Tree(_))
    }

    /// The words of a set under LRU, the one used last first; the caller must preserve the order.
    #[inline(always)]
    pub(crate) fn ordered(&mut self, set: usize) -> &mut [u64] {
        debug_assert!(self.is_ordered());
        self.set(set)
    }

    #[inline]
    fn set(&mut self, set: usize) -> &mut [u64] {
        &mut self.words[self.first + set * self.ways..][..self.ways]
    }

    /// The words of a set; their order has a meaning only under LRU.
    #[inline]
    pub(crate) fn words(&self, set: usize) -> &[u64] {
        &self.words[self.first + set * self.ways..][..self.ways]
    }

    /// Uses `key` and adds `flag` to its flag. Returns the flag before; `None` if the key is not there.
    #[inline(always)]
    pub fn touch(&mut self, set: usize, key: u64, flag: bool) -> Option<bool> {
        let wanted = key << 1 | 1;
        if let Order::Lru = self.order {
            return lru::touch(self.set(set), wanted, u64::from(flag));
        }
        let at = self.set(set).iter().position(|word| word | 1 == wanted)?;
        self.used(set, at);
        let word = &mut self.set(set)[at];
        let before = *word & 1 == 1;
        *word |= u64::from(flag);
        Some(before)
    }

    /// The way of `key`, without using it.
    #[inline(always)]
    pub(crate) fn find(&self, set: usize, key: u64) -> Option<usize> {
        let words = self.words(set);
        if let Ok(words) = <&[u64; 4]>::try_from(words) {
            return find_in(words, key);
        }
        if let Ok(words) = <&[u64; 8]>::try_from(words) {
            return find_in(words, key);
        }
        if let Ok(words) = <&[u64; 12]>::try_from(words) {
            return find_in(words, key);
        }
        words.iter().position(|word| word >> 1 == key)
    }

    /// Puts `key` into a way, whatever was there: for callers that keep the order of ways themselves, and no flags.
    #[inline(always)]
    pub(crate) fn put(&mut self, set: usize, way: usize, key: u64) {
        debug_assert!(self.is_ordered() && key < KEY_LIMIT && self.peek(set, key).is_none());
        self.set(set)[way] = key << 1;
    }

    /// The flag of `key`, without using it.
    #[inline]
    pub fn peek(&self, set: usize, key: u64) -> Option<bool> {
        self.words(set).iter().find(|word| **word | 1 == key << 1 | 1).map(|word| word & 1 == 1)
    }

    /// Adds `flag` to the flag of `key`, without using the key; returns whether it is there.
    pub fn mark(&mut self, set: usize, key: u64, flag: bool) -> bool {
        let Some(word) = self.set(set).iter_mut().find(|word| **word | 1 == key << 1 | 1) else { return false };
        *word = key << 1 | u64::from(flag);
        true
    }

    /// Removes `key`; returns its flag.
    pub fn remove(&mut self, set: usize, key: u64) -> Option<bool> {
        let lru = matches!(self.order, Order::Lru);
        let words = self.set(set);
        let at = words.iter().position(|word| word | 1 == key << 1 | 1)?;
        let flag = words[at] & 1 == 1;
        words[at] = EMPTY;
        if lru {
            // Empty ways are behind the others.
            words[at..].rotate_left(1);
        }
        Some(flag)
    }

    /// Inserts `key`, which must not be there, as the one used last; returns the evicted entry.
    #[inline(always)]
    pub fn insert(&mut self, set: usize, key: u64, flag: bool) -> Option<Victim> {
        debug_assert!(key < KEY_LIMIT && self.peek(set, key).is_none());
        let word = key << 1 | u64::from(flag);
        if let Order::Lru = self.order {
            return Victim::of(lru::push(self.set(set), word));
        }
        let at = match self.words(set).iter().position(|word| *word == EMPTY) {
            Some(at) => at,
            None => self.choose(set),
        };
        self.used(set, at);
        Victim::of(std::mem::replace(&mut self.set(set)[at], word))
    }

    /// The way that a full set gives up.
    fn choose(&mut self, set: usize) -> usize {
        match &mut self.order {
            Order::Lru => self.ways - 1,
            Order::Tree(bits) => follow(bits[set], self.ways),
            Order::Random(random) => random.below(self.ways as u64) as usize,
        }
    }

    fn used(&mut self, set: usize, at: usize) {
        if let Order::Tree(bits) = &mut self.order {
            bits[set] = point_away(bits[set], at, self.ways);
        }
    }

    /// Number of ways in use.
    pub fn filled(&self) -> usize {
        self.words[self.first..].iter().filter(|word| **word != EMPTY).count()
    }

    /// Every key and its flag, with the number of its set.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Victim)> + '_ {
        let ways = self.ways;
        self.words[self.first..]
            .iter()
            .enumerate()
            .filter_map(move |(at, word)| Some((at / ways, Victim::of(*word)?)))
    }

    /// Tells the processor that `set` will be needed soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, set: usize) {
        let first = self.first + set * self.ways;
        cpu::prefetch(&self.words, first);
        if self.ways > LINE_WORDS {
            cpu::prefetch(&self.words, first + LINE_WORDS);
        }
    }

    /// Checks the invariants: no key twice in a set; under LRU, empty ways behind the others.
    ///
    /// # Errors
    /// The violated invariant.
    pub fn check(&self) -> Result<(), String> {
        for (number, words) in self.words[self.first..].chunks(self.ways).enumerate() {
            let mut keys: Vec<u64> = words.iter().filter(|word| **word != EMPTY).map(|word| word >> 1).collect();
            let filled = keys.len();
            if matches!(self.order, Order::Lru) && words[..filled].contains(&EMPTY) {
                return Err(format!("set {number} has an empty way before a full one"));
            }
            keys.sort_unstable();
            keys.dedup();
            if keys.len() != filled {
                return Err(format!("set {number} has a key twice"));
            }
        }
        Ok(())
    }
}

/// The way that has `key`. All ways are compared, because the right one is unpredictable.
#[inline(always)]
fn find_in<const W: usize>(words: &[u64; W], key: u64) -> Option<usize> {
    let found =
        words.iter().enumerate().fold(0_u32, |found, (way, word)| found | u32::from(word >> 1 == key) << way);
    (found != 0).then(|| found.trailing_zeros() as usize % W)
}

/// The way to which the tree points. Node 1 is the root, node n's children are 2n and 2n + 1; a set bit points to the
/// second.
fn follow(bits: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (bits >> node & 1) as usize;
    }
    node - ways
}

/// The tree with every node above way `at` pointing to the other side.
fn point_away(mut bits: u64, at: usize, ways: usize) -> u64 {
    let mut node = at + ways;
    while node > 1 {
        let second = node & 1 == 1;
        node /= 2;
        bits = bits & !(1 << node) | u64::from(!second) << node;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_stats::stream::mix;
    use proptest::prelude::*;

    #[test]
    fn the_least_recently_used_falls_out() {
        let mut sets = Sets::new(1, 2, Replacement::Lru, 0);
        assert_eq!(sets.insert(0, 1, true), None);
        assert_eq!(sets.insert(0, 2, false), None);
        assert_eq!(sets.touch(0, 1, false), Some(true));
        assert_eq!(sets.insert(0, 3, false), Some(Victim { key: 2, flag: false }));
        assert_eq!(sets.touch(0, 2, false), None);
        assert_eq!(sets.remove(0, 3), Some(false));
        assert_eq!(sets.insert(0, 4, false), None);
    }

    #[test]
    fn a_tree_of_four_ways_gives_up_what_the_bits_say() {
        // After using 0, 1, 2, 3 in order the root points to the first half, whose node points to 0.
        let mut sets = Sets::new(1, 4, Replacement::TreePlru, 0);
        (0..4).for_each(|key| assert_eq!(sets.insert(0, key, false), None));
        assert_eq!(sets.insert(0, 4, false).unwrap().key, 0);
        // Using 4 (way 0) turns the root to the second half, whose node still points to way 2.
        assert_eq!(sets.insert(0, 5, false).unwrap().key, 2);
        // True LRU would give up 1 now; so does the tree: the first half's node points away from way 0.
        assert_eq!(sets.insert(0, 6, false).unwrap().key, 1);
        // Here the tree differs: 3 was used longest ago, and goes; then 4, though 5 is older than 6 and 4 older than 5.
        assert_eq!(sets.insert(0, 7, false).unwrap().key, 3);
    }

    #[test]
    fn two_ways_of_a_tree_are_lru() {
        let mut tree = Sets::new(4, 2, Replacement::TreePlru, 0);
        let mut lru = Sets::new(4, 2, Replacement::Lru, 0);
        let mut state = 1;
        for _ in 0..10_000 {
            state = mix(state);
            let (set, key) = ((state & 3) as usize, state >> 2 & 7);
            let hits = [&mut tree, &mut lru].map(|sets| sets.touch(set, key, false).is_some());
            assert_eq!(hits[0], hits[1]);
            if !hits[0] {
                assert_eq!(tree.insert(set, key, false), lru.insert(set, key, false));
            }
        }
    }

    #[test]
    fn random_victims_are_all_ways_alike() {
        let mut sets = Sets::new(1, 8, Replacement::Random, 7);
        let mut counts = [0_u32; 8];
        for key in 0..8 {
            sets.insert(0, key, false);
        }
        for key in 8..80_008 {
            sets.insert(0, key, false);
            let at = sets.words(0).iter().position(|word| word >> 1 == key).unwrap();
            counts[at] += 1;
        }
        // 10,000 expected, standard deviation 94.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
    }

    proptest! {
        #[test]
        fn lru_is_a_list_of_the_last_uses(keys in prop::collection::vec((0_u64..12, any::<bool>(), 0_u8..8), 0..300)) {
            let mut sets = Sets::new(3, 4, Replacement::Lru, 0);
            let mut lists: Vec<Vec<(u64, bool)>> = vec![vec![]; 3];
            for (key, flag, action) in keys {
                let set = (key % 3) as usize;
                let list = &mut lists[set];
                let at = list.iter().position(|entry| entry.0 == key);
                if action == 0 {
                    prop_assert_eq!(sets.remove(set, key), at.map(|at| list.remove(at).1));
                    continue;
                }
                prop_assert_eq!(sets.touch(set, key, flag), at.map(|at| list[at].1));
                match at {
                    Some(at) => {
                        let entry = list.remove(at);
                        list.insert(0, (key, entry.1 | flag));
                    }
                    None => {
                        let out = if list.len() == 4 { list.pop() } else { None };
                        let fell = sets.insert(set, key, flag).map(|victim| (victim.key, victim.flag));
                        prop_assert_eq!(fell, out);
                        list.insert(0, (key, flag));
                    }
                }
                prop_assert_eq!(sets.check(), Ok(()));
            }
        }
    }
}
