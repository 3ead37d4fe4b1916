//! The times since which frames are free, in up to eight memories. A request takes the last time up to a given one.
//!
//! A free frame is a bit. The bits of all memories for 64 times are in one cache line. Above them are levels of lines
//! that show which lines of the level below are not empty.

use crate::cpu;
use crate::paging::memory::TOGETHER;
use crate::table::Table;

const FAN: usize = u64::BITS as usize;
const FAN_BITS: u32 = FAN.trailing_zeros();
/// Levels, each 64 times as dense as the one below: enough for all times below 2^32.
const LEVELS: usize = (u32::BITS - 1) as usize / FAN_BITS as usize + 1;

/// For each memory, a bit for each of 64 times, or of 64 rows.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Row([u64; TOGETHER]);

const EMPTY: Row = Row([0; TOGETHER]);

impl Row {
    /// Sets the bit of a place for the first memories; returns whether any of them lacked it.
    #[inline(always)]
    fn set(&mut self, place: usize, memories: usize) -> bool {
        let mut lacked = 0;
        for word in &mut self.0[..memories] {
            lacked |= 1 << place & !*word;
            *word |= 1 << place;
        }
        lacked != 0
    }

    /// The times or rows that are set in any memory.
    #[inline(always)]
    pub fn any(&self) -> u64 {
        self.0.iter().fold(0, |any, word| any | word)
    }

    /// Copies the bits of `other` at one place to another place.
    #[inline(always)]
    fn set_as(&mut self, place: usize, other: &Row, at: usize) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= (other >> at & 1) << place);
    }
}

/// The times since which frames are free.
#[derive(Debug)]
pub struct FreeFrames {
    levels: [Table<Row>; LEVELS],
    since_start: [u32; TOGETHER],
}

impl FreeFrames {
    /// Sets the number of frames that are free since the start, in each memory.
    pub fn new(since_start: [u32; TOGETHER]) -> Self {
        Self { levels: Default::default(), since_start }
    }

    /// Makes space for times below `length`.
    pub fn reserve(&mut self, mut length: usize) {
        for rows in &mut self.levels {
            length = length.div_ceil(FAN);
            if length > rows.len() {
                rows.resize(length, EMPTY);
            }
        }
    }

    /// Prefetches the first row for this time.
    #[inline(always)]
    pub fn prefetch(&self, time: u32) {
        cpu::prefetch(&self.levels[0], time as usize / FAN);
    }

    /// Records that a frame is free since this time, in each of the first memories.
    #[inline(always)]
    pub fn insert(&mut self, time: u32, memories: usize) {
        let mut at = time as usize;
        for rows in &mut self.levels {
            if !rows[at / FAN].set(at % FAN, memories) {
                return;
            }
            at /= FAN;
        }
    }

    /// Takes a frame in one memory after the other, until a memory has none: the frame with the last time up to this
    /// one. Returns how many memories had one.
    #[inline(always)]
    pub fn take_up_to(&mut self, time: u32, memories: usize) -> usize {
        let (row, up_to) = (time as usize / FAN, u64::MAX >> (FAN - 1 - time as usize % FAN));
        (0..memories).take_while(|&memory| self.take_last(memory, row, up_to)).count()
    }

    /// Takes the last frame in a row, otherwise one below it.
    #[inline(always)]
    fn take_last(&mut self, memory: usize, row: usize, up_to: u64) -> bool {
        let word = &mut self.levels[0][row].0[memory];
        if *word & up_to == 0 {
            return self.take_before(memory, row);
        }
        *word &= !(1 << highest(*word & up_to));
        if *word == 0 {
            self.tell_empty(memory, row);
        }
        true
    }

    /// Takes the last frame of a memory below a row, otherwise one that is free since the start.
    #[inline(always)]
    fn take_before(&mut self, memory: usize, row: usize) -> bool {
        let mut at = row;
        for level in 1..LEVELS {
            let below = self.levels[level][at / FAN].0[memory] & ((1 << (at % FAN)) - 1);
            at /= FAN;
            if below != 0 {
                let last = |row: usize, rows: &Table<Row>| row * FAN + highest(rows[row].0[memory]);
                let row = self.levels[1..level].iter().rev().fold(at * FAN + highest(below), last);
                let word = &mut self.levels[0][row].0[memory];
                *word &= !(1 << highest(*word));
                if *word == 0 {
                    self.tell_empty(memory, row);
                }
                return true;
            }
        }
        let unused = &mut self.since_start[memory];
        let is_free = *unused > 0;
        *unused -= u32::from(is_free);
        is_free
    }

