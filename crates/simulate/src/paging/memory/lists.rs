//! Memories under FIFO, CLOCK and random replacement: an array of frames for each colour. These policies decide only at
//! faults; a hit sets at most one bit.
//!
//! One bit says whether a page is in memory, another whether it was used since the policy last examined it. A page's
//! bits for all memories are stored together: a reference reads two bytes to know where it faults, and sets all of
//! them.

use pagelab_stats::stream::{Stream, mix};

use super::{Asked, BATCH, Replace, TOGETHER};
use crate::cpu;
use crate::pages::Id;
use crate::paging::colouring::Chain;
use crate::table::Table;

/// Number of references, or frames, by which memory is prefetched.
const AHEAD: usize = 8;
/// Number of frames in four cache lines.
const FAR_AHEAD: usize = 64;

/// For each page, the memories that contain it (the low bits), and those in which it was used (the high ones).
type Flags = [u16];

const fn held(memory: usize) -> u16 {
    1 << memory
}

const fn used(memory: usize) -> u16 {
    1 << (memory + TOGETHER)
}

/// A policy's choice among the frames of a full list.
pub trait Choose: std::fmt::Debug + Send + Sync {
    /// A policy for lists of `frames` frames.
    fn new(lists: usize, frames: u32, seed: u64) -> Self;
    /// The frame of a full list that loses its page; `pages` are those in its frames.
    fn victim(&mut self, list: usize, pages: &[Id], flags: &mut Flags, memory: usize) -> usize;
}

/// Up to eight memories, simulated together.
#[derive(Debug)]
pub struct Lists<C> {
    memories: Vec<Memory<C>>,
    /// Their chains, each once.
    chains: Vec<Chain>,
    flags: Table<u16>,
}

#[derive(Debug)]
struct Memory<C> {
    nth: usize,
    frames: usize,
    /// Number of its chain.
    chain: usize,
    choose: C,
    /// The page in each frame.
    pages: Table<Id>,
    /// Frames in use, by list.
    in_use: Vec<usize>,
    faults: u64,
}

impl<C: Choose> Lists<C> {
    pub fn new(asked: Vec<Asked>, seed: u64) -> Self {
        let mut chains: Vec<Chain> = Vec::new();
        let memory = |one: Asked| {
            let lists = one.lists();
            let chain = chains.iter().position(|chain| chain.counts() == one.chain.counts()).unwrap_or_else(|| {
                chains.push(one.chain);
                chains.len() - 1
            });
            Memory {
                nth: one.nth,
                frames: one.frames as usize,
                chain,
                choose: C::new(lists, one.frames, seed),
                pages: Table::new(lists * one.frames as usize, 0),
                in_use: vec![0; lists],
                faults: 0,
            }
        };
        let memories = asked.into_iter().map(memory).collect();
        Self { memories, chains, flags: Table::default() }
    }

    #[inline(always)]
    fn take(&mut self, ids: &[Id], codes: &[[u16; BATCH]]) {
        let (flags, memories) = (&mut self.flags[..], &mut self.memories[..]);
        let in_all = (1_u16 << (memories.len() - 1) << 1).wrapping_sub(1) & 0xff;
        for (at, &id) in ids.iter().enumerate() {
            if let Some(&soon) = ids.get(at + AHEAD) {
                cpu::prefetch(flags, soon as usize);
            }
            let mut absent = in_all & !flags[id as usize];
            flags[id as usize] = in_all | in_all << TOGETHER;
            while absent != 0 {
                let memory = absent.trailing_zeros() as usize;
                absent &= absent - 1;
                let one = &mut memories[memory];
                let list = codes[one.chain][at];
                one.fault(id, list as usize, flags, memory);
            }
        }
    }
}

impl<C: Choose> Memory<C> {
    #[inline(always)]
    fn fault(&mut self, id: Id, list: usize, flags: &mut Flags, memory: usize) {
        self.faults += 1;
        let pages = &mut self.pages[list * self.frames..][..self.frames];
        let in_use = &mut self.in_use[list];
        if *in_use < self.frames {
            pages[*in_use] = id;
            *in_use += 1;
        } else {
            let frame = self.choose.victim(list, pages, flags, memory);
            let leaves = std::mem::replace(&mut pages[frame], id);
            flags[leaves as usize] &= !held(memory);
        }
    }
}

impl<C: Choose> Replace for Lists<C> {
    fn feed(&mut self, pages: &[u64], ids: &[Id], bound: usize) {
        self.flags.resize(bound, 0);
        let mut codes = vec![[0; BATCH]; self.chains.len()];
        for (chain, codes) in self.chains.iter().zip(&mut codes) {
            chain.codes(pages, &mut codes[..pages.len()]);
        }
        cpu::with_avx2(
            #[inline(always)]
            || self.take(ids, &codes),
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
    fn victim(&mut self, list: usize, pages: &[Id], flags: &mut Flags, _: usize) -> usize {
        pass(&mut self.oldest[list], pages, flags)
    }
}

/// CLOCK, the second-chance approximation of LRU, which PAGING names as the policy of operating systems (section 2). It
/// contains the hand of each list.
#[derive(Debug)]
pub struct Clock {
    hands: Vec<usize>,
}

impl Choose for Clock {
    fn new(lists: usize, _: u32, _: u64) -> Self {
        Self { hands: vec![0; lists] }
    }

    #[inline(always)]
    fn victim(&mut self, list: usize, pages: &[Id], flags: &mut Flags, memory: usize) -> usize {
        loop {
            let frame = pass(&mut self.hands[list], pages, flags);
            let flags = &mut flags[pages[frame] as usize];
            if *flags & used(memory) == 0 {
                return frame;
            }
            *flags &= !used(memory);
        }
    }
}

/// Moves a hand over one frame, and prefetches the flags of a page that it will reach. With so many hands, the
/// processor does not recognize that each goes over its frames in order.
#[inline(always)]
fn pass(hand: &mut usize, pages: &[Id], flags: &Flags) -> usize {
    let frame = *hand;
    cpu::prefetch(pages, frame + FAR_AHEAD);
    *hand = if frame + 1 == pages.len() { 0 } else { frame + 1 };
    if let Some(&soon) = pages.get(frame + AHEAD) {
        cpu::prefetch(flags, soon as usize);
    }
    frame
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
    fn victim(&mut self, _: usize, pages: &[Id], flags: &mut Flags, _: usize) -> usize {
        let frame = std::mem::replace(&mut self.drawn[self.next], self.stream.below(pages.len() as u32));
        cpu::prefetch(pages, self.drawn[self.next] as usize);
        self.next = (self.next + 1) % DRAWN;
        if let Some(&soon) = pages.get(self.drawn[(self.next + DRAWN / 2) % DRAWN] as usize) {
            cpu::prefetch(flags, soon as usize);
        }
        frame as usize
    }
}
