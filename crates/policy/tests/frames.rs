//! The axis `frames`: what is read, and the strategies it compiles to.

mod common;

use common::policy;
use pagelab_contract::warning::WarningKind;
use pagelab_policy::compile::{compile, warnings};
use pagelab_policy::frames::{ByNumbers, ByPage, Colours, FirstBin, Frames, Span, Strategy};
use pagelab_policy::machine::CacheGeometry;
use pagelab_policy::plan::{
    self, ANYWHERE, FIRST_FROM_SEED, Memory as Kind, Plan, PlanSpec, RunSpec, StrategyKind,
};
use pagelab_policy::units::{Address, Bytes, Colour, FrameNumber};
use pagelab_policy::write::to_toml;
use pagelab_policy::{Machine, Policy, PolicyError, parse};

/// 16 ways of 64 pages.
fn machine() -> Machine {
    let cache = CacheGeometry { line_bytes: 64, sets: 4096, ways: 16 };
    Machine { cache: Some(cache), ..Machine::generic_x86_64() }
}

fn compiled(policy: &Policy) -> Result<PlanSpec, PolicyError> {
    let spec = compile(policy, &machine())?;
    let bytes = spec.encode(&RunSpec::default()).unwrap_or_else(|error| panic!("{error}"));
    let plan = Plan::parse(&bytes).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(plan.governs_frames(), spec.sections.iter().any(|section| section.frames != 0));
    Ok(spec)
}

fn by(numbers: ByNumbers) -> Strategy {
    Strategy::ByNumbers(numbers)
}

fn plan_of(text: &str) -> PlanSpec {
    compiled(&policy(text)).unwrap_or_else(|error| panic!("{error}"))
}

/// Kinds of memory and their strategies, each section once.
fn strategies(spec: &PlanSpec) -> Vec<(Kind, u16)> {
    spec.sections.iter().map(|section| (section.memory, section.frames)).collect()
}

#[test]
fn words_tables_and_parameters() {
    let frames = |text: &str| policy(&format!("frames = {text}")).frames;
    let of = |strategy| Frames { strategy, ..Frames::default() };
    assert_eq!(frames("\"page-coloring\""), of(by(ByNumbers::of(StrategyKind::PageColoring))));
    let hopping = Frames {
        colours: Colours::Count(64),
        pin: true,
        fault_around: Some(16),
        ..of(by(ByNumbers { first: FirstBin::Colour(3), ..ByNumbers::of(StrategyKind::BinHopping) }))
    };
    let parameters = "colors = 64, first = 3, pin = true, fault-around = 16";
    assert_eq!(frames(&format!("{{ kind = \"bin-hopping\", {parameters} }}")), hopping);
    assert_eq!(frames(&format!("{{ bin-hopping = {{ {parameters} }} }}")), hopping);
    let seeded = of(by(ByNumbers { first: FirstBin::Seed(9), ..ByNumbers::of(StrategyKind::BinHopping) }));
    assert_eq!(frames("{ bin-hopping = { seed = 9 } }"), seeded);
    let pattern = ByPage::List(vec![Colour(0), Colour(3)]);
    let modulo = Frames { colours: Colours::Count(4), ..of(Strategy::Modulo { colours: pattern }) };
    assert_eq!(frames("{ kind = \"modulo\", colors = 4, pattern = [0, 3] }"), modulo);
    let hashed = Frames {
        colours: Colours::Cache { bytes: Bytes(1 << 20), ways: 16 },
        budget: Some(Bytes(256 << 20)),
        ..of(by(ByNumbers { hash_pid: true, ..ByNumbers::of(StrategyKind::PageColoring) }))
    };
    assert_eq!(frames("{ page-coloring = { cache = \"1M,16\", hash = \"pid\", budget = \"256M\" } }"), hashed);
    let masked = Frames {
        colours: Colours::Masks(vec![0x41, 2]),
        ..of(by(ByNumbers { seed: 42, ..ByNumbers::of(StrategyKind::Random) }))
    };
    assert_eq!(frames("{ random = { seed = 42, masks = [\"0x41\", 2] } }"), masked);
    let (path, argument) = ("/opt/x.so".to_owned(), "a=1".to_owned());
    assert_eq!(
        frames("{ module = { path = \"/opt/x.so\", argument = \"a=1\" } }"),
        of(Strategy::Module { path, argument, seed: 0 })
    );
    let (path, argument) = ("/opt/x.so".to_owned(), String::new());
    assert_eq!(frames("{ module = \"/opt/x.so\" }"), of(Strategy::Module { path, argument, seed: 0 }));
    assert_eq!(frames("\"kernel\""), Frames::default());
    assert_eq!(frames("{ kernel = {} }"), Frames::default());
}

