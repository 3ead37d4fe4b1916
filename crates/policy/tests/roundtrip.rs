//! Writing a policy and reading it gives the same policy; and no input makes the readers panic.

mod common;

use common::parse_any;
use pagelab_policy::error::Place;
use pagelab_policy::flags::{Flags, apply};
use pagelab_policy::machine::CacheGeometry;
use pagelab_policy::mosalloc::read_layout;
use pagelab_policy::plan::{self, Plan, RunSpec};
use pagelab_policy::raw::{At, RawAxes, RawFrames, RawMosaic, RawPages, RawPolicy, RawRule, RawScope, RawTile};
use pagelab_policy::read::no_files;
use pagelab_policy::types::{Backend, Backing, Memory, Pages, Policy, Rule, Scope};
use pagelab_policy::validate::validate;
use pagelab_policy::write::to_toml;
use pagelab_policy::{Machine, compile};
use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

fn at<T>(value: T) -> At<T> {
    At::new(value, &Place::whole("generated"))
}

/// A machine that offers everything and has a cache of 64 colours.
fn machine() -> Machine {
    let cache = CacheGeometry { line_bytes: 64, sets: 4096, ways: 16 };
    Machine { cache: Some(cache), ..Machine::generic_x86_64() }
}

fn word() -> impl Strategy<Value = String> {
    select(vec!["kernel", "4K", "16K", "64K", "1M", "2M", "1G"]).prop_map(str::to_owned)
}

/// Intervals one after another, each a gap and a few pages, so that most are aligned and disjoint.
fn mosaic() -> impl Strategy<Value = RawMosaic> {
    let size = select(vec![4_u64 << 10, 64 << 10, 2 << 20, 1 << 30]);
    (vec((0_u64..3, 1_u64..5, size), 1..8), weighted(0.7, word())).prop_map(|(pieces, otherwise)| {
        let mut end = 0;
        let mut tiles = Vec::new();
        for (gap, count, size) in pieces {
            let start = (end + gap * 4096_u64).next_multiple_of(size);
            end = start + count * size;
            let tile = RawTile { start: start.to_string(), end: format!("{end:#x}"), size: size.to_string() };
            tiles.push(at(tile));
        }
        tiles.rotate_left(1);
        RawMosaic { tiles, otherwise: otherwise.map(at) }
    })
}

fn raw_pages() -> impl Strategy<Value = At<RawPages>> {
    prop_oneof![word().prop_map(RawPages::Word), mosaic().prop_map(RawPages::Mosaic)].prop_map(at)
}

/// A parameter as written.
type Parameter = (At<String>, Vec<At<String>>);

fn one(name: &str, value: impl ToString) -> Parameter {
    (at(name.to_owned()), vec![at(value.to_string())])
}

fn many<T: ToString>(name: &str, values: &[T]) -> Parameter {
    (at(name.to_owned()), values.iter().map(|value| at(value.to_string())).collect())
}

/// Definitions of colours; never fewer than ten.
fn raw_colours() -> impl Strategy<Value = Option<Parameter>> {
    prop_oneof![
        Just(None),
        (10_u32..100).prop_map(|count| Some(one("colors", count))),
        (4_u32..20).prop_map(|ways| Some(one("cache", format!("{}K,{ways}", ways * 64)))),
        (4_usize..12).prop_map(|bits| {
            Some(many("masks", &(0..bits).map(|bit| format!("{:#x}", 0x10_0001_u64 << bit)).collect::<Vec<_>>()))
        }),
    ]
}

/// Addresses and values: spans one after another.
fn spans() -> impl Strategy<Value = Parameter> {
    let word = prop_oneof![
        (0_u64..9).prop_map(|value| value.to_string()),
        (0_u64..5, 5_u64..9).prop_map(|(first, last)| format!("{first}-{last}")),
        (1_u64..9).prop_map(|count| format!(".*{count}")),
        Just(".".to_owned()),
    ];
    vec(vec(word, 1..5), 1..5).prop_map(|spans| {
        let starts = (1_u64..).map(|number| format!("{:#x}", number << 20));
        let texts: Vec<String> = starts.zip(spans).flat_map(|(start, words)| [start, words.join(" ")]).collect();
        many("spans", &texts)
    })
}

