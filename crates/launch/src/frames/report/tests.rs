use super::*;
use pagelab_policy::guest::{EngineCounts, Measuring, OutOfReach, PlacementMethod, Started};
use pagelab_policy::plan::StrategyKind;

/// What an image of process `pid` reports.
pub fn report(pid: u32, frames: Vec<FramesReport>, engine: Option<EngineReport>) -> Report {
    Report {
        pid,
        ppid: 1,
        exe: "/bin/x".to_owned(),
        started: Started::Exec,
        state: State::Exited,
        disabled: None,
        start_ns: 1,
        ready_ns: Some(2),
        end_ns: Some(3),
        measured_ns: Some(4),
        placement: PlacementMethod::PagemapScan,
        counters: Vec::new(),
        warnings: Vec::new(),
        residency: Vec::new(),
        residency_dropped: 0,
        regions: Vec::new(),
        regions_dropped: 0,
        rusage: None,
        measuring: Measuring::default(),
        engine,
        frames,
    }
}

fn strategy(counts: FramesCounts, by_colour: &[u64]) -> FramesReport {
    let colour = |&placed| ColourCounts { requests: placed, placed, fallbacks: 0 };
    FramesReport {
        number: 0,
        kind: StrategyKind::BinHopping,
        colours: by_colour.len() as u64,
        counts,
        out_of_reach: vec![(OutOfReach::File, 8192)],
        by_colour: by_colour.iter().map(colour).collect(),
    }
}

fn engine(state: EngineState, failure: EngineFailure) -> EngineReport {
    let counts = EngineCounts { refills: 2, pool_peak_bytes: 4096, nodes: 1, ..EngineCounts::default() };
    EngineReport {
        state,
        failure,
        errno: None,
        start_ns: Some(10),
        ready_ns: Some(15),
        counts,
        pages_by_node: [0; NODE_SLOTS],
    }
}

fn placing() -> Placing {
    Placing { route: Route::Own, budgets: Vec::new(), broker: None }
}

fn warnings_of(reports: Vec<Report>) -> Vec<(Kind, Severity, String)> {
    let mut warnings = Warnings::default();
    warn(&reports, Some(&placing()), 7, &mut warnings);
    warnings.0.into_iter().map(|warning| (warning.kind, warning.severity, warning.message)).collect()
}

#[test]
fn images_add_up_by_strategy_and_colour() {
    let counts = FramesCounts { requests: 10, placed: 9, kept_pages: 3, moved_pages: 1, ..FramesCounts::default() };
    let one = report(7, vec![strategy(counts, &[4, 5])], Some(engine(EngineState::Stopped, EngineFailure::None)));
    let other = report(8, vec![strategy(counts, &[1, 8])], Some(engine(EngineState::Running, EngineFailure::None)));
    let reports = vec![one, other, report(9, Vec::new(), None)];
    let frames = total(&reports, Some(&placing())).expect("frames were governed");
    assert_eq!((frames.placed_fraction, frames.kept_fraction), (Some(0.9), Some(0.75)));
    assert_eq!((frames.engines_started, frames.engines_failed, frames.rights), (2, 0, Some("own")));
    let engine = frames.engine.expect("an engine");
    assert_eq!((engine.start_up_ns, engine.values["refills"], engine.values["pool_peak_bytes"]), (10, 4, 4096));
    let [strategy] = &frames.strategies[..] else { panic!("{:?}", frames.strategies) };
    assert_eq!(
        (strategy.kind, strategy.requested_pages, strategy.out_of_reach_bytes["file"]),
        ("bin-hopping", 20, 16384)
    );
    let table = strategy.by_colour.as_ref().expect("a table");
    assert_eq!((&table.placed_pages, table.folded), (&vec![5, 13], false));
    let nothing = vec![report(9, Vec::new(), None)];
    assert!(total(&nothing, None).is_none(), "no policy for frames, and no hints");
}

