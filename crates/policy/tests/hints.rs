//! Policies for a kernel with page placement: what a hint can say, and what it cannot.

mod common;

use common::{policy, refused};
use pagelab_policy::Machine;
use pagelab_policy::compile::compile;
use pagelab_policy::hints::{Governed, Hint, KINDS, hints};
use pagelab_policy::plan::{FIRST_FROM_SEED, Memory, StrategyKind, StrategySpec};
use pagelab_policy::types::Backend;
use pagelab_policy::validate::beyond_the_library;
use pagelab_policy::write::to_toml;

fn all_told(text: &str) -> Vec<Hint> {
    let policy = policy(&format!("backend = \"kernel\"\n{text}"));
    hints(&policy, &Machine::generic_x86_64()).unwrap_or_else(|error| panic!("{error}"))
}

/// The only hint.
fn told(text: &str) -> Option<Hint> {
    let mut all = all_told(text);
    assert!(all.len() < 2, "{text}: {all:?}");
    all.pop()
}

/// Strategies and their memory, files as none.
fn kinds(text: &str) -> Vec<(StrategyKind, Vec<Memory>)> {
    let of = |of| if let Governed::Own(kinds) = of { kinds } else { Vec::new() };
    all_told(text).into_iter().map(|hint| (hint.strategy.kind, of(hint.of))).collect()
}

/// The strategy of all of a program's own memory.
fn hint(text: &str) -> Option<StrategySpec> {
    let told = told(text)?;
    assert_eq!(told.of, Governed::Own(KINDS.to_vec()), "{text}");
    Some(told.strategy)
}

