//! Policies from flags, alone and on top of a file.

mod common;

use common::accepted;
use pagelab_policy::flags::{Document, Flags, apply};
use pagelab_policy::frames::{self, Colours, Frames};
use pagelab_policy::plan::StrategyKind;
use pagelab_policy::read::{no_files, read_toml};
use pagelab_policy::types::{Backend, Fetch, Inherit, Memory, Pages, Policy, Scope, Via};
use pagelab_policy::units::{Colour, PageSize};
use pagelab_policy::validate::validate;
use pagelab_policy::{Machine, PolicyError, parse};

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn pages(values: &[&str]) -> Flags {
    Flags { pages: strings(values), ..Flags::default() }
}

fn on_top_of(base: &str, flags: &Flags) -> Result<Policy, PolicyError> {
    let base = read_toml(base, "p.toml", &no_files)?;
    validate(&apply(Some(base), flags, &no_files)?, &Machine::generic_x86_64())
}

fn alone(flags: &Flags) -> Result<Policy, PolicyError> {
    validate(&apply(None, flags, &no_files)?, &Machine::generic_x86_64())
}

fn scope(kinds: &[Memory]) -> Scope {
    Scope::Memory(kinds.iter().copied().collect())
}

#[test]
fn no_flags_are_the_kernel() {
    assert_eq!(accepted(alone(&Flags::default())), Policy { name: "kernel".to_owned(), ..Policy::default() });
}

#[test]
fn a_bare_value_is_the_default_and_a_scoped_one_a_rule() {
    let policy = accepted(alone(&pages(&["4K", "heap=2M", "anon+arenas=64K", "0x10000000-0x10200000=2M"])));
    assert_eq!(policy.pages, Pages::Size(PageSize::K4));
    let scopes: Vec<_> = policy.rules.iter().map(|rule| rule.scope).collect();
    assert_eq!(scopes[..2], [scope(&[Memory::Heap]), scope(&[Memory::Anon, Memory::Arenas])]);
    assert!(matches!(scopes[2], Scope::Range { start, .. } if start.0 == 0x1000_0000));
}

#[test]
fn a_mosaic_in_a_flag() {
    let policy = accepted(alone(&pages(&["heap=0-64M:2M,1G-2G:1G,otherwise:kernel"])));
    let from_file = common::policy(
        "name = \"heap=mosaic\"\n[[rule]]\nmemory = \"heap\"\n\
         pages = { mosaic = [[\"0\", \"64M\", \"2M\"], [\"1G\", \"2G\", \"1G\"]], otherwise = \"kernel\" }",
    );
    assert_eq!(policy, from_file);
}

#[test]
fn every_axis_has_its_flag() {
    let flags = Flags {
        name: Some("mine".to_owned()),
        frames: strings(&["heap=modulo:colors=4:pattern=0+3", "random:seed=7"]),
        pages: strings(&["2M"]),
        fetch: strings(&["demand", "file=willneed"]),
        via: Some("hugetlb".to_owned()),
        backend: Some("auto".to_owned()),
        layout: None,
        inherit_fork: None,
        inherit_exec: Some(false),
    };
    let policy = accepted(alone(&flags));
    assert_eq!((policy.name.as_str(), policy.via, policy.fetch), ("mine", Via::Hugetlb, Fetch::Demand));
    assert_eq!(policy.backend, Backend::Auto);
    assert_eq!(policy.inherit, Inherit { fork: true, exec: false });
    let random = frames::ByNumbers { seed: 7, ..frames::ByNumbers::of(StrategyKind::Random) };
    assert_eq!(policy.frames.strategy, frames::Strategy::ByNumbers(random));
    assert_eq!(policy.rules[0].fetch, Some(Fetch::Willneed));
    let pattern = frames::ByPage::List(vec![Colour(0), Colour(3)]);
    let modulo = frames::Strategy::Modulo { colours: pattern };
    let wanted = Frames { strategy: modulo, colours: Colours::Count(4), ..Frames::default() };
    assert_eq!(policy.rules[1].frames, Some(wanted));
}

/// Commas part parameters and the values of a list alike; a colon does so too.
#[test]
fn frames_with_parameters_in_a_flag() {
    let of = |value: &str| accepted(alone(&Flags { frames: strings(&[value]), ..Flags::default() })).frames;
    let file = |text: &str| common::policy(&format!("frames = {text}")).frames;
    for (flag, toml) in [
        ("page-coloring:colors=64,pin=true", "{ page-coloring = { colors = 64, pin = true } }"),
        ("page-coloring:colors=64:pin=true", "{ page-coloring = { colors = 64, pin = true } }"),
        ("page-coloring:cache=1M,16,hash=pid", "{ page-coloring = { cache = \"1M,16\", hash = \"pid\" } }"),
        ("bin-hopping:seed=3,fault-around=16", "{ bin-hopping = { seed = 3, fault-around = 16 } }"),
        (
            "modulo:colors=8,pattern=0,3,5,budget=1G",
            "{ modulo = { colors = 8, pattern = [0, 3, 5], budget = \"1G\" } }",
        ),
        ("modulo:colors=8,pattern=0+3+5", "{ modulo = { colors = 8, pattern = [0, 3, 5] } }"),
        ("random:masks=0x41,0x82,seed=9", "{ random = { masks = [\"0x41\", 0x82], seed = 9 } }"),
        (
            "module:colors=4,path=/opt/a+b.so,argument=x=1,y:2",
            "{ module = { path = \"/opt/a+b.so\", colors = 4, argument = \"x=1,y:2\" } }",
        ),
    ] {
        assert_eq!(of(flag), file(toml), "{flag}");
    }
    let rule = accepted(alone(&Flags { frames: strings(&["heap+stack=bin-hopping:first=2"]), ..Flags::default() }));
    assert_eq!(rule.rules[0].scope, scope(&[Memory::Heap, Memory::Stack]));
}

