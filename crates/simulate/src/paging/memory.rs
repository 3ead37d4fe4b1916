//! Memories of chosen sizes under FIFO, CLOCK, random replacement, LRU and OPT.

mod clock;
mod lists;
mod lru;
mod optimal;

use super::Touch;
use super::colouring::{Chain, Colouring, ColouringError};
use crate::pages::{Id, Pages};
use clock::Clocks;
use lists::{Fifo, Lists, Random};

const BATCH: usize = 1024;
/// Number of memories whose state of a page, or of a time, is stored together.
const TOGETHER: usize = 8;

/// Replacement policy of a full list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The page used longest ago.
    Lru,
    /// The page that came first.
    Fifo,
    /// The first page, from where the hand is, that was not used since the hand last passed; a new page counts as used.
    Clock,
    /// A page at random; each memory has its own stream.
    Random {
        /// The same seed gives the same faults.
        seed: u64,
    },
    /// The page whose next use lies farthest ahead.
    Optimal,
}

/// Size of a memory: the number of colours, and the frames of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The number of colours.
    pub colours: u32,
    /// Frames of each colour; at least 1.
    pub frames: u32,
}

/// Some of the memories, which are simulated together.
trait Replace: std::fmt::Debug + Send + Sync {
    /// Takes references, each to another page than the one before, and the ids of their pages, which are below `bound`.
    fn feed(&mut self, pages: &[u64], ids: &[Id], bound: usize);

    /// Faults so far, each with the number of its memory.
    fn faults(&self) -> Vec<(usize, u64)>;
}

/// A requested memory: its number, its colours, and the frames of each.
#[derive(Debug)]
struct Asked {
    nth: usize,
    chain: Chain,
    frames: u32,
}

impl Asked {
    fn lists(&self) -> usize {
        1 << self.chain.code_bits()
    }
}

/// The lists of pages in some memories, simulated together.
#[derive(Debug)]
struct Codes {
    /// The memories' chains, each once.
    chains: Vec<Chain>,
    /// Each memory's chain.
    of: Vec<usize>,
    /// By chain, the codes of the present references' pages.
    codes: Vec<[u16; BATCH]>,
}

impl Codes {
    fn new(asked: &[Asked]) -> Self {
        let mut chains: Vec<Chain> = Vec::new();
        let of = asked.iter().map(|one| {
            chains.iter().position(|chain| chain.counts() == one.chain.counts()).unwrap_or_else(|| {
                chains.push(one.chain.clone());
                chains.len() - 1
            })
        });
        let of = of.collect();
        Self { codes: vec![[0; BATCH]; chains.len()], chains, of }
    }

    /// Computes the codes of at most [`BATCH`] pages.
    fn read(&mut self, pages: &[u64]) {
        for (chain, codes) in self.chains.iter().zip(&mut self.codes) {
            chain.codes(pages, &mut codes[..pages.len()]);
        }
    }

    /// The list of the page of reference `at` in a memory.
    #[inline(always)]
    fn list(&self, memory: usize, at: usize) -> usize {
        self.codes[self.of[memory]][at] as usize
    }
}

/// A bit for each of so many memories, at most eight.
fn all(memories: usize) -> u8 {
    u8::MAX >> (TOGETHER - memories)
}

/// Memories of one policy, of several sizes and colour counts; each reference goes to all.
#[derive(Debug)]
pub struct Memories {
    pages: Pages,
    sizes: Vec<Size>,
    parts: Vec<Box<dyn Replace>>,
    references: u64,
    last: Option<u64>,
}

impl Memories {
    /// Empty memories.
    ///
    /// # Errors
    /// Colour counts that cannot be simulated.
    ///
    /// # Panics
    /// If a size has no frames.
    pub fn new(policy: Policy, colouring: &Colouring, sizes: &[Size]) -> Result<Self, ColouringError> {
        let asked = |(nth, &Size { colours, frames }): (usize, &Size)| {
            assert!(frames > 0, "each colour needs a frame");
            let chain = Chain::split(colouring, &[colours])?.remove(0);
            Ok(Asked { nth, chain, frames })
        };
        let asked: Vec<Asked> = sizes.iter().enumerate().map(asked).collect::<Result<_, _>>()?;
        let parts = match policy {
            Policy::Lru => apart(asked, |mut one| lru::Lru::new(one.remove(0))),
            Policy::Fifo => together(asked, |some| Lists::<Fifo>::new(&some, 0)),
            Policy::Clock => together(asked, |some| Clocks::new(&some)),
            Policy::Random { seed } => together(asked, |some| Lists::<Random>::new(&some, seed)),
            Policy::Optimal => optimal::alike(asked),
        };
        Ok(Self { pages: Pages::default(), sizes: sizes.to_vec(), parts, references: 0, last: None })
    }

    /// Takes the next references.
    pub fn feed<T: Touch>(&mut self, references: &[T]) {
        let (mut pages, mut ids) = ([0; BATCH], [0; BATCH]);
        for batch in references.chunks(BATCH) {
            let mut length = 0;
            for reference in batch {
                self.references += reference.count();
                // A page that was just used is in memory, and another use changes no order.
                if self.last != Some(reference.page()) {
                    self.last = Some(reference.page());
                    pages[length] = reference.page();
                    length += 1;
                }
            }
            let (pages, ids) = (&pages[..length], &mut ids[..length]);
            self.pages.ids(pages, ids);
            self.parts.iter_mut().for_each(|part| part.feed(pages, ids, self.pages.len()));
        }
    }

    /// References so far.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Faults of each memory, in the order of [`Memories::new`].
    #[must_use]
    pub fn faults(&self) -> Vec<(Size, u64)> {
        let mut found: Vec<(Size, u64)> = self.sizes.iter().map(|size| (*size, 0)).collect();
        for (nth, faults) in self.parts.iter().flat_map(|part| part.faults()) {
            found[nth].1 = faults;
        }
        found
    }
}

/// Divides the memories into parts of at most this many.
fn parts<R: Replace + 'static>(
    mut asked: Vec<Asked>,
    most: usize,
    make: impl Fn(Vec<Asked>) -> R,
) -> Vec<Box<dyn Replace>> {
    let mut parts: Vec<Box<dyn Replace>> = Vec::new();
    while !asked.is_empty() {
        let some = asked.drain(..most.min(asked.len())).collect();
        parts.push(Box::new(make(some)));
    }
    parts
}

fn apart<R: Replace + 'static>(asked: Vec<Asked>, make: impl Fn(Vec<Asked>) -> R) -> Vec<Box<dyn Replace>> {
    parts(asked, 1, make)
}

fn together<R: Replace + 'static>(asked: Vec<Asked>, make: impl Fn(Vec<Asked>) -> R) -> Vec<Box<dyn Replace>> {
    parts(asked, TOGETHER, make)
}
