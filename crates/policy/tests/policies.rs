//! The meaning of policies: as they are read, and the plan that they compile to.

mod common;

use common::policy;
use pagelab_policy::compile::compile;
use pagelab_policy::plan::{self, Flags, Memory as Kind, Plan, PlanSpec, RunSpec, SectionSpec};
use pagelab_policy::types::{Backing, Fetch, Inherit, Memory, MemorySet, Pages, Scope, Via};
use pagelab_policy::units::{Bytes, PageSize};
use pagelab_policy::{Machine, Policy, parse};

fn plan_of(text: &str) -> PlanSpec {
    compile(&policy(text), &Machine::generic_x86_64()).unwrap_or_else(|error| panic!("{error}"))
}

fn sections(spec: &PlanSpec, memory: Kind) -> Vec<&SectionSpec> {
    spec.sections.iter().filter(|section| section.memory == memory).collect()
}

#[test]
fn the_default_leaves_everything_to_the_kernel() {
    let policy = policy("name = \"baseline\"");
    assert_eq!(policy, Policy { name: "baseline".to_owned(), ..Policy::default() });
    assert_eq!(policy.inherit, Inherit { fork: true, exec: true });
    assert!(policy.is_kernel());
    assert!(plan_of("name = \"baseline\"").sections.is_empty());
}

#[test]
fn the_example_of_the_documentation() {
    let policy = policy(include_str!("example.toml"));
    assert_eq!(policy.name, "hot-2m");
    assert_eq!(policy.pages, Pages::Size(PageSize::K4));
    let [rule] = &policy.rules[..] else { panic!("{:?}", policy.rules) };
    assert_eq!(rule.scope, Scope::Memory([Memory::Heap, Memory::Arenas].into_iter().collect::<MemorySet>()));
    let Some(Pages::Mosaic(mosaic)) = &rule.pages else { panic!("{:?}", rule.pages) };
    assert_eq!(mosaic.otherwise, Backing::Size(PageSize::K4));
    let tiles: Vec<_> = mosaic.tiles.iter().map(|t| (t.start.0, t.end.0, t.size)).collect();
    assert_eq!(tiles, [(0, 64 << 20, PageSize::M2), (1 << 30, 2 << 30, PageSize::G1)]);
}

#[test]
fn mosaics_are_sorted_and_neighbours_of_one_size_merged() {
    let written =
        policy("pages = { mosaic = [[\"4M\", \"6M\", \"2M\"], [0, \"4M\", \"2M\"], [\"6M\", \"7M\", \"4K\"]] }");
    let Pages::Mosaic(mosaic) = &written.pages else { panic!("{:?}", written.pages) };
    let tiles: Vec<_> = mosaic.tiles.iter().map(|t| (t.start.0 >> 20, t.end.0 >> 20, t.size)).collect();
    assert_eq!(tiles, [(0, 6, PageSize::M2), (6, 7, PageSize::K4)]);
    assert_eq!(mosaic.otherwise, Backing::Size(PageSize::K4), "outside its intervals a mosaic has base pages");
}

#[test]
fn one_size_governs_what_can_have_it() {
    let plan = plan_of("pages = \"2M\"");
    let kinds: Vec<_> = plan.sections.iter().map(|section| section.memory).collect();
    assert_eq!(
        kinds,
        [Kind::Heap, Kind::Anon, Kind::Arenas, Kind::Data, Kind::Stack],
        "files keep the page cache's pages"
    );
    assert!(
        plan.sections.iter().all(|s| s.otherwise == 2 << 20 && s.otherwise_via == plan::Via::Thp && s.rule == 0)
    );
    let bases: Vec<_> = plan.sections.iter().map(|section| section.pool_base).collect();
    assert_eq!(bases, [plan::HEAP_BASE, plan::ANON_BASE, plan::ANON_BASE, 0, 0]);

    let hugetlb = plan_of("pages = \"2M\"\nvia = \"hugetlb\"");
    let kinds: Vec<_> = hugetlb.sections.iter().map(|section| (section.memory, section.otherwise_via)).collect();
    let huge = plan::Via::Hugetlb;
    assert_eq!(kinds, [(Kind::Heap, huge), (Kind::Anon, huge), (Kind::Arenas, huge)]);
}

#[test]
fn one_gib_pages_come_from_hugetlb_whatever_via_says() {
    let plan = plan_of(
        "[[rule]]\nmemory = \"heap\"\nvia = \"thp\"\npages = { mosaic = [[0, \"2M\", \"2M\"], [\"1G\", \"2G\", \"1G\"]] }",
    );
    let vias: Vec<_> = plan.sections[0].intervals.iter().map(|interval| interval.via).collect();
    assert_eq!(vias, [plan::Via::Thp, plan::Via::Hugetlb]);
}

