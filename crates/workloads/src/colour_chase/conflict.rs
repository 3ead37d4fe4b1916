//! Pages that conflict in a cache, found by timing alone, without frame numbers.
//!
//! Whole pages are compared, all lines of each: an index that hashes the page's number into the lines of a page
//! permutes its lines, and still lets the same pages compete for the same sets.
//!
//! Group testing after Vila, Köpf and Morales ("Theory and Practice of Finding Eviction Sets", 2019, section 4): of a
//! set that evicts a victim, one of `ways + 1` groups can always be left out. What remains has about as many pages as
//! there are ways, all of one set; a chain through them and any other page of that set is slow, which finds all such
//! pages among the candidates. On a machine that does other work, the search fails for many victims: a set counts only
//! if its chain with the victim is slow, and fast without it.

use std::hint::black_box;

use super::chain::{self, LINE_BYTES};
use super::clock::Clock;
use super::pool::{PAGE_BYTES, Pool};
use crate::rng::Rng;

const VICTIMS: usize = 96;
const TRIALS: usize = 5;
/// Between the times of a hit and of a miss there must be this ratio, or timing cannot tell them apart.
const CONTRAST: f64 = 1.4;
/// From this multiple of a hit's time on, a victim counts as evicted. The two are timed one after the other, because
/// other work of the machine changes the time of a miss.
const THRESHOLDS: [f64; 3] = [1.15, 1.25, 1.4];
/// A chain in which pages conflict takes at least this many times as long as one of as many random pages.
const SLOW: f64 = 1.35;
/// Number of chains of random members that must all be slow before a class is accepted.
const PROOFS: usize = 9;

/// The searched pages.
pub struct Search {
    /// Its ways.
    pub ways: usize,
    /// Pages that fill it.
    pub pages: usize,
    /// Pages that fill the cache above.
    pub inner_pages: usize,
    /// Most lines of one set that both caches hold together.
    pub reach: usize,
    /// Number of classes that are enough.
    pub classes: usize,
}

/// The found pages.
pub struct Classes {
    /// Pages that share their sets, by class.
    pub classes: Vec<Vec<usize>>,
    /// Time of loading a page that this cache holds (the clock's own included), and of one that it has lost; 0 where
    /// nothing was looked for.
    pub near_ns: f64,
    pub far_ns: f64,
    /// Victims that were tried.
    pub attempts: usize,
}

impl Search {
    /// Looks for classes among `candidates` (indices of the pool's pages); finds none where timing cannot tell.
    pub fn run(&self, pool: &mut Pool, candidates: &[usize], rng: &mut Rng) -> Classes {
        if self.classes == 0 {
            return Classes { classes: Vec::new(), near_ns: 0.0, far_ns: 0.0, attempts: 0 };
        }
        let clock = Clock::calibrate();
        let mut order: Vec<usize> = (LINE_BYTES..PAGE_BYTES).step_by(LINE_BYTES).collect();
        rng.shuffle(&mut order);
        let starts: Vec<usize> = candidates.iter().map(|&page| pool.start(page)).collect();
        let probe = Probe { memory: pool.memory(), clock: &clock, threshold_ns: 0.0, order: &order };
        let (near_ns, far_ns, overflow) = self.calibrate(&probe, &starts, rng);
        let mut found = Classes { classes: Vec::new(), near_ns, far_ns, attempts: 0 };
        if far_ns < near_ns * CONTRAST {
            return found;
        }
        let mut taken = vec![false; starts.len()];
        while found.classes.len() < self.classes && found.attempts < VICTIMS {
            let threshold_ns = near_ns * THRESHOLDS[found.attempts % THRESHOLDS.len()];
            found.attempts += 1;
            let victim = rng.below(starts.len());
            if taken[victim] {
                continue;
            }
            let probe = Probe { memory: pool.memory(), clock: &clock, threshold_ns, order: &order };
            let others = rng.sample(starts.len(), 2 * overflow).into_iter().filter(|&at| at != victim);
            let set: Vec<usize> = others.collect();
            let Some(set) = self.reduce(&probe, &starts, victim, set, rng) else { continue };
            if let Some(class) = self.class_of(pool, candidates, &set, victim, rng) {
                class.iter().for_each(|&at| taken[at] = true);
                found.classes.push(class.into_iter().map(|at| candidates[at]).collect());
            }
        }
        found
    }

    /// Medians of loads that only the cache above has lost, and of loads that this cache has lost, too; and how many
    /// random pages it took to push them out of it.
    ///
    /// No more pages than that are used: many would push them out of the next cache as well.
    fn calibrate(&self, probe: &Probe, starts: &[usize], rng: &mut Rng) -> (f64, f64, usize) {
        let mut typical = |count: usize| {
            let mut times: Vec<f64> = (0..33)
                .map(|_| {
                    let chosen = rng.sample(starts.len(), count + 1);
                    let set: Vec<usize> = chosen[1..].iter().map(|&at| starts[at]).collect();
                    probe.after(starts[chosen[0]], &set)
                })
                .collect();
            median(&mut times)
        };
        let near = typical((2 * self.inner_pages).min(self.pages / 8));
        let (mut far, mut count) = (near, self.pages);
        while far < near * CONTRAST && 2 * count < starts.len() {
            count *= 2;
            far = typical(count);
        }
        (near, far, count)
    }

