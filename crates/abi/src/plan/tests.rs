use std::vec;
use std::vec::Vec;

use super::*;

const MIB: u64 = 1 << 20;

fn interval(start: u64, end: u64, page_bytes: u64) -> Interval {
    Interval { start, end, page_bytes, via: Via::Thp }
}

/// One strategy of each kind.
fn strategies() -> Vec<StrategySpec> {
    let of = StrategySpec::new;
    let span = |start, pages, first_value| Span { start, pages, first_value };
    vec![
        StrategySpec { pid_hash: true, pin: true, masks: vec![0x11, 0x22], ..of(StrategyKind::PageColoring, 4) },
        StrategySpec { first: FIRST_FROM_SEED, seed: 7, fault_around: 16, ..of(StrategyKind::BinHopping, 12) },
        StrategySpec { values: vec![0, 2, ANYWHERE], budget_bytes: MIB, ..of(StrategyKind::Modulo, 3) },
        StrategySpec { seed: u64::MAX, ..of(StrategyKind::Random, 1) },
        StrategySpec {
            values: vec![7, 8, ANYWHERE],
            spans: vec![span(0x1000, 2, 1), span(0x9000, 1, 0)],
            ..of(StrategyKind::Exact, 64)
        },
        StrategySpec {
            module: b"/opt/mine.so".to_vec(),
            argument: b"12345678".to_vec(),
            ..of(StrategyKind::Module, 2)
        },
    ]
}

#[test]
fn a_run_fills_in_what_the_policy_leaves_open_and_nothing_else() {
    let named = StrategySpec { budget_bytes: 5 << 20, ..StrategySpec::new(StrategyKind::PageColoring, 4) };
    let module = StrategySpec { module: b"mine.so".to_vec(), ..StrategySpec::new(StrategyKind::Module, 4) };
    let spec = PlanSpec { strategies: vec![named, module], ..PlanSpec::default() };
    let run = RunSpec {
        budgets: vec![1 << 20, 2 << 20],
        modules: vec![Vec::new(), b"/opt/mine.so".to_vec()],
        ..RunSpec::default()
    };
    let bytes = spec.encode(&run).unwrap();
    let plan = Plan::parse(&bytes).unwrap();
    let budget = |number| plan.strategy(number).unwrap().budget_bytes;
    assert_eq!((budget(0), budget(1)), (5 << 20, 2 << 20), "what the policy names counts");
    assert_eq!(plan.module(&plan.strategy(1).unwrap()), b"/opt/mine.so");
    let alone = spec.encode(&RunSpec::default()).unwrap();
    let plan = Plan::parse(&alone).unwrap();
    for (number, wanted) in (0..).zip(&spec.strategies) {
        assert!(wanted.matches(&plan, &plan.strategy(number).unwrap()));
    }
}

fn sample() -> PlanSpec {
    let mut heap = SectionSpec::uniform(Memory::Heap, BASE_PAGE, Via::Thp);
    heap.intervals = vec![interval(0, 64 * MIB, 2 * MIB), interval(128 * MIB, 130 * MIB, 64 << 10)];
    let mut large = SectionSpec::uniform(Memory::Anon, 2 * MIB, Via::Hugetlb);
    large.at_least = MIB;
    large.fetch = Fetch::Prefault;
    large.rule = 1;
    let mut range = SectionSpec::uniform(Memory::Range, KERNEL, Via::Thp);
    range.range = Some((0x1000, 0x9000));
    let small = SectionSpec::uniform(Memory::Anon, BASE_PAGE, Via::Thp);
    heap.frames = 1;
    range.frames = 5;
    PlanSpec {
        flags: Flags::INHERIT_FORK,
        sections: vec![heap, large, range, small],
        rules: 2,
        strategies: strategies(),
    }
}

