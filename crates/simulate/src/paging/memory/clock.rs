//! Memories under CLOCK, the second-chance approximation of LRU, which PAGING names as the policy of operating systems
//! (section 2).
//!
//! Whether a frame was used is a bit, so that a hand passes up to 64 frames at once. A use must then find the frames of
//! its page: their numbers in all memories are stored together, for each page.

use super::{Asked, Codes, Replace, TOGETHER};
use crate::cpu;
use crate::pages::Id;
use crate::table::Table;

/// Number of references by which memory is prefetched.
const AHEAD: usize = 8;
/// Number of frames in four cache lines.
const FAR_AHEAD: usize = 64;
const WORD: usize = u64::BITS as usize;

/// Up to eight memories, simulated together.
#[derive(Debug)]
pub struct Clocks {
    memories: Vec<Memory>,
    codes: Codes,
    /// A bit for each frame of every memory: whether it was used since its hand passed.
    used: Table<u64>,
    /// Where each memory's bits begin.
    words: [usize; TOGETHER],
    /// For each page, by its place, the memories that contain it. Place 0 is no page's.
    held: Table<u8>,
    /// For each page, by its place, its frame in each memory; some frame where the memory does not contain it.
    frames: Table<u32>,
    /// Frames stored for each page: as many as there are memories, rounded up to a power of two.
    stride: usize,
}

#[derive(Debug)]
struct Memory {
    nth: usize,
    /// Frames of each list.
    frames: usize,
    /// The place of the page in each frame; 0: it is free.
    pages: Table<u32>,
    /// The frame at which the hand of each list is.
    hands: Vec<usize>,
    faults: u64,
}

impl Clocks {
    pub fn new(asked: &[Asked]) -> Self {
        let (mut words, mut end) = ([0; TOGETHER], 0);
        for (first, one) in words.iter_mut().zip(asked) {
            *first = end;
            end += (one.lists() * one.frames as usize).div_ceil(WORD);
        }
        Self {
            memories: asked.iter().map(Memory::new).collect(),
            codes: Codes::new(asked),
            used: Table::zeros(end),
            words,
            held: Table::default(),
            frames: Table::default(),
            stride: asked.len().next_power_of_two(),
        }
    }

    #[inline(always)]
    fn take(&mut self, ids: &[Id]) {
        let (memories, used, held) = (&mut self.memories[..], &mut self.used[..], &mut self.held[..]);
        let (words, frames, stride) = (&self.words[..memories.len()], &mut self.frames[..], self.stride);
        let all = super::all(memories.len());
        for (at, &id) in ids.iter().enumerate() {
            if let Some(&soon) = ids.get(at + AHEAD) {
                cpu::prefetch(held, soon as usize + 1);
                cpu::prefetch(frames, (soon as usize + 1) * stride);
            }
            let place = id as usize + 1;
            let here = std::mem::replace(&mut held[place], all);
            let own = &mut frames[place * stride..][..stride];
            // Without a branch: where the memory does not contain the page, no bit is set.
            for (memory, (first, &frame)) in words.iter().zip(&*own).enumerate() {
                used[first + frame as usize / WORD] |= u64::from(here >> memory & 1) << (frame % u64::BITS);
            }
            let mut absent = all & !here;
            while absent != 0 {
                let memory = absent.trailing_zeros() as usize;
                absent &= absent - 1;
                let list = self.codes.list(memory, at);
                own[memory] = memories[memory].fault(place, list, &mut used[words[memory]..], held, 1 << memory);
            }
        }
    }
}

impl Memory {
    fn new(asked: &Asked) -> Self {
        let (lists, frames) = (asked.lists(), asked.frames as usize);
        u32::try_from(lists * frames).expect("the frames of a memory have 32-bit numbers");
        Self {
            nth: asked.nth,
            frames,
            pages: Table::zeros(lists * frames),
            hands: (0..lists).map(|list| list * frames).collect(),
            faults: 0,
        }
    }

    /// Brings a page in; returns its frame. A new page counts as used.
    #[inline(always)]
    fn fault(&mut self, place: usize, list: usize, used: &mut [u64], held: &mut [u8], bit: u8) -> u32 {
        self.faults += 1;
        let frame = self.unused(list, used);
        used[frame / WORD] |= 1 << (frame % WORD);
        let leaves = std::mem::replace(&mut self.pages[frame], place as u32);
        held[leaves as usize] &= !bit;
        cpu::prefetch(&self.pages, frame + FAR_AHEAD);
        // The next page to leave, if none of its kind is used before.
        let next = frame + (used[frame / WORD] >> (frame % WORD)).trailing_ones() as usize;
        if let Some(&soon) = self.pages.get(next) {
            cpu::prefetch(held, soon as usize);
        }
        frame as u32
    }

    /// Moves the hand of a list to behind the first frame that was not used since it last passed, and returns that frame.
    #[inline(always)]
    fn unused(&mut self, list: usize, used: &mut [u64]) -> usize {
        let (first, end) = (list * self.frames, (list + 1) * self.frames);
        let mut hand = self.hands[list];
        loop {
            let (word, shift) = (&mut used[hand / WORD], hand % WORD);
            let left = (WORD - shift).min(end - hand);
            let passed = ((*word >> shift).trailing_ones() as usize).min(left);
            *word &= !(u64::MAX.unbounded_shr((WORD - passed) as u32) << shift);
            hand += passed;
            if passed < left {
                break;
            }
            if hand == end {
                hand = first;
            }
        }
        self.hands[list] = if hand + 1 == end { first } else { hand + 1 };
        hand
    }
}

impl Replace for Clocks {
    fn feed(&mut self, pages: &[u64], ids: &[Id], bound: usize) {
        self.held.resize(bound + 1, 0);
        self.frames.resize((bound + 1) * self.stride, 0);
        self.codes.read(pages);
        cpu::with_avx2(
            #[inline(always)]
            || self.take(ids),
        );
    }

    fn faults(&self) -> Vec<(usize, u64)> {
        self.memories.iter().map(|memory| (memory.nth, memory.faults)).collect()
    }
}
