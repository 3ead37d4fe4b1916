//! Memories of chosen sizes under FIFO, CLOCK, random replacement, LRU and OPT.

mod lists;
mod lru;
mod optimal;

use super::Touch;
use super::colouring::{Chain, Colouring, ColouringError};
use crate::pages::{Id, Pages};
use lists::{Clock, Fifo, Lists, Places, Random};

pub use optimal::{Optimal, SpillError};

const BATCH: usize = 1024;

/// Replacement policy of a full list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The page used longest ago.
    Lru,
    /// The page that came first.
    Fifo,
    /// The first page, from where the hand is, that was not used since the hand last passed; a new page counts as used.
    Clock,
    /// A page at random; each memory has a stream of its own.
    Random {
        /// The same seed gives the same faults.
        seed: u64,
    },
}

/// A memory: how many colours, and how many frames each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The number of colours.
    pub colours: u32,
    /// Frames of each colour; at least 1.
    pub frames: u32,
}

/// Operation of one memory on references.
trait Replace: std::fmt::Debug + Send + Sync {
    /// Takes references, as ids below `bound` and the lists they belong to; returns the faults. `places`: those of its pages,
    /// among others', where it does not keep them itself.
    fn feed(&mut self, places: &mut Places, ids: &[Id], lists: &[u16], bound: usize) -> u64;
}

/// Memories of one policy, of several sizes and colour counts; each reference goes to all.
#[derive(Debug)]
pub struct Memories {
    pages: Pages,
    memories: Vec<Memory>,
    /// Frames of pages; of none under LRU, which orders pages.
    places: Vec<Places>,
    is_lru: bool,
    references: u64,
    last: Option<u64>,
}

#[derive(Debug)]
struct Memory {
    size: Size,
    chain: Chain,
    faults: u64,
    replace: Box<dyn Replace>,
}

impl Memories {
    /// Empty memories.
    ///
    /// # Errors
    /// Colour counts that cannot be simulated.
    ///
    /// # Panics
    /// Where a size has no frames.
    pub fn new(policy: Policy, colouring: &Colouring, sizes: &[Size]) -> Result<Self, ColouringError> {
        let memory = |(nth, &size): (usize, &Size)| {
            let (_, nth) = Places::of_memory(nth);
            assert!(size.frames > 0, "each colour needs a frame");
            let chain = Chain::split(colouring, &[size.colours])?.remove(0);
            let lists = 1 << chain.code_bits();
            let replace: Box<dyn Replace> = match policy {
                Policy::Lru => Box::new(lru::Lru::new(lists, size.frames)),
                Policy::Fifo => Box::new(Lists::<Fifo>::new(nth, lists, size.frames, 0)),
                Policy::Clock => Box::new(Lists::<Clock>::new(nth, lists, size.frames, 0)),
                Policy::Random { seed } => Box::new(Lists::<Random>::new(nth, lists, size.frames, seed)),
            };
            Ok(Memory { size, chain, faults: 0, replace })
        };
        let memories = sizes.iter().enumerate().map(memory).collect::<Result<_, _>>()?;
        let places = Places::of(sizes.len());
        let is_lru = policy == Policy::Lru;
        Ok(Self { pages: Pages::default(), memories, places, is_lru, references: 0, last: None })
    }

    /// Takes the next references.
    pub fn feed<T: Touch>(&mut self, references: &[T]) {
        let mut pages = [0; BATCH];
        for batch in references.chunks(BATCH) {
            let mut length = 0;
            for reference in batch {
                self.references += reference.count();
                // A page that was used just before is in memory, and using it again changes no order.
                if self.last != Some(reference.page()) {
                    self.last = Some(reference.page());
                    pages[length] = reference.page();
                    length += 1;
                }
            }
            self.feed_batch(&pages[..length]);
        }
    }

    fn feed_batch(&mut self, batch: &[u64]) {
        let (mut ids, mut lists) = ([0; BATCH], [0; BATCH]);
        let (ids, lists) = (&mut ids[..batch.len()], &mut lists[..batch.len()]);
        for (id, &page) in ids.iter_mut().zip(batch) {
            *id = self.pages.id(page);
        }
        let bound = self.pages.len();
        let mut colours = 0;
        for (nth, memory) in self.memories.iter_mut().enumerate() {
            let (group, of_group) = Places::of_memory(nth);
            let places = &mut self.places[group];
            if of_group == 0 && !self.is_lru {
                places.prepare(ids, bound);
            }
            if memory.size.colours != colours {
                memory.chain.codes(batch, lists);
                colours = memory.size.colours;
            }
            memory.faults += memory.replace.feed(places, ids, lists, bound);
        }
    }

    /// References so far.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Faults of each memory, in the order of [`Memories::new`].
    pub fn faults(&self) -> impl Iterator<Item = (Size, u64)> {
        self.memories.iter().map(|memory| (memory.size, memory.faults))
    }
}
