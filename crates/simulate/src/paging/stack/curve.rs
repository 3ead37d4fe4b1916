//! What the stacks found for one colour count.

/// Faults of LRU at one colour count, for every memory size, and how memory fills up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Curve {
    /// The number of colours.
    pub colours: u32,
    /// References in all.
    pub references: u64,
    /// First uses: faults at every size.
    pub cold: u64,
    /// `reused[d]`: references to a page with d other pages of its colour used since; those at 0 are included.
    pub reused: Vec<u64>,
    /// `filled[k - 1]`: pages used until, for the first time, k pages of one colour have been used.
    pub filled: Vec<u64>,
}

impl Curve {
    /// Faults with `frames` frames of each colour, for 0, 1, 2 … frames up to the first size that has cold faults only.
    #[must_use]
    pub fn faults(&self) -> Vec<u64> {
        let used = self.reused.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        let mut faults = vec![self.cold; used + 1];
        for depth in (0..used).rev() {
            faults[depth] = faults[depth + 1] + self.reused[depth];
        }
        faults
    }
}
