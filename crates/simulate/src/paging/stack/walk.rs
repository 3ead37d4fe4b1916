//! One chain of colour counts, fed with the trace.

use std::cell::Cell;

use super::super::colouring::{Chain, MAX_LEVELS};
use super::Curve;
use super::distances::Distances;
use super::recent::{self, Move};
use super::reuses::Reuses;
use super::top::{PLACES, Top};
use super::window::Window;
use crate::cpu::{self, Leveled};
use crate::pages::Id;
use crate::table::Table;

/// Stamps from here on are places in the top.
const IN_TOP: u32 = u32::MAX - PLACES as u32;
const NEVER: u32 = u32::MAX;
/// Number of references by which memory is prefetched.
const AHEAD: usize = 12;
/// Number of references between two decisions whether to have a top.
const TRIAL: u32 = 4096;
/// Approximate number of slots between two uses of a page that a top would have contained.
const NEAR: u32 = 2 * PLACES as u32;

/// Operations of all chains, for any number of levels.
pub trait Walk: std::fmt::Debug + Send + Sync {
    /// Takes at most [`super::alternations::BATCH`] references, as ids below `bound` and codes.
    fn feed(&mut self, ids: &[Id], codes: &[u16], bound: usize);
    /// Takes pages, given as for [`Walk::feed`], to the recent ones, which are outside of the stack but count, and takes
    /// others of them back.
    fn move_pages(&mut self, moves: &[Move], ids: &[Id], codes: &[u16], bound: usize);
    /// Counts pairs of references that go from one page to another, which was used before it, and back; given by their
    /// codes.
    fn count_alternations(&mut self, there: &[u16], back: &[u16]);
    /// The curves of the levels, whose colour counts are `counts`.
    fn curves(&self, counts: &[u32], references: u64) -> Vec<Curve>;
    /// Every page in the stacks, the one used longest ago first.
    fn order(&self) -> Vec<Id>;
    /// Number of pages in the stacks.
    fn held(&self) -> usize;
    /// Every page, in the order of first uses since the last [`Walk::forget_counts`].
    fn first_uses(&self) -> &[Id];
    /// Counts the next reference to each of these different pages, given as for [`Walk::feed`], and takes them out of
    /// the stacks, where they still count as the most recent ones. All have to be put back before anything else is fed.
    fn take_out(&mut self, ids: &[Id], codes: &[u16], bound: usize);
    /// Puts pages that were taken out on top, one after the other.
    fn put_back(&mut self, ids: &[Id], codes: &[u16]);
    /// Makes these the pages of the stacks, the one used longest ago first; does not count them.
    fn arrange(&mut self, ids: &[Id], codes: &[u16], bound: usize);
    /// Adds re-uses that were counted elsewhere, by level.
    fn add_reuses(&mut self, levels: &[Vec<u64>]);
    /// Re-uses by distance for each level. Some at distance 0 are missing: they are all references that are counted
    /// nowhere else.
    fn reuses(&self) -> Vec<Vec<u64>>;
    /// Restarts all counts; the stacks stay as they are.
    fn forget_counts(&mut self);
    /// Resets everything to the state of a new walk.
    fn clear(&mut self);
}

/// A walk with one level for each colour count of the chain.
pub fn walk_of(chain: &Chain) -> Box<dyn Walk> {
    const { assert!(MAX_LEVELS == 9) };
    match chain.counts().len() {
        1 => Box::new(Levels::<1, 8>::new(chain)),
        2 => Box::new(Levels::<2, 8>::new(chain)),
        3 => Box::new(Levels::<3, 8>::new(chain)),
        4 => Box::new(Levels::<4, 8>::new(chain)),
        5 => Box::new(Levels::<5, 8>::new(chain)),
        6 => Box::new(Levels::<6, 8>::new(chain)),
        7 => Box::new(Levels::<7, 8>::new(chain)),
        8 => Box::new(Levels::<8, 8>::new(chain)),
        _ => Box::new(Levels::<9, 16>::new(chain)),
    }
}

#[derive(Debug)]
struct Levels<const L: usize, const W: usize> {
    /// Whether the most recent pages are kept in `top`: if few references are to them, it only costs time.
    has_top: bool,
    /// References since the last decision about that, and those of them for which the top is of no use (or, without a
    /// top, would be of use).
    tried: u32,
    against: u32,
    top: Top<L, W>,
    /// The pages that [`Walk::move_pages`] has outside, by place, with their codes, and a bit for each such place. Then
    /// the top is empty.
    recent: [(Id, u16); recent::PLACES],
    is_recent: u64,
    /// Distances of references found in the top, if there are several levels.
    distances: Distances<W>,
    window: Window<L>,
    stamps: Table<u32>,
    reuses: Reuses<L>,
    first_uses: Vec<Id>,
    masks: [u16; L],
    /// References of such pairs, by the number of levels at which both pages have the same colour.
    alternations: [u64; MAX_LEVELS + 1],
    /// Number of pages of each class that were ever used, by level.
    population: [Vec<u32>; L],
    filled: [Vec<u64>; L],
}

