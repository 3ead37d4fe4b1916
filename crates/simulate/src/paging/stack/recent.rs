//! The pages used last, where small memories do not matter.
//!
//! If each colour has at least k frames in every memory that is asked about, a reference to one of the k pages of its
//! colour used last is a hit in all of them. For such pages the stacks need neither distances nor an order, only which
//! pages they are, and in which order pages leave them. So a reference to one of them is a look at a table and a note of
//! the time, and the stacks take only the pages that enter and leave.
//!
//! Smith ("Two methods for the efficient analysis of memory address trace data", IEEE TSE 3(1), 1977) deletes references
//! to recent pages from a trace, which changes the distances of others. Kaplan, Smaragdakis and Wilson ("Flexible
//! reference trace reduction for VM simulations", ACM TOMACS 13(1), 2003) show what may be left out exactly. Here it is
//! left out on the way into the stacks, for several colour counts at once.

use super::super::Touch;
use super::super::colouring::Chain;
use crate::cpu;

/// Most recent pages.
pub const PLACES: usize = 64;
const ROWS: usize = 4;
const LANES: usize = 16;
/// The table that tells where a page is: more entries than pages, so that few pages share one.
const HINT_BITS: u32 = 12;
/// If too many of a batch's references enter, so many batches after it go to the stacks directly; twice as many each
/// time that this happens again, up to [`MOST_RESTS`].
const RESTS: u32 = 15;
const MOST_RESTS: u32 = 511;
/// Eighths of a batch that may enter: more where the stacks' work for several colour counts is saved.
const MAY_ENTER: usize = 2;
const SEVERAL_MAY_ENTER: usize = 3;
/// As many colour counts are several.
const SEVERAL: usize = 4;
/// Stands for the time of a place without a page.
const VACANT: u32 = u32::MAX;

/// What the stacks see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// The next page that enters takes this place.
    Enter(u8),
    /// The page at this place is no longer recent: of all such pages it was used last.
    Leave(u8),
}

/// Changes of a batch, in order.
#[derive(Debug, Default)]
pub(super) struct Moves {
    pub(super) moves: Vec<Move>,
    /// The pages that enter.
    pub(super) pages: Vec<u64>,
}

impl Moves {
    pub(super) fn clear(&mut self) {
        self.moves.clear();
        self.pages.clear();
    }
}

/// How many recent pages have each colour of one count.
#[derive(Debug)]
struct Held {
    mask: u16,
    most: u8,
    pages: Vec<u8>,
}

/// The colour counts of a chain for which the number of recent pages of a colour is limited.
#[derive(Debug)]
struct Limits {
    chain: Chain,
    codes: [u16; PLACES],
    levels: Vec<Held>,
}

impl Limits {
    fn new(chain: &Chain, memory: u64) -> Self {
        let levels = chain.counts().iter().zip(chain.level_bits()).map(|(&count, bits)| Held {
            mask: ((1_u32 << bits) - 1) as u16,
            most: (memory / u64::from(count)).clamp(1, PLACES as u64) as u8,
            pages: vec![0; 1 << bits],
        });
        let levels = levels.filter(|level| usize::from(level.most) < PLACES).collect();
        Self { chain: chain.clone(), codes: [0; PLACES], levels }
    }

    fn is_full(&self, code: u16) -> bool {
        self.levels.iter().any(|level| level.pages[usize::from(code & level.mask)] >= level.most)
    }

    fn enter(&mut self, place: usize, code: u16) {
        self.codes[place] = code;
        self.levels.iter_mut().for_each(|level| level.pages[usize::from(code & level.mask)] += 1);
    }

    fn leave(&mut self, place: usize) {
        let code = self.codes[place];
        self.levels.iter_mut().for_each(|level| level.pages[usize::from(code & level.mask)] -= 1);
    }
}

/// The recent pages of all chains.
#[derive(Debug)]
pub(super) struct Recent {
    pages: [u64; PLACES],
    /// A part of each page's hash.
    tags: [[u16; LANES]; ROWS],
    /// When each page was used last.
    used: [[u32; LANES]; ROWS],
    /// A bit for each place with a page.
    occupied: u64,
    /// By another part of the hash, where a page probably is.
    hints: Box<[u8; 1 << HINT_BITS]>,
    now: u32,
    limits: Vec<Limits>,
    may_enter: usize,
    rests: u32,
    rests_next: u32,
}

impl Recent {
    /// No recent pages; every memory that is asked about has at least `memory` pages.
    pub(super) fn new(chains: &[Chain], memory: u64) -> Self {
        let counts: usize = chains.iter().map(|chain| chain.counts().len()).sum();
        Self {
            pages: [0; PLACES],
            tags: [[0; LANES]; ROWS],
            used: [[VACANT; LANES]; ROWS],
            occupied: 0,
            hints: Box::new([0; 1 << HINT_BITS]),
            now: 0,
            limits: chains.iter().map(|chain| Limits::new(chain, memory)).collect(),
            may_enter: if counts < SEVERAL { MAY_ENTER } else { SEVERAL_MAY_ENTER },
            rests: 0,
            rests_next: RESTS,
        }
    }

    /// Whether the next batch goes to the stacks directly; then no page is recent.
    pub(super) fn rests(&mut self) -> bool {
        self.rests = self.rests.saturating_sub(1);
        self.rests > 0
    }

