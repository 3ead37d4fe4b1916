//! Alternations between two pages: most page runs of programs alternate between code and data.
//!
//! Two references that go from one page to another and back leave the stacks unchanged. Each has one page used since,
//! which counts at the levels where both have the same colour. So such pairs of references are taken out of a batch
//! before all other work.

use super::super::Touch;

/// Number of references in a batch.
pub(super) const BATCH: usize = 1024;
/// If less than this part of a batch was taken out, nothing is taken out of the [`RESTS`] batches after it.
const LITTLE: usize = 16;
const RESTS: u32 = 15;
/// The search for alternations in batches.
#[derive(Debug)]
pub(super) struct Alternations {
    /// The last two references, the older one first; none at the beginning, and after changes by something else. Any
    /// number may be a page, so none stands for that.
    last: Option<[u64; 2]>,
    rests: u32,
}

/// A batch in two parts: the references that stay, and the pages of the pairs that were taken out.
pub(super) struct Parted {
    pub(super) stays: [u64; BATCH],
    pub(super) there: [u64; BATCH / 2],
    pub(super) back: [u64; BATCH / 2],
    /// Number of references that stay, and number of pairs taken out.
    pub(super) lengths: (usize, usize),
}

impl Parted {
    pub(super) const EMPTY: Parted =
        Parted { stays: [0; BATCH], there: [0; BATCH / 2], back: [0; BATCH / 2], lengths: (0, 0) };
}

impl Alternations {
    pub(super) const fn new() -> Self {
        Self { last: None, rests: 0 }
    }

    /// Forgets the last references, because something else has changed the stacks.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// Divides a batch of at most [`BATCH`] references.
    #[inline(always)]
    pub(super) fn part<T: Touch>(&mut self, batch: &[T], parted: &mut Parted) {
        if self.rests > 0 {
            self.rests -= 1;
            parted.stays.iter_mut().zip(batch).for_each(|(stays, reference)| *stays = reference.page());
            parted.lengths = (batch.len(), 0);
            self.last = None;
            return;
        }
        let Some(first) = batch.first() else {
            parted.lengths = (0, 0);
            return;
        };
        // Between equal pages there is no alternation.
        let [mut before, mut latest] = self.last.unwrap_or([first.page(); 2]);
        let (mut stay, mut pairs, mut is_half) = (0, 0, false);
        for reference in batch {
            let page = reference.page();
            let is_back = page == before && page != latest;
            // The second half of a pair: the first half was just stored, and the next reference overwrites it.
            let is_pair = is_back & is_half;
            is_half = is_back & !is_half;
            parted.stays[stay % BATCH] = page;
            stay = (stay + 1).wrapping_sub(2 * usize::from(is_pair));
            (parted.there[pairs % (BATCH / 2)], parted.back[pairs % (BATCH / 2)]) = (latest, page);
            pairs += usize::from(is_pair);
            (before, latest) = (latest, page);
        }
        self.last = Some([before, latest]);
        self.rests = if pairs * LITTLE < batch.len() { RESTS } else { 0 };
        parted.lengths = (stay, pairs);
    }
}