const FILE: &str = "name = \"file\"\npages = \"4K\"\nfetch = \"demand\"\n\
    [[rule]]\nmemory = \"heap\"\npages = \"2M\"\nfetch = \"prefault\"\n[[rule]]\nmemory = \"anon\"\npages = \"2M\"\n";

#[test]
fn a_bare_flag_replaces_its_whole_axis_of_the_file() {
    let policy = accepted(on_top_of(FILE, &pages(&["64K"])));
    assert_eq!(policy.pages, Pages::Size(PageSize::new(64 << 10).expect("a power of two")));
    assert_eq!(policy.name, "file with --pages 64K");
    let [rule] = &policy.rules[..] else { panic!("the rule for anon said nothing else: {:?}", policy.rules) };
    assert_eq!((rule.scope, rule.pages.clone(), rule.fetch), (scope(&[Memory::Heap]), None, Some(Fetch::Prefault)));
    assert_eq!(policy.fetch, Fetch::Demand, "other axes stay");
}

#[test]
fn a_scoped_flag_goes_in_front_of_the_rules_of_the_file() {
    let policy = accepted(on_top_of(FILE, &pages(&["heap=4K"])));
    assert_eq!(policy.rules.len(), 3);
    assert_eq!(policy.rules[0].pages, Some(Pages::Size(PageSize::K4)));
    assert_eq!(policy.rules[1].pages, Some(Pages::Size(PageSize::M2)));
}

/// What the flags leave a rule nothing of is left out: in the policy's text, which runs are given, all rules are of one
/// input. A rule that its own file leaves nothing stays an error.
#[test]
fn a_rule_that_flags_decide_wholly_is_left_out() {
    let file = "name = \"p\"\n[[rule]]\nmemory = \"heap\"\npages = \"2M\"\n";
    let scopes = |policy: &Policy| policy.rules.iter().map(|rule| rule.scope).collect::<Vec<_>>();
    assert_eq!(scopes(&accepted(on_top_of(file, &pages(&["heap=4K"])))), [scope(&[Memory::Heap])]);
    let both = pages(&["anon=4K", "heap=64K"]);
    let wider = "[[rule]]\nmemory = [\"heap\", \"anon\"]\npages = \"2M\"\n\
         [[rule]]\nmemory = \"anon\"\nat_least = \"8M\"\nfetch = \"demand\"\n";
    let fetch = Flags { fetch: strings(&["anon=kernel"]), ..both };
    assert_eq!(
        scopes(&accepted(on_top_of(wider, &fetch))),
        [scope(&[Memory::Anon]), scope(&[Memory::Heap]), scope(&[Memory::Anon])]
    );
    let fetch = Flags { fetch: strings(&["heap=demand"]), ..Flags::default() };
    let prefaulted = "[[rule]]\nmemory = \"heap\"\nfetch = \"prefault\"\n";
    assert_eq!(accepted(on_top_of(prefaulted, &fetch)).rules.len(), 1);
    let twice = format!("{file}[[rule]]\nmemory = \"heap\"\npages = \"64K\"\n");
    let error = on_top_of(&twice, &pages(&["heap=4K"])).expect_err("one rule of the file hides another");
    assert!(
        error.to_string().starts_with("p.toml:5: the rule can never apply: earlier rules (p.toml:2)"),
        "{error}"
    );
}

#[test]
fn of_a_layout_what_other_rules_decide_is_left_out() {
    let text = "type,pageSize,startOffset,endOffset\nbrk,-1,0,1073741824\nbrk,2097152,0,4194304\nmmap,-1,0,4096\n";
    let layout = Some(Document { path: "l.csv".to_owned(), text: text.to_owned() });
    let mmap = scope(&[Memory::Anon, Memory::Arenas]);
    let policy = accepted(alone(&Flags { layout, ..pages(&["heap=4K"]) }));
    assert_eq!(policy.rules.iter().map(|rule| rule.scope).collect::<Vec<_>>(), [scope(&[Memory::Heap]), mmap]);
    for file in [
        "pages = { csv = \"l.csv\" }\n[[rule]]\nmemory = \"heap\"\npages = \"2M\"\n",
        "[[rule]]\nmemory = \"heap\"\npages = \"2M\"\n[[rule]]\nmemory = \"all\"\npages = { csv = \"l.csv\" }\n",
    ] {
        let load = |_: &str| Ok(text.to_owned());
        let policy = accepted(parse(file, "p.toml", &Machine::generic_x86_64(), &load));
        assert_eq!(policy.rules.len(), 2, "{file}");
        assert_eq!(policy.rules[1].scope, mmap);
    }
}

