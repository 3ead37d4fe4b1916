//! First in, first out.

use super::lists::Choose;

/// The oldest frame of each list.
#[derive(Debug)]
pub struct Fifo {
    oldest: Vec<u32>,
}

impl Choose for Fifo {
    fn new(lists: usize, _: u32, _: u64) -> Self {
        Self { oldest: vec![0; lists] }
    }

    #[inline(always)]
    fn used(&mut self, _: usize) {}

    #[inline(always)]
    fn victim(&mut self, list: usize, first: usize, frames: u32) -> usize {
        let oldest = self.oldest[list];
        self.oldest[list] = if oldest + 1 == frames { 0 } else { oldest + 1 };
        first + oldest as usize
    }
}