impl<const L: usize, const W: usize> Levels<L, W> {
    fn new(chain: &Chain) -> Self {
        let bits: [u32; L] = chain.level_bits().try_into().expect("one level for each colour count");
        let masks = bits.map(|bits| ((1_u32 << bits) - 1) as u16);
        Self {
            has_top: true,
            tried: 0,
            against: 0,
            top: Top::new(masks),
            recent: [(0, 0); recent::PLACES],
            is_recent: 0,
            distances: Distances::EMPTY,
            window: Window::new(masks),
            stamps: Table::default(),
            reuses: Reuses::default(),
            first_uses: Vec::new(),
            masks,
            alternations: [0; MAX_LEVELS + 1],
            population: bits.map(|bits| vec![0; 1 << bits]),
            filled: [const { Vec::new() }; L],
        }
    }

    #[inline(always)]
    fn feed_all<const LEVEL: u8>(&mut self, ids: &[Id], codes: &[u16]) {
        for &id in ids {
            cpu::prefetch(&self.stamps, id as usize);
        }
        let fetches = self.window.is_far();
        if self.has_top {
            self.feed_each::<true, LEVEL>(ids, codes, fetches);
        } else {
            self.feed_each::<false, LEVEL>(ids, codes, fetches);
        }
        if L > 1 {
            self.distances.tally::<LEVEL>(|distance, counts| self.reuses.count_many(distance, counts));
        }
        self.tried += ids.len() as u32;
        if self.tried >= TRIAL {
            self.decide();
        }
    }

    #[inline(always)]
    fn feed_each<const TOP: bool, const LEVEL: u8>(&mut self, ids: &[Id], codes: &[u16], fetches: bool) {
        let mut fetched = NEVER;
        for (i, (&id, &code)) in ids.iter().zip(codes).enumerate() {
            if fetches && let Some(&soon) = ids.get(i + AHEAD) {
                let stamp = self.stamps[soon as usize];
                // In a sweep, consecutive pages lie in the same block.
                if stamp < IN_TOP && !Window::<L>::is_same_block(stamp, fetched) {
                    self.window.prefetch(stamp, codes[i + AHEAD]);
                    fetched = stamp;
                }
            }
            if TOP {
                let stamp = self.stamps[id as usize];
                if stamp >= IN_TOP && stamp != NEVER {
                    self.use_top::<LEVEL>((stamp - IN_TOP) as usize);
                } else {
                    self.use_below::<LEVEL>(id, code, stamp == NEVER);
                }
            } else {
                self.use_window(id, code);
            }
        }
    }

    #[inline(always)]
    fn use_top<const LEVEL: u8>(&mut self, place: usize) {
        if L == 1 {
            self.reuses.count([self.top.first_above(place); L]);
        } else {
            self.distances.add(self.top.above::<LEVEL>(place));
        }
        self.top.touch(place);
    }

    #[inline(always)]
    fn use_below<const LEVEL: u8>(&mut self, id: Id, code: u16, first_use: bool) {
        self.against += 1;
        if self.window.is_full() {
            self.compact();
        }
        if !first_use {
            let above = self.window.take(self.stamps[id as usize], code);
            self.reuses.count_below(above);
        }
        let (place, leaving) = self.top.victim();
        if let Some((old, old_code)) = leaving {
            let used_again = (!first_use).then_some(code);
            let outside = self.top.codes().iter().copied().chain(used_again);
            self.stamps[old as usize] = self.window.push(old, old_code, outside);
        }
        self.top.insert::<LEVEL>(place, id, code);
        self.stamps[id as usize] = IN_TOP + place as u32;
        if first_use {
            self.first_use(id, code);
        }
    }

    #[inline(always)]
    fn use_window(&mut self, id: Id, code: u16) {
        if self.window.is_full() {
            self.compact();
        }
        let (stamp, end) = (self.stamps[id as usize], self.window.end());
        if stamp == NEVER {
            self.stamps[id as usize] = self.window.push(id, code, std::iter::empty());
            return self.first_use(id, code);
        }
        self.against += u32::from(end - stamp <= NEAR);
        if stamp + 1 == end {
            return; // counted at the end
        }
        let above = self.window.take(stamp, code);
        self.reuses.count_below(above);
        self.stamps[id as usize] = self.window.push(id, code, std::iter::once(code));
    }

