//! Pages that conflict in a cache, found by timing alone: no frame number is looked at.
//!
//! Whole pages are compared, all lines of each: an index that hashes the page's number into the lines of a page permutes
//! its lines, and still lets the same pages compete for the same sets.
//!
//! Group testing after Vila, Köpf and Morales ("Theory and Practice of Finding Eviction Sets", 2019, section 4): of a set
//! that evicts a victim, one of `ways + 1` groups can always be left out. What remains evicts every page of the victim's
//! set, and so finds all of them among the candidates.

use std::hint::black_box;

use super::chain::LINE_BYTES;
use super::clock::Clock;
use super::pool::{PAGE_BYTES, Pool};
use crate::rng::Rng;

const VICTIMS: usize = 24;
const TRIALS: usize = 5;
const CERTAIN_TRIALS: usize = 15;
/// Between the times of a hit and of a miss there must be this ratio, or timing cannot tell them apart.
const CONTRAST: f64 = 1.4;
const SPECIFIC: usize = 64;

/// What to look for.
pub struct Search {
    /// Its ways.
    pub ways: usize,
    /// Pages that fill it.
    pub pages: usize,
    /// Pages that fill the cache above.
    pub inner_pages: usize,
    /// Most lines of one set that both caches hold together.
    pub reach: usize,
    /// Classes that are enough.
    pub classes: usize,
}

/// What was found.
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
        let mut probe = Probe { memory: pool.memory(), clock, threshold_ns: 0.0, order };
        let starts: Vec<usize> = candidates.iter().map(|&page| pool.start(page)).collect();
        let (near_ns, far_ns, overflow) = self.calibrate(&probe, &starts, rng);
        let mut found = Classes { classes: Vec::new(), near_ns, far_ns, attempts: 0 };
        if far_ns < near_ns * CONTRAST {
            return found;
        }
        probe.threshold_ns = (near_ns + far_ns) / 2.0;
        let mut taken = vec![false; starts.len()];
        while found.classes.len() < self.classes && found.attempts < VICTIMS {
            found.attempts += 1;
            let victim = rng.below(starts.len());
            if taken[victim] {
                continue;
            }
            if let Some(class) = self.class_of(&probe, &starts, victim, 2 * overflow, rng) {
                class.iter().for_each(|&at| taken[at] = true);
                found.classes.push(class.into_iter().map(|at| candidates[at]).collect());
            }
        }
        found
    }

    /// Medians of loads that only the cache above has lost, and of loads that this cache has lost, too; and how many
    /// random pages it took to push them out of it.
    ///
    /// As few as that, and no more: many pages would push them out of the next cache as well.
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

    /// The pages that share the victim's sets, itself included; `None` where no certain set was found.
    fn class_of(
        &self,
        probe: &Probe,
        starts: &[usize],
        victim: usize,
        count: usize,
        rng: &mut Rng,
    ) -> Option<Vec<usize>> {
        let others = rng.sample(starts.len(), count).into_iter().filter(|&at| at != victim);
        let set: Vec<usize> = others.map(|at| starts[at]).collect();
        let set = self.reduce(probe, starts[victim], set, rng)?;
        // A set that evicts everything says nothing.
        let sample = rng.sample(starts.len(), SPECIFIC.min(starts.len()));
        let outside = sample.iter().filter(|&&at| !set.contains(&starts[at]));
        let evicted = outside.filter(|&&at| probe.evicts(&set, starts[at], TRIALS)).count();
        if evicted * 2 > SPECIFIC || !probe.evicts(&set, starts[victim], CERTAIN_TRIALS) {
            return None;
        }
        let conflicts = |at: &usize| {
            !set.contains(&starts[*at])
                && probe.evicts(&set, starts[*at], TRIALS)
                && probe.evicts(&set, starts[*at], CERTAIN_TRIALS)
        };
        Some((0..starts.len()).filter(conflicts).collect())
    }

    /// A small set that still evicts the victim.
    fn reduce(&self, probe: &Probe, victim: usize, mut set: Vec<usize>, rng: &mut Rng) -> Option<Vec<usize>> {
        if !probe.evicts(&set, victim, TRIALS) {
            return None;
        }
        let mut failures = 0;
        while set.len() > self.ways && failures < 4 {
            rng.shuffle(&mut set);
            match self.without_a_group(probe, victim, &set) {
                Some(smaller) => set = smaller,
                None => failures += 1,
            }
        }
        (set.len() <= 3 * self.reach).then_some(set)
    }

    fn without_a_group(&self, probe: &Probe, victim: usize, set: &[usize]) -> Option<Vec<usize>> {
        let size = set.len().div_ceil((self.reach + 1).min(set.len()));
        (0..set.len()).step_by(size).find_map(|low| {
            let rest: Vec<usize> = [&set[..low], &set[(low + size).min(set.len())..]].concat();
            probe.evicts(&rest, victim, TRIALS).then_some(rest)
        })
    }
}

/// Loads and times.
struct Probe<'m> {
    memory: &'m [u8],
    clock: Clock,
    threshold_ns: f64,
    /// Offsets of the lines of a page but the first, in random order: a prefetcher must not know the next.
    order: Vec<usize>,
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
        self.clock.loads(self.memory, victim, &self.order)
    }

    /// Whether the set pushes the victim out, by the median of `trials` times.
    fn evicts(&self, set: &[usize], victim: usize, trials: usize) -> bool {
        let mut times: Vec<f64> = (0..trials).map(|_| self.after(victim, set)).collect();
        median(&mut times) > self.threshold_ns
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