#[test]
fn each_axis_is_decided_by_the_first_rule_that_names_it() {
    let plan = plan_of(
        "pages = \"4K\"\n[[rule]]\nmemory = \"heap\"\nfetch = \"prefault\"\n\
         [[rule]]\nmemory = [\"heap\", \"anon\"]\npages = \"2M\"\nfetch = \"demand\"\n",
    );
    let [heap] = sections(&plan, Kind::Heap)[..] else { panic!("{plan:?}") };
    assert_eq!((heap.otherwise, heap.fetch, heap.rule), (2 << 20, plan::Fetch::Prefault, 1));
    let [anon] = sections(&plan, Kind::Anon)[..] else { panic!("{plan:?}") };
    assert_eq!((anon.otherwise, anon.fetch), (2 << 20, plan::Fetch::Demand));
    let [arenas] = sections(&plan, Kind::Arenas)[..] else { panic!("{plan:?}") };
    assert_eq!((arenas.otherwise, arenas.fetch, arenas.rule), (4096, plan::Fetch::Kernel, 2));
}

#[test]
fn thresholds_become_sections_with_the_highest_first() {
    let plan = plan_of(
        "[[rule]]\nmemory = \"anon\"\nat_least = \"1M\"\npages = \"2M\"\n\
         [[rule]]\nmemory = \"anon\"\nat_least = \"64M\"\nfetch = \"prefault\"\n",
    );
    let anon: Vec<_> = sections(&plan, Kind::Anon).iter().map(|s| (s.at_least, s.otherwise, s.fetch)).collect();
    let (prefault, kernel) = (plan::Fetch::Prefault, plan::Fetch::Kernel);
    assert_eq!(anon, [(64 << 20, 2 << 20, prefault), (1 << 20, 2 << 20, kernel)]);

    let shadowed = plan_of("pages = \"4K\"\n[[rule]]\nmemory = \"anon\"\nat_least = \"1M\"\npages = \"kernel\"\n");
    let anon: Vec<_> = sections(&shadowed, Kind::Anon).iter().map(|s| (s.at_least, s.otherwise)).collect();
    assert_eq!(anon, [(1 << 20, plan::KERNEL), (0, 4096)]);
}

#[test]
fn rules_have_pools_of_their_own_in_rule_order() {
    let plan = plan_of(
        "pages = \"4K\"\n[[rule]]\nmemory = [\"arenas\", \"heap\"]\npages = \"2M\"\n\
         [[rule]]\nmemory = \"anon\"\nat_least = \"1M\"\npages = \"64K\"\n",
    );
    let pools = |memory| sections(&plan, memory).iter().map(|s| s.pool_base).collect::<Vec<_>>();
    assert_eq!(pools(Kind::Arenas), [plan::ANON_BASE]);
    assert_eq!(pools(Kind::Anon), [plan::ANON_BASE + plan::POOL_BYTES, plan::ANON_BASE + 2 * plan::POOL_BYTES]);
    assert!(plan.flags.contains(Flags::MTHP_SWITCHES));
}

#[test]
fn more_anonymous_pools_than_there_is_room_for() {
    let rule = |n: u64| format!("[[rule]]\nmemory = \"anon\"\nat_least = \"{n}M\"\npages = \"2M\"\n");
    let text: String = (1..=17).rev().map(rule).collect();
    let error = compile(&policy(&text), &Machine::generic_x86_64()).expect_err("17 pools");
    assert!(error.message.contains("more than 16 rules"), "{error}");
}

#[test]
fn ranges_and_all() {
    let plan = plan_of(
        "fetch = \"willneed\"\n[[rule]]\nrange = [\"0x10000000\", \"0x10400000\"]\npages = \"2M\"\n\
         [[rule]]\nmemory = \"all\"\npages = \"64K\"\n",
    );
    let [range] = sections(&plan, Kind::Range)[..] else { panic!("{plan:?}") };
    assert_eq!((range.range, range.otherwise), (Some((0x1000_0000, 0x1040_0000)), 2 << 20));
    assert_eq!(sections(&plan, Kind::Heap)[0].otherwise, 64 << 10);
    assert_eq!(sections(&plan, Kind::Heap)[0].fetch, plan::Fetch::Kernel, "willneed is for files");
    let [data] = sections(&plan, Kind::Data)[..] else { panic!("{plan:?}") };
    assert_eq!((data.otherwise, data.fetch), (plan::KERNEL, plan::Fetch::WillNeed), "64K pages are not for data");
    assert_eq!(sections(&plan, Kind::File)[0].fetch, plan::Fetch::WillNeed);
    assert!(sections(&plan, Kind::Stack).is_empty());
}

