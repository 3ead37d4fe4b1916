//! Memories under FIFO, CLOCK and random replacement: an array of frames for each colour. These policies decide at faults and
//! set at most one bit at hits.

use pagelab_stats::stream::{Stream, mix};

use super::Replace;
use crate::cpu;
use crate::pages::Id;
use crate::table::Table;

const ABSENT: u32 = u32::MAX;
/// Memories whose frames of a page lie together, at most: as many as fit into half a cache line.
const TOGETHER: usize = 8;

/// The frames of every page, in several memories: a page's lie together, for a reference asks all memories.
#[derive(Debug)]
pub struct Places {
    frames: Table<u32>,
    /// Binary logarithm of the memories.
    memories_bits: u32,
}

impl Places {
    /// Of pages that are in no memory: one for as many memories as there are, at most [`TOGETHER`] of them in each.
    pub fn of(memories: usize) -> Vec<Places> {
        let together = memories.min(TOGETHER).next_power_of_two();
        let places = || Places { frames: Table::default(), memories_bits: together.trailing_zeros() };
        std::iter::repeat_with(places).take(memories.div_ceil(together)).collect()
    }

    /// Which of them has those of a memory, and which of its own that memory is.
    pub fn of_memory(nth: usize) -> (usize, usize) {
        (nth / TOGETHER, nth % TOGETHER)
    }

    /// Pages below `bound` may come; these come now.
    pub fn prepare(&mut self, ids: &[Id], bound: usize) {
        self.frames.resize(bound << self.memories_bits, ABSENT);
        ids.iter().for_each(|&id| self.prefetch(id));
    }

    #[inline(always)]
    fn at(&self, id: Id, memory: usize) -> usize {
        ((id as usize) << self.memories_bits) + memory
    }

    #[inline(always)]
    fn prefetch(&self, id: Id) {
        cpu::prefetch(&self.frames, self.at(id, 0));
    }

    #[inline(always)]
    fn get(&self, id: Id, memory: usize) -> u32 {
        self.frames[self.at(id, memory)]
    }

    #[inline(always)]
    fn set(&mut self, id: Id, memory: usize, frame: u32) {
        let at = self.at(id, memory);
        self.frames[at] = frame;
    }
}

/// A policy's choice among the frames of a full list.
pub trait Choose: std::fmt::Debug + Send + Sync {
    /// For lists of `frames` frames.
    fn new(lists: usize, frames: u32, seed: u64) -> Self;
    /// The page in this frame was used again, or has just come.
    fn used(&mut self, frame: usize);
    /// Which of the frames of a full list, the first of which is `first`, loses its page.
    fn victim(&mut self, list: usize, first: usize, frames: u32) -> usize;
    /// A frame that is likely to lose its page some faults later, if one can tell.
    fn soon(&self, _list: usize, _first: usize, _frames: u32) -> Option<usize> {
        None
    }
}

/// Frames between the one whose page leaves and the one whose page is fetched.
const AHEAD: u32 = 8;

/// The frame so many after a hand.
#[inline(always)]
fn ahead(first: usize, hand: u32, frames: u32) -> Option<usize> {
    let at = hand + AHEAD;
    (AHEAD < frames).then(|| first + if at < frames { at } else { at - frames } as usize)
}

/// One memory.
#[derive(Debug)]
pub struct Lists<C> {
    frames: u32,
    choose: C,
    /// Which of the memories of its [`Places`] it is.
    nth: usize,
    /// The page in each frame.
    held: Vec<Id>,
    /// Frames in use, by list.
    used: Vec<u32>,
}

impl<C: Choose> Lists<C> {
    pub fn new(nth: usize, lists: usize, frames: u32, seed: u64) -> Self {
        let choose = C::new(lists, frames, seed);
        let held = vec![0; lists * frames as usize];
        Self { frames, choose, nth, held, used: vec![0; lists] }
    }

    #[inline(always)]
    fn fault(&mut self, places: &mut Places, id: Id, list: usize) -> usize {
        let first = list * self.frames as usize;
        let used = &mut self.used[list];
        let frame = if *used < self.frames {
            *used += 1;
            first + *used as usize - 1
        } else {
            let frame = self.choose.victim(list, first, self.frames);
            if let Some(soon) = self.choose.soon(list, first, self.frames) {
                places.prefetch(self.held[soon]);
            }
            places.set(self.held[frame], self.nth, ABSENT);
            frame
        };
        self.held[frame] = id;
        places.set(id, self.nth, frame as u32);
        frame
    }
}

impl<C: Choose> Replace for Lists<C> {
    fn feed(&mut self, places: &mut Places, ids: &[Id], lists: &[u16], _bound: usize) -> u64 {
        let mut faults = 0;
        for (&id, &list) in ids.iter().zip(lists) {
            let mut frame = places.get(id, self.nth) as usize;
            if frame == ABSENT as usize {
                faults += 1;
                frame = self.fault(places, id, list as usize);
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

    #[inline(always)]
    fn soon(&self, list: usize, first: usize, frames: u32) -> Option<usize> {
        ahead(first, self.oldest[list], frames)
    }
}

/// CLOCK, the second-chance approximation of LRU: PAGING names it as what operating systems do (section 2). It has the hand of
/// each list, and a bit for each frame, which says whether it was used since the hand passed.
#[derive(Debug)]
pub struct Clock {
    hands: Vec<u32>,
    used: Vec<u64>,
}

impl Choose for Clock {
    fn new(lists: usize, frames: u32, _: u64) -> Self {
        Self { hands: vec![0; lists], used: vec![0; (lists * frames as usize).div_ceil(64)] }
    }

    #[inline(always)]
    fn used(&mut self, frame: usize) {
        self.used[frame / 64] |= 1 << (frame % 64);
    }

    #[inline(always)]
    fn victim(&mut self, list: usize, first: usize, frames: u32) -> usize {
        let mut hand = self.hands[list];
        loop {
            let frame = first + hand as usize;
            let (word, at) = (&mut self.used[frame / 64], frame as u32 % 64);
            // As far as this word and this list go: how many from here on were used, and whether one follows that was not.
            let here = (64 - at).min(frames - hand);
            let used = (!(*word >> at)).trailing_zeros().min(here);
            *word &= !(u64::MAX.checked_shr(64 - used).unwrap_or(0) << at);
            hand += used;
            if used < here {
                let frame = first + hand as usize;
                self.hands[list] = if hand + 1 == frames { 0 } else { hand + 1 };
                return frame;
            }
            if hand == frames {
                hand = 0;
            }
        }
    }

    #[inline(always)]
    fn soon(&self, list: usize, first: usize, frames: u32) -> Option<usize> {
        ahead(first, self.hands[list], frames)
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