#[test]
fn hints_of_programs_count_without_a_policy_for_frames() {
    let counts = FramesCounts { requests: 10, placed: 8, fallbacks: 2, ..FramesCounts::default() };
    let engine = engine(EngineState::Stopped, EngineFailure::None);
    let one = report(7, vec![strategy(counts, &[8])], Some(engine));
    let other = report(8, vec![FramesReport { colours: 99, ..strategy(counts, &[8]) }], None);
    let reports = vec![one, other];
    let frames = total(&reports, None).expect("there were hints");
    assert_eq!((frames.rights, frames.placed_fraction), (None, Some(0.8)));
    let colours: Vec<u64> = frames.strategies.iter().map(|strategy| strategy.colours).collect();
    assert_eq!(colours.len(), 2, "number 0 is something else in each process: {colours:?}");
    let mut warnings = Warnings::default();
    warn(&reports, None, 7, &mut warnings);
    assert!(warnings.0.iter().any(|warning| warning.kind == Kind::FramesFallback));
}

#[test]
fn what_went_as_asked_is_not_worth_a_warning() {
    let counts = FramesCounts { requests: 10, placed: 10, kept_pages: 10, ..FramesCounts::default() };
    let mut clean = strategy(counts, &[10]);
    clean.out_of_reach.clear();
    let engine = engine(EngineState::Stopped, EngineFailure::None);
    assert_eq!(warnings_of(vec![report(7, vec![clean], Some(engine))]), []);
}

#[test]
fn shortfalls_are_told_with_their_reasons() {
    let counts = FramesCounts {
        requests: 1000,
        placed: 990,
        fallbacks: 8,
        zero_pages: 2,
        kept_pages: 500,
        moved_pages: 100,
        ..FramesCounts::default()
    };
    let told = warnings_of(vec![report(7, vec![strategy(counts, &[990])], None)]);
    let kinds: Vec<(Kind, Severity)> = told.iter().map(|(kind, severity, _)| (*kind, *severity)).collect();
    assert_eq!(
        kinds,
        [
            (Kind::FramesFallback, Severity::Info),
            (Kind::FramesOutOfReach, Severity::Info),
            (Kind::FramesMoved, Severity::Warning)
        ]
    );
    assert!(
        told[0].2.starts_with("10 of 1000 pages are not placed as asked: for 8 the pool had no page"),
        "{told:?}"
    );
    assert!(told[0].2.contains("2 were filled by the kernel"), "{told:?}");
    assert!(told[1].2.contains("8 KiB of files' page cache"), "{told:?}");
    assert!(told[2].2.contains("100 of 600 placed pages"), "{told:?}");
}

#[test]
fn a_strategy_whose_memory_nobody_used_is_named() {
    let used =
        FramesCounts { requests: 10, placed: 10, kept_pages: 10, resident_pages: 10, ..FramesCounts::default() };
    let told = |counts| {
        let mut only = strategy(counts, &[counts.placed]);
        only.out_of_reach.clear();
        warnings_of(vec![report(7, vec![only], Some(engine(EngineState::Stopped, EngineFailure::None)))])
    };
    assert_eq!(told(used), []);
    let nothing = told(FramesCounts::default());
    assert_eq!((nothing.len(), nothing[0].0, nothing[0].1), (1, Kind::FramesNotPlaced, Severity::Info));
    assert!(nothing[0].2.starts_with("bin-hopping (strategy 0) placed nothing"), "{nothing:?}");
}

#[test]
fn processes_without_an_engine_are_named() {
    let failed = |reason| Some(engine(EngineState::Failed, reason));
    let told = warnings_of(vec![
        report(7, Vec::new(), failed(EngineFailure::Userfaultfd)),
        report(8, Vec::new(), failed(EngineFailure::FrameNumbers)),
        report(9, Vec::new(), failed(EngineFailure::FrameNumbers)),
        report(10, Vec::new(), failed(EngineFailure::NotInherited)),
        report(11, Vec::new(), failed(EngineFailure::PastLibc)),
    ]);
    let shown: Vec<(Severity, &str)> =
        told.iter().map(|(_, severity, message)| (*severity, message.split(" (").next().unwrap_or(""))).collect();
    assert!(told.iter().all(|(kind, _, _)| *kind == Kind::FramesNotPlaced));
    assert_eq!(
        shown,
        [
            (Severity::Warning, "2 children"),
            (Severity::Info, "a child"),
            (Severity::Info, "a child"),
            (Severity::Serious, "the program")
        ]
    );
}
