//! Exact reduction: above the stated size, the reduced trace has the faults of the full one.

use pagelab_trace::{MemoryRuns, Reduced, Run, RunSource};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

fn reduce(runs: &[Run], memory: u64, colours: &[u32]) -> Vec<Run> {
    // Many batches: what waits must outlive them.
    struct Batches<'a>(std::slice::Chunks<'a, Run>);
    impl RunSource for Batches<'_> {
        fn page_bits(&self) -> u32 {
            12
        }
        fn next_runs(&mut self) -> pagelab_trace::Result<Option<&[Run]>> {
            Ok(self.0.next())
        }
    }
    let mut source = Reduced::new(Batches(runs.chunks(7)), memory, colours).unwrap();
    let mut reduced = Vec::new();
    while let Some(batch) = source.next_runs().unwrap() {
        reduced.extend_from_slice(batch);
    }
    reduced
}

/// Faults of each page in an LRU memory of `frames` pages, in equal shares for `colours` colours: the simplest way.
fn lru(runs: &[Run], frames: u64, colours: u32) -> HashMap<u64, u64> {
    let share = (frames / u64::from(colours)) as usize;
    let mut memories: Vec<Vec<u64>> = vec![Vec::new(); colours as usize];
    let mut faults = HashMap::new();
    for run in runs {
        let memory = &mut memories[(run.number() % u64::from(colours)) as usize];
        match memory.iter().position(|page| *page == run.page) {
            Some(at) => drop(memory.remove(at)),
            None => *faults.entry(run.page).or_insert(0) += 1,
        }
        memory.insert(0, run.page);
        memory.truncate(share);
    }
    faults
}

/// Faults of a memory that evicts the page whose next reference is farthest.
fn opt(runs: &[Run], frames: usize) -> u64 {
    let mut memory: HashSet<u64> = HashSet::new();
    let mut faults = 0;
    for (at, run) in runs.iter().enumerate() {
        if memory.contains(&run.page) {
            continue;
        }
        faults += 1;
        if memory.len() == frames {
            let next = |page: &u64| runs[at..].iter().position(|later| later.page == *page).unwrap_or(usize::MAX);
            let victim = *memory.iter().max_by_key(|page| (next(page), **page)).unwrap();
            memory.remove(&victim);
        }
        memory.insert(run.page);
    }
    faults
}

/// The definition, applied until nothing more may go, one reference at a time from the front.
fn naive(runs: &[Run], memory: usize) -> Vec<u64> {
    let mut pages: Vec<u64> = runs.iter().map(|run| run.page).collect();
    pages.dedup();
    let mut third = 0;
    while third < pages.len() {
        let page = pages[third];
        let mut before = (0..third).rev().filter(|at| pages[*at] == page);
        if let (Some(second), Some(first)) = (before.next(), before.next()) {
            let others: HashSet<_> = pages[first + 1..third].iter().filter(|other| **other != page).collect();
            if others.len() < memory {
                pages.remove(second);
                third -= 1;
            }
        }
        third += 1;
    }
    pages
}

fn trace() -> impl Strategy<Value = Vec<Run>> {
    // Pages near each other come again soon: loops over a few, with excursions.
    let page = prop_oneof![4 => 0..6u64, 3 => 0..20u64, 1 => 0..60u64];
    prop::collection::vec((0..2u16, page, 1..5u64), 0..400).prop_map(|raw| {
        let mut runs: Vec<Run> = raw.into_iter().map(|(asid, page, count)| Run::new(asid, page, count)).collect();
        runs.dedup_by_key(|run| run.page);
        runs
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn lru_faults_of_every_page_stay_above_the_size(runs in trace(), memory in 1..24u64) {
        let reduced = reduce(&runs, memory, &[1]);
        for frames in memory..memory + 30 {
            prop_assert_eq!(lru(&reduced, frames, 1), lru(&runs, frames, 1), "{} frames", frames);
        }
    }

    #[test]
    fn lru_faults_stay_in_every_number_of_colours(runs in trace(), memory in 8..40u64) {
        let colours = [1, 2, 3, 4, 8];
        let reduced = reduce(&runs, memory, &colours);
        for frames in memory..memory + 30 {
            for colours in colours {
                prop_assert_eq!(lru(&reduced, frames, colours), lru(&runs, frames, colours));
            }
        }
    }

    #[test]
    fn opt_faults_stay_above_the_size(runs in trace(), memory in 1..16usize) {
        let reduced = reduce(&runs, memory as u64, &[1]);
        for frames in memory..memory + 8 {
            prop_assert_eq!(opt(&reduced, frames), opt(&runs, frames));
        }
    }

    #[test]
    fn it_is_the_papers_definition_and_keeps_all_counts(runs in trace(), memory in 1..24u64) {
        let reduced = reduce(&runs, memory, &[1]);
        let pages: Vec<_> = reduced.iter().map(|run| run.page).collect();
        prop_assert_eq!(pages, naive(&runs, memory as usize));
        let counts = |runs: &[Run]| {
            let mut counts: HashMap<u64, u64> = HashMap::new();
            runs.iter().for_each(|run| *counts.entry(run.page).or_insert(0) += run.count);
            counts
        };
        prop_assert_eq!(counts(&reduced), counts(&runs));
    }
}

#[test]
fn a_loop_within_the_size_shrinks_to_its_first_and_last_turns() {
    let runs: Vec<_> = (0..10_000).map(|at| Run::new(0, at % 10, 1)).collect();
    assert_eq!(reduce(&runs, 10, &[1]).len(), 20);
    assert_eq!(reduce(&runs, 9, &[1]).len(), 10_000);
}

#[test]
fn a_colour_without_a_page_is_refused() {
    assert!(Reduced::new(MemoryRuns::new(12, &[]), 7, &[1, 8]).is_err());
    assert!(Reduced::new(MemoryRuns::new(12, &[]), 7, &[]).is_err());
    assert!(Reduced::new(MemoryRuns::new(12, &[]), 7, &[0]).is_err());
}