    #[inline(always)]
    fn move_all(&mut self, moves: &[Move], ids: &[Id], codes: &[u16]) {
        for &id in ids {
            cpu::prefetch(&self.stamps, id as usize);
        }
        let fetches = self.window.is_far();
        let mut entering = ids.iter().zip(codes).enumerate();
        for &change in moves {
            match change {
                Move::Enter(place) => {
                    let Some((nth, (&id, &code))) = entering.next() else { return };
                    if fetches {
                        self.fetch_soon(ids, codes, nth);
                    }
                    self.enter(place as usize % recent::PLACES, id, code);
                }
                Move::Leave(place) => self.leave(place as usize % recent::PLACES),
            }
        }
    }

    /// Prefetches the data for the page [`AHEAD`] places behind `at`, if it is in the window.
    #[inline(always)]
    fn fetch_soon(&self, ids: &[Id], codes: &[u16], at: usize) {
        if let Some(&soon) = ids.get(at + AHEAD) {
            let stamp = self.stamps[soon as usize];
            if stamp < IN_TOP {
                self.window.prefetch(stamp, codes[at + AHEAD]);
            }
        }
    }

    /// Takes a page out of the window, and counts this use of it.
    #[inline(always)]
    fn take(&mut self, id: Id, code: u16) {
        let stamp = self.stamps[id as usize];
        if stamp == NEVER {
            self.first_use(id, code);
        } else {
            let above = self.window.take(stamp, code);
            self.reuses.count_below(above);
        }
    }

    #[inline(always)]
    fn enter(&mut self, place: usize, id: Id, code: u16) {
        self.take(id, code);
        self.stamps[id as usize] = IN_TOP;
        self.recent[place] = (id, code);
        self.is_recent |= 1 << place;
    }

    #[inline(always)]
    fn leave(&mut self, place: usize) {
        if self.window.is_full() {
            self.compact();
        }
        let (id, code) = self.recent[place];
        let is_recent = self.is_recent;
        let outside = (0..recent::PLACES).filter(|place| is_recent >> place & 1 == 1);
        self.stamps[id as usize] = self.window.push(id, code, outside.map(|place| self.recent[place].1));
        self.is_recent &= !(1 << place);
    }

    #[inline(always)]
    fn take_out_all(&mut self, ids: &[Id], codes: &[u16]) {
        for &id in ids {
            cpu::prefetch(&self.stamps, id as usize);
        }
        let fetches = self.window.is_far();
        for (i, (&id, &code)) in ids.iter().zip(codes).enumerate() {
            if fetches {
                self.fetch_soon(ids, codes, i);
            }
            self.take(id, code);
            self.window.take_out(code);
        }
    }

    #[cold]
    #[inline(never)]
    fn compact(&mut self) {
        let stamps = Cell::from_mut(&mut self.stamps[..]).as_slice_of_cells();
        let soon = |id| cpu::prefetch(stamps, id as usize);
        self.window.compact(soon, |id, stamp| stamps[id as usize].set(stamp));
    }

    /// Decides about the top: it is removed when it serves fewer than three references in eight, and comes back when it
    /// would serve every second one.
    fn decide(&mut self) {
        if self.has_top && u64::from(self.against) * 8 > u64::from(self.tried) * 5 {
            self.empty_top();
            self.has_top = false;
        } else if !self.has_top && u64::from(self.against) * 2 > u64::from(self.tried) {
            self.has_top = true;
        }
        (self.tried, self.against) = (0, 0);
    }

    fn empty_top(&mut self) {
        if self.top.codes().is_empty() {
            return;
        }
        let pages: Vec<(Id, u16)> = self.top.pages().collect();
        self.top = Top::new(self.masks);
        for (nth, &(id, code)) in pages.iter().enumerate() {
            if self.window.is_full() {
                self.compact();
            }
            let outside = pages[nth..].iter().map(|&(_, code)| code);
            self.stamps[id as usize] = self.window.push(id, code, outside);
        }
    }

    #[cold]
    fn first_use(&mut self, id: Id, code: u16) {
        self.window.add(code);
        self.first_uses.push(id);
        let pages = self.first_uses.len() as u64;
        for level in 0..L {
            let population = &mut self.population[level][(code & self.masks[level]) as usize];
            *population += 1;
            if *population as usize > self.filled[level].len() {
                self.filled[level].push(pages);
                self.reuses.make_room(level, self.filled[level].len().max(PLACES));
            }
        }
    }
}

/// References on their way into the levels; `OUT`: pages on their way out of them.
struct Feed<'a, const L: usize, const W: usize, const OUT: bool> {
    levels: &'a mut Levels<L, W>,
    ids: &'a [Id],
    codes: &'a [u16],
}