#[test]
fn policies_without_a_name_are_named_by_what_they_ask() {
    let name = |text: &str| policy(&format!("frames = {text}")).name;
    assert_eq!(name("\"page-coloring\""), "frames=page-coloring");
    let pinned = "{ page-coloring = { colors = 64, hash = \"pid\", pin = true, budget = \"64M\" } }";
    assert_eq!(name(pinned), "frames=page-coloring:colors=64,hash=pid,budget=64M,pin=true");
    assert_eq!(name("{ bin-hopping = { first = 3, cache = \"1M,8\" } }"), "frames=bin-hopping:cache=1M,8,first=3");
    assert_eq!(name("{ random = { masks = [1, 2], seed = 7 } }"), "frames=random:masks=0x1+0x2,seed=7");
    let long = "{ modulo = { colors = 4, pattern = [0, 1, 2, 3, 0, 1, 2, 3, 0] } }";
    assert_eq!(name(long), "frames=modulo:colors=4,pattern=0+1+2+3+0+1+2+3+…");
    assert_eq!(name("{ module = { path = \"/opt/x.so\", argument = \"8-15\" } }"), "frames=module:x.so,8-15");
    let rule = policy("[[rule]]\nmemory = \"heap\"\nframes = { exact = { frames = [1, 2] } }");
    assert_eq!(rule.name, "frames:heap=exact:2 frames");
}

#[test]
fn a_number_of_colours_with_masks_may_be_repeated() {
    let masked = policy("frames = { random = { masks = [1, 2], colors = 4 } }").frames;
    assert_eq!(masked.colours, Colours::Masks(vec![1, 2]));
}

#[test]
fn the_default_is_for_all_memory_whose_frames_can_be_chosen() {
    let plan = plan_of("frames = \"page-coloring\"");
    let kinds = [Kind::Heap, Kind::Anon, Kind::Arenas, Kind::Data, Kind::Stack];
    assert_eq!(strategies(&plan), kinds.map(|kind| (kind, 1)));
    let [strategy] = &plan.strategies[..] else { panic!("{plan:?}") };
    assert_eq!(
        (strategy.kind, strategy.colours),
        (StrategyKind::PageColoring, 64),
        "colours of the machine's cache"
    );
    let bases: Vec<_> = plan.sections.iter().map(|section| section.pool_base).collect();
    assert_eq!(bases, [plan::HEAP_BASE, plan::ANON_BASE, plan::ANON_BASE, 0, 0]);
    assert!(plan.sections.iter().all(|section| section.otherwise == plan::KERNEL));
    assert_eq!(warnings(&plan), []);
}

#[test]
fn kernel_frames_need_no_strategy() {
    let plan = plan_of("pages = \"2M\"\nframes = \"kernel\"");
    assert!(plan.strategies.is_empty() && plan.sections.iter().all(|section| section.frames == 0));
    assert!(policy("frames = \"kernel\"").is_kernel());
    assert!(!policy("frames = \"random\"").is_kernel());
}

