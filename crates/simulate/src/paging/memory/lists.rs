//! Memories under FIFO, CLOCK and random replacement: an array of frames for each colour. These policies decide at faults and
//! set at most one bit at hits.

use pagelab_stats::stream::{Stream, mix};

use super::Replace;
use crate::cpu;
use crate::pages::Id;

const ABSENT: u32 = u32::MAX;

/// A policy's choice among the frames of a full list.
pub trait Choose: std::fmt::Debug + Send + Sync {
    /// For lists of `frames` frames.
    fn new(lists: usize, frames: u32, seed: u64) -> Self;
    /// The page in this frame was used again, or has just come.
    fn used(&mut self, frame: usize);
    /// Which of the frames of a full list, the first of which is `first`, loses its page.
    fn victim(&mut self, list: usize, first: usize, frames: u32) -> usize;
}

/// One memory.
#[derive(Debug)]
pub struct Lists<C> {
    frames: u32,
    choose: C,
    /// The frame of each page, or [`ABSENT`].
    place: Vec<u32>,
    /// The page in each frame.
    held: Vec<Id>,
    /// Frames in use, by list.
    used: Vec<u32>,
}

impl<C: Choose> Lists<C> {
    pub fn new(lists: usize, frames: u32, seed: u64) -> Self {
        let choose = C::new(lists, frames, seed);
        let held = vec![0; lists * frames as usize];
        Self { frames, choose, place: Vec::new(), held, used: vec![0; lists] }
    }

    #[inline(always)]
    fn fault(&mut self, id: Id, list: usize) -> usize {
        let first = list * self.frames as usize;
        let used = &mut self.used[list];
        let frame = if *used < self.frames {
            *used += 1;
            first + *used as usize - 1
        } else {
            let frame = self.choose.victim(list, first, self.frames);
            self.place[self.held[frame] as usize] = ABSENT;
            frame
        };
        self.held[frame] = id;
        self.place[id as usize] = frame as u32;
        frame
    }
}

impl<C: Choose> Replace for Lists<C> {
    fn feed(&mut self, ids: &[Id], lists: &[u16], bound: usize) -> u64 {
        self.place.resize(bound, ABSENT);
        for &id in ids {
            cpu::prefetch(&self.place, id as usize);
        }
        let mut faults = 0;
        for (&id, &list) in ids.iter().zip(lists) {
            let mut frame = self.place[id as usize] as usize;
            if frame == ABSENT as usize {
                faults += 1;
                frame = self.fault(id, list as usize);
            }
            self.choose.used(frame);
        }
        faults
    }
}

/// First in, first out: the oldest frame of each list.
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

/// CLOCK, the second-chance approximation of LRU: PAGING names it as what operating systems do (section 2). It has the hand of
/// each list, and whether each frame was used since the hand passed.
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

/// Replacement of a random page: one stream of draws for all lists of a memory.
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