impl<const L: usize, const W: usize, const OUT: bool> Leveled for Feed<'_, L, W, OUT> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        match OUT {
            true => self.levels.take_out_all(self.ids, self.codes),
            false => self.levels.feed_all::<LEVEL>(self.ids, self.codes),
        }
    }
}

/// Pages on their way to the recent ones and back.
struct MovePages<'a, const L: usize, const W: usize> {
    levels: &'a mut Levels<L, W>,
    moves: &'a [Move],
    ids: &'a [Id],
    codes: &'a [u16],
}

impl<const L: usize, const W: usize> Leveled for MovePages<'_, L, W> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        self.levels.move_all(self.moves, self.ids, self.codes);
    }
}

impl<const L: usize, const W: usize> Walk for Levels<L, W> {
    fn feed(&mut self, ids: &[Id], codes: &[u16], bound: usize) {
        self.stamps.resize(bound, NEVER);
        self.reuses.prepare(ids.len());
        cpu::widest_level(Feed::<_, _, false> { levels: self, ids, codes });
    }

    fn move_pages(&mut self, moves: &[Move], ids: &[Id], codes: &[u16], bound: usize) {
        self.stamps.resize(bound, NEVER);
        self.empty_top();
        self.reuses.prepare(ids.len());
        cpu::widest_level(MovePages { levels: self, moves, ids, codes });
    }

    fn count_alternations(&mut self, there: &[u16], back: &[u16]) {
        let least = self.masks[0].count_ones();
        for (one, other) in there.iter().zip(back) {
            // Colours of a chain nest, so this is the number of equal lowest bits of the codes.
            let same = (u32::from(one ^ other) | 1 << u16::BITS).trailing_zeros();
            let levels = (same + 1).saturating_sub(least).min(L as u32);
            self.alternations[levels as usize] += 2;
        }
    }

    fn curves(&self, counts: &[u32], references: u64) -> Vec<Curve> {
        let cold = self.first_uses.len() as u64;
        let levels = self.reuses().into_iter().zip(&self.filled).zip(counts);
        let curve = |((mut reused, filled), &colours): ((Vec<u64>, &Vec<u64>), &u32)| {
            let found: u64 = reused.iter().sum();
            if let Some(nearest) = reused.first_mut() {
                *nearest += references - cold - found;
            }
            Curve { colours, references, cold, reused, filled: filled.clone() }
        };
        levels.map(curve).collect()
    }

    fn order(&self) -> Vec<Id> {
        let mut order = Vec::with_capacity(self.window.len());
        self.window.each(|id, _| order.push(id));
        order.extend(self.top.pages().map(|(id, _)| id));
        order
    }

    fn held(&self) -> usize {
        self.window.len()
    }

    fn first_uses(&self) -> &[Id] {
        &self.first_uses
    }

    fn arrange(&mut self, ids: &[Id], codes: &[u16], bound: usize) {
        self.stamps.clear();
        self.stamps.resize(bound, NEVER);
        self.top = Top::new(self.masks);
        self.is_recent = 0;
        self.window.clear(ids.len());
        for (&id, &code) in ids.iter().zip(codes) {
            self.stamps[id as usize] = self.window.push(id, code, std::iter::empty());
            self.window.add(code);
        }
    }

    fn take_out(&mut self, ids: &[Id], codes: &[u16], bound: usize) {
        self.stamps.resize(bound, NEVER);
        self.empty_top();
        self.reuses.prepare(ids.len());
        cpu::widest_level(Feed::<_, _, true> { levels: self, ids, codes });
    }

    fn put_back(&mut self, ids: &[Id], codes: &[u16]) {
        for (&id, &code) in ids.iter().zip(codes) {
            if self.window.is_full() {
                self.compact();
            }
            self.stamps[id as usize] = self.window.put_back(id, code);
        }
    }

    fn add_reuses(&mut self, levels: &[Vec<u64>]) {
        self.reuses.add(levels);
    }

    fn reuses(&self) -> Vec<Vec<u64>> {
        let mut levels = self.reuses.levels();
        for (level, counts) in levels.iter_mut().enumerate() {
            let apart = self.alternations[..=level].iter().sum::<u64>();
            let together = self.alternations[level + 1..].iter().sum::<u64>();
            if apart + together > 0 {
                counts.resize(counts.len().max(2), 0);
                counts[0] += apart;
                counts[1] += together;
            }
        }
        levels
    }

    fn forget_counts(&mut self) {
        self.first_uses.clear();
        self.reuses.forget();
        self.alternations = [0; MAX_LEVELS + 1];
    }

    fn clear(&mut self) {
        self.arrange(&[], &[], 0);
        self.forget_counts();
        self.population.iter_mut().for_each(|classes| classes.fill(0));
        self.filled.iter_mut().for_each(Vec::clear);
    }
}
