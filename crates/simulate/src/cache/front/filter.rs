//! One first level alone.
//!
//! Keys stay in their ways; the order of a set's ways is stored beside them, as bits. A reference passes these bits on
//! to the next one to the same set by an OR and an AND, and neither operation waits until the key is found. There are
//! branches for misses only: which way hits is unpredictable.

use super::{Event, Events, STORE};
use crate::cache::sets::EMPTY;
use crate::cpu;

const MOST_WAYS: usize = 16;
/// Most sets: those of a page whose lines have 8 bytes or more.
pub(super) const MOST_SETS: usize = 512;

/// `OTHERS[w][s]`: all bits; none if s = w.
const OTHERS: [[u16; MOST_WAYS]; MOST_WAYS] = {
    let mut rows = [[u16::MAX; MOST_WAYS]; MOST_WAYS];
    let mut way = 0;
    while way < MOST_WAYS {
        rows[way][way] = 0;
        way += 1;
    }
    rows
};
/// The same as words.
const OTHER_WORDS: [[u64; MOST_WAYS]; MOST_WAYS] = {
    let mut rows = [[u64::MAX; MOST_WAYS]; MOST_WAYS];
    let mut way = 0;
    while way < MOST_WAYS {
        rows[way][way] = 0;
        way += 1;
    }
    rows
};

/// The keys of a set's ways. Up to eight fit into one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Keys<const W: usize>([u64; W]);

/// Order and dirty bits of a set's ways.
#[derive(Clone, Copy, Debug)]
struct State<const W: usize> {
    /// Bit t of `newer[s]`: way t was used after way s.
    newer: [u16; W],
    /// Bit w: the line in way w is dirty.
    dirty: u16,
}

impl<const W: usize> State<W> {
    /// A state in which the first way was used longest ago, and the last one last.
    const EMPTY: State<W> = {
        let mut newer = [0; W];
        let mut way = 0;
        while way < W {
            newer[way] = (ALL << way << 1) as u16 & Self::ALL_WAYS;
            way += 1;
        }
        State { newer, dirty: 0 }
    };
    const ALL_WAYS: u16 = (ALL >> (MOST_WAYS - W)) as u16;
    /// The row of each way when all others were used after it.
    const OLDEST: [u16; W] = {
        let mut rows = [0; W];
        let mut way = 0;
        while way < W {
            rows[way] = Self::ALL_WAYS & !(1 << way);
            way += 1;
        }
        rows
    };

    #[inline(always)]
    fn touch(&mut self, way: usize) {
        let (bit, others) = (1 << way, OTHERS[way].first_chunk::<W>().expect("no more ways than rows"));
        self.newer = std::array::from_fn(|row| (self.newer[row] | bit) & others[row]);
    }

    #[inline(always)]
    fn oldest(&self) -> usize {
        let found = (0..W).fold(0_u32, |found, way| found | u32::from(self.newer[way] == Self::OLDEST[way]) << way);
        found.trailing_zeros() as usize % W
    }
}

const ALL: u32 = u16::MAX as u32;

/// A first level with LRU and `W` ways.
#[derive(Clone, Debug)]
pub(super) struct Filter<const W: usize> {
    keys: Vec<Keys<W>>,
    states: Vec<State<W>>,
    /// For each set, the line used last: its key and, in the lowest bit, whether it is dirty.
    last: [u64; MOST_SETS],
    sets: usize,
    pub(super) evictions: u64,
}

impl<const W: usize> Filter<W> {
    pub(super) fn new(sets: usize) -> Filter<W> {
        Filter {
            keys: vec![Keys([EMPTY; W]); sets],
            states: vec![State::EMPTY; sets],
            last: [EMPTY; MOST_SETS],
            sets,
            evictions: 0,
        }
    }

    #[inline(always)]
    fn set(&self, key: u64) -> usize {
        key as usize & (self.sets - 1) & (MOST_SETS - 1)
    }

    /// Whether an access, in the form for [`Filter::access`], is a hit that changes nothing: it touches the line that
    /// its set used last, and that line is dirty if this is a store.
    #[inline(always)]
    pub(super) fn is_settled(&self, word: u64) -> bool {
        let last = self.last[self.set(word >> 1)];
        last == word || last == word | 1
    }

    /// Makes one access by a reference of `kind`; returns whether it hit.
    #[inline(always)]
    pub(super) fn access_of<const LEVEL: u8>(&mut self, key: u64, kind: u64, events: &mut Events) -> bool {
        self.look_up::<LEVEL>(key << 1 | u64::from(kind == STORE), kind, events)
    }

    /// Makes one access by a load or a store (lowest bit of `word`; the key is above it); returns whether it hit.
    #[inline(always)]
    pub(super) fn access<const LEVEL: u8>(&mut self, word: u64, events: &mut Events) -> bool {
        self.look_up::<LEVEL>(word, word & 1, events)
    }

    #[inline(always)]
    fn look_up<const LEVEL: u8>(&mut self, word: u64, kind: u64, events: &mut Events) -> bool {
        let (key, flag) = (word >> 1, word as u16 & 1);
        let at = self.set(key);
        let (keys, state) = (&mut self.keys[at].0, &mut self.states[at]);
        let found = cpu::equal_words::<W, 0, LEVEL>(keys, key);
        let hit = found != 0;
        let way = if hit {
            found.trailing_zeros() as usize % W
        } else {
            let way = state.oldest();
            let victim = keys[way];
            let dirty = state.dirty >> way & 1 == 1;
            // All keys are written: a single word just written would delay the next vector read of the set.
            let others = OTHER_WORDS[way].first_chunk::<W>().expect("no more ways than rows");
            *keys = std::array::from_fn(|way| keys[way] & others[way] | key & !others[way]);
            state.dirty &= !(1 << way);
            self.evictions += u64::from(victim != EMPTY);
            events.add_if(true, Event::new(key, kind));
            events.add_if(dirty, Event::new(victim, Event::WRITE_BACK));
            way
        };
        state.dirty |= flag << way;
        state.touch(way);
        self.last[at] = key << 1 | u64::from(state.dirty >> way & 1);
        hit
    }
}
