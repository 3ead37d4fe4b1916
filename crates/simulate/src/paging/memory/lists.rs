//! Memories under FIFO and random replacement: an array of frames for each colour. These policies decide only at faults;
//! a hit changes nothing.
//!
//! One bit says whether a page is in memory. A page's bits for all memories are stored together: a reference reads a byte
//! to know where it faults.

use pagelab_stats::stream::{Stream, mix};

use super::{Asked, Codes, Replace};
use crate::cpu;
use crate::pages::Id;
use crate::table::Table;

/// Number of references, or frames, by which memory is prefetched.
const AHEAD: usize = 8;
/// Number of frames in four cache lines.
const FAR_AHEAD: usize = 64;

/// A policy's choice among the frames of a full list.
pub trait Choose: std::fmt::Debug + Send + Sync {
    /// A policy for lists of `frames` frames.
    fn new(lists: usize, frames: u32, seed: u64) -> Self;
    /// The frame of a full list that loses its page; `pages` are those in its frames. `held` is to be prefetched.
    fn victim(&mut self, list: usize, pages: &[Id], held: &[u8]) -> usize;
}

/// Up to eight memories, simulated together.
#[derive(Debug)]
pub struct Lists<C> {
    memories: Vec<Memory<C>>,
    codes: Codes,
    /// For each page, the memories that contain it.
    held: Table<u8>,
}

#[derive(Debug)]
struct Memory<C> {
    nth: usize,
    frames: usize,
    choose: C,
    /// The page in each frame.
    pages: Table<Id>,
    /// Frames in use, by list.
    in_use: Vec<usize>,
    faults: u64,
}

impl<C: Choose> Lists<C> {
    pub fn new(asked: &[Asked], seed: u64) -> Self {
        let memory = |one: &Asked| Memory {
            nth: one.nth,
            frames: one.frames as usize,
            choose: C::new(one.lists(), one.frames, seed),
            pages: Table::zeros(one.lists() * one.frames as usize),
            in_use: vec![0; one.lists()],
            faults: 0,
        };
        Self { memories: asked.iter().map(memory).collect(), codes: Codes::new(asked), held: Table::default() }
    }

    #[inline(always)]
    fn take(&mut self, ids: &[Id]) {
        let (held, memories) = (&mut self.held[..], &mut self.memories[..]);
        let all = super::all(memories.len());
        for (at, &id) in ids.iter().enumerate() {
            if let Some(&soon) = ids.get(at + AHEAD) {
                cpu::prefetch(held, soon as usize);
            }
            let mut absent = all & !std::mem::replace(&mut held[id as usize], all);
            while absent != 0 {
                let memory = absent.trailing_zeros() as usize;
                absent &= absent - 1;
                memories[memory].fault(id, self.codes.list(memory, at), held, 1 << memory);
            }
        }
    }
}

impl<C: Choose> Memory<C> {
    #[inline(always)]
    fn fault(&mut self, id: Id, list: usize, held: &mut [u8], bit: u8) {
        self.faults += 1;
        let pages = &mut self.pages[list * self.frames..][..self.frames];
        let in_use = &mut self.in_use[list];
        if *in_use < self.frames {
            pages[*in_use] = id;
            *in_use += 1;
        } else {
            let frame = self.choose.victim(list, pages, held);
            let leaves = std::mem::replace(&mut pages[frame], id);
            held[leaves as usize] &= !bit;
        }
    }
}

impl<C: Choose> Replace for Lists<C> {
    fn feed(&mut self, pages: &[u64], ids: &[Id], bound: usize) {
        self.held.resize(bound, 0);
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

/// First in, first out: the next victim of each list is its oldest frame.
#[derive(Debug)]
pub struct Fifo {
    oldest: Vec<usize>,
}

impl Choose for Fifo {
    fn new(lists: usize, _: u32, _: u64) -> Self {
        Self { oldest: vec![0; lists] }
    }

    #[inline(always)]
    fn victim(&mut self, list: usize, pages: &[Id], held: &[u8]) -> usize {
        let oldest = &mut self.oldest[list];
        let frame = *oldest;
        *oldest = if frame + 1 == pages.len() { 0 } else { frame + 1 };
        // With so many lists, the processor does not recognize that each is gone over in order.
        cpu::prefetch(pages, frame + FAR_AHEAD);
        if let Some(&soon) = pages.get(frame + AHEAD) {
            cpu::prefetch(held, soon as usize);
        }
        frame
    }
}

/// Replacement of a random page: one stream of draws for all lists of a memory. Some are drawn ahead, so that the
/// frames and the flags of their pages can be prefetched.
#[derive(Debug)]
pub struct Random {
    stream: Stream,
    drawn: [u32; DRAWN],
    next: usize,
}

const DRAWN: usize = 16;

impl Choose for Random {
    fn new(lists: usize, frames: u32, seed: u64) -> Self {
        let mut stream = Stream::at(mix(mix(mix(seed) ^ lists as u64) ^ u64::from(frames)));
        let drawn = std::array::from_fn(|_| stream.below(frames));
        Self { stream, drawn, next: 0 }
    }

    #[inline(always)]
    fn victim(&mut self, _: usize, pages: &[Id], held: &[u8]) -> usize {
        let frame = std::mem::replace(&mut self.drawn[self.next], self.stream.below(pages.len() as u32));
        cpu::prefetch(pages, self.drawn[self.next] as usize);
        self.next = (self.next + 1) % DRAWN;
        if let Some(&soon) = pages.get(self.drawn[(self.next + DRAWN / 2) % DRAWN] as usize) {
            cpu::prefetch(held, soon as usize);
        }
        frame as usize
    }
}