#[test]
fn rules_have_strategies_and_pools_of_their_own() {
    let plan = plan_of(
        "frames = { random = { colors = 12, seed = 5 } }\n\
         [[rule]]\nmemory = \"anon\"\nat_least = \"1M\"\nframes = { bin-hopping = { colors = 8, seed = 1 } }\n\
         [[rule]]\nmemory = [\"stack\", \"arenas\"]\nframes = \"kernel\"\n\
         [[rule]]\nmemory = \"heap\"\nframes = { page-coloring = { colors = 2 } }\n\
         [[rule]]\nrange = [\"0x10000000\", \"0x10400000\"]\nframes = { modulo = { colors = 8, pattern = [7] } }\n",
    );
    let kinds: Vec<_> = plan.strategies.iter().map(|strategy| (strategy.kind, strategy.colours)).collect();
    assert_eq!(
        kinds,
        [
            (StrategyKind::BinHopping, 8),
            (StrategyKind::PageColoring, 2),
            (StrategyKind::Modulo, 8),
            (StrategyKind::Random, 12)
        ]
    );
    assert_eq!((plan.strategies[0].first, plan.strategies[0].seed), (FIRST_FROM_SEED, 1));
    let anon: Vec<_> = plan.sections.iter().filter(|s| s.memory == Kind::Anon).collect();
    let seen: Vec<_> = anon.iter().map(|s| (s.at_least, s.frames, s.pool_base)).collect();
    assert_eq!(seen, [(1 << 20, 1, plan::ANON_BASE), (0, 4, plan::ANON_BASE + plan::POOL_BYTES)]);
    let of = |kind| strategies(&plan).into_iter().find(|(memory, _)| *memory == kind).map(|(_, frames)| frames);
    assert_eq!((of(Kind::Heap), of(Kind::Data), of(Kind::Range)), (Some(2), Some(4), Some(3)));
    assert_eq!((of(Kind::Stack), of(Kind::Arenas)), (None, None), "left to the kernel on every axis");
}

#[test]
fn one_pool_has_one_strategy_and_one_layout() {
    let plan = plan_of(
        "pages = \"4K\"\nframes = { random = { colors = 4 } }\n\
         [[rule]]\nmemory = \"anon\"\nat_least = \"1M\"\nframes = \"bin-hopping\"\n\
         [[rule]]\nmemory = \"arenas\"\npages = \"2M\"\n",
    );
    let mut pools: Vec<_> =
        plan.sections.iter().filter(|s| s.pool_base != 0).map(|s| (s.pool_base, s.frames, s.otherwise)).collect();
    let all = pools.len();
    pools.sort_unstable();
    pools.dedup_by_key(|(base, _, _)| *base);
    assert_eq!(pools.len(), all, "heap, two of anon, and arenas: {plan:?}");
}

#[test]
fn tiles_keep_their_size_and_that_is_said() {
    let found = warnings(&plan_of("pages = \"2M\"\nframes = \"page-coloring\""));
    let [warning] = &found[..] else { panic!("{found:?}") };
    assert_eq!(warning.kind, WarningKind::FramesOutOfReach);
    assert!(warning.message.contains("heap, anon, arenas, data, stack"), "{}", warning.message);
    assert_eq!(warnings(&plan_of("pages = \"4K\"\nframes = \"page-coloring\"")), []);
}

#[test]
fn a_list_of_frames_counts_from_its_pool_or_range() {
    let plan = plan_of("[[rule]]\nmemory = \"heap\"\nframes = { exact = { frames = [0x1234, \"7\"] } }");
    let [exact] = &plan.strategies[..] else { panic!("{plan:?}") };
    assert_eq!(exact.values, [0x1234, 7]);
    assert_eq!(exact.spans, [plan::Span { start: plan::HEAP_BASE, pages: 2, first_value: 0 }]);
    let range = "[[rule]]\nrange = [\"0x10000000\", \"0x10400000\"]\nframes = { exact = { frames = [9] } }";
    assert_eq!(plan_of(range).strategies[0].spans[0].start, 0x1000_0000);
    let both = "[[rule]]\nmemory = [\"anon\", \"arenas\"]\nframes = { exact = { frames = [9] } }";
    assert_eq!(plan_of(both).strategies[0].spans[0].start, plan::ANON_BASE);
    let split = format!("[[rule]]\nmemory = \"arenas\"\npages = \"2M\"\n{both}");
    let error = compiled(&policy(&split)).expect_err("two pools");
    assert!(error.message.contains("this one is for 2"), "{error}");
}

