//! The fast simulators against the naive one, and known answers.

use pagelab_policy::types::{Frames, Strategy as Named};
use pagelab_trace::{Kind, Reference, References, Segment, Span};
use proptest::prelude::*;

use super::naive::Naive;
use super::{HierarchySpec, Inclusion, LevelSpec, Serves, Simulation};
use crate::allocate::{History, Layout, Memory, Strategy};
use crate::cpu::tests::on_every_level;
use crate::tasks::run_all;

fn level(name: &str, bytes: u64, ways: u64) -> LevelSpec {
    let json = format!(r#"{{"name": "{name}", "bytes": {bytes}, "ways": {ways}}}"#);
    serde_json::from_str(&json).unwrap()
}

fn hierarchy(levels: Vec<LevelSpec>) -> HierarchySpec {
    HierarchySpec { levels, ..serde_json::from_str(r#"{"levels": []}"#).unwrap() }
}

fn has_common_front(spec: &HierarchySpec) -> bool {
    Simulation::new(spec, vec![memory(1)]).unwrap().has_common_front()
}

fn memory(seed: u64) -> Memory {
    let history = History { memory_bytes: 16 << 20, turnover: 1.0, ..History::default() };
    let frames = Frames { strategy: Named::Kernel, ..Frames::default() };
    Memory::new(&history, Strategy::new(&frames, 1, seed).unwrap(), Layout::default(), seed)
}

/// Which references the levels next to the core serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Top {
    Unified,
    /// A level of data and one of fetches.
    Pair,
    /// A level of data; fetches enter at the second level.
    Data,
    /// A level of fetches above a unified one.
    Stacked,
}

impl Top {
    /// The levels: `first`, and those below it that serve only some references.
    fn levels(self, first: LevelSpec, fetches: LevelSpec) -> Vec<LevelSpec> {
        let data = LevelSpec { serves: Serves::Data, ..first.clone() };
        let fetches = LevelSpec { serves: Serves::Instruction, ..fetches };
        match self {
            Top::Unified => vec![first],
            Top::Pair => vec![data, fetches],
            Top::Data => vec![data],
            Top::Stacked => vec![fetches, first],
        }
    }
}

fn top() -> impl Strategy2<Value = Top> {
    prop_oneof![Just(Top::Unified), Just(Top::Pair), Just(Top::Data), Just(Top::Stacked)]
}

fn small(inclusions: [Inclusion; 2], top: Top, allocates: bool) -> HierarchySpec {
    let mut levels = top.levels(level("L1", 1 << 10, 2), level("L1i", 1 << 9, 2));
    let [second, third] = inclusions;
    // The first level of fetches has none above it.
    let second = if top == Top::Data { Inclusion::Nine } else { second };
    levels.push(LevelSpec { inclusion: second, writebacks_allocate: allocates, ..level("L2", 3 << 10, 4) });
    levels.push(LevelSpec { inclusion: third, writebacks_allocate: allocates, ..level("L3", 9 << 10, 3) });
    hierarchy(levels)
}

fn inclusion() -> impl Strategy2<Value = Inclusion> {
    prop_oneof![Just(Inclusion::Nine), Just(Inclusion::Inclusive), Just(Inclusion::Exclusive)]
}
use proptest::strategy::Strategy as Strategy2;

/// References that reuse lines at several distances, often several times in a row; sizes that straddle lines and pages.
fn references() -> impl Strategy2<Value = Vec<Reference>> {
    let sizes = prop_oneof![Just(0_u32), Just(1), Just(8), Just(64), Just(256)];
    let anywhere = (0_u64..400, 0_u8..3, sizes, 1_usize..3);
    let repeated = (0_u64..9, 0_u8..2, Just(4_u32), 1_usize..40);
    prop::collection::vec(prop_oneof![3 => anywhere, 1 => repeated], 1..700).prop_map(|list| {
        let to = |(line, kind, size, times): (u64, u8, u32, usize)| {
            vec![Reference::new(0x7000_0000 + line * 61 % 32_768, Kind::from_code(kind), size); times]
        };
        list.into_iter().flat_map(to).collect()
    })
}

fn segments(references: &[Reference]) -> impl Iterator<Item = Segment<'_>> {
    references.chunks(100).enumerate().map(|(nth, references)| Segment {
        asid: (nth % 3) as u16,
        thread: 0,
        references,
    })
}

fn naive(spec: &HierarchySpec, references: &[Reference], mut memory: Memory) -> Naive {
    let mut naive = Naive::new(spec);
    for segment in segments(references) {
        for reference in segment.references {
            for line in reference.address() / 64..=reference.last_byte() / 64 {
                let frame = memory.frame(segment.asid, line / 64);
                naive.access(reference.kind() as usize, frame * 64 + line % 64);
            }
        }
    }
    naive
}

fn assert_like_naive(spec: &HierarchySpec, references: &[Reference], lockstep: bool) {
    let new = Simulation::new(spec, vec![memory(1), memory(2)]).unwrap();
    let mut fast = if lockstep { new.in_lockstep() } else { new };
    for segment in segments(references) {
        fast.feed(&segment);
        if lockstep {
            assert_eq!(fast.check(), Ok(()));
        }
    }
    for (outcome, seed) in fast.finish().into_iter().zip([1, 2]) {
        let naive = naive(spec, references, memory(seed));
        assert_eq!(outcome.levels, naive.counts);
        assert_eq!(outcome.memory, naive.memory);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn lockstep_counts_what_the_naive_caches_count(
        references in references(), second in inclusion(), third in inclusion(), top in top(), allocates: bool,
    ) {
        assert_like_naive(&small([second, third], top, allocates), &references, true);
    }

    #[test]
    fn a_common_first_level_changes_nothing(
        references in references(), exclusive: bool, top in top(), allocates: bool, wide: bool,
    ) {
        let third = if exclusive { Inclusion::Exclusive } else { Inclusion::Nine };
        let mut spec = small([Inclusion::Nine, third], top, allocates);
        if wide && top != Top::Stacked {
            spec.levels[0] = LevelSpec { serves: spec.levels[0].serves, ..level("L1", 2 << 10, 8) };
        }
        prop_assert_eq!(has_common_front(&spec), top != Top::Stacked);
        on_every_level(|| assert_like_naive(&spec, &references, false));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every number of ways that has its own code, and one that does not, on every processor.
    #[test]
    fn levels_one_after_the_other_count_what_the_naive_caches_count(
        references in references(),
        ways in [
            prop::sample::select(vec![1_u64, 2, 4, 8, 12, 16]),
            prop::sample::select(vec![2_u64, 4, 8, 16]),
            prop::sample::select(vec![3_u64, 4, 8, 12, 16, 20]),
            prop::sample::select(vec![1_u64, 4, 8, 12, 16, 20]),
        ],
        sets in [0_u32..3, 0_u32..2, 0_u32..4, 0_u32..5],
        top in top(),
        levels in 2_usize..4,
    ) {
        let sized = |nth: usize| level(["L1", "L1i", "L2", "L3"][nth], ways[nth] << (6 + sets[nth]), ways[nth]);
        let mut all = top.levels(sized(0), sized(1));
        all.extend((2..=levels).map(sized));
        let spec = hierarchy(all);
        prop_assert_eq!(has_common_front(&spec), top != Top::Stacked);
        on_every_level(|| assert_like_naive(&spec, &references, false));
    }
}

fn in_turns(spec: &HierarchySpec, references: &[Reference]) -> Vec<super::Outcome> {
    let mut simulation = Simulation::new(spec, vec![memory(1), memory(2), memory(3)]).unwrap();
    for references in references.chunks(250) {
        let spans: Vec<Span> = segments(references)
            .map(|segment| Span { asid: segment.asid, thread: 0, length: segment.references.len() })
            .collect();
        run_all(2, simulation.turn(Some(&References::new(&spans, references))));
    }
    while let tasks = simulation.turn(None)
        && !tasks.is_empty()
    {
        run_all(2, tasks);
    }
    simulation.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn threads_change_nothing(references in references(), common: bool, random: bool) {
        let second = if common { Inclusion::Nine } else { Inclusion::Inclusive };
        let mut spec = small([second, Inclusion::Nine], Top::Unified, true);
        if random {
            spec.levels[2].replacement = super::Replacement::Random;
        }
        let mut alone = Simulation::new(&spec, vec![memory(1), memory(2), memory(3)]).unwrap();
        prop_assert_eq!(alone.has_common_front(), common);
        for references in references.chunks(250) {
            segments(references).for_each(|segment| alone.feed(&segment));
        }
        prop_assert_eq!(in_turns(&spec, &references), alone.finish());
    }
}

#[test]
fn a_common_first_level_needs_small_sets_and_no_one_who_takes_its_lines() {
    assert!(has_common_front(&hierarchy(vec![level("L1", 32 << 10, 8), level("L2", 1 << 20, 16)])));
    assert!(!has_common_front(&hierarchy(vec![level("L1", 64 << 10, 8), level("L2", 1 << 20, 16)])));
    let inclusive = LevelSpec { inclusion: Inclusion::Inclusive, ..level("L2", 1 << 20, 16) };
    assert!(!has_common_front(&hierarchy(vec![level("L1", 32 << 10, 8), inclusive])));
}

#[test]
fn fetches_of_a_processor_without_a_level_for_them_are_kept_in_the_second() {
    let data = LevelSpec { serves: Serves::Data, ..level("L1d", 8 << 10, 4) };
    let spec = hierarchy(vec![data, level("L2", 1 << 20, 8), level("L3", 4 << 20, 8)]);
    let fetches: Vec<Reference> = (0..400).map(|nth| Reference::new(nth % 4 * 64, Kind::Fetch, 4)).collect();
    let mut simulation = Simulation::new(&spec, vec![memory(1)]).unwrap();
    simulation.feed(&Segment { asid: 0, thread: 0, references: &fetches });
    let outcome = &simulation.finish()[0];
    assert_eq!(outcome.levels.iter().map(|level| level.totals()).collect::<Vec<_>>(), [(0, 0), (400, 4), (4, 4)]);
    assert_eq!(outcome.memory.reads, [0, 0, 4, 0]);
}

#[test]
fn a_line_is_of_its_own_address_space_whatever_its_size() {
    for line_bytes in [8, 16, 32, 64, 128] {
        let levels = vec![level("L1", line_bytes * 8, 4), level("L2", line_bytes * 64, 4)];
        let spec = HierarchySpec { line_bytes, ..hierarchy(levels) };
        let mut simulation = Simulation::new(&spec, vec![memory(1)]).unwrap();
        for asid in [0, 1, 512, 1024, 2048, pagelab_trace::MAX_ASID] {
            simulation.feed(&Segment { asid, thread: 0, references: &[Reference::new(0, Kind::Load, 4)] });
        }
        let outcome = &simulation.finish()[0];
        assert_eq!((outcome.placed.pages, outcome.memory.reads[0]), (6, 6), "lines of {line_bytes} bytes");
    }
}

#[test]
fn an_array_that_fits_misses_once_and_one_that_does_not_always() {
    let spec = hierarchy(vec![level("L1", 32 << 10, 8), level("L2", 256 << 10, 8)]);
    for (bytes, first, second) in
        [(16_u64 << 10, 256, 256), (64 << 10, 3 * 1024, 1024), (1 << 20, 3 * 16_384, 3 * 16_384)]
    {
        let sweep: Vec<Reference> = (0..bytes / 64).map(|line| Reference::new(line * 64, Kind::Load, 8)).collect();
        // A machine that has just started hands out frames in order: the array is contiguous.
        let history = History { turnover: 0.0, memory_bytes: 16 << 20, ..History::default() };
        let memory = Memory::new(&history, Strategy::KERNEL, Layout::default(), 0);
        let mut simulation = Simulation::new(&spec, vec![memory]).unwrap();
        for _ in 0..3 {
            simulation.feed(&Segment { asid: 0, thread: 0, references: &sweep });
        }
        let outcome = &simulation.finish()[0];
        assert_eq!(outcome.levels.iter().map(|level| level.totals().1).collect::<Vec<_>>(), [first, second]);
    }
}

#[test]
fn cores_that_write_the_same_line_take_it_from_each_other() {
    let mut spec = hierarchy(vec![level("L1", 4 << 10, 4), LevelSpec { shared: true, ..level("L2", 64 << 10, 8) }]);
    spec.cores = 2;
    let store = [Reference::new(64, Kind::Store, 8)];
    let load = [Reference::new(64, Kind::Load, 8)];
    let mut simulation = Simulation::new(&spec, vec![memory(1)]).unwrap();
    let mut go = |thread, references: &[Reference]| {
        simulation.feed(&Segment { asid: 0, thread, references });
        assert_eq!(simulation.check(), Ok(()));
    };
    (0..5).for_each(|_| [0, 1].into_iter().for_each(|thread| go(thread, &store)));
    // Ten stores, each takes the line from the other core, so all miss; memory answers the first.
    (0..4).for_each(|_| [0, 1].into_iter().for_each(|thread| go(thread, &load)));
    let outcome = &simulation.finish()[0];
    assert_eq!((outcome.levels[0].misses, outcome.levels[0].invalidations), ([1, 10, 0, 0], 9));
    assert_eq!((outcome.levels[1].totals(), outcome.memory.reads), ((11, 1), [0, 1, 0, 0]));
    assert_eq!(outcome.levels[1].writebacks_in, 10);
}