#[test]
fn what_was_written_is_read() {
    let spec = sample();
    let run_dir = b"/run/pagelab/0123456789".to_vec();
    let run = RunSpec { run_dir, flags: Flags::MEASURE, ..RunSpec::default() };
    let bytes = spec.encode(&run).unwrap();
    let plan = Plan::parse(&bytes).unwrap();
    assert_eq!(plan.flags(), Flags::INHERIT_FORK | Flags::MEASURE);
    assert_eq!(plan.run_dir(), run.run_dir);
    assert_eq!(plan.section_count() as usize, spec.sections.len());
    for (number, wanted) in spec.sections.iter().enumerate() {
        let section = plan.section(number as u32).unwrap();
        assert!(wanted.matches(&section), "{section:?} is not {wanted:?}");
        let read: Vec<_> = (0..section.interval_count()).map(|i| plan.interval(&section, i).unwrap()).collect();
        assert_eq!(read, wanted.intervals);
        assert_eq!(plan.interval(&section, section.interval_count()), None);
    }
    assert_eq!(plan.section(spec.sections.len() as u32), None);
    assert_eq!(plan.strategy_count() as usize, spec.strategies.len());
    for (number, wanted) in spec.strategies.iter().enumerate() {
        let strategy = plan.strategy(number as u32).unwrap();
        assert!(wanted.matches(&plan, &strategy), "{strategy:?} is not {wanted:?}");
    }
    assert_eq!(plan.strategy(spec.strategies.len() as u32), None);
}

#[test]
fn the_first_section_that_matches_wins() {
    let bytes = sample().encode(&RunSpec::default()).unwrap();
    let plan = Plan::parse(&bytes).unwrap();
    assert_eq!(plan.section_for(Memory::Anon, MIB).unwrap().otherwise, 2 * MIB);
    assert_eq!(plan.section_for(Memory::Anon, MIB - 1).unwrap().otherwise, BASE_PAGE);
    assert_eq!(plan.section_for(Memory::Stack, MIB), None);
}

#[test]
fn pieces_cover_the_pool_without_gaps() {
    let bytes = sample().encode(&RunSpec::default()).unwrap();
    let plan = Plan::parse(&bytes).unwrap();
    let heap = plan.section_for(Memory::Heap, 0).unwrap();
    let mut offset = 0;
    let mut seen = Vec::new();
    while offset < 200 * MIB {
        let piece = plan.piece(&heap, offset);
        assert!(piece.start <= offset && offset < piece.end);
        assert_eq!(plan.piece(&heap, piece.end - 1), piece);
        seen.push((piece.start, piece.page_bytes));
        offset = piece.end;
    }
    assert_eq!(seen, [(0, 2 * MIB), (64 * MIB, BASE_PAGE), (128 * MIB, 64 << 10), (130 * MIB, BASE_PAGE)]);
}

#[test]
fn every_truncation_is_refused() {
    let bytes = sample().encode(&RunSpec::default()).unwrap();
    for len in 0..bytes.len() {
        assert!(Plan::parse(&bytes[..len]).is_err(), "accepted {len} of {} bytes", bytes.len());
    }
}

#[test]
fn foreign_files_and_other_versions_are_refused() {
    let mut bytes = sample().encode(&RunSpec::default()).unwrap();
    bytes[8] = 9;
    assert_eq!(Plan::parse(&bytes).unwrap_err(), PlanError::Version(9));
    bytes[0] = b'x';
    assert_eq!(Plan::parse(&bytes).unwrap_err(), PlanError::NotAPlan);
}

/// With any single byte damaged, reading stays in bounds: the plan is refused, or every accessor still answers.
#[test]
fn damaged_plans_never_lead_out_of_bounds() {
    let bytes = sample().encode(&RunSpec::default()).unwrap();
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            let Ok(plan) = Plan::parse(&damaged) else { continue };
            for number in 0..plan.section_count() {
                let section = plan.section(number).unwrap();
                for offset in [0, MIB, 64 * MIB, u64::MAX - 1] {
                    let piece = plan.piece(&section, offset);
                    assert!(piece.start <= offset && offset < piece.end);
                }
            }
            for number in 0..plan.strategy_count() {
                let strategy = plan.strategy(number).unwrap();
                for index in 0..strategy.span_count() {
                    let span = plan.span(&strategy, index).unwrap();
                    assert!(
                        plan.words(strategy.values).get((span.first_value + span.pages - 1) as usize).is_some()
                    );
                }
                assert_eq!(plan.words(strategy.masks).len(), strategy.masks.count() as usize);
                let _ = (plan.module(&strategy), plan.argument(&strategy));
            }
            let _ = plan.run_dir();
        }
    }
}

