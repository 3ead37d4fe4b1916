//! CLOCK, the second-chance approximation of LRU: PAGING names it as what operating systems do (section 2).

use super::lists::Choose;

/// The hand of each list, and whether each frame was used since the hand passed.
#[derive(Debug)]
pub struct Clock {
    hands: Vec<u32>,
    used: Vec<bool>,
}

impl Choose for Clock {
    fn new(lists: usize, frames: u32, _: u64) -> Self {
        Self { hands: vec![0; lists], used: vec![false; lists * frames as usize] }
    }

    #[inline(always)]
    fn used(&mut self, frame: usize) {
        self.used[frame] = true;
    }

    #[inline(always)]
    fn victim(&mut self, list: usize, first: usize, frames: u32) -> usize {
        let mut hand = self.hands[list];
        loop {
            let frame = first + hand as usize;
            hand = if hand + 1 == frames { 0 } else { hand + 1 };
            if !std::mem::take(&mut self.used[frame]) {
                self.hands[list] = hand;
                return frame;
            }
        }
    }
}