const MAP: &str = r#"{"schema": "pagelab.framemap/1", "pid": 4711, "colours": 4, "masks": [], "written_by": "a test",
  "spans": [{"start": "0x600000000000", "pages": 3, "frames": [813, 814, null], "colours": [1, 2, null]},
            {"start": "0x7ffff0000000", "pages": 1, "frames": [7], "colours": [3]}]}"#;

fn replay(text: &str) -> Policy {
    let load = |path: &str| if path == "m.json" { Ok(MAP.to_owned()) } else { Err(format!("{path}?")) };
    parse(text, "p.toml", &Machine::generic_x86_64(), &load).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn saved_maps_are_replayed_by_colour_and_by_frame() {
    let modulo = replay("frames = { modulo = \"m.json\" }");
    let spans = vec![
        Span { start: Address(0x6000_0000_0000), values: vec![Some(Colour(1)), Some(Colour(2)), None] },
        Span { start: Address(0x7fff_f000_0000), values: vec![Some(Colour(3))] },
    ];
    assert_eq!(modulo.frames.strategy, Strategy::Modulo { colours: ByPage::Spans(spans) });
    assert_eq!(modulo.frames.colours, Colours::Count(4));
    let spec = compiled(&modulo).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(spec.strategies[0].values, [1, 2, ANYWHERE, 3]);
    assert_eq!(spec.strategies[0].spans[1], plan::Span { start: 0x7fff_f000_0000, pages: 1, first_value: 3 });

    let exact = replay("frames = { exact = { map = \"m.json\", budget = \"1G\" } }");
    let Strategy::Exact { frames: ByPage::Spans(spans) } = &exact.frames.strategy else { panic!("{exact:?}") };
    assert_eq!(spans[0].values, [Some(FrameNumber(813)), Some(FrameNumber(814)), None]);
    let spec = compiled(&exact).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(spec.strategies[0].values, [813, 814, ANYWHERE, 7]);
}

/// The canonical form contains the contents of files, so that a record is enough to run a policy again.
#[test]
fn a_replayed_map_is_written_out() {
    let policy = replay("name = \"replay\"\nframes = { modulo = \"m.json\" }");
    let text = to_toml(&policy);
    assert!(text.contains("[\"0x600000000000\", \"1-2 .\"],\n    [\"0x7ffff0000000\", \"3\"],"), "{text}");
    assert_eq!(common::policy(&text), policy);
}

#[test]
fn colours_that_nobody_says() {
    let unknown = |text: &str| compile(&policy(text), &Machine::generic_x86_64());
    let error = unknown("frames = \"bin-hopping\"").expect_err("no cache in the description");
    assert!(error.message.contains("no last-level cache"), "{error}");
    assert_eq!(error.allowed.first().map(String::as_str), Some("colors = N"));
    assert!(unknown("frames = { bin-hopping = { colors = 3 } }").is_ok());
    let exact = "[[rule]]\nmemory = \"heap\"\nframes = { exact = { frames = [1] } }";
    assert_eq!(unknown(exact).map(|plan| plan.strategies[0].colours), Ok(1));
    let late = policy("frames = { modulo = { pattern = [64] } }");
    let error = compiled(&late).expect_err("validated for a machine whose cache was not known");
    assert!(error.message.contains("names colour 64, and there are 64"), "{error}");
}

#[test]
fn more_strategies_than_a_plan_has_room_for() {
    let rule = |n: u64| format!("[[rule]]\nmemory = \"anon\"\nat_least = \"{n}M\"\nframes = \"random\"\n");
    let text = |count: u64| (1..=count).rev().map(rule).collect::<String>();
    assert_eq!(plan_of(&text(8)).strategies.len(), 8);
    let error = compiled(&policy(&text(9))).expect_err("9 strategies");
    assert!(error.message.contains("9 rules name strategies"), "{error}");
}