fn raw_strategy() -> impl Strategy<Value = (&'static str, Vec<Parameter>)> {
    let numbers = || vec(0_u64..9, 1..5);
    prop_oneof![
        of(Just("pid"))
            .prop_map(|hash| ("page-coloring", hash.map(|hash| one("hash", hash)).into_iter().collect())),
        (0_u32..10).prop_map(|first| ("bin-hopping", vec![one("first", first)])),
        any::<u32>().prop_map(|seed| ("bin-hopping", vec![one("seed", seed)])),
        any::<u32>().prop_map(|seed| ("random", vec![one("seed", seed)])),
        numbers().prop_map(|pattern| ("modulo", vec![many("pattern", &pattern)])),
        spans().prop_map(|spans| ("modulo", vec![spans])),
        numbers().prop_map(|frames| ("exact", vec![many("frames", &frames)])),
        spans().prop_map(|spans| ("exact", vec![spans])),
        ("[ -~äµ→]{1,12}", of("[ -~äµ→]{1,12}"), of(0_u32..9)).prop_map(|(path, argument, seed)| {
            let optional = [argument.map(|text| one("argument", text)), seed.map(|seed| one("seed", seed))];
            ("module", [one("path", path)].into_iter().chain(optional.into_iter().flatten()).collect())
        }),
    ]
}

fn raw_frames() -> impl Strategy<Value = At<RawFrames>> {
    let common = (raw_colours(), of(1_u32..=512), of(2_u64 << 20..1 << 40), of(any::<bool>()));
    let governed = (raw_strategy(), common).prop_map(|((kind, own), (colours, around, budget, pin))| {
        let around = around.map(|pages| one("fault-around", pages));
        let budget = budget.map(|bytes| one("budget", bytes));
        let pin = pin.map(|pin| one("pin", pin));
        let parameters = own.into_iter().chain([colours, around, budget, pin].into_iter().flatten()).collect();
        RawFrames { kind: at(kind.to_owned()), parameters, map: None }
    });
    let kernel = Just(RawFrames { kind: at("kernel".to_owned()), parameters: Vec::new(), map: None });
    prop_oneof![9 => governed, 1 => kernel].prop_map(at)
}

fn axes() -> impl Strategy<Value = RawAxes> {
    let via = select(vec!["thp", "hugetlb"]).prop_map(|word| at(word.to_owned()));
    let fetch = select(vec!["kernel", "demand", "prefault"]).prop_map(|word| at(word.to_owned()));
    (of(raw_frames()), weighted(0.8, raw_pages()), weighted(0.1, via), of(fetch)).prop_map(
        |(frames, pages, via, fetch)| RawAxes { via: via.filter(|_| pages.is_some()), frames, pages, fetch },
    )
}

fn rule() -> impl Strategy<Value = RawRule> {
    let kinds = subsequence(vec!["heap", "anon", "arenas"], 1..=3)
        .prop_map(|kinds| RawScope::Memory(kinds.into_iter().map(|kind| at(kind.to_owned())).collect()));
    let all = Just(RawScope::Memory(vec![at("all".to_owned())]));
    let range = (1_u64..1000, 1_u64..100).prop_map(|(start, length)| {
        RawScope::Range(at(format!("{:#x}", start << 30)), at(format!("{:#x}", (start + length) << 30)))
    });
    let at_least = weighted(0.1, (1_u64..1 << 30).prop_map(|bytes| at(bytes.to_string())));
    let place = prop_oneof![Just(Place::whole("a flag")), Just(Place::line(&"generated".into(), 1))];
    (prop_oneof![8 => kinds, 1 => all, 1 => range], at_least, axes(), place)
        .prop_map(|(scope, at_least, axes, place)| RawRule { place, scope, at_least, axes })
}

