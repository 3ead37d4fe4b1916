//! One chain of colour counts on its way through the trace.

use super::super::colouring::{Chain, MAX_LEVELS};
use super::super::cpu;
use super::super::pages::Id;
use super::curve::Curve;
use super::top::{PLACES, Top};
use super::window::Window;

/// Stamps from here on are places in the top.
const IN_TOP: u32 = u32::MAX - PLACES as u32;
const NEVER: u32 = u32::MAX;
/// How far ahead of the reference at hand memory is fetched.
const AHEAD: usize = 12;

/// What all chains can do, whatever their number of levels.
pub trait Walk: std::fmt::Debug + Send + Sync {
    /// Takes references, as ids below `bound` and codes.
    fn feed(&mut self, ids: &[Id], codes: &[u16], bound: usize);
    /// The curves of the levels, which have these colour counts.
    fn curves(&self, counts: &[u32], references: u64) -> Vec<Curve>;
    /// Every page in the stacks, the one used longest ago first.
    fn order(&self) -> Vec<Id>;
    /// How many pages are in the stacks.
    fn held(&self) -> usize;
    /// Every page, in the order of first uses since the last [`Walk::forget_counts`].
    fn first_uses(&self) -> &[Id];
    /// Makes these the pages of the stacks, the one used longest ago first; counts nothing.
    fn arrange(&mut self, ids: &[Id], codes: &[u16], bound: usize);
    /// Adds re-uses that were counted elsewhere, for each level.
    fn add_reuses(&mut self, levels: &[Vec<u64>]);
    /// Re-uses by distance for each level, without those of the page used just before.
    fn reuses(&self) -> &[Vec<u64>];
    /// Begins all counts again; the stacks stay as they are.
    fn forget_counts(&mut self);
}

/// A walk with as many levels as the chain has colour counts.
pub fn walk_of(chain: &Chain) -> Box<dyn Walk> {
    const { assert!(MAX_LEVELS == 9) };
    match chain.counts().len() {
        1 => Box::new(Levels::<1>::new(chain)),
        2 => Box::new(Levels::<2>::new(chain)),
        3 => Box::new(Levels::<3>::new(chain)),
        4 => Box::new(Levels::<4>::new(chain)),
        5 => Box::new(Levels::<5>::new(chain)),
        6 => Box::new(Levels::<6>::new(chain)),
        7 => Box::new(Levels::<7>::new(chain)),
        8 => Box::new(Levels::<8>::new(chain)),
        _ => Box::new(Levels::<9>::new(chain)),
    }
}

#[derive(Debug)]
struct Levels<const L: usize> {
    top: Top<L>,
    window: Window<L>,
    stamps: Vec<u32>,
    reused: [Vec<u64>; L],
    first_uses: Vec<Id>,
    masks: [u16; L],
    /// Pages of each class, by level.
    population: [Vec<u32>; L],
    filled: [Vec<u64>; L],
}

impl<const L: usize> Levels<L> {
    fn new(chain: &Chain) -> Self {
        let bits: [u32; L] = chain.level_bits().try_into().expect("one level for each colour count");
        let masks = bits.map(|bits| ((1_u32 << bits) - 1) as u16);
        Self {
            top: Top::new(masks),
            window: Window::new(masks),
            stamps: Vec::new(),
            reused: [const { Vec::new() }; L],
            first_uses: Vec::new(),
            masks,
            population: bits.map(|bits| vec![0; 1 << bits]),
            filled: [const { Vec::new() }; L],
        }
    }

    #[inline(always)]
    fn feed_all(&mut self, ids: &[Id], codes: &[u16]) {
        for &id in ids {
            cpu::prefetch(&self.stamps, id as usize);
        }
        for (i, (&id, &code)) in ids.iter().zip(codes).enumerate() {
            if let Some(&soon) = ids.get(i + AHEAD) {
                let stamp = self.stamps[soon as usize];
                if stamp < IN_TOP {
                    self.window.prefetch(stamp, codes[i + AHEAD]);
                }
            }
            let stamp = self.stamps[id as usize];
            if stamp >= IN_TOP && stamp != NEVER {
                self.use_top((stamp - IN_TOP) as usize);
            } else {
                self.use_below(id, code, stamp == NEVER);
            }
        }
    }

