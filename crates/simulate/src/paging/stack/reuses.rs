//! Counts of references by distance.

use crate::cpu;
use crate::table::Table;

/// References between the prefetch of a count and its addition.
const LATER: usize = 16;
/// From this many bytes of one level on, counts are prefetched; below, the processor's own cache contains them.
const FAR_MEMORY: usize = 128 << 10;

/// Counts for `L` levels. New counts go to small words, because with many distances the time is that of memory. Before
/// a small word can overflow, all are added to large words.
#[derive(Debug)]
pub struct Reuses<const L: usize> {
    small: [Table<u32>; L],
    large: [Vec<u64>; L],
    /// An upper bound of every small word.
    counted: u64,
    /// Distances of the last references, which are not in the small words yet; the oldest is at `next` when all places
    /// are used.
    waiting: [[u32; L]; LATER],
    next: usize,
    is_full: bool,
    /// Whether a prefetch is worth it, and the last distance at the first level: in a sweep all are the same.
    is_far: bool,
    last: u32,
}

impl<const L: usize> Default for Reuses<L> {
    fn default() -> Self {
        Self {
            small: std::array::from_fn(|_| Table::default()),
            large: [const { Vec::new() }; L],
            counted: 0,
            waiting: [[0; L]; LATER],
            next: 0,
            is_full: false,
            is_far: false,
            last: 0,
        }
    }
}

impl<const L: usize> Reuses<L> {
    /// Counts a reference at these distances, after [`Reuses::prepare`] for it and [`Reuses::make_room`] for the
    /// distances.
    #[inline(always)]
    pub fn count(&mut self, distances: [u32; L]) {
        for (counts, distance) in self.small.iter_mut().zip(distances) {
            counts[distance as usize] += 1;
        }
    }

    /// As [`Reuses::count`], for a page below the top: if counts are far, they are prefetched now and added later.
    #[inline(always)]
    pub fn count_below(&mut self, distances: [u32; L]) {
        if !self.is_far || distances[0] == self.last {
            return self.count(distances);
        }
        self.last = distances[0];
        for (counts, distance) in self.small.iter().zip(distances) {
            cpu::prefetch(counts, distance as usize);
        }
        let due = std::mem::replace(&mut self.waiting[self.next], distances);
        if self.is_full {
            self.count(due);
        }
        self.next = (self.next + 1) % LATER;
        self.is_full |= self.next == 0;
    }

    /// Counts so many references at `distance`, by level; as [`Reuses::count`]. There is always space for the top's
    /// distances.
    #[inline(always)]
    pub fn count_many(&mut self, distance: usize, references: &[u16]) {
        for (counts, references) in self.small.iter_mut().zip(references) {
            counts[distance] += u32::from(*references);
        }
    }

    fn waiting(&self) -> &[[u32; L]] {
        if self.is_full { &self.waiting } else { &self.waiting[..self.next] }
    }

    /// Prepares for this many references.
    pub fn prepare(&mut self, references: usize) {
        self.counted += references as u64;
        if self.counted > u64::from(u32::MAX) {
            self.large = self.levels().try_into().expect("as many levels as there are");
            self.small.iter_mut().for_each(|counts| counts.fill(0));
            self.counted = references as u64;
            (self.next, self.is_full) = (0, false);
        }
    }

    /// Makes space for distances below `bound`.
    pub fn make_room(&mut self, level: usize, bound: usize) {
        self.small[level].resize(bound, 0);
        self.is_far |= bound * size_of::<u32>() > FAR_MEMORY;
    }

    /// Adds counts from elsewhere.
    pub fn add(&mut self, levels: &[Vec<u64>]) {
        for (mine, theirs) in self.large.iter_mut().zip(levels) {
            add(mine, theirs.iter().copied());
        }
    }

    /// Counts of references by distance, for each level.
    pub fn levels(&self) -> Vec<Vec<u64>> {
        let mut levels = self.large.to_vec();
        for (large, small) in levels.iter_mut().zip(&self.small) {
            add(large, small.iter().map(|&count| u64::from(count)));
        }
        for distances in self.waiting() {
            for (level, &distance) in levels.iter_mut().zip(distances) {
                level[distance as usize] += 1;
            }
        }
        levels
    }

    /// Restarts all counts.
    pub fn forget(&mut self) {
        self.small.iter_mut().for_each(|counts| counts.fill(0));
        self.large.iter_mut().for_each(Vec::clear);
        self.counted = 0;
        (self.next, self.is_full) = (0, false);
    }
}

fn add(mine: &mut Vec<u64>, theirs: impl ExactSizeIterator<Item = u64>) {
    mine.resize(mine.len().max(theirs.len()), 0);
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine += theirs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_words_are_emptied_in_time() {
        let mut reuses = Reuses::<2>::default();
        reuses.make_room(0, 4);
        reuses.make_room(1, 2);
        reuses.small[0][3] = u32::MAX - 1;
        reuses.counted = u64::from(u32::MAX) - 1;
        for _ in 0..3 {
            reuses.prepare(1);
            reuses.count([3, 1]);
        }
        assert_eq!(reuses.levels(), [vec![0, 0, 0, u64::from(u32::MAX) + 2], vec![0, 3]]);
        reuses.add(&[vec![1; 6], vec![]]);
        assert_eq!(reuses.levels()[0], [1, 1, 1, u64::from(u32::MAX) + 3, 1, 1]);
        reuses.forget();
        assert_eq!(reuses.levels(), [vec![0; 4], vec![0; 2]]);
    }
}