#[test]
fn via_goes_with_the_pages_that_a_flag_replaces() {
    let file = "[[rule]]\nmemory = \"heap\"\npages = \"2M\"\nvia = \"hugetlb\"\n";
    assert_eq!(accepted(on_top_of(file, &pages(&["64K"]))).rules, []);
}

#[test]
fn via_reaches_the_rules_of_the_file() {
    let file = "[[rule]]\nmemory = \"heap\"\npages = \"2M\"\nvia = \"thp\"\n";
    let policy = accepted(on_top_of(file, &Flags { via: Some("hugetlb".to_owned()), ..Flags::default() }));
    assert_eq!((policy.via, policy.rules[0].via), (Via::Hugetlb, None));
}

#[test]
fn a_layout_replaces_the_axis_and_yields_to_scoped_flags() {
    let text = "type,pageSize,startOffset,endOffset\nbrk,-1,0,1073741824\nbrk,2097152,0,4194304\nmmap,-1,0,4096\n";
    let layout = Some(Document { path: "l.csv".to_owned(), text: text.to_owned() });
    let flags = Flags { layout: layout.clone(), ..pages(&["arenas=2M"]) };
    let policy = accepted(on_top_of(FILE, &flags));
    assert_eq!(policy.rules[0].scope, scope(&[Memory::Arenas]));
    let with_pages: Vec<_> =
        policy.rules.iter().filter(|rule| rule.pages.is_some()).map(|rule| rule.scope).collect();
    assert_eq!(with_pages[1..], [scope(&[Memory::Heap]), scope(&[Memory::Anon, Memory::Arenas])]);

    let error = alone(&Flags { layout, ..pages(&["2M"]) }).expect_err("two answers to one question");
    assert_eq!(
        error.to_string().split(';').next(),
        Some("--layout l.csv: --pages 2M and --layout both set every page's size")
    );
}

#[test]
fn what_is_refused_names_the_flag() {
    let cases: &[(&str, &str)] = &[
        ("", "is not a page size: it is empty"),
        ("heep=2M", "unknown memory \"heep\""),
        ("heap=", "is not a page size: it is empty"),
        ("=2M", "unknown memory \"\""),
        ("heap=0-64M", "is not an interval of a mosaic"),
        ("heap=0-64M:", "is not a page size: it is empty"),
        ("heap=64M:2M", "is not an interval of a mosaic"),
        ("heap=0-2M:2M,", "is not an interval of a mosaic"),
        ("heap=0-3M:2M", "is not aligned"),
        ("heap=0-4M:2M,2M-4M:2M", "overlaps"),
        ("heap=otherwise:4K,otherwise:2M", "given twice"),
        ("0x1000-0x800=4K", "is empty"),
        ("file=2M", "`file` cannot have pages of 2M"),
        ("4K,2M", "is 2 page sizes, and a run has one for the same memory"),
        ("heap=4K, 2M,1G", "is 3 page sizes"),
        ("4K,x", "is not a page size"),
    ];
    for (value, words) in cases {
        let error = alone(&pages(&[value])).expect_err(value);
        assert_eq!(&*error.place.source, format!("--pages {value}"));
        assert!(error.message.contains(words), "{words:?} is not in {error}");
    }
    let several = alone(&pages(&["heap=4K,2M"])).expect_err("two sizes").to_string();
    assert!(several.contains("run: pagelab try --pages heap=4K --pages heap=2M -- …; for parts"), "{several}");
    let twice = alone(&pages(&["2M", "4K"])).expect_err("two defaults");
    assert!(twice.to_string().starts_with("--pages 4K: --pages 2M was given already"), "{twice}");
    let again = alone(&pages(&["heap=2M", "heap=4K"])).expect_err("two answers for heap");
    assert!(
        again.to_string().starts_with("--pages heap=4K: the rule can never apply: earlier rules (--pages heap=2M)"),
        "{again}"
    );
    let frames = Flags { frames: strings(&["random:seed"]), ..Flags::default() };
    assert!(alone(&frames).expect_err("no value").message.contains("is not a parameter"));
    let file = Flags { frames: strings(&["file=bin-hopping"]), ..Flags::default() };
    assert!(alone(&file).expect_err("the page cache").message.starts_with("the frames of `file` cannot be chosen"));
    let map = Flags { frames: strings(&["modulo:map=F.json"]), ..Flags::default() };
    assert!(alone(&map).expect_err("no such file").message.contains("cannot read the saved map"));
}
