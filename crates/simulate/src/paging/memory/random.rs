//! Replacement of a random page.

use pagelab_stats::stream::{Stream, mix};

use super::lists::Choose;

/// One stream of draws for all lists of a memory.
#[derive(Debug)]
pub struct Random {
    stream: Stream,
}

impl Choose for Random {
    fn new(lists: usize, frames: u32, seed: u64) -> Self {
        Self { stream: Stream::at(mix(mix(mix(seed) ^ lists as u64) ^ u64::from(frames))) }
    }

    #[inline(always)]
    fn used(&mut self, _: usize) {}

    #[inline(always)]
    fn victim(&mut self, _: usize, first: usize, frames: u32) -> usize {
        first + self.stream.below(frames) as usize
    }
}
