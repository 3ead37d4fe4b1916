//! References as runs, and runs of larger pages, against the simplest way to do it.

use pagelab_trace::{
    CoarserRuns, Content, Header, Kind, Kinds, MemoryReferences, MemoryRuns, MixedRuns, Reference, Run, RunSource,
    RunsOfReferences, Settings, Spaces, TraceError, TraceReader, TraceWriter,
};
use proptest::prelude::*;

fn collect(mut source: impl RunSource) -> Vec<Run> {
    let mut runs = Vec::new();
    while let Some(batch) = source.next_runs().unwrap() {
        assert!(!batch.is_empty());
        runs.extend_from_slice(batch);
    }
    runs
}

/// Every page touched, one entry a touch.
fn touches(references: &[Reference], page_bits: u32, kinds: Kinds) -> Vec<u64> {
    let wanted = references.iter().filter(|reference| kinds.has(reference.kind()));
    wanted
        .flat_map(|reference| {
            let bytes =
                (0..u64::from(reference.size().max(1))).map(|byte| (reference.address() + byte) >> page_bits);
            let mut pages: Vec<_> = bytes.collect();
            pages.dedup();
            pages
        })
        .collect()
}

fn expand(runs: &[Run]) -> Vec<u64> {
    runs.iter().flat_map(|run| std::iter::repeat_n(run.page, run.count as usize)).collect()
}

/// The runs before an error, which is the last that comes, and the number of records before it in the file.
fn until_torn(mut source: impl RunSource) -> (Vec<Run>, usize) {
    let mut runs = Vec::new();
    let error = loop {
        match source.next_runs() {
            Ok(batch) => runs.extend_from_slice(batch.expect("an error")),
            Err(error) => break error,
        }
    };
    assert!(matches!(source.next_runs(), Ok(None)));
    let TraceError::Torn(place) = error else { panic!("{error}") };
    (runs, place.records as usize)
}

/// Regression: up to 32,768 runs before the damage were lost, and the last one came after the error.
#[test]
fn runs_of_a_torn_file_are_those_before_its_end() {
    const KINDS: Kinds = Kinds::ALL;
    let references: Vec<_> = (0..100_000).map(|at| Reference::new(at * 1500, Kind::Load, 8)).collect();
    let settings = Settings { chunk_records: 1000, ..Settings::default() };
    let mut writer = TraceWriter::new(Vec::new(), &Header::new(Content::References), settings).unwrap();
    writer.references(0, 0, &references).unwrap();
    let whole = writer.finish(&serde_json::Value::Null).unwrap();
    let torn = &whole[..whole.len() / 2];
    let (runs, records) = until_torn(TraceReader::new(torn).unwrap().into_runs(12, KINDS).unwrap());
    assert!(records > 1000 && records < references.len());
    assert_eq!(expand(&runs), touches(&references[..records], 12, KINDS));

    let finer = collect(RunsOfReferences::new(MemoryReferences::new(&references), 10, KINDS));
    let mut writer = TraceWriter::new(Vec::new(), &Header::new(Content::Runs { page_bits: 10 }), settings).unwrap();
    writer.runs(&finer).unwrap();
    let whole = writer.finish(&serde_json::Value::Null).unwrap();
    let torn = &whole[..whole.len() / 2];
    let of_torn = || TraceReader::new(torn).unwrap().into_runs(12, KINDS).unwrap();
    let (runs, records) = until_torn(of_torn());
    assert!(records > 1000 && records < finer.len());
    let before = collect(CoarserRuns::new(MemoryRuns::new(10, &finer[..records]), 12).unwrap());
    assert_eq!(runs, before);

    let other = [Run::new(0, 7, 3)];
    let parts: [Box<dyn RunSource>; 2] = [Box::new(MemoryRuns::new(12, &other)), of_torn()];
    let spaces = Spaces::apart(&[1, 1]).unwrap();
    let (runs, _) = until_torn(MixedRuns::new(parts.into_iter().zip(spaces).collect(), 0).unwrap());
    let moved = before.iter().map(|run| Run::new(1, run.number(), run.count));
    assert_eq!(runs, other.into_iter().chain(moved).collect::<Vec<_>>());
}

/// The sum was 0, and the run was left out.
#[test]
fn a_count_that_would_not_fit_begins_another_run() {
    let runs = [Run::new(0, 0, 1 << 63), Run::new(0, 1, 1 << 63), Run::new(0, 512, 1)];
    let coarser = collect(CoarserRuns::new(MemoryRuns::new(12, &runs), 21).unwrap());
    assert_eq!(coarser, [Run::new(0, 0, 1 << 63), Run::new(0, 0, 1 << 63), Run::new(0, 1, 1)]);
}

proptest! {
    #[test]
    fn runs_are_the_touches_in_order(
        raw in prop::collection::vec((0..1u64 << 16, 0..4u8, 0..4096u32), 0..200), page_bits in 4..20u32,
    ) {
        let references: Vec<_> =
            raw.iter().map(|(address, kind, size)| Reference::new(*address, Kind::from_code(*kind), *size)).collect();
        for kinds in [Kinds::ALL, Kinds::DATA, Kinds::DEMAND] {
            let runs = collect(RunsOfReferences::new(MemoryReferences::new(&references), page_bits, kinds));
            prop_assert_eq!(expand(&runs), touches(&references, page_bits, kinds));
            prop_assert!(runs.windows(2).all(|pair| pair[0].page != pair[1].page));
        }
    }

    #[test]
    fn coarser_runs_are_the_same_touches(
        raw in prop::collection::vec((0..3u16, 0..1u64 << 10, 1..5u64), 0..200), larger in 0..8u32,
    ) {
        let runs: Vec<_> = raw.iter().map(|(asid, number, count)| Run::new(*asid, *number, *count)).collect();
        let coarser = collect(CoarserRuns::new(MemoryRuns::new(12, &runs), 12 + larger).unwrap());
        let expected: Vec<_> = runs.iter()
            .flat_map(|run| {
                let page = Run::new(run.asid(), run.number() >> larger, 1).page;
                std::iter::repeat_n(page, run.count as usize)
            })
            .collect();
        prop_assert_eq!(expand(&coarser), expected);
        prop_assert!(coarser.windows(2).all(|pair| pair[0].page != pair[1].page));
    }
}

#[test]
fn runs_cannot_be_made_finer() {
    assert!(CoarserRuns::new(MemoryRuns::new(12, &[]), 11).is_none());
}

#[test]
fn the_fields_of_a_run_do_not_touch_each_other() {
    let run = Run::new(4095, u64::MAX, 7);
    assert_eq!((run.asid(), run.number(), run.count), (4095, (1 << 52) - 1, 7));
}
