//! Simulators that follow the definitions; the fast ones are compared with them.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::collections::HashMap;

/// Faults of LRU with `frames` frames in each of the lists that `colour` tells apart.
pub fn lru_faults(trace: &[u64], colour: impl Fn(u64) -> u64, frames: usize) -> u64 {
    let mut lists: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut faults = 0;
    for &page in trace {
        let list = lists.entry(colour(page)).or_default();
        match list.iter().position(|&other| other == page) {
            Some(depth) => drop(list.remove(depth)),
            None => faults += 1,
        }
        list.insert(0, page);
        list.truncate(frames);
    }
    faults
}

/// For k = 1, 2 …: distinct pages seen when, for the first time, k of one colour were.
pub fn filled(trace: &[u64], colour: impl Fn(u64) -> u64) -> Vec<u64> {
    let mut seen = std::collections::HashSet::new();
    let mut pages: HashMap<u64, usize> = HashMap::new();
    let mut filled = Vec::new();
    for &page in trace {
        if seen.insert(page) {
            let count = pages.entry(colour(page)).or_default();
            *count += 1;
            if *count > filled.len() {
                filled.push(seen.len() as u64);
            }
        }
    }
    filled
}

/// Distances and first uses, from a Fenwick tree over time for each colour: fast enough for long traces.
pub fn distances(trace: &[u64], colour: impl Fn(u64) -> u64) -> (Vec<u64>, u64) {
    let mut by_colour: HashMap<u64, Vec<u64>> = HashMap::new();
    for &page in trace {
        by_colour.entry(colour(page)).or_default().push(page);
    }
    let (mut reused, mut cold) = (Vec::new(), 0);
    for pages in by_colour.values() {
        let mut tree = vec![0_i64; pages.len() + 1];
        let mut last = HashMap::new();
        for (time, page) in pages.iter().enumerate() {
            if let Some(before) = last.insert(page, time) {
                let distance = (sum(&tree, time) - sum(&tree, before + 1)) as usize;
                if distance >= reused.len() {
                    reused.resize(distance + 1, 0);
                }
                reused[distance] += 1;
                add(&mut tree, before, -1);
            } else {
                cold += 1;
            }
            add(&mut tree, time, 1);
        }
    }
    (reused, cold)
}

fn add(tree: &mut [i64], index: usize, by: i64) {
    let mut at = index + 1;
    while at < tree.len() {
        tree[at] += by;
        at += at & at.wrapping_neg();
    }
}

fn sum(tree: &[i64], end: usize) -> i64 {
    let mut at = end;
    let mut total = 0;
    while at > 0 {
        total += tree[at];
        at &= at - 1;
    }
    total
}

/// A deterministic stream of numbers (SplitMix64).
pub fn noise(seed: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |i: u64| pagelab_stats::stream::mix(seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
}
