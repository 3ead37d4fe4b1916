//! The next uses of the pages that up to eight memories hold, by time: the farthest one in each leaves first.
//!
//! A page in memory is a bit at the time of its next use, and no more has to be known of it: whether the page used now is held is
//! the bit of now, and the page to leave is the highest bit. The bits of all memories for 64 times lie in one line, and above them
//! are trees of lines that tell which are not empty. Lines of times that have gone by, or that nobody waits for, are used again.

use crate::cpu;
use crate::table::Table;

/// Memories side by side.
pub const MEMORIES: usize = 8;
const FAN: usize = u64::BITS as usize;
const FAN_BITS: u32 = FAN.trailing_zeros();
/// Times of a chunk of rows, as a power of two.
const CHUNK_BITS: u32 = 2 * FAN_BITS;
/// A chunk without rows.
const NONE: u32 = u32::MAX;

/// For each memory, a bit for each of 64 times, or of 64 rows.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Row([u64; MEMORIES]);

const EMPTY: Row = Row([0; MEMORIES]);

impl Row {
    /// Sets the bit of a place for each memory whose word in `all` has every bit.
    #[inline(always)]
    fn set(&mut self, place: usize, all: &Row) {
        self.0.iter_mut().zip(&all.0).for_each(|(word, all)| *word |= 1 << place & all);
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

/// One list's next uses.
#[derive(Debug)]
pub struct NextUses {
    /// Where the rows of each chunk of times are, or [`NONE`].
    chunks: Vec<u32>,
    rows: Table<Row>,
    free: Vec<u32>,
    /// Which rows of each chunk are not empty, which of 64 chunks, and so on; the last has one row.
    upper: Vec<Vec<Row>>,
    /// Every bit of the memories that there are.
    all: Row,
}

impl NextUses {
    /// None yet, of `memories` memories; times are below `times`.
    pub fn new(times: u64, memories: usize) -> Self {
        let all = Row(std::array::from_fn(|memory| if memory < memories { u64::MAX } else { 0 }));
        let chunks = times.div_ceil(1 << CHUNK_BITS).max(1) as usize;
        let mut upper = vec![vec![EMPTY; chunks]];
        while let Some(last) = upper.last()
            && last.len() > 1
        {
            upper.push(vec![EMPTY; last.len().div_ceil(FAN)]);
        }
        Self { chunks: vec![NONE; chunks], rows: Table::default(), free: Vec::new(), upper, all }
    }

    #[inline(always)]
    fn row(&self, chunk: u32, time: u64) -> usize {
        chunk as usize * FAN + (time >> FAN_BITS) as usize % FAN
    }

    /// The memories that wait for this time, a bit each. Times are asked for in their order.
    #[inline(always)]
    pub fn held(&mut self, time: u64) -> u8 {
        let number = (time >> CHUNK_BITS) as usize;
        if time.is_multiple_of(1 << CHUNK_BITS) && number > 0 {
            self.forget(number - 1);
        }
        if self.chunks[number] == NONE {
            return 0;
        }
        let row = &self.rows[self.row(self.chunks[number], time)].0;
        (0..MEMORIES).fold(0, |held, memory| held | ((row[memory] >> (time % FAN as u64) & 1) as u8) << memory)
    }

    /// Fetches what [`NextUses::insert`] will write.
    #[inline(always)]
    pub fn prefetch(&self, time: u64) {
        let chunk = self.chunks[(time >> CHUNK_BITS) as usize];
        if chunk != NONE {
            cpu::prefetch(&self.rows, self.row(chunk, time));
        }
    }

    /// All memories wait for this time.
    #[inline(always)]
    pub fn insert(&mut self, time: u64) {
        let number = (time >> CHUNK_BITS) as usize;
        if self.chunks[number] == NONE {
            self.chunks[number] = self.free.pop().unwrap_or_else(|| {
                self.rows.resize(self.rows.len() + FAN, EMPTY);
                (self.rows.len() / FAN - 1) as u32
            });
        }
        let row = self.row(self.chunks[number], time);
        self.rows[row].set(time as usize % FAN, &self.all);
        let mut at = (time >> FAN_BITS) as usize;
        for rows in &mut self.upper {
            rows[at / FAN].set(at % FAN, &self.all);
            at /= FAN;
        }
    }

    /// Takes the last of the times that a memory waits for; it must wait for one that has not gone by.
    #[inline(always)]
    pub fn take_last(&mut self, memory: usize) {
        let at = self.upper.iter().rev().fold(0, |at, rows| at * FAN + highest(rows[at].0[memory]));
        let number = at / FAN;
        let row = self.chunks[number] as usize * FAN + at % FAN;
        let word = &mut self.rows[row].0[memory];
        *word &= !(1 << highest(*word));
        if *word == 0 {
            self.clear(memory, at);
            if self.upper[0][number].is_empty() {
                self.free.push(std::mem::replace(&mut self.chunks[number], NONE));
            }
        }
    }

    /// Nothing is left of `memory` in row `at`.
    fn clear(&mut self, memory: usize, mut at: usize) {
        for rows in &mut self.upper {
            let word = &mut rows[at / FAN].0[memory];
            *word &= !(1 << (at % FAN));
            if *word != 0 {
                return;
            }
            at /= FAN;
        }
    }

    /// The times of a chunk have gone by.
    fn forget(&mut self, number: usize) {
        let chunk = std::mem::replace(&mut self.chunks[number], NONE);
        if chunk == NONE {
            return;
        }
        self.rows[chunk as usize * FAN..][..FAN].fill(EMPTY);
        self.free.push(chunk);
        for memory in 0..MEMORIES {
            self.upper[0][number].0[memory] = 0;
            let mut at = number;
            for rows in self.upper.iter_mut().skip(1) {
                let word = &mut rows[at / FAN].0[memory];
                *word &= !(1 << (at % FAN));
                if *word != 0 {
                    break;
                }
                at /= FAN;
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

    /// Against ordered sets, over times of many chunks, near and far.
    #[test]
    fn times_are_sets_of_numbers() {
        for seed in 0..20 {
            let times = 1 + mix(seed) % 40_000;
            let memories = 1 + (mix(seed) >> 40) as usize % MEMORIES;
            let mut new = NextUses::new(times, memories);
            let mut sets = vec![BTreeSet::new(); memories];
            for now in 0..times {
                let random = mix(seed << 32 | now);
                let held = new.held(now);
                for (memory, set) in sets.iter_mut().enumerate() {
                    assert_eq!(held >> memory & 1 == 1, set.remove(&now), "{seed} {now} {memory}");
                    if random >> memory & 3 == 3 && !set.is_empty() {
                        new.take_last(memory);
                        set.pop_last();
                    }
                }
                let far = if random & 1 << 40 == 0 { 100 } else { times };
                let next = now + 1 + (random >> 41) % far;
                if next < times && !sets.iter().any(|set| set.contains(&next)) {
                    new.insert(next);
                    sets.iter_mut().for_each(|set| _ = set.insert(next));
                }
            }
            assert!(new.rows.len() / FAN <= new.chunks.len());
        }
    }
}
