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
    /// References to the page that was used just before.
    again: u64,
    pages: u64,
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
            again: 0,
            pages: 0,
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
            self.again += 1;
            return;
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
            None => self.first_use(code),
        }
    }

    #[cold]
    fn first_use(&mut self, code: u16) {
        self.pages += 1;
        for level in 0..L {
            let population = &mut self.population[level][(code & self.masks[level]) as usize];
            *population += 1;
            if *population as usize > self.filled[level].len() {
                self.filled[level].push(self.pages);
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
        let levels = self.reused.iter().zip(&self.filled).zip(counts);
        let curve = |((reused, filled), &colours): ((&Vec<u64>, &Vec<u64>), &u32)| {
            let found: u64 = reused.iter().sum();
            let mut reused = reused.clone();
            if let Some(nearest) = reused.first_mut() {
                *nearest += references - self.pages - found;
            }
            Curve { colours, references, cold: self.pages, reused, filled: filled.clone() }
        };
        levels.map(curve).collect()
    }
}