    /// The candidates that share the victim's sets, itself and the set included; `None` where the set is not certain.
    fn class_of(
        &self,
        pool: &mut Pool,
        candidates: &[usize],
        set: &[usize],
        victim: usize,
        rng: &mut Rng,
    ) -> Option<Vec<usize>> {
        let slow_ns = SLOW * usual(pool, candidates, set.len() + 1, rng);
        let mut conflicts = |at: usize, rng: &mut Rng| {
            let pages: Vec<usize> = set.iter().chain([&at]).map(|&at| candidates[at]).collect();
            chain::quickest(pool, &pages, rng) > slow_ns
        };
        if !(0..3).all(|_| conflicts(victim, rng)) {
            return None;
        }
        let mut found = set.to_vec();
        for at in 0..candidates.len() {
            if !set.contains(&at) && conflicts(at, rng) && conflicts(at, rng) {
                found.push(at);
            }
        }
        self.is_one_class(pool, candidates, &found, rng).then_some(found)
    }

    /// Whether [`PROOFS`] random groups of twice as many members as there are ways all conflict: members of two classes
    /// together often fit.
    fn is_one_class(&self, pool: &mut Pool, candidates: &[usize], found: &[usize], rng: &mut Rng) -> bool {
        let length = 2 * self.ways;
        let slow_ns = SLOW * usual(pool, candidates, length, rng);
        found.len() > length
            && (0..PROOFS).all(|_| {
                let pages: Vec<usize> =
                    rng.sample(found.len(), length).iter().map(|&at| candidates[found[at]]).collect();
                chain::quickest(pool, &pages, rng) > slow_ns
            })
    }

    /// A small set that still evicts the victim, with too few pages to fill two sets of the cache.
    fn reduce(
        &self,
        probe: &Probe,
        starts: &[usize],
        victim: usize,
        mut set: Vec<usize>,
        rng: &mut Rng,
    ) -> Option<Vec<usize>> {
        let evicts = |set: &[usize]| {
            let pages: Vec<usize> = set.iter().map(|&at| starts[at]).collect();
            probe.evicts(&pages, starts[victim])
        };
        if !evicts(&set) {
            return None;
        }
        let mut failures = 0;
        while set.len() > self.ways && failures < 4 {
            rng.shuffle(&mut set);
            match self.without_a_group(&set, evicts) {
                Some(smaller) => set = smaller,
                None => failures += 1,
            }
        }
        (set.len() < 2 * self.ways).then_some(set)
    }

    fn without_a_group(&self, set: &[usize], evicts: impl Fn(&[usize]) -> bool) -> Option<Vec<usize>> {
        let size = set.len().div_ceil((self.reach + 1).min(set.len()));
        (0..set.len()).step_by(size).find_map(|low| {
            let rest: Vec<usize> = [&set[..low], &set[(low + size).min(set.len())..]].concat();
            evicts(&rest).then_some(rest)
        })
    }
}

/// Loads and times.
struct Probe<'m> {
    memory: &'m [u8],
    clock: &'m Clock,
    threshold_ns: f64,
    /// Offsets of the lines of a page but the first, in random order, so that a prefetcher cannot predict the next.
    order: &'m [usize],
}

impl Probe<'_> {
    /// The time of the victim's lines, one after the other, after going through those of `set` twice; the page's
    /// translation is loaded before.
    fn after(&self, victim: usize, set: &[usize]) -> f64 {
        let load = |start: usize| {
            for offset in (0..PAGE_BYTES).step_by(LINE_BYTES) {
                black_box(self.memory[start + offset]);
            }
        };
        load(victim);
        for _ in 0..2 {
            set.iter().for_each(|&start| load(start));
        }
        black_box(self.memory[victim]);
        self.clock.loads(self.memory, victim, self.order)
    }

    /// Whether the set pushes the victim out, by the median of some times.
    fn evicts(&self, set: &[usize], victim: usize) -> bool {
        let mut times: Vec<f64> = (0..TRIALS).map(|_| self.after(victim, set)).collect();
        median(&mut times) > self.threshold_ns
    }
}

/// Nanoseconds a load of a chain of `pages` random pages.
fn usual(pool: &mut Pool, candidates: &[usize], length: usize, rng: &mut Rng) -> f64 {
    let mut times: Vec<f64> = (0..17)
        .map(|_| {
            let pages: Vec<usize> = rng.sample(candidates.len(), length).iter().map(|&at| candidates[at]).collect();
            chain::quickest(pool, &pages, rng)
        })
        .collect();
    median(&mut times)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
