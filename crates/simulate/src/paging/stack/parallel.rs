//! The stacks on several processors: each takes a segment of the trace from empty stacks, then the segments are appended.

use std::thread;

use super::super::colouring::{Colouring, ColouringError};
use super::super::{Run, Touch};
use super::{Curve, Stacks};

/// Runs of a segment at least; appending costs about as much as two references to each page of a segment.
const SEGMENT: usize = 1 << 20;
/// Runs of a segment at most: what waits takes 16 bytes a run.
const LONGEST_SEGMENT: usize = 1 << 23;
/// Runs of a segment for each page seen, so that appending stays cheap beside counting.
const PER_PAGE: usize = 16;

/// Stacks that are fed by several threads.
#[derive(Debug)]
pub struct Parallel {
    stacks: Stacks,
    colouring: Colouring,
    counts: Vec<u32>,
    threads: usize,
    waiting: Vec<Run>,
}

impl Parallel {
    /// Empty stacks for `threads` threads.
    ///
    /// # Errors
    /// As [`Stacks::new`].
    pub fn new(colouring: &Colouring, counts: &[u32], threads: usize) -> Result<Self, ColouringError> {
        let stacks = Stacks::new(colouring, counts)?;
        let (colouring, counts) = (colouring.clone(), counts.to_vec());
        Ok(Self { stacks, colouring, counts, threads: threads.max(1), waiting: Vec::new() })
    }

    /// Takes the next references; with one thread they are counted at once.
    pub fn feed<T: Touch>(&mut self, references: &[T]) {
        if self.threads == 1 {
            return self.stacks.feed(references);
        }
        self.waiting.extend(references.iter().map(|one| Run { page: one.page(), count: one.count() }));
        let segment = (self.stacks.pages.len() * PER_PAGE).clamp(SEGMENT, LONGEST_SEGMENT);
        if self.waiting.len() >= segment * self.threads {
            self.count_waiting();
        }
    }

    fn count_waiting(&mut self) {
        let length = self.waiting.len().div_ceil(self.threads).max(1);
        let (first, rest) = self.waiting.split_at(length.min(self.waiting.len()));
        let stacks = &mut self.stacks;
        let fresh = || Stacks::new(&self.colouring, &self.counts).expect("the same colours were accepted before");
        thread::scope(|scope| {
            let later: Vec<_> = rest
                .chunks(length)
                .map(|segment| {
                    let mut stacks = fresh();
                    scope.spawn(move || {
                        stacks.feed(segment);
                        stacks
                    })
                })
                .collect();
            stacks.feed(first);
            for segment in later {
                stacks.append(&segment.join().expect("counting does not panic"));
            }
        });
        self.waiting.clear();
    }

    /// References so far.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.stacks.references + self.waiting.iter().map(|run| run.count).sum::<u64>()
    }

    /// The curves of every colour count, ascending.
    #[must_use]
    pub fn curves(&mut self) -> Vec<Curve> {
        self.count_waiting();
        self.stacks.curves()
    }
}
