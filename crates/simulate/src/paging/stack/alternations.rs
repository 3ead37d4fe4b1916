//! Alternations between two pages: most page runs of programs go back and forth between code and data.
//!
//! Two references that go there and back leave the stacks as they were. Each has one page used since, which the levels count at
//! which both have the same colour. So such pairs of references are taken out before anything else is done with a batch.

use super::super::Touch;

/// References of a batch.
pub(super) const BATCH: usize = 1024;
/// A batch of which less than this part was taken out is followed by [`RESTS`] from which nothing is.
const LITTLE: usize = 16;
const RESTS: u32 = 15;
/// Equal pages, between which nothing goes back and forth.
const NOWHERE: [u64; 2] = [u64::MAX; 2];

/// What is taken out of batches.
#[derive(Debug)]
pub(super) struct Alternations {
    /// The last two references: the one before first.
    last: [u64; 2],
    rests: u32,
}

/// A batch: what stays of it, and between which pages went what was taken out, two references each.
pub(super) struct Parted {
    pub(super) stays: [u64; BATCH],
    pub(super) there: [u64; BATCH / 2],
    pub(super) back: [u64; BATCH / 2],
    /// How many stay, and how many pairs were taken out.
    pub(super) lengths: (usize, usize),
}

impl Parted {
    pub(super) const EMPTY: Parted =
        Parted { stays: [0; BATCH], there: [0; BATCH / 2], back: [0; BATCH / 2], lengths: (0, 0) };
}

impl Alternations {
    pub(super) const fn new() -> Self {
        Self { last: NOWHERE, rests: 0 }
    }

    /// The stacks were changed by something else than references.
    pub(super) fn forget(&mut self) {
        self.last = NOWHERE;
    }

    /// Parts a batch of at most [`BATCH`] references.
    #[inline(always)]
    pub(super) fn part<T: Touch>(&mut self, batch: &[T], parted: &mut Parted) {
        if self.rests > 0 {
            self.rests -= 1;
            parted.stays.iter_mut().zip(batch).for_each(|(stays, reference)| *stays = reference.page());
            parted.lengths = (batch.len(), 0);
            self.last = NOWHERE;
            return;
        }
        let [mut before, mut latest] = self.last;
        let (mut stay, mut pairs, mut is_half) = (0, 0, false);
        for reference in batch {
            let page = reference.page();
            let is_back = page == before && page != latest;
            // The second half of a pair: the first was put in just now, and is overwritten by what comes next.
            let is_pair = is_back & is_half;
            is_half = is_back & !is_half;
            parted.stays[stay % BATCH] = page;
            stay = (stay + 1).wrapping_sub(2 * usize::from(is_pair));
            (parted.there[pairs % (BATCH / 2)], parted.back[pairs % (BATCH / 2)]) = (latest, page);
            pairs += usize::from(is_pair);
            (before, latest) = (latest, page);
        }
        self.last = [before, latest];
        self.rests = if pairs * LITTLE < batch.len() { RESTS } else { 0 };
        parted.lengths = (stay, pairs);
    }
}
