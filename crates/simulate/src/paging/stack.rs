//! Exact LRU distances for every memory size and many colour counts, in one pass (Mattson et al., "Evaluation
//! techniques for storage hierarchies", IBM Systems Journal 9(2), 1970, made several lists at once).
//!
//! The distance of a reference at c colours is the number of other pages of its colour used since its last use: the
//! reference is a fault for memories with at most that many frames of its colour.

mod curve;
mod top;
mod walk;
mod window;

pub use curve::Curve;

use super::Touch;
use super::colouring::{Chain, Colouring, ColouringError};
use super::pages::Pages;
use walk::{Walk, walk_of};

const BATCH: usize = 1024;

/// The stacks of all colour counts; fed with references, asked for curves.
#[derive(Debug)]
pub struct Stacks {
    pages: Pages,
    walks: Vec<(Chain, Box<dyn Walk>)>,
    references: u64,
}

impl Stacks {
    /// Empty stacks.
    ///
    /// # Errors
    /// Colour counts that cannot be simulated.
    pub fn new(colouring: &Colouring, counts: &[u32]) -> Result<Self, ColouringError> {
        let walks = Chain::split(colouring, counts)?.into_iter().map(|chain| {
            let walk = walk_of(&chain);
            (chain, walk)
        });
        Ok(Self { pages: Pages::default(), walks: walks.collect(), references: 0 })
    }

    /// Takes the next references.
    pub fn feed<T: Touch>(&mut self, references: &[T]) {
        for batch in references.chunks(BATCH) {
            self.feed_batch(batch);
        }
    }

    fn feed_batch<T: Touch>(&mut self, batch: &[T]) {
        let (mut ids, mut codes) = ([0; BATCH], [0; BATCH]);
        let (ids, codes) = (&mut ids[..batch.len()], &mut codes[..batch.len()]);
        for (id, reference) in ids.iter_mut().zip(batch) {
            *id = self.pages.id(reference.page());
            self.references += reference.count();
        }
        for (chain, walk) in &mut self.walks {
            chain.codes(batch, codes);
            walk.feed(ids, codes, self.pages.len());
        }
    }

    /// References so far.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// The curves of every colour count, ascending.
    #[must_use]
    pub fn curves(&self) -> Vec<Curve> {
        let mut curves: Vec<Curve> =
            self.walks.iter().flat_map(|(chain, walk)| walk.curves(chain.counts(), self.references)).collect();
        curves.sort_by_key(|curve| curve.colours);
        curves
    }
}
