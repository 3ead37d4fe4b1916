//! Exact LRU distances for every memory size and many colour counts, in one pass (Mattson et al., "Evaluation
//! techniques for storage hierarchies", IBM Systems Journal 9(2), 1970, extended to several lists at once).
//!
//! The distance of a reference at c colours is the number of other pages of its colour used since its last use: the
//! reference is a fault for memories with at most that many frames of its colour.

mod alternations;
mod distances;
mod parallel;
mod recent;
mod reuses;
mod top;
mod walk;
mod window;

pub use parallel::Parallel;

use super::Touch;
use super::colouring::{Chain, Colouring, ColouringError};
use crate::pages::{Id, Pages};
use alternations::{Alternations, BATCH, Parted};
use recent::{Moves, Recent};
use walk::{Walk, walk_of};

/// Faults of LRU at one colour count, for every memory size, and the filling of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Curve {
    /// The number of colours.
    pub colours: u32,
    /// References in all.
    pub references: u64,
    /// First uses: faults at every size.
    pub cold: u64,
    /// `reused[d]`: references to a page after d other pages of its colour were used; d = 0 is included. From stacks
    /// for large memories ([`Stacks::exact_from`]), numbers of distances below their frames of a colour are too small,
    /// and the rest is at d = 0.
    pub reused: Vec<u64>,
    /// `filled[k - 1]`: pages used until k pages of one colour had been used for the first time.
    pub filled: Vec<u64>,
}

impl Curve {
    /// Faults with `frames` frames of each colour, for 0, 1, 2 … frames up to the first size with cold faults only.
    #[must_use]
    pub fn faults(&self) -> Vec<u64> {
        let used = self.reused.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        let mut faults = vec![self.cold; used + 1];
        for depth in (0..used).rev() {
            faults[depth] = faults[depth + 1] + self.reused[depth];
        }
        faults
    }
}

/// The stacks of all colour counts; they take references and return curves.
#[derive(Debug)]
pub struct Stacks {
    pages: Pages,
    walks: Vec<(Chain, Box<dyn Walk>)>,
    alternations: Alternations,
    /// If small memories do not matter.
    recent: Option<Box<Recent>>,
    moves: Moves,
    references: u64,
}

impl Stacks {
    /// Empty stacks.
    ///
    /// # Errors
    /// Colour counts that cannot be simulated.
    pub fn new(colouring: &Colouring, counts: &[u32]) -> Result<Self, ColouringError> {
        Self::exact_from(colouring, counts, 1)
    }

    /// Empty stacks for memories of at least `memory` pages: faults of smaller ones come out too small. Traces with
    /// much locality take much less time.
    ///
    /// # Errors
    /// As [`Stacks::new`].
    pub fn exact_from(colouring: &Colouring, counts: &[u32], memory: u64) -> Result<Self, ColouringError> {
        let chains = Chain::split(colouring, counts)?;
        Ok(Self {
            pages: Pages::default(),
            recent: (memory > 1).then(|| Box::new(Recent::new(&chains, memory))),
            walks: chains.into_iter().map(|chain| (chain.clone(), walk_of(&chain))).collect(),
            moves: Moves::default(),
            alternations: Alternations::new(),
            references: 0,
        })
    }

    /// Takes the next references.
    pub fn feed<T: Touch>(&mut self, references: &[T]) {
        let mut parted = Parted::EMPTY;
        for batch in references.chunks(BATCH) {
            self.references += batch.iter().map(Touch::count).sum::<u64>();
            if !self.keep_recent(batch) {
                self.alternations.part(batch, &mut parted);
                self.feed_batch(&parted);
            }
        }
    }

    /// Takes a batch, if small memories do not matter and some of its references are probably to recent pages; `false`:
    /// nothing was done.
    fn keep_recent<T: Touch>(&mut self, batch: &[T]) -> bool {
        let Some(recent) = &mut self.recent else { return false };
        if recent.rests() {
            return false;
        }
        self.alternations.forget();
        self.moves.clear();
        recent.take(batch, &mut self.moves);
        self.make_moves();
        true
    }

    /// Puts the recent pages back on top of the stacks.
    fn settle(&mut self) {
        if let Some(recent) = &mut self.recent {
            self.moves.clear();
            recent.leave_all(&mut self.moves);
            self.make_moves();
        }
    }

    fn make_moves(&mut self) {
        let (mut ids, mut codes) = ([0; BATCH], [0; BATCH]);
        let entering = self.moves.pages.len();
        let (ids, codes) = (&mut ids[..entering], &mut codes[..entering]);
        self.pages.ids(&self.moves.pages, ids);
        for (chain, walk) in &mut self.walks {
            chain.codes(&self.moves.pages, codes);
            walk.move_pages(&self.moves.moves, ids, codes, self.pages.len());
        }
    }