#[test]
fn a_range_left_to_the_kernel_matters_only_beside_something_else() {
    let range = "[[rule]]\nrange = [0, \"1G\"]\npages = \"kernel\"\n";
    assert!(plan_of(range).sections.is_empty());
    assert_eq!(sections(&plan_of(&format!("pages = \"2M\"\n{range}")), Kind::Range).len(), 1);
}

#[test]
fn what_the_run_adds() {
    let flags = Flags::MEASURE | Flags::RESIDENCY | Flags::EMULATED;
    let run = RunSpec { run_dir: b"/run/x".to_vec(), flags, ..RunSpec::default() };
    let policy = policy("pages = \"2M\"\ninherit = { fork = true, exec = false }");
    let spec = compile(&policy, &Machine::generic_x86_64()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(spec.flags, Flags::INHERIT_FORK, "the compiled policy is that of every run");
    let bytes = spec.encode(&run).unwrap_or_else(|error| panic!("{error}"));
    let plan = Plan::parse(&bytes).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(plan.run_dir(), b"/run/x");
    assert_eq!(plan.flags(), Flags::INHERIT_FORK | flags);
    assert_eq!(plan.section_for(Kind::Anon, 1).map(|section| section.otherwise), Some(2 << 20));
}

#[test]
fn a_layout_gives_each_kind_its_pool() {
    let csv = "type,pageSize,startOffset,endOffset\nbrk,-1,0,1073741824\nmmap,-1,0,1073741824\nfile,-1,0,4096\n\
               brk,2097152,0,4194304\nmmap,1073741824,0,1073741824\n";
    let load = |path: &str| if path == "l.csv" { Ok(csv.to_owned()) } else { Err(format!("{path}: no such file")) };
    let machine = Machine::generic_x86_64();
    let whole = parse("name = \"m\"\npages = { csv = \"l.csv\" }", "p.toml", &machine, &load)
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(whole.pages, Pages::Kernel, "what Mosalloc has no pool for stays with the kernel");
    let scopes: Vec<Vec<_>> = whole
        .rules
        .iter()
        .map(|rule| if let Scope::Memory(set) = rule.scope { set.iter().collect() } else { panic!("{rule:?}") })
        .collect();
    assert_eq!(scopes, [vec![Memory::Heap], vec![Memory::Anon, Memory::Arenas], vec![Memory::File]]);
    assert_eq!(whole.rules[2].pages, Some(Pages::Size(PageSize::K4)));

    let text = "[[rule]]\nmemory = [\"heap\", \"arenas\"]\npages = { csv = \"l.csv\" }\nfetch = \"prefault\"\nvia = \"hugetlb\"";
    let part = parse(text, "p.toml", &machine, &load).unwrap_or_else(|e| panic!("{e}"));
    let plan = compile(&part, &machine).unwrap_or_else(|e| panic!("{e}"));
    let kinds: Vec<_> = plan.sections.iter().map(|s| (s.memory, s.intervals[0].page_bytes, s.fetch)).collect();
    assert_eq!(
        kinds,
        [(Kind::Heap, 2 << 20, plan::Fetch::Prefault), (Kind::Arenas, 1 << 30, plan::Fetch::Prefault)]
    );
    assert_eq!(part.rules[0].via, Some(Via::Hugetlb));
}

#[test]
fn errors_of_a_layout_carry_its_own_lines() {
    let csv = "type,pageSize,startOffset,endOffset\nbrk,-1,0,1073741824\nbrk,2097152,4096,2101248\n";
    let load = |_: &str| Ok(csv.to_owned());
    let error =
        parse("pages = { csv = \"l.csv\" }", "p.toml", &Machine::generic_x86_64(), &load).expect_err("unaligned");
    assert!(error.to_string().starts_with("l.csv:3: interval 4096-2101248 of 2M pages is not aligned"), "{error}");
}

#[test]
fn names_for_policies_without_one() {
    let name = |text: &str| policy(text).name;
    assert_eq!(name("fetch = \"kernel\""), "kernel");
    assert_eq!(name("pages = \"2M\"\nfetch = \"demand\"\nvia = \"hugetlb\""), "pages=2M fetch=demand via=hugetlb");
    assert_eq!(name("[[rule]]\nmemory = [\"heap\", \"anon\"]\npages = \"2M\""), "heap+anon=2M");
}

#[test]
fn thresholds_of_named_memory() {
    let rule = &policy("[[rule]]\nmemory = \"file\"\nat_least = \"1M\"\nfetch = \"demand\"").rules[0];
    assert_eq!((rule.at_least, rule.fetch, rule.pages.clone()), (Some(Bytes(1 << 20)), Some(Fetch::Demand), None));
}