    /// Takes a batch, and tells what the stacks have to do.
    pub(super) fn take<T: Touch>(&mut self, batch: &[T], moves: &mut Moves) {
        if self.now > VACANT - 1 - batch.len() as u32 {
            self.leave_all(moves);
            self.now = 0;
        }
        cpu::with_avx2(
            #[inline(always)]
            || {
                for reference in batch {
                    self.now += 1;
                    let page = reference.page();
                    let place = usize::from(self.hints[hint_of(page)]) % PLACES;
                    if self.pages[place] == page && self.used[place / LANES][place % LANES] != VACANT {
                        self.used[place / LANES][place % LANES] = self.now;
                    } else {
                        self.search(page, moves);
                    }
                }
            },
        );
        if moves.pages.len() * 8 > batch.len() * self.may_enter {
            self.leave_all(moves);
            self.rests = self.rests_next + 1;
            self.rests_next = (self.rests_next * 2 + 1).min(MOST_RESTS);
        } else {
            self.rests_next = RESTS;
        }
    }

    #[inline(always)]
    fn search(&mut self, page: u64, moves: &mut Moves) {
        let mut found = self.alike(page);
        while found != 0 {
            let place = found.trailing_zeros() as usize;
            if self.pages[place] == page {
                self.hints[hint_of(page)] = place as u8;
                self.used[place / LANES][place % LANES] = self.now;
                return;
            }
            found &= found - 1;
        }
        self.enter(page, moves);
    }

    /// A bit for each recent page with this page's tag.
    #[inline(always)]
    fn alike(&self, page: u64) -> u64 {
        let tag = [tag_of(page); LANES];
        let rows = self.tags.iter().rev();
        rows.fold(0, |bits, row| bits << LANES | u64::from(cpu::equal_lanes(row, &tag))) & self.occupied
    }

    #[inline(always)]
    fn enter(&mut self, page: u64, moves: &mut Moves) {
        while self.occupied == u64::MAX || self.limits.iter().any(|one| one.is_full(one.chain.code(page) as u16)) {
            self.leave_oldest(moves);
        }
        let place = (!self.occupied).trailing_zeros() as usize % PLACES;
        self.occupied |= 1 << place;
        self.pages[place] = page;
        self.tags[place / LANES][place % LANES] = tag_of(page);
        self.used[place / LANES][place % LANES] = self.now;
        self.hints[hint_of(page)] = place as u8;
        for limits in &mut self.limits {
            limits.enter(place, limits.chain.code(page) as u16);
        }
        moves.moves.push(Move::Enter(place as u8));
        moves.pages.push(page);
    }

    #[inline(always)]
    fn leave_oldest(&mut self, moves: &mut Moves) {
        let oldest = self.used.map(|row| row.into_iter().fold(VACANT, u32::min));
        let row = (0..ROWS).min_by_key(|&row| oldest[row]).unwrap_or(0);
        let lane = self.used[row].iter().position(|&used| used == oldest[row]).unwrap_or(0);
        let place = row * LANES + lane;
        self.used[row][lane] = VACANT;
        self.occupied &= !(1 << place);
        self.limits.iter_mut().for_each(|limits| limits.leave(place));
        moves.moves.push(Move::Leave(place as u8));
    }

    /// All pages leave, the one used longest ago first.
    pub(super) fn leave_all(&mut self, moves: &mut Moves) {
        while self.occupied != 0 {
            self.leave_oldest(moves);
        }
    }

    /// Forgets all pages.
    pub(super) fn clear(&mut self) {
        self.leave_all(&mut Moves::default());
        (self.rests, self.rests_next) = (0, RESTS);
    }
}

/// A page's hash (Fibonacci hashing: Knuth, The Art of Computer Programming 3, section 6.4).
#[inline(always)]
fn hash(page: u64) -> u64 {
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline(always)]
fn hint_of(page: u64) -> usize {
    (hash(page) >> (u64::BITS - HINT_BITS)) as usize
}

#[inline(always)]
fn tag_of(page: u64) -> u16 {
    (hash(page) >> 32) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paging::colouring::Colouring;
    use pagelab_stats::stream::mix;

    /// The time starts again before it ends; pages leave in the order of their last uses then, too.
    #[test]
    fn pages_leave_in_the_order_of_their_last_uses() {
        let chains = Chain::split(&Colouring::Modulo, &[1, 16, 3]).unwrap();
        let mut recent = Recent::new(&chains, 64);
        recent.now = VACANT - 5000;
        let (mut inside, mut outside) = (vec![], vec![]);
        let mut places = [0; PLACES];
        for nth in 0..40_u64 {
            let batch: Vec<u64> = (0..1000).map(|i| mix(nth * 1000 + i) % 90 * (mix(i) % 3)).collect();
            let mut moves = Moves::default();
            recent.take(&batch, &mut moves);
            let mut entering = moves.pages.iter();
            for change in moves.moves {
                match change {
                    Move::Enter(place) => {
                        let page = *entering.next().unwrap();
                        assert!(!inside.contains(&page));
                        inside.push(page);
                        outside.retain(|other| *other != page);
                        places[usize::from(place)] = page;
                    }
                    Move::Leave(place) => {
                        let page = places[usize::from(place)];
                        assert!(inside.contains(&page));
                        inside.retain(|other| *other != page);
                        outside.push(page);
                    }
                }
            }
            assert!(inside.len() <= PLACES);
            for colour in 0..16 {
                assert!(inside.iter().filter(|page| *page % 16 == colour).count() <= 4);
            }
        }
        assert!(recent.now < VACANT / 2, "the time did not start again");
        // The last uses of the pages outside, by the whole trace.
        let trace: Vec<u64> =
            (0..40).flat_map(|nth| (0..1000).map(move |i| mix(nth * 1000 + i) % 90 * (mix(i) % 3))).collect();
        let last = |page: u64| trace.iter().rposition(|other| *other == page);
        let uses: Vec<_> = outside.iter().map(|page| last(*page)).collect();
        assert!(uses.is_sorted() && !uses.is_empty());
        assert!(inside.iter().all(|page| last(*page) > uses.last().copied().flatten()));
    }
}
