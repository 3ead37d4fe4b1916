//! LRU from a sample of the pages (SHARDS: Waldspurger et al., "Efficient MRC construction with SHARDS", FAST 2015).
//!
//! A page is in the sample when its hash is below a threshold, so either all references to it count or none. With rate
//! R, a distance d in the sample stands for d/R, and a reference for 1/R references. The paper's correction
//! ("SHARDS-adj", section 3.5) divides by the expected number of references, not by the actual one, because the missing
//! references are hits at small distances. If the number of pages is limited, the threshold falls when the limit is
//! passed; the paper drops one page at a time, this code an eighth of the pages. The sample is also divided into groups
//! by other bits of the hash; their spread estimates the error.

use pagelab_stats::stream::mix;

use super::Touch;
use super::colouring::{Colouring, ColouringError};
use super::stack::{Curve, Stacks};

/// Number of groups from which the error is estimated.
pub const GROUPS: usize = 8;

/// Settings of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// The rate at the beginning, above 0, at most 1.
    pub rate: f64,
    /// The most pages in the sample.
    pub most_pages: Option<usize>,
    /// The same seed gives the same sample.
    pub seed: u64,
}

/// Stacks of sampled pages.
#[derive(Debug)]
pub struct Sampled {
    salt: u64,
    threshold: u64,
    most_pages: usize,
    whole: Stacks,
    groups: Vec<Stacks>,
    finished: Vec<Epoch>,
    references: u64,
    chosen: Vec<Few>,
}

/// Counts at one rate.
#[derive(Debug, Clone)]
pub struct Epoch {
    /// Share of the pages in the sample.
    pub rate: f64,
    /// Counts of the whole sample.
    pub whole: Vec<Curve>,
    /// Counts of each group, a sample at `rate` / [`GROUPS`].
    pub groups: Vec<Vec<Curve>>,
}

#[derive(Debug, Clone, Copy)]
struct Few {
    page: u64,
    count: u64,
}

impl Touch for Few {
    fn page(&self) -> u64 {
        self.page
    }
    fn count(&self) -> u64 {
        self.count
    }
}

impl Sampled {
    /// Empty stacks.
    ///
    /// # Errors
    /// Colour counts that cannot be simulated, and a rate at which no page is in the sample.
    pub fn new(colouring: &Colouring, counts: &[u32], sampling: Sampling) -> Result<Self, ColouringError> {
        let stacks = || Stacks::new(colouring, counts);
        let threshold = (sampling.rate * 2_f64.powi(64)) as u64;
        if threshold == 0 || sampling.rate > 1.0 {
            return Err(ColouringError::Rate(sampling.rate.to_string()));
        }
        Ok(Self {
            salt: mix(sampling.seed),
            threshold,
            most_pages: sampling.most_pages.unwrap_or(usize::MAX),
            whole: stacks()?,
            groups: (0..GROUPS).map(|_| stacks()).collect::<Result<_, _>>()?,
            finished: Vec::new(),
            references: 0,
            chosen: Vec::new(),
        })
    }

    /// Takes the next references.
    pub fn feed<T: Touch>(&mut self, references: &[T]) {
        for batch in references.chunks(256) {
            self.chosen.clear();
            for reference in batch {
                self.references += reference.count();
                if mix(reference.page() ^ self.salt) < self.threshold {
                    self.chosen.push(Few { page: reference.page(), count: reference.count() });
                }
            }
            self.whole.feed(&self.chosen);
            for (g, group) in self.groups.iter_mut().enumerate() {
                let salt = self.salt;
                let of_group = |few: &&Few| mix(few.page ^ salt) as usize % GROUPS == g;
                group.feed(&self.chosen.iter().filter(of_group).copied().collect::<Vec<_>>());
            }
            if self.most_pages < usize::MAX && self.whole.held() > self.most_pages {
                self.lower();
            }
        }
    }

    /// Ends the epoch: keeps seven eighths of the allowed pages, those with the smallest hashes.
    fn lower(&mut self) {
        let mut hashes: Vec<u64> = self.whole.pages().into_iter().map(|page| mix(page ^ self.salt)).collect();
        let keep = (self.most_pages - self.most_pages / 8).max(1);
        let at = keep.min(hashes.len() - 1);
        let (_, &mut threshold, _) = hashes.select_nth_unstable(at);
        self.finished.push(self.epoch());
        self.threshold = threshold;
        let salt = self.salt;
        let kept = |page: u64| mix(page ^ salt) < threshold;
        self.whole.restart(kept);
        self.groups.iter_mut().for_each(|group| group.restart(kept));
    }

    fn epoch(&self) -> Epoch {
        let rate = self.threshold as f64 / 2_f64.powi(64);
        let groups = self.groups.iter().map(Stacks::curves).collect();
        Epoch { rate, whole: self.whole.curves(), groups }
    }

    /// References so far, in the sample or not.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Counts, one for each rate.
    #[must_use]
    pub fn epochs(&self) -> Vec<Epoch> {
        let mut epochs = self.finished.clone();
        epochs.push(self.epoch());
        epochs
    }
}
