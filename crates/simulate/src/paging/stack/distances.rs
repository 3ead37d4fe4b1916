//! Distances of references that were found in the top; they are counted together.
//!
//! Such a distance is below sixteen, and the same few values repeat: if each reference incremented a counter, the next
//! one would wait for it. So distances are stored as bytes, and after each batch the code counts how often each value
//! occurs.

use super::alternations::BATCH;
use super::top::PLACES;
use crate::cpu::lanes::{self, CHUNK};

/// Number of chunks counted at once: so many do not overflow a byte.
const MOST: usize = u8::MAX as usize;
/// Stands for no reference.
const NONE: u8 = u8::MAX;

/// Distances of a batch, `W` for each reference: those of its levels first.
#[derive(Debug)]
pub struct Distances<const W: usize> {
    waiting: [[u8; W]; BATCH],
    length: usize,
}

impl<const W: usize> Distances<W> {
    pub const EMPTY: Self = Self { waiting: [[NONE; W]; BATCH], length: 0 };

    /// Adds a reference; no more than [`BATCH`] between two calls of [`Distances::tally`].
    #[inline(always)]
    pub fn add(&mut self, distances: [u8; W]) {
        self.waiting[self.length % BATCH] = distances;
        self.length += 1;
    }

    /// Passes to `told` how many references of each level have each distance, and starts again.
    #[inline(always)]
    pub fn tally<const LEVEL: u8>(&mut self, mut told: impl FnMut(usize, &[u16; W])) {
        const { assert!(CHUNK.is_multiple_of(W) && (BATCH * W).is_multiple_of(CHUNK)) };
        if self.length == 0 {
            return;
        }
        let end = self.length.next_multiple_of(CHUNK / W);
        self.waiting[self.length..end].fill([NONE; W]);
        let (chunks, _) = self.waiting[..end].as_flattened().as_chunks();
        for chunks in chunks.chunks(MOST) {
            for distance in 0..PLACES {
                told(distance, &sums(&lanes::count_bytes::<LEVEL>(chunks, distance as u8)));
            }
        }
        self.length = 0;
    }
}

/// Counts of each level, over the references of a chunk.
#[inline(always)]
fn sums<const W: usize>(counts: &[u8; CHUNK]) -> [u16; W] {
    let add = |sums: [u16; W], counts: &[u8; W]| std::array::from_fn(|at| sums[at] + u16::from(counts[at]));
    counts.as_chunks().0.iter().fold([0; W], add)
}
