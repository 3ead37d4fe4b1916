//! Numbers of references by distance.

/// Counts for `L` levels. Small words take the counts of the day, because where distances are many it is the memory that
/// is waited for; before one of them could overflow, they are added to large words.
#[derive(Debug)]
pub struct Reuses<const L: usize> {
    small: [Vec<u32>; L],
    large: [Vec<u64>; L],
    /// At least as much as any small word holds.
    counted: u64,
}

impl<const L: usize> Default for Reuses<L> {
    fn default() -> Self {
        Self { small: [const { Vec::new() }; L], large: [const { Vec::new() }; L], counted: 0 }
    }
}

impl<const L: usize> Reuses<L> {
    /// A reference at these distances. [`Reuses::prepare`] was told of it, and [`Reuses::make_room`] of the distances.
    #[inline(always)]
    pub fn count(&mut self, distances: [u32; L]) {
        for (counts, distance) in self.small.iter_mut().zip(distances) {
            counts[distance as usize] += 1;
        }
    }

    /// So many references may come.
    pub fn prepare(&mut self, references: usize) {
        self.counted += references as u64;
        if self.counted > u64::from(u32::MAX) {
            self.large = self.levels().try_into().expect("as many levels as there are");
            self.small.iter_mut().for_each(|counts| counts.fill(0));
            self.counted = references as u64;
        }
    }

    /// Distances below `bound` may come.
    pub fn make_room(&mut self, level: usize, bound: usize) {
        self.small[level].resize(bound, 0);
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, levels: &[Vec<u64>]) {
        for (mine, theirs) in self.large.iter_mut().zip(levels) {
            add(mine, theirs.iter().copied());
        }
    }

    /// References by distance, for each level.
    pub fn levels(&self) -> Vec<Vec<u64>> {
        let mut levels = self.large.to_vec();
        for (large, small) in levels.iter_mut().zip(&self.small) {
            add(large, small.iter().map(|&count| u64::from(count)));
        }
        levels
    }

    /// Begins again.
    pub fn forget(&mut self) {
        self.small.iter_mut().for_each(|counts| counts.fill(0));
        self.large.iter_mut().for_each(Vec::clear);
        self.counted = 0;
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