    /// Records that a memory has nothing left in a row.
    #[inline(always)]
    fn tell_empty(&mut self, memory: usize, mut at: usize) {
        for rows in &mut self.levels[1..] {
            let word = &mut rows[at / FAN].0[memory];
            *word &= !(1 << (at % FAN));
            if *word != 0 {
                return;
            }
            at /= FAN;
        }
    }

    /// Goes through the times below `length`, 64 at a time, with those that any memory has. `keep` returns which of
    /// them are kept, and gets their new times, which are consecutive from `first` on. Returns the time after the last.
    #[inline(always)]
    pub fn compact(
        &mut self,
        length: usize,
        first: usize,
        mut keep: impl FnMut(usize, u64, usize) -> u64,
    ) -> usize {
        let mut to = first;
        let mut new = EMPTY;
        for row in 0..length.div_ceil(FAN) {
            let old = self.levels[0][row];
            let mut kept = keep(row * FAN, old.any(), to);
            while kept != 0 {
                new.set_as(to % FAN, &old, kept.trailing_zeros() as usize);
                kept &= kept - 1;
                to += 1;
                if to.is_multiple_of(FAN) {
                    self.levels[0][to / FAN - 1] = std::mem::replace(&mut new, EMPTY);
                }
            }
        }
        let used = to / FAN;
        if let Some(last) = self.levels[0].get_mut(used) {
            *last = new;
        }
        self.levels[0].iter_mut().skip(used + 1).for_each(|row| *row = EMPTY);
        self.tell_upwards();
        to
    }

    /// Rebuilds the upper levels.
    #[inline(always)]
    fn tell_upwards(&mut self) {
        for level in 1..LEVELS {
            let (below, rows) = self.levels.split_at_mut(level);
            rows[0].fill(EMPTY);
            for (at, row) in below[level - 1].iter().enumerate() {
                let above = &mut rows[0][at / FAN].0;
                above
                    .iter_mut()
                    .zip(&row.0)
                    .for_each(|(above, word)| *above |= u64::from(*word != 0) << (at % FAN));
            }
        }
    }
}

#[inline(always)]
fn highest(word: u64) -> usize {
    debug_assert!(word != 0);
    (u64::BITS - 1 - word.leading_zeros()) as usize % FAN
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_stats::stream::mix;
    use std::collections::BTreeSet;

    /// Compares with ordered sets, over times of several levels, with compactions.
    #[test]
    fn times_are_sets_of_numbers() {
        for seed in 0..20 {
            let memories = 1 + mix(seed) as usize % TOGETHER;
            let mut sets: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); memories];
            let mut since_start: [u32; TOGETHER] =
                std::array::from_fn(|memory| (mix(seed + 99) >> (5 * memory)) as u32 % 32);
            let mut frames = FreeFrames::new(since_start);
            let mut now = 0;
            for step in 0..30_000 {
                frames.reserve(now + 1);
                let random = mix(seed << 32 | step);
                let with = (random >> 8) as usize % (memories + 1);
                frames.insert(now as u32, with);
                sets[..with].iter_mut().for_each(|set| _ = set.insert(now));
                if random >> 60 != 0 {
                    let time = now - (random >> 16) as usize % (now + 1).min(1 << (random % 16));
                    let mut take = |memory: usize| match sets[memory].range(..=time).next_back().copied() {
                        Some(found) => sets[memory].remove(&found),
                        None => {
                            let unused = since_start[memory];
                            since_start[memory] = unused.saturating_sub(1);
                            unused > 0
                        }
                    };
                    let expected = (0..memories).take_while(|&memory| take(memory)).count();
                    assert_eq!(frames.take_up_to(time as u32, memories), expected, "{seed} {step}");
                }
                now += 1;
                if random.is_multiple_of(5_000) {
                    let mut renamed = std::collections::HashMap::new();
                    let old = now;
                    now = frames.compact(old, 1, |first, any, to| {
                        let kept = any | mix(first as u64) & mix(first as u64 + 1);
                        let kept = if first + FAN > old { kept & ((1 << (old - first)) - 1) } else { kept };
                        let places = (0..FAN).filter(|place| kept >> place & 1 == 1);
                        places.enumerate().for_each(|(nth, place)| _ = renamed.insert(first + place, to + nth));
                        kept
                    });
                    sets.iter_mut().for_each(|set| *set = set.iter().map(|time| renamed[time]).collect());
                }
            }
        }
    }
}
