//! Memories of chosen sizes against policies as their definitions have them.

mod common;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use common::{lru_faults, noise};
use pagelab_simulate::paging::{Colouring, Memories, Policy, Size};
use proptest::prelude::*;

fn fifo_faults(trace: &[u64], colours: u64, frames: usize) -> u64 {
    let mut lists: HashMap<u64, VecDeque<u64>> = HashMap::new();
    let mut faults = 0;
    for &page in trace {
        let list = lists.entry(page % colours).or_default();
        if !list.contains(&page) {
            faults += 1;
            list.push_back(page);
            if list.len() > frames {
                list.pop_front();
            }
        }
    }
    faults
}

/// Second chance: a queue whose head goes to the end when it was used.
fn clock_faults(trace: &[u64], colours: u64, frames: usize) -> u64 {
    let mut lists: HashMap<u64, VecDeque<(u64, bool)>> = HashMap::new();
    let mut faults = 0;
    for &page in trace {
        let list = lists.entry(page % colours).or_default();
        if let Some(held) = list.iter_mut().find(|held| held.0 == page) {
            held.1 = true;
            continue;
        }
        faults += 1;
        while list.len() == frames {
            let (old, used) = list.pop_front().unwrap();
            if used {
                list.push_back((old, false));
            }
        }
        list.push_back((page, true));
    }
    faults
}

fn optimal_faults(trace: &[u64], colours: u64, frames: usize) -> u64 {
    let mut held: HashSet<u64> = HashSet::new();
    let mut faults = 0;
    for (now, &page) in trace.iter().enumerate() {
        if held.contains(&page) {
            continue;
        }
        faults += 1;
        let list: Vec<u64> = held.iter().copied().filter(|other| other % colours == page % colours).collect();
        if list.len() == frames {
            let next_use = |other: &&u64| trace[now..].iter().position(|page| page == *other).unwrap_or(usize::MAX);
            held.remove(list.iter().max_by_key(next_use).unwrap());
        }
        held.insert(page);
    }
    faults
}

fn traces() -> impl Strategy<Value = Vec<u64>> {
    let piece = prop_oneof![
        (0..40_u64, 1..30_u64).prop_map(|(first, length)| (first..first + length).collect()),
        proptest::collection::vec(0..60_u64, 1..80),
        (0..60_u64, 1..5_usize).prop_map(|(page, times)| vec![page; times]),
    ];
    proptest::collection::vec(piece, 1..12).prop_map(|pieces: Vec<Vec<u64>>| pieces.concat())
}

const SIZES: [(u32, u32); 8] = [(1, 1), (1, 2), (1, 13), (2, 3), (3, 1), (3, 9), (4, 4), (1, 200)];

fn sizes() -> Vec<Size> {
    SIZES.map(|(colours, frames)| Size { colours, frames }).to_vec()
}

fn run(policy: Policy, trace: &[u64]) -> Vec<u64> {
    let mut memories = Memories::new(policy, &Colouring::Modulo, &sizes()).unwrap();
    trace.chunks(97).for_each(|part| memories.feed(part));
    assert_eq!(memories.references(), trace.len() as u64);
    memories.faults().into_iter().map(|(_, faults)| faults).collect()
}

fn expected(trace: &[u64], naive: impl Fn(&[u64], u64, usize) -> u64) -> Vec<u64> {
    SIZES.iter().map(|&(colours, frames)| naive(trace, u64::from(colours), frames as usize)).collect()
}

proptest! {
    #[test]
    fn each_policy_is_its_definition(trace in traces()) {
        prop_assert_eq!(run(Policy::Fifo, &trace), expected(&trace, fifo_faults));
        prop_assert_eq!(run(Policy::Clock, &trace), expected(&trace, clock_faults));
        let lru = |trace: &[u64], colours: u64, frames: usize| lru_faults(trace, |page| page % colours, frames);
        prop_assert_eq!(run(Policy::Lru, &trace), expected(&trace, lru));
        prop_assert_eq!(run(Policy::Optimal, &trace), expected(&trace, optimal_faults));
    }
}

#[test]
fn opt_never_faults_more_than_lru() {
    let trace: Vec<u64> = noise(5).take(300_000).map(|x| (x % 900) * (x >> 32) % 900).collect();
    let best = run(Policy::Optimal, &trace);
    assert!(best.iter().zip(run(Policy::Lru, &trace)).all(|(best, lru)| *best <= lru));
    assert!(best[2] * 10 < run(Policy::Lru, &trace)[2] * 9, "OPT with 13 frames should be far better");
}

/// The pages of each colour by their next use, as the definition has it, for traces that a search for each use would
/// take too long.
fn optimal_faults_of_long(trace: &[u64], colours: u64, frames: usize) -> u64 {
    let mut next = vec![usize::MAX; trace.len()];
    let mut seen = HashMap::new();
    for (now, page) in trace.iter().enumerate().rev() {
        // Pages that are not used again differ, so that a set can hold all of them.
        next[now] = seen.insert(page, now).unwrap_or(usize::MAX - now);
    }
    let mut lists: HashMap<u64, BTreeSet<usize>> = HashMap::new();
    let mut faults = 0;
    for (now, page) in trace.iter().enumerate() {
        let list = lists.entry(page % colours).or_default();
        if !list.remove(&now) {
            faults += 1;
            if list.len() == frames {
                list.pop_last();
            }
        }
        list.insert(next[now]);
    }
    faults
}

#[test]
fn opt_of_many_sizes_and_far_uses_is_its_definition() {
    let trace: Vec<u64> = noise(9)
        .enumerate()
        .map(|(i, x)| match i / 20_000 {
            0 => x % 3000,
            1 => i as u64 % 2500,
            _ => (x % 3000) * ((x >> 32) % 3000) / 3000,
        })
        .take(70_000)
        .collect();
    let frames = [1_u32, 2, 5, 30, 64, 200, 500, 900, 1500, 2400, 2999, 4000];
    let sizes: Vec<Size> = [1, 3]
        .into_iter()
        .flat_map(|colours| frames.map(|frames| Size { colours, frames: frames.div_ceil(colours) }))
        .collect();
    let mut optimal = Memories::new(Policy::Optimal, &Colouring::Modulo, &sizes).unwrap();
    optimal.feed(&trace);
    for (size, faults) in optimal.faults() {
        // A page that is used again at once is no change of page, and no fault.
        assert_eq!(
            faults,
            optimal_faults_of_long(&trace, u64::from(size.colours), size.frames as usize),
            "{size:?}"
        );
    }
}

/// Each of n resident pages is equally likely to be hit under uniform references: faults are a binomial of known mean.
#[test]
fn random_replacement_faults_as_often_as_uniform_references_demand() {
    let (pages, frames, length) = (100, 40, 400_000);
    let trace: Vec<u64> = noise(6).take(length).map(|x| x % pages).collect();
    let size = [Size { colours: 1, frames }];
    let faults = |seed| {
        let mut memories = Memories::new(Policy::Random { seed }, &Colouring::Modulo, &size).unwrap();
        memories.feed(&trace);
        memories.faults()[0].1 as f64
    };
    let miss = 1.0 - f64::from(frames) / pages as f64;
    let deviation = (length as f64 * miss * (1.0 - miss)).sqrt();
    assert!((faults(1) - length as f64 * miss).abs() < 5.0 * deviation + 100.0);
    assert_eq!(faults(1), faults(1));
    assert_ne!(faults(1), faults(2));
}