#[test]
fn unaligned_and_overlapping_intervals_are_not_written() {
    for bad in [
        vec![interval(4096, 2 * MIB, 2 * MIB)],
        vec![interval(0, 4 * MIB, 2 * MIB), interval(2 * MIB, 6 * MIB, 2 * MIB)],
        vec![interval(2 * MIB, 2 * MIB, 2 * MIB)],
        vec![interval(0, 12288, 12288)],
    ] {
        let mut spec = sample();
        spec.sections[0].intervals = bad;
        assert!(matches!(spec.encode(&RunSpec::default()), Err(PlanError::Invalid("interval", _))));
    }
}

#[test]
fn sections_name_their_strategies() {
    let bytes = sample().encode(&RunSpec::default()).unwrap();
    let plan = Plan::parse(&bytes).unwrap();
    assert!(plan.governs_frames());
    let strategy = |memory| plan.section_for(memory, MIB).unwrap().strategy();
    assert_eq!(strategy(Memory::Heap), Some(0));
    assert_eq!(strategy(Memory::Range), Some(4));
    assert_eq!(strategy(Memory::Anon), None);
    let mut spec = sample();
    spec.sections.iter_mut().for_each(|section| section.frames = 0);
    assert!(!Plan::parse(&spec.encode(&RunSpec::default()).unwrap()).unwrap().governs_frames());
}

/// Every list, text and number of a strategy is checked before anything reads it.
#[test]
fn strategies_that_make_no_sense_are_not_written() {
    let kinds = |kind: StrategyKind| move |spec: &StrategySpec| spec.kind == kind;
    type Damage = fn(&mut StrategySpec);
    let damages: [(StrategyKind, Damage); 17] = [
        (StrategyKind::PageColoring, |s| s.colours = 0),
        (StrategyKind::PageColoring, |s| s.colours = 3),
        (StrategyKind::PageColoring, |s| s.masks.push(0)),
        (StrategyKind::PageColoring, |s| s.first = FIRST_FROM_SEED),
        (StrategyKind::PageColoring, |s| s.values = vec![1]),
        (StrategyKind::PageColoring, |s| s.argument = b"x".to_vec()),
        (StrategyKind::BinHopping, |s| s.first = 12),
        (StrategyKind::BinHopping, |s| s.spans = vec![Span { start: 0, pages: 1, first_value: 0 }]),
        (StrategyKind::Modulo, |s| s.values = vec![3]),
        (StrategyKind::Modulo, |s| s.values.clear()),
        (StrategyKind::Random, |s| s.colours = MOST_COLOURS + 1),
        (StrategyKind::Exact, |s| s.spans.clear()),
        (StrategyKind::Exact, |s| s.spans.reverse()),
        (StrategyKind::Exact, |s| s.spans[0].pages = 3),
        (StrategyKind::Exact, |s| s.values[0] = 1 << 40),
        (StrategyKind::Module, |s| s.module.clear()),
        (StrategyKind::Module, |s| s.argument = b"a\0b".to_vec()),
    ];
    for (number, (kind, damage)) in damages.into_iter().enumerate() {
        let mut spec = sample();
        let at = spec.strategies.iter().position(kinds(kind)).unwrap();
        damage(&mut spec.strategies[at]);
        assert!(
            matches!(spec.encode(&RunSpec::default()), Err(PlanError::Invalid(_, n)) if n as usize == at),
            "damage {number}"
        );
    }
    let mut spec = sample();
    spec.sections[0].frames = 7;
    assert_eq!(spec.encode(&RunSpec::default()).unwrap_err(), PlanError::Invalid("strategy", 0));
    spec = sample();
    spec.strategies = vec![StrategySpec::new(StrategyKind::Random, 1); MAX_STRATEGIES + 1];
    assert!(spec.encode(&RunSpec::default()).is_err());
}