    #[inline(always)]
    fn use_top(&mut self, place: usize) {
        let (all, above) = self.top.above(place);
        if all == 0 {
            return; // counted at the end: all references that are counted nowhere else
        }
        for (reused, above) in self.reused.iter_mut().zip(above) {
            reused[above as usize] += 1;
        }
        self.top.touch(place);
    }

    #[inline(always)]
    fn use_below(&mut self, id: Id, code: u16, first_use: bool) {
        let (place, leaving) = self.top.victim();
        if let Some((old, code)) = leaving {
            if self.window.is_full() {
                self.window.compact(|id, stamp| self.stamps[id as usize] = stamp);
            }
            self.stamps[old as usize] = self.window.push(old, code);
        }
        let above = (!first_use).then(|| self.window.remove(self.stamps[id as usize], code));
        let in_top = self.top.insert(place, id, code);
        self.stamps[id as usize] = IN_TOP + place as u32;
        match above {
            Some(above) => {
                for ((reused, above), top) in self.reused.iter_mut().zip(above).zip(in_top) {
                    reused[(above + top) as usize] += 1;
                }
            }
            None => self.first_use(id, code),
        }
    }

    #[cold]
    fn first_use(&mut self, id: Id, code: u16) {
        self.first_uses.push(id);
        let pages = self.first_uses.len() as u64;
        for level in 0..L {
            let population = &mut self.population[level][(code & self.masks[level]) as usize];
            *population += 1;
            if *population as usize > self.filled[level].len() {
                self.filled[level].push(pages);
                self.reused[level].resize(self.filled[level].len().max(PLACES), 0);
            }
        }
    }
}

impl<const L: usize> Walk for Levels<L> {
    fn feed(&mut self, ids: &[Id], codes: &[u16], bound: usize) {
        self.stamps.resize(bound, NEVER);
        cpu::widest(
            #[inline(always)]
            || self.feed_all(ids, codes),
        );
    }

    fn curves(&self, counts: &[u32], references: u64) -> Vec<Curve> {
        let cold = self.first_uses.len() as u64;
        let levels = self.reused.iter().zip(&self.filled).zip(counts);
        let curve = |((reused, filled), &colours): ((&Vec<u64>, &Vec<u64>), &u32)| {
            let found: u64 = reused.iter().sum();
            let mut reused = reused.clone();
            if let Some(nearest) = reused.first_mut() {
                *nearest += references - cold - found;
            }
            Curve { colours, references, cold, reused, filled: filled.clone() }
        };
        levels.map(curve).collect()
    }

    fn order(&self) -> Vec<Id> {
        let mut order = Vec::with_capacity(self.window.len() + PLACES);
        self.window.each(|id, _| order.push(id));
        order.extend(self.top.pages());
        order
    }

    fn held(&self) -> usize {
        self.window.len() + self.top.pages().count()
    }

    fn first_uses(&self) -> &[Id] {
        &self.first_uses
    }

    fn arrange(&mut self, ids: &[Id], codes: &[u16], bound: usize) {
        self.stamps.clear();
        self.stamps.resize(bound, NEVER);
        self.top = Top::new(self.masks);
        self.window.clear(ids.len());
        let (below, top) = ids.len().checked_sub(PLACES).map_or((0..0, 0..ids.len()), |n| (0..n, n..ids.len()));
        for i in below {
            self.stamps[ids[i] as usize] = self.window.push(ids[i], codes[i]);
        }
        for (place, i) in top.enumerate() {
            self.top.insert(place, ids[i], codes[i]);
            self.stamps[ids[i] as usize] = IN_TOP + place as u32;
        }
    }

    fn add_reuses(&mut self, levels: &[Vec<u64>]) {
        for (mine, theirs) in self.reused.iter_mut().zip(levels) {
            mine.resize(mine.len().max(theirs.len()), 0);
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine += theirs;
            }
        }
    }

    fn reuses(&self) -> &[Vec<u64>] {
        &self.reused
    }

    fn forget_counts(&mut self) {
        self.first_uses.clear();
        self.reused.iter_mut().for_each(|reused| reused.fill(0));
    }
}
