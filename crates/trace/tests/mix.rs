//! Traces put together, against the simplest way.

use pagelab_trace::{
    Kind, MAX_ASID, MemoryReferences, MemoryRuns, MixedReferences, MixedRuns, Reference, ReferenceSource, Run,
    RunSource, Spaces,
};
use proptest::prelude::*;

/// Turns of a quantum over lists of single references.
fn turns<T: Copy>(parts: &[Vec<T>], quantum: usize) -> Vec<T> {
    let mut rest: Vec<_> = parts.iter().map(|part| part.iter().copied().peekable()).collect();
    let mut mixed = Vec::new();
    while rest.iter_mut().any(|part| part.peek().is_some()) {
        for part in &mut rest {
            let quantum = if quantum == 0 { usize::MAX } else { quantum };
            mixed.extend(part.by_ref().take(quantum));
        }
    }
    mixed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn runs_in_turns(
        raw in prop::collection::vec(prop::collection::vec((0..2u16, 0..9u64, 1..6u64), 0..40), 1..4), quantum in 0..12u64,
    ) {
        let runs: Vec<Vec<Run>> =
            raw.iter().map(|part| part.iter().map(|(asid, page, count)| Run::new(*asid, *page, *count)).collect()).collect();
        let spaces = Spaces::apart(&vec![2; runs.len()]).unwrap();
        let parts = runs.iter().zip(&spaces).map(|(runs, spaces)| (MemoryRuns::new(12, runs), *spaces)).collect();
        let mut mixed = MixedRuns::new(parts, quantum).unwrap();
        let mut pages = Vec::new();
        while let Some(batch) = mixed.next_runs().unwrap() {
            pages.extend(batch.iter().flat_map(|run| std::iter::repeat_n(run.page, run.count as usize)));
        }
        let single: Vec<Vec<u64>> = runs.iter().enumerate().map(|(number, runs)| {
            let moved = |run: &Run| Run::new(run.asid() + 2 * number as u16, run.number(), 1).page;
            runs.iter().flat_map(|run| std::iter::repeat_n(moved(run), run.count as usize)).collect()
        }).collect();
        prop_assert_eq!(pages, turns(&single, quantum as usize));
    }

    #[test]
    fn references_in_turns(raw in prop::collection::vec(prop::collection::vec(0..99u64, 0..40), 1..4), quantum in 0..12u64) {
        let parts: Vec<Vec<Reference>> =
            raw.iter().map(|part| part.iter().map(|address| Reference::new(*address, Kind::Load, 1)).collect()).collect();
        let spaces = Spaces::apart(&vec![1; parts.len()]).unwrap();
        let sources = parts.iter().zip(&spaces).map(|(part, spaces)| (MemoryReferences::new(part), *spaces)).collect();
        let mut mixed = MixedReferences::new(sources, quantum);
        let mut records = Vec::new();
        while let Some(batch) = mixed.next_references().unwrap() {
            for segment in batch.segments() {
                records.extend(segment.references.iter().map(|reference| (segment.asid, *reference)));
            }
        }
        let single: Vec<Vec<_>> = parts.iter().enumerate()
            .map(|(number, part)| part.iter().map(|reference| (number as u16, *reference)).collect()).collect();
        prop_assert_eq!(records, turns(&single, quantum as usize));
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    assert!(Spaces::apart(&[MAX_ASID, 2]).is_err());
    assert!(Spaces::apart(&[MAX_ASID, 1]).is_ok());
    let none = Spaces { first: 0, count: 1 };
    assert!(MixedRuns::new(vec![(MemoryRuns::new(12, &[]), none), (MemoryRuns::new(13, &[]), none)], 0).is_err());
    assert!(MixedRuns::<MemoryRuns<'_>>::new(vec![], 0).is_err());
    let runs = [Run::new(1, 5, 1)];
    let mut mixed = MixedRuns::new(vec![(MemoryRuns::new(12, &runs), none)], 0).unwrap();
    assert!(mixed.next_runs().is_err(), "an address space that was not announced");
}
