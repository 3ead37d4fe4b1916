//! Every bad input is refused before anything runs, with file, line and the allowed values.

mod common;

use common::{plain_machine, refused};
use pagelab_policy::machine::CacheGeometry;
use pagelab_policy::{Machine, parse};

/// Each case: the text, the line at fault (0: the file as a whole), words of the message, words of what is allowed.
type Case = (&'static str, u32, &'static [&'static str], &'static [&'static str]);

fn check(cases: &[Case], machine: &Machine) {
    for (text, line, message, allowed) in cases {
        let error = refused(text, machine);
        let shown = error.to_string();
        assert_eq!(error.place.line.unwrap_or(0), *line, "line of {shown:?} in:\n{text}");
        assert_eq!(&*error.place.source, "p.toml");
        let start = if *line == 0 { "p.toml: ".to_owned() } else { format!("p.toml:{line}: ") };
        assert!(shown.starts_with(&start), "{shown:?}");
        for word in *message {
            assert!(error.message.contains(word), "{word:?} is not in {shown:?} for:\n{text}");
        }
        for word in *allowed {
            assert!(error.allowed.iter().any(|value| value == word), "{word:?} is not allowed by {shown:?}");
        }
    }
}

#[test]
fn shape() {
    let cases: &[Case] = &[
        ("", 0, &["empty"], &["pages", "rule"]),
        ("# only a comment\n\n", 0, &["empty"], &["pages"]),
        ("pages = ", 1, &["not valid TOML"], &[]),
        ("pages = \"2M\"\npages = \"4K\"", 2, &["not valid TOML", "duplicate key"], &[]),
        ("name = \"x\"\npagse = \"2M\"", 2, &["unknown key `pagse`"], &["pages", "fetch"]),
        (
            "[[rule]]\nmemory = \"heap\"\nsize = \"2M\"",
            3,
            &["unknown key `size` in the rule"],
            &["pages", "at_least"],
        ),
        ("inherit = { fork = true, clone = true }", 1, &["unknown key `clone`"], &["fork", "exec"]),
        ("inherit = true", 1, &["`inherit` must be a table", "boolean"], &[]),
        ("inherit = { fork = 1 }", 1, &["`fork` must be true or false"], &[]),
        ("rule = \"heap\"", 1, &["`rule` must be a list of tables"], &[]),
        ("rule = [1]", 1, &["`rule` must be a table"], &[]),
        ("pages = 2.5", 1, &["must be a size", "float"], &[]),
        ("pages = {}", 1, &["without `mosaic`"], &["mosaic", "csv"]),
        ("pages = { mosaic = [], tiles = 1 }", 1, &["unknown key `tiles`"], &["mosaic", "otherwise"]),
        ("pages = { mosaic = \"0-2M\" }", 1, &["must be a list of [start, end, size]"], &[]),
        ("pages = { mosaic = [\n [\"0\", \"2M\"]\n] }", 2, &["must be a list of [start, end, size]"], &[]),
        ("pages = { csv = \"l.csv\", otherwise = \"4K\" }", 1, &["unknown key `otherwise`"], &["csv"]),
        ("pages = { csv = \"l.csv\" }", 1, &["cannot read the layout", "l.csv"], &[]),
        ("fetch = 3", 1, &["`fetch` must be a string"], &[]),
        ("name = [\"a\"]", 1, &["`name` must be a string"], &[]),
    ];
    check(cases, &Machine::generic_x86_64());
}

#[test]
fn words() {
    let cases: &[Case] = &[
        (
            "fetch = \"demnad\"",
            1,
            &["unknown value \"demnad\" of `fetch`"],
            &["kernel", "demand", "prefault", "willneed"],
        ),
        ("via = \"hugetlbfs\"", 1, &["of `via`"], &["thp", "hugetlb"]),
        (
            "frames = \"colour\"",
            1,
            &["of `frames`"],
            &["page-coloring", "bin-hopping", "modulo", "exact", "random"],
        ),
        (
            "[[rule]]\nmemory = [\"heap\",\n \"heep\"]\npages = \"2M\"",
            3,
            &["unknown memory \"heep\""],
            &["heap", "all"],
        ),
        ("name = \"\"", 1, &["`name`"], &[]),
        ("name = \"a\\nb\"", 1, &["control character"], &[]),
    ];
    check(cases, &Machine::generic_x86_64());
}

#[test]
fn numbers() {
    let cases: &[Case] = &[
        ("pages = -4096", 1, &["negative"], &["4K", "2M (thp)", "kernel"]),
        ("pages = \"-2M\"", 1, &["negative"], &["4K"]),
        ("pages = 0", 1, &["not a page size"], &["4K"]),
        ("pages = \"3M\"", 1, &["not a page size"], &["4K"]),
        ("pages = \"1.5M\"", 1, &["whole numbers"], &["4K"]),
        ("pages = \"2Q\"", 1, &["unknown unit"], &["4K"]),
        ("pages = \"\"", 1, &["empty"], &["4K"]),
        ("pages = 99999999999999999999999", 1, &["larger than 2^64"], &["4K"]),
        ("pages = { mosaic = [[0, -1, \"2M\"]] }", 1, &["negative"], &[]),
        ("pages = { mosaic = [[\"2M\", \"2M\", \"2M\"]] }", 1, &["is empty"], &[]),
        ("pages = { mosaic = [[\"4M\", \"2M\", \"2M\"]] }", 1, &["is empty"], &[]),
        ("pages = { mosaic = [[0, \"2T\", \"2M\"]] }", 1, &["beyond the pool", "1T"], &[]),
        ("[[rule]]\nmemory = \"anon\"\nat_least = 0\npages = \"2M\"", 3, &["`at_least`"], &[]),
        ("[[rule]]\nmemory = \"anon\"\nat_least = \"-1\"\npages = \"2M\"", 3, &["negative"], &[]),
        ("frames = { kind = \"page-coloring\", colors = 0 }", 1, &["`colors` is 0"], &["1 to 65536"]),
        ("frames = { kind = \"random\", seed = -1 }", 1, &["`seed` is \"-1\""], &[]),
        (
            "[[rule]]\nmemory = \"heap\"\nframes = { kind = \"exact\", frames = [0xffffffffffff] }",
            3,
            &["`frames` is"],
            &[],
        ),
    ];
    check(cases, &Machine::generic_x86_64());
}

#[test]
fn frames_parameters() {
    let cases: &[Case] = &[
        ("frames = \"modulo\"", 1, &["needs `pattern`", "`map`"], &[]),
        ("frames = \"exact\"", 1, &["needs `frames`"], &[]),
        ("frames = \"module\"", 1, &["needs `path`"], &[]),
        ("frames = { colors = 4 }", 1, &["does not name its `kind`"], &["random", "module"]),
        ("frames = { random = 3 }", 1, &["`random` must be a table of parameters"], &[]),
        ("frames = { modulo = 3 }", 1, &["`modulo` must be a table of parameters, or the name of a file"], &[]),
        ("frames = { random = {}, exact = {} }", 1, &["does not name its `kind`"], &["exact"]),
        (
            "frames = { kind = \"random\", first = 4 }",
            1,
            &["unknown parameter `first`"],
            &["seed", "pin", "colors"],
        ),
        ("frames = { kernel = { colors = 4 } }", 1, &["unknown parameter `colors` of frames \"kernel\""], &[]),
        ("frames = { kind = \"modulo\", colors = 4, pattern = [0, 4] }", 1, &["`pattern` is 4"], &["0 to 3"]),
        ("frames = { modulo = { colors = 4, pattern = [] } }", 1, &["needs `pattern`"], &[]),
        ("frames = { kind = \"bin-hopping\", colors = [4, 8] }", 1, &["takes one value"], &[]),
        ("frames = { bin-hopping = { colors = 12, first = 12 } }", 1, &["`first` is 12"], &["0 to 11"]),
        ("frames = { bin-hopping = { first = 1, seed = 1 } }", 1, &["give one of them"], &[]),
        ("frames = { kind = \"random\", pin = 1 }", 1, &["`pin` is \"1\""], &["true", "false"]),
        ("frames = { random = { fault-around = 0 } }", 1, &["`fault-around` is 0"], &["1 to 512"]),
        ("frames = { random = { budget = \"4K\" } }", 1, &["`budget` is 4096"], &[]),
        ("frames = { page-coloring = { hash = \"tid\" } }", 1, &["\"tid\" of `hash`"], &["pid"]),
        ("frames = { module = { path = \"\" } }", 1, &["`path` must have 1 to"], &[]),
        ("frames = { module = { path = \"a\", argument = \"x\\u0000\" } }", 1, &["control character"], &[]),
    ];
    check(cases, &Machine::generic_x86_64());
}

#[test]
fn colours() {
    let cases: &[Case] = &[
        (
            "frames = { page-coloring = { masks = [1, 2],\n colors = 12 } }",
            2,
            &["2 masks make 4 colours, and `colors` says 12, which is no power of two"],
            &[],
        ),
        ("frames = { random = { masks = [1, 2], colors = 8 } }", 1, &["`colors` says 8"], &[]),
        ("frames = { random = { masks = [1, 2], cache = \"1M,16\" } }", 1, &["`cache` says 16"], &[]),
        ("frames = { random = { masks = [] } }", 1, &["`masks` is an empty list"], &[]),
        ("frames = { random = { masks = [1, 0] } }", 1, &["`masks` is 0"], &[]),
        ("frames = { random = { masks = [\"zz\"] } }", 1, &["`masks` is \"zz\""], &["1 to 1099511627775"]),
        ("frames = { random = { colors = -1 } }", 1, &["`colors` is \"-1\""], &["1 to 65536"]),
        ("frames = { random = { budget = \"lots\" } }", 1, &["budget: \"lots\" is not a size"], &[]),
        ("frames = { random = { masks = [3, 5, 6] } }", 1, &["0x6 is a combination"], &[]),
        ("frames = { random = { colors = 4, cache = \"1M,16\" } }", 1, &["give one of them"], &[]),
        ("frames = { random = { cache = \"1M\" } }", 1, &["`cache` is not a size and a number"], &["\"1M,16\""]),
        ("frames = { random = { cache = \"1M,0\" } }", 1, &["no cache has 1M and 0 ways"], &[]),
        ("frames = { random = { cache = \"1000K,16\" } }", 1, &["no whole number of pages"], &[]),
        ("frames = { random = { cache = \"1M,x\" } }", 1, &["ways of the cache"], &[]),
        ("frames = { random = { cache = \"1T,1\" } }", 1, &["more than 65536 colours"], &[]),
    ];
    check(cases, &Machine::generic_x86_64());
    let error = refused("frames = { random = { masks = [1, 2], colors = 8 } }", &Machine::generic_x86_64());
    assert_eq!(error.next.as_deref(), Some("leave `colors` out, or give 3 masks"));
}

#[test]
fn the_colours_of_the_machine_bound_those_of_the_policy() {
    let cache = CacheGeometry { line_bytes: 64, sets: 512, ways: 8 };
    let machine = Machine { cache: Some(cache), ..Machine::generic_x86_64() };
    let cases: &[Case] = &[
        ("frames = { bin-hopping = { first = 8 } }", 1, &["`first` is 8"], &["0 to 7"]),
        ("frames = { modulo = { pattern = [0, 9] } }", 1, &["`pattern` is 9"], &["0 to 7"]),
    ];
    check(cases, &machine);
}

#[test]
fn frames_for_memory_that_cannot_have_them() {
    let rule = |memory: &str, frames: &str| format!("[[rule]]\nmemory = {memory}\nframes = {frames}\n");
    let file = refused(&rule("[\"heap\", \"file\"]", "\"bin-hopping\""), &Machine::generic_x86_64());
    assert!(
        file.message.contains("the frames of `file` cannot be chosen: its pages are the page cache's"),
        "{file}"
    );
    assert_eq!(file.allowed, ["heap", "anon", "arenas", "data", "stack"]);
    assert!(file.to_string().contains("--backend kernel"), "{file}");
    for memory in ["\"all\"", "\"stack\"", "[\"heap\", \"anon\"]"] {
        let error = refused(&rule(memory, "{ exact = { frames = [1] } }"), &Machine::generic_x86_64());
        assert!(error.message.contains("counts from the start of one pool or range"), "{memory}: {error}");
    }
    let twice = refused(&rule("\"heap\"", "{ exact = { frames = [7, 8, 7] } }"), &Machine::generic_x86_64());
    assert!(twice.message.contains("frame 0x7 is named twice"), "{twice}");
}

#[test]
fn spans() {
    let spans = |spans: &str| format!("frames = {{ modulo = {{ colors = 4, spans = {spans} }} }}");
    for (text, words) in [
        ("[]", "it has no pages"),
        ("3", "must be a list of [address, values]"),
        ("[[\"0x1000\"]]", "must be a list of [address, values]"),
        ("[[\"0x1000\", \"\"]]", "span 0 at 0x1000: it has no pages"),
        ("[[\"0x1001\", \"1\"]]", "its start is no multiple of 4096"),
        ("[[\"0x1000\", \"1 2\"], [\"0x2000\", \"3\"]]", "span 1 at 0x2000: it overlaps"),
        ("[[\"0x3000\", \"1\"], [\"0x2000\", \"3\"]]", "or lies before it"),
        ("[[\"0x1000\", \"4\"]]", "\"4\" are no values of pages (up to 3)"),
        ("[[\"0x1000\", \"2-1\"]]", "\"2-1\" are no values"),
        ("[[\"0x1000\", \"0-9\"]]", "\"0-9\" are no values"),
        ("[[\"0x1000\", \".*0\"]]", "\".*0\" are no values"),
        ("[[\"0x1000\", \".*99999999\"]]", "are no values"),
        ("[[\"0x1000\", \".*16777216 .\"]]", "more than 16777216 pages"),
        ("[[\"0xfffffffffff000\", \"1 2\"]]", "where no program can be"),
    ] {
        let error = refused(&spans(text), &Machine::generic_x86_64());
        assert!(error.message.contains(words), "{words:?} is not in {error} for {text}");
    }
    let both = "frames = { modulo = { colors = 4, pattern = [1], spans = [[\"0x1000\", \"1\"]] } }";
    assert!(refused(both, &Machine::generic_x86_64()).message.contains("all say what each page gets"));
}

/// A policy that names the saved map `text`.
fn refused_map(text: &str) -> String {
    let load = |_: &str| Ok(text.to_owned());
    let policy = parse("frames = { exact = \"m.json\" }", "p.toml", &Machine::generic_x86_64(), &load);
    policy.expect_err(text).to_string()
}

#[test]
fn saved_maps() {
    let map = |colours: &str, spans: &str| {
        format!("{{\"schema\": \"pagelab.framemap/1\", \"pid\": 1, {colours}, \"spans\": [{spans}]}}")
    };
    let span = |start: &str, pages: u32, frames: &str, colours: &str| {
        format!("{{\"start\": \"{start}\", \"pages\": {pages}, \"frames\": [{frames}], \"colours\": [{colours}]}}")
    };
    let of = |spans: String| map("\"colours\": 4", &spans);
    for (text, words) in [
        (String::new(), "m.json:1: not a saved map"),
        ("{\n\"schema\": 3".to_owned(), "m.json:2: not a saved map"),
        (of(span("0x1000", 1, "5", "1")).replace("map/1", "map/9"), "its schema is \"pagelab.framemap/9\""),
        (of(String::new()), "it has no pages"),
        (of(span("0x1000", 2, "5", "1, 1")), "span 0: 1 frames and 2 colours for 2 pages"),
        (of(span("0x1000", 1, "5", "4")), "span 0: colour 4 of 4 colours"),
        (of(span("0x1000", 1, "1099511627776", "1")), "is no frame number"),
        (of(span("0x1800", 1, "5", "1")), "its start is no multiple of 4096"),
        (of(span("zero", 1, "5", "1")), "\"zero\""),
        (of([span("0x2000", 1, "5", "1"), span("0x1000", 1, "6", "2")].join(", ")), "span 1 at 0x1000"),
        (map("\"colours\": 0", ""), "it has 0 colours"),
        (map("\"colours\": 4, \"masks\": [\"0x1\"]", ""), "it has 4 colours, and 1 masks"),
        (map("\"colours\": 4, \"masks\": [\"0x3\", 3]", ""), "is a combination"),
    ] {
        let error = refused_map(&text);
        assert!(error.contains(words), "{words:?} is not in {error} for {text}");
        assert!(error.starts_with("m.json"), "{error}");
    }
    let colours = "frames = { kind = \"exact\", map = \"m.json\", colors = 4 }";
    let load = |_: &str| Ok(of(span("0x1000", 1, "5", "1")));
    let error = parse(colours, "p.toml", &Machine::generic_x86_64(), &load).expect_err("two answers");
    assert!(error.message.contains("leave `colors` out"), "{error}");
}

#[test]
fn mosaics() {
    let overlap = "[[rule]]\nmemory = \"heap\"\npages = { mosaic = [\n [\"2M\", \"6M\", \"2M\"],\n [\"0\", \"4M\", \"2M\"],\n] }";
    let cases: &[Case] = &[
        (overlap, 4, &["interval 2M-6M overlaps interval 0-4M", "p.toml:5"], &[]),
        ("pages = { mosaic = [[0, \"4M\", \"2M\"],\n [\"2M\", \"3M\", \"4K\"]] }", 2, &["overlaps"], &[]),
        ("pages = { mosaic = [[0, \"3M\", \"2M\"]] }", 1, &["not aligned", "end", "2M"], &[]),
        ("pages = { mosaic = [[4096, \"2M\", \"2M\"]] }", 1, &["not aligned", "start"], &[]),
        ("pages = { mosaic = [[\"2M\", \"1026M\", \"1G\"]] }", 1, &["not aligned", "1G"], &[]),
        ("pages = { mosaic = [[0, \"2M\", \"kernel\"]] }", 1, &["needs a page size"], &["2M (thp)"]),
        ("pages = { mosaic = [] }", 1, &["no intervals"], &[]),
        (
            "[[rule]]\nmemory = \"stack\"\npages = { mosaic = [[0, \"2M\", \"2M\"]] }",
            3,
            &["`stack` has no pool"],
            &["heap"],
        ),
    ];
    check(cases, &Machine::generic_x86_64());
    let error = refused("pages = { mosaic = [[0, \"3M\", \"2M\"]] }", &Machine::generic_x86_64());
    assert_eq!(error.next.as_deref(), Some("nearest: 2M or 4M"));
}

#[test]
fn rules() {
    let cases: &[Case] = &[
        ("[[rule]]\npages = \"2M\"", 1, &["does not say what it applies to"], &["heap", "all"]),
        ("[[rule]]\nmemory = \"heap\"", 1, &["says nothing"], &["pages", "fetch"]),
        ("[[rule]]\nmemory = []\npages = \"2M\"", 1, &["empty list"], &["heap"]),
        ("[[rule]]\nmemory = [\"heap\", \"heap\"]\npages = \"2M\"", 2, &["named twice"], &[]),
        ("[[rule]]\nmemory = [\"heap\", \"all\"]\npages = \"2M\"", 2, &["`all` stands alone"], &[]),
        ("[[rule]]\nmemory = \"heap\"\nrange = [0, 4096]\npages = \"4K\"", 3, &["not both"], &[]),
        ("[[rule]]\nrange = [0]\npages = \"4K\"", 2, &["a pair of addresses"], &[]),
        ("[[rule]]\nrange = [8192, 4096]\npages = \"4K\"", 2, &["is empty"], &[]),
        ("[[rule]]\nrange = [0, 1000]\npages = \"4K\"", 2, &["not aligned to 4K"], &[]),
        ("[[rule]]\nrange = [\"4K\", \"8K\"]\npages = \"2M\"", 3, &["not aligned to 2M"], &[]),
        ("[[rule]]\nrange = [0, \"1048576T\"]\npages = \"4K\"", 2, &["where programs end"], &[]),
        ("[[rule]]\nrange = [0, \"2M\"]\npages = { mosaic = [[0, \"2M\", \"2M\"]] }", 3, &["one page size"], &[]),
        ("[[rule]]\nrange = [0, \"1G\"]\npages = \"1G\"", 3, &["cannot have hugetlb"], &["heap"]),
        (
            "[[rule]]\nmemory = \"heap\"\nat_least = \"1M\"\npages = \"2M\"",
            3,
            &["`heap` is not made of mappings"],
            &["anon"],
        ),
        (
            "[[rule]]\nrange = [0, \"2M\"]\nat_least = \"1M\"\npages = \"2M\"",
            3,
            &["a range is not made of mappings"],
            &[],
        ),
        ("[[rule]]\nmemory = \"heap\"\nvia = \"thp\"", 3, &["name `pages` in the same rule"], &[]),
        ("[[rule]]\nmemory = \"anon\"\nfetch = \"willneed\"", 3, &["`willneed` reads files"], &["prefault"]),
        (
            "[[rule]]\nmemory = [\"heap\", \"anon\"]\npages = \"2M\"\n[[rule]]\nmemory = \"anon\"\npages = \"4K\"",
            4,
            &["can never apply", "p.toml:1"],
            &[],
        ),
    ];
    check(cases, &Machine::generic_x86_64());
}

#[test]
fn memory_that_cannot_have_a_size_when_it_is_named() {
    let cases: &[Case] = &[
        (
            "[[rule]]\nmemory = \"file\"\npages = \"2M\"",
            3,
            &["`file` cannot have pages of 2M", "page cache"],
            &["4K", "kernel"],
        ),
        (
            "via = \"hugetlb\"\n[[rule]]\nmemory = \"data\"\npages = \"2M\"",
            4,
            &["`data` cannot", "hugetlb"],
            &["4K"],
        ),
        ("[[rule]]\nmemory = \"stack\"\npages = \"1G\"", 3, &["`stack` cannot", "hugetlb"], &["4K", "2M"]),
        ("[[rule]]\nmemory = \"data\"\npages = \"64K\"", 3, &["`data` cannot", "mTHP"], &["4K", "2M"]),
    ];
    check(cases, &Machine::generic_x86_64());
}

#[test]
fn sizes_the_machine_does_not_offer() {
    let machine = plain_machine();
    let cases: &[Case] = &[
        ("pages = \"64K\"", 1, &["pages of 64K need root"], &["4K", "2M (thp)"]),
        ("pages = \"1G\"", 1, &["no huge pages of 1G are reserved"], &["4K", "2M (thp)"]),
        ("pages = \"2M\"\nvia = \"hugetlb\"", 1, &["no huge pages of 2M are reserved"], &["4K"]),
        ("pages = \"8K\"", 1, &["does not offer pages of 8K"], &["4K"]),
        ("pages = \"16G\"", 1, &["does not offer pages of 16G"], &["4K"]),
    ];
    check(cases, &machine);
    let next = |text: &str| refused(text, &machine).next.unwrap_or_default();
    assert_eq!(next("pages = \"1G\""), "run: sudo pagelab doctor --fix hugepages-1G=1");
    let three = "via = \"hugetlb\"\npages = { mosaic = [[0, \"6M\", \"2M\"]] }";
    assert_eq!(next(three), "run: sudo pagelab doctor --fix hugepages-2M=3");
    assert_eq!(next("pages = \"8K\""), "run: pagelab doctor, to see what it offers");
}

#[test]
fn a_pool_whose_pages_are_all_in_use_is_to_grow() {
    // Regression: the advice was the missing number alone, which takes the others away from who uses them.
    let mut machine = plain_machine();
    machine.hugetlb[0].total_pages = Some(512);
    let error = refused("via = \"hugetlb\"\npages = { mosaic = [[0, \"6M\", \"2M\"]] }", &machine);
    assert_eq!(error.message, "all 512 huge pages of 2M are in use");
    assert_eq!(error.next.as_deref(), Some("run: sudo pagelab doctor --fix hugepages-2M=515"));
}

#[test]
fn thp_sizes_that_hugetlb_does_not_have() {
    let error = refused("via = \"hugetlb\"\npages = \"64K\"", &Machine::generic_x86_64());
    assert_eq!(error.message, "hugetlb has no pages of 64K on this machine, only transparent huge pages");
    assert_eq!(error.allowed, ["4K", "2M (hugetlb)", "1G (hugetlb)", "kernel"]);
}

#[test]
fn more_intervals_than_the_kernel_allows_mappings() {
    let tiles: Vec<String> = (0..20).map(|n| format!("[\"{}M\", \"{}M\", \"2M\"]", 4 * n, 4 * n + 2)).collect();
    let text = format!("pages = {{ mosaic = [{}] }}", tiles.join(", "));
    let machine = Machine { max_map_count: Some(64), ..Machine::generic_x86_64() };
    let error = refused(&text, &machine);
    assert!(error.message.contains("20 intervals"), "{error}");
    assert_eq!(error.next.as_deref(), Some("run: sudo pagelab doctor --fix max_map_count=160"));
}