fn obstacle(text: &str) -> String {
    let policy = policy(&format!("backend = \"kernel\"\n{text}"));
    match hints(&policy, &Machine::generic_x86_64()) {
        Ok(hint) => panic!("{text} is {hint:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn one_strategy_for_all_memory_is_a_hint() {
    let colouring = hint(r#"frames = { page-coloring = { colors = 64, hash = "pid" } }"#).expect("a hint");
    assert_eq!((colouring.kind, colouring.colours, colouring.pid_hash), (StrategyKind::PageColoring, 64, true));
    let hopping = hint(r#"frames = { bin-hopping = { cache = "1M,8", first = 5 } }"#).expect("a hint");
    assert_eq!((hopping.colours, hopping.first), (32, 5));
    let drawn = hint("frames = { bin-hopping = { colors = 4, seed = 9 } }").expect("a hint");
    assert_eq!((drawn.first, drawn.seed), (FIRST_FROM_SEED, 9));
    let masked = hint(r#"frames = { random = { masks = ["0x11", "0x22"], seed = 3 } }"#).expect("a hint");
    assert_eq!((masked.masks, masked.colours, masked.seed), (vec![0x11, 0x22], 4, 3));
    let pattern = hint("frames = { modulo = { colors = 8, pattern = [1, 3] } }").expect("a hint");
    assert_eq!(pattern.values, [1, 3]);
}

#[test]
fn rules_that_come_to_the_same_for_all_memory_are_one_too() {
    let all = "[[rule]]\nmemory = \"all\"\nframes = { random = { colors = 8 } }";
    assert_eq!(hint(all).map(|hint| hint.kind), Some(StrategyKind::Random));
    let each = all.replace("\"all\"", r#"["heap", "anon", "arenas", "data", "stack"]"#);
    assert_eq!(hint(&each).map(|hint| hint.kind), Some(StrategyKind::Random));
    assert_eq!(hint("pages = \"2M\""), None);
    assert_eq!(hint("frames = \"kernel\""), None);
}

#[test]
fn a_rule_for_kinds_of_memory_is_a_hint_for_these() {
    for (memory, kinds) in [
        (r#""heap""#, vec![Memory::Heap]),
        (r#"["stack", "heap"]"#, vec![Memory::Heap, Memory::Stack]),
        (r#"["anon", "arenas"]"#, vec![Memory::Anon]),
        (r#"["data", "anon", "arenas", "stack"]"#, vec![Memory::Anon, Memory::Data, Memory::Stack]),
    ] {
        let told = told(&format!("[[rule]]\nmemory = {memory}\nframes = {{ random = {{ colors = 8 }} }}"))
            .expect("a hint");
        assert_eq!((told.strategy.kind, told.of), (StrategyKind::Random, Governed::Own(kinds)), "{memory}");
    }
    // All but one kind: a rule that leaves it to the kernel comes first.
    let but = told("frames = { random = { colors = 8 } }\n[[rule]]\nmemory = \"stack\"\nframes = \"kernel\"")
        .expect("a hint");
    assert_eq!(but.of, Governed::Own(vec![Memory::Heap, Memory::Anon, Memory::Data]));
}

#[test]
fn a_rule_for_files_is_a_hint_of_the_page_cache() {
    let file = "[[rule]]\nmemory = \"file\"\nframes = { bin-hopping = { colors = 8, first = 3 } }";
    let told = told(file).expect("a hint");
    assert_eq!(told.of, Governed::Files);
    assert_eq!((told.strategy.kind, told.strategy.colours, told.strategy.first), (StrategyKind::BinHopping, 8, 3));
    assert_eq!(hint(&file.replace("{ bin-hopping = { colors = 8, first = 3 } }", "\"kernel\"")), None);
    let pinned = obstacle(&file.replace("first = 3", "pin = true"));
    assert!(pinned.contains("does not pin pages of files"), "{pinned}");
    let as_written = to_toml(&policy(&format!("backend = \"kernel\"\n{file}")));
    assert!(policy(&as_written).governs_frames(), "{as_written}");
}

#[test]
fn under_auto_a_rule_for_files_is_for_the_kernel_only() {
    let file = "[[rule]]\nmemory = [\"heap\", \"file\"]\nframes = { random = { colors = 8 } }";
    let auto = policy(&format!("backend = \"auto\"\n{file}"));
    assert_eq!(hints(&auto, &Machine::generic_x86_64()).expect("hints").len(), 2);
    let refusal = beyond_the_library(&auto).expect("a refusal").to_string();
    let validated = refused(&format!("backend = \"library\"\n{file}"), &Machine::generic_x86_64());
    assert!(refusal.contains(&validated.message) && refusal.contains("--backend kernel"), "{refusal}");
    assert_eq!(beyond_the_library(&policy("backend = \"auto\"\nframes = { random = { colors = 8 } }")), None);
    let left = file.replace("{ random = { colors = 8 } }", "\"kernel\"");
    assert_eq!(beyond_the_library(&policy(&format!("backend = \"auto\"\n{left}"))), None);
}

#[test]
fn several_strategies_are_a_hint_each() {
    let rule = |memory: &str, frames: &str| format!("[[rule]]\nmemory = {memory}\nframes = {{ {frames} }}\n");
    let heap = rule("\"heap\"", "bin-hopping = { cache = \"1M,8\" }");
    let anon = rule(r#"["anon", "arenas"]"#, "page-coloring = { colors = 16 }");
    let file = rule("\"file\"", "page-coloring = { colors = 8 }");
    let (hopping, colouring) = (StrategyKind::BinHopping, StrategyKind::PageColoring);
    // Files last, wherever their rule is.
    assert_eq!(
        kinds(&format!("{file}{heap}{anon}")),
        [(hopping, vec![Memory::Heap]), (colouring, vec![Memory::Anon]), (colouring, vec![])]
    );
    // What no rule names has the default.
    let default = "frames = { random = { colors = 8 } }\n";
    let rest = vec![Memory::Anon, Memory::Data, Memory::Stack];
    assert_eq!(
        kinds(&format!("{default}{heap}{file}")),
        [(hopping, vec![Memory::Heap]), (StrategyKind::Random, rest), (colouring, vec![])]
    );
    // A strategy that rules leave no memory is no hint.
    let all = rule(r#"["heap", "anon", "arenas", "data", "stack"]"#, "random = { colors = 4 }");
    assert_eq!(kinds(&format!("{default}{all}")), [(StrategyKind::Random, KINDS.to_vec())]);
    // Each is judged.
    let spread = obstacle(&format!("{heap}{}", rule("\"stack\"", "random = { colors = 4, fault-around = 16 }")));
    assert!(spread.contains("one page for a fault"), "{spread}");
}

#[test]
fn pinned_pages_are_a_hint() {
    assert!(hint("frames = { random = { colors = 8, pin = true } }").expect("a hint").pin);
}

#[test]
fn what_no_hint_says_is_refused_by_name() {
    let rule = |rest: &str| format!("[[rule]]\n{rest}\nframes = {{ page-coloring = {{ colors = 8 }} }}");
    let whole = |rest: &str| format!("frames = {{ random = {{ colors = 8{rest} }} }}");
    let with = |rest: &str| format!("{}\n{rest}", whole(""));
    for (text, why) in [
        (rule("memory = \"anon\""), "memory = [\"anon\", \"arenas\"]"),
        (rule(r#"memory = ["heap", "arenas"]"#), "malloc's arenas are mappings like others"),
        (rule("memory = \"anon\"\nat_least = \"1M\""), "how large a mapping is"),
        (rule(r#"range = ["0x10000000", "0x20000000"]"#), "cleared by the program's exec"),
        (
            r#"frames = { modulo = { colors = 8, spans = [["0x10000000", "1 2"]] } }"#.to_owned(),
            "a map has addresses",
        ),
        (r#"frames = { exact = { spans = [["0x10000000", "1 2"]] } }"#.to_owned(), "\"exact\" is for addresses"),
        (
            r#"frames = { module = { path = "/x.so", colors = 8 } }"#.to_owned(),
            "a shared object runs in the program",
        ),
        (whole(", fault-around = 16"), "one page for a fault"),
        (with("inherit = { fork = false }"), "`inherit` forbids"),
        (with("inherit = { exec = false }"), "`inherit` forbids"),
    ] {
        let message = obstacle(&text);
        assert!(message.contains(why), "{text}: {message}");
        assert!(message.contains("--backend library"), "{message}");
    }
}

#[test]
fn the_library_gets_what_is_left() {
    let text = "backend = \"kernel\"\nframes = { random = { colors = 8 } }\npages = \"2M\"\n\
                [[rule]]\nmemory = \"heap\"\nfetch = \"prefault\"\n";
    let machine = Machine::generic_x86_64();
    let asked = policy(text);
    let plan = compile(&asked, &machine).expect("a plan");
    assert!(plan.strategies.is_empty() && !plan.sections.is_empty());
    let left = asked.without_frames();
    assert!(!left.governs_frames() && !left.is_kernel());
    assert_eq!(plan, compile(&left, &machine).expect("a plan"));
    // The same policy for the library keeps its strategy.
    let library = compile(&policy(&text.replace("kernel", "library")), &machine).expect("a plan");
    assert_eq!(library.strategies.len(), 1);
}

#[test]
fn a_policy_that_names_no_backend_keeps_its_text() {
    assert!(!to_toml(&policy("frames = { random = { colors = 8 } }")).contains("backend"));
    assert_eq!(to_toml(&policy("backend = \"library\"")), to_toml(&policy("frames = \"kernel\"")));
    let auto = to_toml(&policy("backend = \"auto\"\nframes = { random = { colors = 8 } }"));
    assert!(auto.contains("backend = \"auto\"\n"));
    assert_eq!(policy(&auto).backend, Backend::Auto);
}

#[test]
fn an_unknown_backend_is_told_with_those_there_are() {
    let error = refused("backend = \"magic\"", &Machine::generic_x86_64());
    assert_eq!(error.allowed, ["library", "kernel", "auto"]);
    assert_eq!(error.place.line, Some(1));
}