    fn feed_batch(&mut self, parted: &Parted) {
        let (stay, pairs) = parted.lengths;
        let (stays, there, back) = (&parted.stays[..stay], &parted.there[..pairs], &parted.back[..pairs]);
        let (mut ids, mut codes) = ([0; BATCH], [[0; BATCH]; 2]);
        let ids = &mut ids[..stay];
        self.pages.ids(stays, ids);
        let [codes, others] = &mut codes;
        for (chain, walk) in &mut self.walks {
            chain.codes(stays, &mut codes[..stay]);
            walk.feed(ids, &codes[..stay], self.pages.len());
            chain.codes(there, &mut codes[..pairs]);
            chain.codes(back, &mut others[..pairs]);
            walk.count_alternations(&codes[..pairs], &others[..pairs]);
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

    /// Different pages in the stacks.
    #[must_use]
    pub fn pages(&mut self) -> Vec<u64> {
        self.settle();
        self.walks[0].1.order().into_iter().map(|id| self.pages.page(id)).collect()
    }

    /// Number of different pages in the stacks.
    #[must_use]
    pub fn held(&self) -> usize {
        self.walks[0].1.held()
    }

    /// Adds the results and the stacks of `later`, which took the references that follow: the same as taking them here.
    ///
    /// The first use of a page there gets, in their order, the distance that it would have had here; then the pages
    /// that `later` used lie above all others (Niu et al., "PARDA: a fast parallel reuse distance analysis algorithm",
    /// IPDPS 2012). `later` must have been made with the same colours.
    pub fn append(&mut self, later: &mut Self) {
        self.alternations.forget();
        self.settle();
        later.settle();
        for first_uses in later.walks[0].1.first_uses().chunks(BATCH) {
            self.each_walk(later, first_uses, |walk, ids, codes, bound| walk.take_out(ids, codes, bound));
        }
        for order in later.walks[0].1.order().chunks(BATCH) {
            self.each_walk(later, order, |walk, ids, codes, _| walk.put_back(ids, codes));
        }
        self.references += later.references;
        for ((_, mine), (_, theirs)) in self.walks.iter_mut().zip(&later.walks) {
            mine.add_reuses(&theirs.reuses());
        }
    }

    /// Hands at most [`BATCH`] pages of other stacks to each walk: ids here, codes, and the bound of ids.
    fn each_walk(
        &mut self,
        other: &Self,
        theirs: &[Id],
        mut take: impl FnMut(&mut dyn Walk, &[Id], &[u16], usize),
    ) {
        let (mut pages, mut ids, mut codes) = ([0; BATCH], [0; BATCH], [0; BATCH]);
        let (pages, ids, codes) =
            (&mut pages[..theirs.len()], &mut ids[..theirs.len()], &mut codes[..theirs.len()]);
        for (page, &id) in pages.iter_mut().zip(theirs) {
            *page = other.pages.page(id);
        }
        self.pages.ids(pages, ids);
        for (chain, walk) in &mut self.walks {
            chain.codes(pages, codes);
            take(walk.as_mut(), ids, codes, self.pages.len());
        }
    }

    /// Removes the pages for which `keep` is false from the stacks, and restarts all counts.
    pub fn restart(&mut self, keep: impl Fn(u64) -> bool) {
        self.settle();
        let mut order = self.walks[0].1.order();
        order.retain(|&id| keep(self.pages.page(id)));
        self.arrange(&order);
        self.references = 0;
        self.walks.iter_mut().for_each(|(_, walk)| walk.forget_counts());
    }

    /// Empties the stacks and restarts all counts; memory is kept for later use.
    fn clear(&mut self) {
        self.references = 0;
        self.alternations.forget();
        if let Some(recent) = &mut self.recent {
            recent.clear();
        }
        self.walks.iter_mut().for_each(|(_, walk)| walk.clear());
    }

    fn arrange(&mut self, order: &[Id]) {
        self.alternations.forget();
        let pages: Vec<u64> = order.iter().map(|&id| self.pages.page(id)).collect();
        let mut codes = vec![0; pages.len()];
        for (chain, walk) in &mut self.walks {
            chain.codes(&pages, &mut codes);
            walk.arrange(order, &codes, self.pages.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::tests::on_every_level;
    use pagelab_stats::stream::mix;
    use proptest::prelude::*;

    /// Faults and fillings of a trace that is fed in pieces.
    fn counted(trace: &[u64], counts: &[u32], piece: usize) -> Vec<(Vec<u64>, Vec<u64>)> {
        let mut stacks = Stacks::new(&Colouring::Modulo, counts).unwrap();
        trace.chunks(piece).for_each(|part| stacks.feed(part));
        stacks.curves().into_iter().map(|curve| (curve.faults(), curve.filled)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn every_processor_counts_random_traces_the_same(
            counts in proptest::collection::vec(1..65_u32, 1..8),
            // Above 2^15 pages, counts are prefetched before their addition.
            pages in prop_oneof![1..30_u64, 100..3000_u64, 30_000..50_000_u64],
            seed in any::<u64>(),
            skewed in any::<bool>(),
            piece in 1..5000_usize,
        ) {
            let length = pages * 2 + seed % 3000;
            let draw = |i: u64| {
                let random = mix(seed.wrapping_add(i));
                if skewed { random % pages * ((random >> 40) % pages) / pages } else { random % pages }
            };
            let trace: Vec<u64> = (0..length).map(draw).collect();
            let levels = on_every_level(|| counted(&trace, &counts, piece));
            let whole = counted(&trace, &counts, trace.len());
            prop_assert!(levels.iter().all(|other| *other == whole));
        }
    }

    /// `tests/stacks.rs` compares the widest code of this processor with definitions; other processors run other code.
    #[test]
    fn every_processor_counts_the_same() {
        let trace: Vec<u64> = (0..60_000)
            .map(|i| match i / 20_000 {
                0 => mix(i) % 3000 * (mix(i) >> 40) % 3000,
                1 => i % 2222,
                _ => i % 11 + mix(i) % 7 * (i % 2),
            })
            .collect();
        for counts in [&[1][..], &[1, 2, 4, 8, 16, 32, 64], &[3, 6]] {
            let curves = on_every_level(|| counted(&trace, counts, trace.len()));
            assert!(curves.iter().all(|other| *other == curves[0]));
        }
    }
}