fn policy() -> impl Strategy<Value = RawPolicy> {
    let backend = select(vec!["library", "kernel", "auto"]).prop_map(|word| at(word.to_owned()));
    (of("[ -~äµ→]{1,30}"), axes(), of(backend), of(any::<bool>()), of(any::<bool>()), vec(rule(), 0..4)).prop_map(
        |(name, axes, backend, inherit_fork, inherit_exec, rules)| RawPolicy {
            place: Place::whole("generated"),
            name: name.map(at),
            axes,
            backend,
            inherit_fork,
            inherit_exec,
            rules,
        },
    )
}

/// Page size, fetch and strategy at `offset` of a mapping of `length` bytes, straight from the rules.
fn naive(policy: &Policy, memory: Memory, length: u64, offset: u64) -> (u64, plan::Fetch, Option<&'static str>) {
    let matches = |rule: &&Rule| {
        let named = match rule.scope {
            Scope::All => true,
            Scope::Memory(set) => set.contains(memory),
            Scope::Range { .. } => false,
        };
        named && rule.at_least.is_none_or(|least| memory != Memory::Heap && least.0 <= length)
    };
    let mut pages = &policy.pages;
    let mut fetch = policy.fetch;
    let mut frames = &policy.frames;
    for rule in policy.rules.iter().filter(matches).rev() {
        pages = rule.pages.as_ref().unwrap_or(pages);
        fetch = rule.fetch.unwrap_or(fetch);
        frames = rule.frames.as_ref().unwrap_or(frames);
    }
    let bytes = match pages {
        Pages::Kernel => plan::KERNEL,
        Pages::Size(size) => size.bytes(),
        Pages::Mosaic(mosaic) => {
            match mosaic.tiles.iter().find(|tile| (tile.start.0..tile.end.0).contains(&offset)) {
                Some(tile) => tile.size.bytes(),
                None => match mosaic.otherwise {
                    Backing::Kernel => plan::KERNEL,
                    Backing::Size(size) => size.bytes(),
                },
            }
        }
    };
    let fetches = [plan::Fetch::Kernel, plan::Fetch::Demand, plan::Fetch::Prefault, plan::Fetch::WillNeed];
    // Under the other backend the plan, which is the library's, has none.
    let placed = !frames.is_kernel() && policy.backend != Backend::Kernel;
    let strategy = placed.then(|| frames.strategy.name());
    (bytes, fetches[fetch as usize], strategy)
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn written_and_read_again_a_policy_is_the_same(raw in policy()) {
        let validated = validate(&raw, &Machine::generic_x86_64());
        prop_assume!(validated.is_ok());
        let policy = validated.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let text = to_toml(&policy);
        match parse_any(&text) {
            Ok(again) => {
                prop_assert_eq!(&again, &policy, "{}", text);
                prop_assert_eq!(to_toml(&again), text);
            }
            Err(error) => prop_assert!(false, "{error}\n{text}"),
        }
    }

    #[test]
    fn what_validates_compiles_to_a_plan_that_reads_back(raw in policy()) {
        let validated = validate(&raw, &machine());
        prop_assume!(validated.is_ok());
        let policy = validated.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let plan = match compile::compile(&policy, &machine()) {
            Err(error) if error.message.contains("counts from the start of one pool") => return Ok(()),
            plan => plan.map_err(|error| TestCaseError::fail(error.to_string()))?,
        };
        let bytes = plan.encode(&RunSpec::default()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let read = Plan::parse(&bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(read.strategy_count() as usize, plan.strategies.len());
        for (number, wanted) in (0..).zip(&plan.strategies) {
            let strategy = read.strategy(number);
            prop_assert!(strategy.is_some_and(|found| wanted.matches(&read, &found)), "{wanted:?} is {strategy:?}");
        }
        for (number, wanted) in (0..).zip(&plan.sections) {
            prop_assert!(read.section(number).is_some_and(|found| wanted.matches(&found)), "{wanted:?}");
        }
        prop_assert!(!policy.is_kernel() || plan.sections.is_empty());
    }

    #[test]
    fn the_plan_answers_as_the_rules_do(
        raw in policy(),
        memory in select(vec![Memory::Heap, Memory::Anon, Memory::Arenas]),
        least in 0_u64..1 << 31,
        offset in 0_u64..1 << 33,
    ) {
        let validated = validate(&raw, &machine());
        prop_assume!(validated.is_ok());
        let policy = validated.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let plan = compile::compile(&policy, &machine());
        prop_assume!(plan.is_ok());
        let bytes = plan.map(|plan| plan.encode(&RunSpec::default()).expect("a plan that encodes"));
        let bytes = bytes.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let plan = Plan::parse(&bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let kind = plan::Memory::from_code(memory as u64).expect("the same kinds in the same order");
        let nothing = (plan::KERNEL, plan::Fetch::Kernel, None);
        let found = plan.section_for(kind, least).map_or(nothing, |section| {
            let strategy = section.strategy().and_then(|number| plan.strategy(number));
            (plan.piece(&section, offset).page_bytes, section.fetch, strategy.map(|strategy| strategy.kind.name()))
        });
        prop_assert_eq!(found, naive(&policy, memory, least, offset));
    }

    #[test]
    fn no_text_makes_the_toml_reader_panic(text in "\\PC*") {
        let _ = parse_any(&text);
    }

    #[test]
    fn no_policy_like_text_makes_it_panic(
        key in select(vec!["name", "frames", "pages", "fetch", "via", "backend", "inherit", "rule"]),
        inner in select(vec!["kind", "modulo", "exact", "spans", "map", "mosaic", "otherwise", "csv", "memory", "range", "at_least", "fork"]),
        value in "(-?[0-9]{1,25}|\"[0-9KMG.x-]{0,8}\"|\\[.{0,12}\\]|true|0x[0-9a-f]{1,20})",
    ) {
        let _ = parse_any(&format!("{key} = {value}"));
        let _ = parse_any(&format!("{key} = {{ {inner} = {value} }}"));
        let _ = parse_any(&format!("[[rule]]\n{inner} = {value}\n{key} = {value}"));
    }

    #[test]
    fn no_text_makes_the_reader_of_saved_maps_panic(
        start in "(-?[0-9]{1,20}|\"0x[0-9a-f]{1,17}\")",
        pages in "-?[0-9]{1,20}",
        values in "\\[((null|-?[0-9]{1,20}),){0,3}[0-9]\\]",
        masks in "\\[(\"0x[0-9a-f]{1,16}\",){0,3}[0-9]\\]",
    ) {
        let span = format!("{{\"start\": {start}, \"pages\": {pages}, \"frames\": {values}, \"colours\": {values}}}");
        let head = "\"schema\": \"pagelab.framemap/1\", \"colours\": 16";
        let _ = pagelab_policy::framemap::read(&format!("{{{head}, \"masks\": {masks}, \"spans\": [{span}]}}"), "m");
        let _ = pagelab_policy::framemap::read(&format!("{{{head}, \"spans\": [{span}]}}"), "m");
    }

    #[test]
    fn no_bytes_make_the_layout_reader_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = read_layout(&String::from_utf8_lossy(&bytes), "l.csv");
    }

    #[test]
    fn no_layout_like_text_makes_it_panic(
        header in select(vec![
            "type,pageSize,startOffset,endOffset",
            "pool_type,pool_size,ragions_list_2mb,offset_2mb,ragions_list_1gb,offset_1gb",
        ]),
        rows in vec("(brk|mmap|file)(,(-?[0-9]{1,22}|[0-9]GB|\\[[0-9,-]{0,9}\\])){3,5}", 0..5),
    ) {
        let _ = read_layout(&format!("{header}\n{}", rows.join("\n")), "l.csv");
    }

    #[test]
    fn no_flag_makes_the_flag_reader_panic(values in vec("[a-z0-9=:,+.KMGx-]{0,24}", 0..3)) {
        for flags in [
            Flags { pages: values.clone(), ..Flags::default() },
            Flags { fetch: values.clone(), ..Flags::default() },
            Flags { frames: values.clone(), ..Flags::default() },
        ] {
            let _ = apply(None, &flags, &no_files).and_then(|raw| validate(&raw, &Machine::generic_x86_64()));
        }
    }
}
