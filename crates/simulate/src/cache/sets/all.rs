//! Many uses of one array of sets, in order.

use super::{LINE_WORDS, Sets, lru};
use crate::cpu::{self, Leveled};

/// Uses between the prefetch of a set's words and their use.
const AHEAD: usize = 12;
/// Below this number, sets count as few.
const FEW: usize = 5;

/// A key and its set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) set: u32,
    pub(crate) key: u64,
}

/// Questions to an array of sets, to be answered in order: is this key there?
pub(crate) trait Questions {
    fn len(&self) -> usize;

    /// The nth question.
    fn place(&self, nth: usize) -> Place;

    /// Takes the answer to the nth question.
    fn answer(&mut self, nth: usize, was_there: bool);
}

impl Sets {
    /// Uses the key of each question, or inserts it, and tells whether it was there.
    #[inline(always)]
    pub(crate) fn use_or_insert_all(&mut self, mut questions: impl Questions) {
        if self.is_ordered() {
            cpu::widest_level(All { sets: self, questions });
            return;
        }
        for nth in 0..questions.len() {
            let Place { set, key } = questions.place(nth);
            let was_there = self.touch(set as usize, key, false).is_some();
            if !was_there {
                self.insert(set as usize, key, false);
            }
            questions.answer(nth, was_there);
        }
    }
}

impl Sets {
    /// Uses `key` under LRU, or inserts it, and returns whether it was there; for code that is compiled for `LEVEL`.
    #[inline(always)]
    pub(crate) fn use_or_insert<const LEVEL: u8>(&mut self, set: usize, key: u64) -> bool {
        let words = self.ordered(set);
        match words.len() {
            4 => use_or_insert_in::<4, LEVEL>(words, key),
            8 => use_or_insert_in::<8, LEVEL>(words, key),
            _ => use_or_insert_in::<0, LEVEL>(words, key),
        }
    }
}

/// The work under LRU.
struct All<'a, Q> {
    sets: &'a mut Sets,
    questions: Q,
}

impl<Q: Questions> Leveled for All<'_, Q> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        match self.sets.ways() {
            4 => self.each::<4, LEVEL>(),
            8 => self.each::<8, LEVEL>(),
            12 => self.each::<12, LEVEL>(),
            16 => self.each::<16, LEVEL>(),
            _ => self.each::<0, LEVEL>(),
        }
    }
}

impl<Q: Questions> All<'_, Q> {
    /// The loop for `W` ways; 0: any other number.
    #[inline(always)]
    fn each<const W: usize, const LEVEL: u8>(self) {
        let All { sets, mut questions } = self;
        // With few sets, each use waits for the one before, unless a test shows that the set does not change.
        let are_few = sets.words.len() < FEW * sets.ways;
        let is_large = sets.words.len() > 512 * LINE_WORDS;
        for nth in 0..questions.len() {
            if is_large && nth + AHEAD < questions.len() {
                sets.prefetch(questions.place(nth + AHEAD).set as usize);
            }
            let Place { set, key } = questions.place(nth);
            let words = sets.ordered(set as usize);
            if are_few && words[0] == key << 1 {
                questions.answer(nth, true);
                continue;
            }
            let was_there = use_or_insert_in::<W, LEVEL>(words, key);
            questions.answer(nth, was_there);
        }
    }
}

/// Uses `key` among the `W` words of a set (0: any number), or inserts it; returns whether it was there.
#[inline(always)]
fn use_or_insert_in<const W: usize, const LEVEL: u8>(words: &mut [u64], key: u64) -> bool {
    // The evicted entry is the last; whether there is one is unpredictable, so no branch depends on it.
    match <&mut [u64; W]>::try_from(&mut *words) {
        Ok(words) if W > 0 => {
            let found = cpu::equal_words::<W, 1, LEVEL>(words, key << 1 | 1);
            let way = (found | 1 << (W - 1)).trailing_zeros() as usize;
            cpu::to_front::<W, LEVEL>(words, way, key << 1);
            found != 0
        }
        _ => {
            let way = lru::position::<0, LEVEL>(words, key << 1 | 1);
            lru::to_front::<0, LEVEL>(words, way.unwrap_or(words.len() - 1), key << 1);
            way.is_some()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Replacement;
    use super::*;
    use crate::cpu::tests::on_every_level;

    struct Listed<'a> {
        places: &'a [Place],
        found: &'a mut [bool],
    }

    impl Questions for Listed<'_> {
        fn len(&self) -> usize {
            self.places.len()
        }

        fn place(&self, nth: usize) -> Place {
            self.places[nth]
        }

        fn answer(&mut self, nth: usize, was_there: bool) {
            self.found[nth] = was_there;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn all_together_are_one_after_the_other(
            keys in prop::collection::vec(0_u64..200, 0..600), sets in 1_usize..6, ways in 1_usize..21, policy in 0_usize..3,
            cut in 1_usize..100,
        ) {
            let replacement = [Replacement::Lru, Replacement::TreePlru, Replacement::Random][policy];
            let ways = if policy == 1 { ways.next_power_of_two() } else { ways };
            let empty = Sets::new(sets, ways, replacement, 3);
            let places: Vec<Place> = keys.iter().map(|key| Place { set: (key % sets as u64) as u32, key: *key }).collect();
            let mut one_by_one = empty.clone();
            let expected: Vec<bool> = places
                .iter()
                .map(|place| {
                    let found = one_by_one.touch(place.set as usize, place.key, false).is_some();
                    if !found {
                        one_by_one.insert(place.set as usize, place.key, false);
                    }
                    found
                })
                .collect();
            for (found, words) in on_every_level(|| {
                let (mut together, mut found) = (empty.clone(), vec![false; places.len()]);
                for (places, found) in places.chunks(cut).zip(found.chunks_mut(cut)) {
                    together.use_or_insert_all(Listed { places, found });
                }
                (found, (0..sets).flat_map(|set| together.words(set).to_vec()).collect::<Vec<u64>>())
            }) {
                prop_assert_eq!(&found, &expected);
                let expected: Vec<u64> = (0..sets).flat_map(|set| one_by_one.words(set).to_vec()).collect();
                prop_assert_eq!(words, expected);
            }
        }
    }
}
