//! Known answers, and the fast simulator against a naive one.

use std::collections::HashMap;

use pagelab_trace::{Kind, Kinds, MemoryReferences, Reference, Run, RunSource, RunsOfReferences, Segment};
use proptest::prelude::*;

use super::{Cost, Outcome, Simulation, TlbSpec};
use crate::allocate::{Extent, History, Layout, Memory, Strategy};
use crate::cpu::tests::on_every_level;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn fresh() -> History {
    History { turnover: 0.0, memory_bytes: 256 << 20, ..History::default() }
}

fn spec(json: &str) -> TlbSpec {
    serde_json::from_str(json).unwrap()
}

fn run(spec: &TlbSpec, layout: Layout, addresses: impl Iterator<Item = u64>, passes: usize) -> Outcome {
    let references: Vec<Reference> = addresses.map(|address| Reference::new(address, Kind::Load, 8)).collect();
    let memory = Memory::new(&fresh(), Strategy::KERNEL, layout, 0);
    let mut simulation = Simulation::new(spec, None, memory, &fresh(), 0).unwrap();
    for _ in 0..passes {
        simulation.feed(&Segment { asid: 0, thread: 0, references: &references });
        assert_eq!(simulation.check(), Ok(()));
    }
    simulation.finish()
}

/// MOSAIC's Haswell: 64 + 1024 entries of 4 KiB, 32 of 2 MiB before the shared second level.
fn haswell() -> TlbSpec {
    spec(
        r#"{"first": [{"pages": [4096], "entries": 64, "ways": 4}, {"pages": [2097152], "entries": 32, "ways": 4},
        {"pages": [1073741824], "entries": 4}], "second": [{"pages": [4096, 2097152], "entries": 1024, "ways": 8}]}"#,
    )
}

fn hm(outcome: &Outcome) -> (u64, u64) {
    let cost = outcome.counts.cost();
    (cost.hits, cost.misses)
}

#[test]
fn a_chase_over_pages_misses_where_they_do_not_fit() {
    // One reference per page, repeated: a page that does not fit misses each time, under LRU without exception.
    let chase = |pages: u64, bits: u32| {
        hm(&run(&haswell(), Layout::uniform(bits), (0..pages).map(move |page| page << bits), 5))
    };
    assert_eq!(chase(64, 12), (0, 64));
    assert_eq!(chase(128, 12), (4 * 128, 128));
    assert_eq!(chase(1024, 12), (4 * 1024, 1024));
    assert_eq!(chase(2048, 12), (0, 5 * 2048));
    assert_eq!(chase(32, 21), (0, 32));
    assert_eq!(chase(1024, 21), (4 * 1024, 1024));
    // Pages of 1 GiB have no second level: every miss walks.
    assert_eq!(chase(4, 30), (0, 4));
    assert_eq!(chase(5, 30), (0, 5 * 5));
}

#[test]
fn sets_need_no_power_of_two() {
    let odd = spec(
        r#"{"first": [{"pages": [4096], "entries": 48, "ways": 4}], "second": [{"pages": [4096], "entries": 1536, "ways": 8}]}"#,
    );
    let chase = |pages: u64| hm(&run(&odd, Layout::default(), (0..pages).map(|page| page << 12), 3));
    assert_eq!(chase(48), (0, 48));
    assert_eq!(chase(1536), (2 * 1536, 1536));
    // One page more: nine pages map to the first of the 192 sets, and each of them misses each time.
    assert_eq!(chase(1537), (2 * (1536 - 8), 1537 + 2 * 9));
}

#[test]
fn walks_read_as_many_entries_as_the_tables_have_levels() {
    let reads = |levels: u32, bits: u32| {
        let tlb = TlbSpec { levels, ..haswell() };
        let outcome = run(&tlb, Layout::uniform(bits), std::iter::once(1 << 40), 1);
        (outcome.counts.reads, outcome.counts.cost().walk_cycles)
    };
    // Intel SDM vol. 3, 4.5: PML4E, PDPTE, PDE, PTE; 5-level paging adds one. Ten cycles each.
    assert_eq!([reads(4, 12), reads(4, 21), reads(4, 30), reads(5, 12)], [(4, 40), (3, 30), (2, 20), (5, 50)]);
    // 64 KiB pages are sixteen entries of the last table.
    assert_eq!(reads(4, 16), (4, 40));
}

#[test]
fn walk_caches_let_walks_begin_further_down() {
    let mut tlb = haswell();
    tlb.walk_caches = spec(
        r#"{"first": [{"pages": [4096], "entries": 1}], "walk_caches": [{"spans": 2097152, "entries": 4},
        {"spans": 1073741824, "entries": 2}, {"spans": 549755813888, "entries": 1}]}"#,
    )
    .walk_caches;
    let reads = |addresses: &[u64]| run(&tlb, Layout::default(), addresses.iter().copied(), 1).counts.reads;
    assert_eq!(reads(&[0, 4096]), 4 + 1);
    assert_eq!(reads(&[0, 2 * MIB]), 4 + 2);
    assert_eq!(reads(&[0, 1 << 30]), 4 + 3);
    assert_eq!(reads(&[0, 1 << 39]), 4 + 4);
    // Five last-level tables do not fit into four entries; the level above still helps.
    assert_eq!(reads(&[0, 2 * MIB, 4 * MIB, 6 * MIB, 8 * MIB, 4096]), 4 + 4 * 2 + 2);
}

#[test]
fn two_dimensions_read_24_entries() {
    // Bhargava et al., Accelerating Two-Dimensional Page Walks for Virtualized Systems (ASPLOS 2008), figure 1: 24
    // references.
    let mut tlb = haswell();
    let nested = |json: &str| Some(serde_json::from_str(json).unwrap());
    tlb.nested = nested(r#"{"page_bytes": 4096}"#);
    let reads = |tlb: &TlbSpec, bits| {
        let outcome = run(tlb, Layout::uniform(bits), std::iter::once(0), 1);
        (outcome.counts.reads, outcome.counts.host_reads)
    };
    assert_eq!(reads(&tlb, 12), (24, 20));
    assert_eq!(reads(&tlb, 21), (19, 16));
    tlb.nested = nested(r#"{"page_bytes": 2097152}"#);
    assert_eq!(reads(&tlb, 21), (3 + 4 * 3, 4 * 3));
    // Guest tables that lie in one host page are translated once.
    tlb.nested = nested(r#"{"page_bytes": 1073741824, "tlb": {"pages": [1073741824], "entries": 1}}"#);
    assert_eq!(reads(&tlb, 12), (4 + 2, 2));
}

#[test]
fn a_guests_large_page_on_small_host_pages_needs_small_entries() {
    let mut tlb = haswell();
    tlb.nested = Some(serde_json::from_str(r#"{"page_bytes": 4096}"#).unwrap());
    let outcome = run(&tlb, Layout::uniform(21), (0..64).map(|page| page << 12), 1);
    assert_eq!(outcome.counts.cost().misses, 64);
}

#[test]
fn a_second_walker_overlaps_walks() {
    let chase = |walkers| {
        let tlb = TlbSpec { walkers, ..haswell() };
        run(&tlb, Layout::default(), (0..1000).map(|page| page << 12), 1).counts
    };
    let [one, two] = [chase(1), chase(2)];
    assert_eq!((one.cost().walk_cycles, two.cost().walk_cycles), (40_000, 40_000));
    // One walker is busy all the time, from the first walk to the end of the last.
    assert_eq!(one.active_cycles, 40_000.0);
    // Two walkers share the walks; the second starts a cycle after the first, and each pair after it.
    assert!((two.active_cycles - 20_000.0).abs() < 50.0, "{two:?}");
    assert!(two.queue_cycles < one.queue_cycles / 1.9);
    // With enough time between references, nothing waits.
    let slow = TlbSpec { cycles_per_reference: 100.0, ..haswell() };
    let slow = run(&slow, Layout::default(), (0..1000).map(|page| page << 12), 1).counts;
    assert_eq!((slow.queue_cycles, slow.active_cycles), (0.0, 40_000.0));
}

#[test]
fn mosaics_cost_by_window() {
    let extents = vec![Extent { start: 0, end: 8 * MIB, page_bits: 21 }];
    let layout = Layout::new(extents, 12).unwrap();
    let outcome = run(&haswell(), layout, (0..4096).map(|page| page << 12), 1);
    let windows: Vec<(u64, u64)> =
        outcome.windows.iter().map(|window| (window.start, window.cost.misses)).collect();
    let expected: Vec<(u64, u64)> = (0..8).map(|at| (at * 2 * MIB, if at < 4 { 1 } else { 512 })).collect();
    assert_eq!(windows, expected);
    assert_eq!(outcome.counts.by_leaf.map(|cost| cost.misses), [4 * 512, 4, 0]);
}

#[test]
fn neighbours_in_memory_become_one_entry_where_the_hardware_does_that() {
    let zen = r#"{"coalesces": true, "first": [{"pages": [4096, 16384, 2097152], "entries": 64}],
        "second": [{"pages": [4096, 16384], "entries": 512, "ways": 4}]}"#;
    let pages = || (0..1024_u64).map(|page| page << 12);
    // mTHP of 16 KiB: one miss per folio, whether software or hardware makes the entry.
    let folios = run(&spec(zen), Layout::uniform(14), pages(), 1);
    assert_eq!(hm(&folios), (0, 256));
    // Base pages of a fresh machine are in order. At the first touch the neighbours are not there yet, at the second
    // they are. From the third pass on, only the 256 entries count.
    let base = [1, 2, 3, 6].map(|passes| run(&spec(zen), Layout::default(), pages(), passes).counts);
    assert_eq!((base[0].coalesced, base[0].cost().misses), (256, 1024));
    assert!(base[1].cost().misses <= 1024 + 256, "{:?}", base[1]);
    assert_eq!(base[2].cost().misses, base[3].cost().misses);
    let plain = TlbSpec { coalesces: false, ..spec(zen) };
    assert_eq!(run(&plain, Layout::default(), pages(), 3).counts.coalesced, 0);
    assert_eq!(hm(&run(&plain, Layout::uniform(14), pages(), 1)), (0, 256));
}

#[test]
fn table_entries_compete_for_the_data_caches() {
    let caches: crate::cache::HierarchySpec = serde_json::from_str(
        r#"{"memory_cycles": 200, "levels": [{"name": "L1", "bytes": 32768, "ways": 8, "cycles": 4},
        {"name": "L2", "bytes": 1048576, "ways": 16, "cycles": 14}]}"#,
    )
    .unwrap();
    let references: Vec<Reference> = (0..8192).map(|page| Reference::new(page << 12, Kind::Load, 8)).collect();
    let memory = Memory::new(&fresh(), Strategy::KERNEL, Layout::default(), 0);
    let tlb = TlbSpec { walks_enter_level: 2, ..haswell() };
    let mut simulation = Simulation::new(&tlb, Some(&caches), memory, &fresh(), 0).unwrap();
    simulation.feed(&Segment { asid: 0, thread: 0, references: &references });
    assert_eq!(simulation.check(), Ok(()));
    let outcome = simulation.finish();
    // Four reads per walk, past the first level. Eight entries share a line, so an eighth of the last reads goes to
    // memory, with sixteen last-level tables and the three above.
    assert_eq!((outcome.levels[0].accesses[3], outcome.levels[1].accesses[3]), (0, 4 * 8192));
    let lines = 8192 / 8 + 16 / 8 + 1 + 1;
    assert_eq!(outcome.levels[1].misses[3], lines);
    assert_eq!(outcome.counts.cost().walk_cycles, lines * 200 + (4 * 8192 - lines) * 14);
    assert_eq!(outcome.levels[0].accesses[0], 8192);
}

#[test]
fn a_reference_within_a_page_is_one_translation_whatever_lies_in_it() {
    let arrays = r#"{"first": [{"pages": [4096, 2097152], "entries": 64}, {"pages": [1073741824], "entries": 4}]}"#;
    let translations = |page_bits: u32, at: u64, size: u32| {
        let memory = Memory::new(&fresh(), Strategy::KERNEL, Layout::uniform(page_bits), 0);
        let mut simulation = Simulation::new(&spec(arrays), None, memory, &fresh(), 0).unwrap();
        let references = [Reference::new(at, Kind::Load, size); 10];
        simulation.feed(&Segment { asid: 0, thread: 0, references: &references });
        let counts = simulation.finish().counts;
        (counts.translations, counts.cost().misses)
    };
    for page_bits in [21, 30] {
        assert_eq!(translations(page_bits, 4096 - 4, 8), (10, 1));
        assert_eq!(translations(page_bits, 4096 - 60, 64), (10, 1));
        assert_eq!(translations(page_bits, (1 << page_bits) - 4, 8), (20, 2));
    }
    // For 64K, the table and these arrays have an entry for each 4K.
    assert_eq!(translations(16, 4096 - 4, 8), (20, 2));
    assert_eq!(translations(12, 4096 - 4, 8), (20, 2));
}

/// The second level of Ice Lake's servers: 4K in both halves, 2M in one, 1G in the other.
const HALVES: &str = r#"{"first": [{"pages": [4096], "entries": 64, "ways": 4}, {"pages": [2097152], "entries": 32, "ways": 4},
    {"pages": [1073741824], "entries": 8}],
    "second": [{"pages": [4096, 2097152, 1073741824], "entries": 2048, "ways": 8,
    "parts": [[4096, 2097152], [4096, 1073741824]]}]}"#;

#[test]
fn sizes_compete_for_the_parts_that_they_share() {
    let alone = |page_bits: u32, pages: u64| {
        let addresses = (0..pages).map(move |page| page << page_bits);
        run(&spec(HALVES), Layout::uniform(page_bits), addresses, 4).counts.cost().misses
    };
    // Each size alone has all the entries that it can use.
    assert_eq!([alone(12, 2048), alone(21, 1024), alone(30, 1024)], [2048, 1024, 1024]);
    assert_eq!([alone(12, 4096), alone(21, 2048)], [4 * 4096, 4 * 2048]);
    // 1,500 and 800 pages at random: the half for both has 1,550 pages for 1,024 entries. (A list of each half, counted
    // separately from this code: 23.9% of 400,000.)
    let extents = vec![Extent { start: 1 << 40, end: (1 << 40) + 800 * 2 * MIB, page_bits: 21 }];
    let mut random = 1_u64;
    let addresses = (0..400_000).map(|_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = (random >> 33) % 2300;
        if page < 1500 { page << 12 } else { (1 << 40) + ((page - 1500) << 21) }
    });
    let mixed = run(&spec(HALVES), Layout::new(extents, 12).unwrap(), addresses, 1).counts;
    let share = mixed.cost().misses as f64 / mixed.translations as f64;
    assert!((0.23..0.25).contains(&share), "{share}");
}

#[test]
fn stores_have_entries_of_their_own_where_they_are_described() {
    let tlb = spec(
        r#"{"first": [{"pages": [4096], "entries": 64, "serves": "load"}, {"pages": [4096], "entries": 16, "serves": "store"}],
        "second": [{"pages": [4096], "entries": 1024}]}"#,
    );
    let misses = |kinds: &[Kind], pages: u64| {
        let references: Vec<Reference> = (0..8 * pages)
            .flat_map(|at| kinds.iter().map(move |kind| Reference::new((at % pages) << 12, *kind, 8)))
            .collect();
        let memory = Memory::new(&fresh(), Strategy::KERNEL, Layout::default(), 0);
        let mut simulation = Simulation::new(&tlb, None, memory, &fresh(), 0).unwrap();
        simulation.feed(&Segment { asid: 0, thread: 0, references: &references });
        assert_eq!(simulation.check(), Ok(()));
        let counts = simulation.finish().counts;
        assert_eq!(counts.translations, references.len() as u64);
        (counts.cost().hits, counts.cost().misses)
    };
    assert_eq!(misses(&[Kind::Load], 64), (0, 64));
    assert_eq!(misses(&[Kind::Store], 16), (0, 16));
    assert_eq!(misses(&[Kind::Store], 32), (7 * 32, 32));
    // Each side fills its own array: the second to come finds the page in the second level.
    assert_eq!(misses(&[Kind::Load, Kind::Store], 16), (16, 16));
    assert_eq!(misses(&[Kind::Load, Kind::Store], 64), (8 * 64, 64));
}

#[test]
fn what_cannot_be_built_is_refused() {
    let refusal = |json: &str| spec(json).check().unwrap_err().0;
    assert!(refusal(r#"{"first": []}"#).contains("no array serves data"));
    assert!(refusal(r#"{"first": [{"pages": [4096], "entries": 100, "ways": 8}]}"#).contains("no whole sets of 8"));
    assert!(refusal(r#"{"first": [{"pages": [5000], "entries": 8}]}"#).contains("powers of two"));
    assert!(
        refusal(r#"{"first": [{"pages": [4096], "entries": 8}, {"pages": [4096], "entries": 8}]}"#)
            .contains("two arrays")
    );
    assert!(refusal(r#"{"levels": 3, "first": [{"pages": [4096], "entries": 8}]}"#).contains("allowed: 4, 5"));
    let sides =
        r#"{"first": [{"pages": [4096], "entries": 8}, {"pages": [4096], "entries": 8, "serves": "store"}]}"#;
    assert!(refusal(sides).contains("by load and store"));
    let parts = |parts: &str| {
        let second = format!(r#"{{"pages": [4096, 2097152], "entries": 96, "ways": 4, "parts": {parts}}}"#);
        refusal(&format!(r#"{{"first": [{{"pages": [4096], "entries": 8}}], "second": [{second}]}}"#))
    };
    assert!(parts("[[4096], [2097152], [4096]]").contains("in 2 groups of parts"));
    assert!(parts("[[4096], [4096]]").contains("in 0 groups of parts"));
    assert!(parts("[[4096, 1073741824], [2097152]]").contains("not among its pages"));
    assert!(parts("[[4096], [4096], [4096], [4096], [2097152]]").contains("no 5 equal parts"));
    let cache = r#"{"first": [{"pages": [4096], "entries": 8}], "walk_caches": [{"spans": 4096, "entries": 8}]}"#;
    assert!(refusal(cache).contains("spans is one of"));
}

/// Lists of entries, most recent first; pages of 4 KiB and 2 MiB; no walk caches.
fn naive(
    references: &[Reference],
    layout: &Layout,
    shapes: [(usize, usize); 3],
) -> (Cost, HashMap<u64, Cost>, u64) {
    let mut arrays: [Vec<Vec<(u32, u64)>>; 3] = shapes.map(|(sets, _)| vec![vec![]; sets]);
    let mut touch = |array: usize, entry: (u32, u64)| {
        let (sets, ways) = shapes[array];
        let list = &mut arrays[array][(entry.1 % sets as u64) as usize];
        let at = list.iter().position(|other| *other == entry);
        if let Some(at) = at {
            list.remove(at);
        }
        list.insert(0, entry);
        list.truncate(ways);
        at.is_some()
    };
    let (mut sum, mut windows) = (Cost::default(), HashMap::<u64, Cost>::new());
    let mut translations = 0;
    for reference in references {
        let mut addresses = vec![reference.address()];
        let bits = layout.page_bits(reference.address());
        if reference.last_byte() >> bits != reference.address() >> bits {
            addresses.push(reference.last_byte());
        }
        translations += addresses.len() as u64;
        for address in addresses {
            let bits = layout.page_bits(address);
            let entry = (bits, address >> bits);
            if !touch(usize::from(bits == 21), entry) {
                let hit = touch(2, entry);
                let cycles = if bits == 21 { 30 } else { 40 };
                let cost =
                    Cost { hits: hit.into(), misses: (!hit).into(), walk_cycles: if hit { 0 } else { cycles } };
                for sum in [&mut sum, windows.entry(address >> 21 << 21).or_default()] {
                    sum.hits += cost.hits;
                    sum.misses += cost.misses;
                    sum.walk_cycles += cost.walk_cycles;
                }
            }
        }
    }
    (sum, windows, translations)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn mixed_sizes_cost_what_naive_lists_cost(
        list in prop::collection::vec(
            (prop_oneof![0_u64..3000, 0_u64..40, 0_u64..5], prop_oneof![Just(1_u32), Just(8), Just(4096)]), 1..1500,
        ),
        large in prop::collection::btree_set(0_u64..6, 0..5),
    ) {
        let extents = large.into_iter().map(|at| Extent { start: at * 2 * MIB, end: (at + 1) * 2 * MIB, page_bits: 21 });
        let layout = Layout::new(extents.collect(), 12).unwrap();
        let references: Vec<Reference> =
            list.iter().map(|(at, size)| Reference::new(at * 4 * KIB + at % 5 * 1021, Kind::Load, *size)).collect();
        let tlb = spec(
            r#"{"first": [{"pages": [4096], "entries": 24, "ways": 4}, {"pages": [2097152], "entries": 3}],
            "second": [{"pages": [4096, 2097152], "entries": 60, "ways": 5}]}"#,
        );
        let memory = Memory::new(&History { memory_bytes: 16 << 20, ..fresh() }, Strategy::KERNEL, layout.clone(), 0);
        let mut simulation = Simulation::new(&tlb, None, memory, &fresh(), 0).unwrap();
        for references in references.chunks(77) {
            simulation.feed(&Segment { asid: 0, thread: 0, references });
        }
        prop_assert_eq!(simulation.check(), Ok(()));
        let outcome = simulation.finish();
        let (sum, windows, translations) = naive(&references, &layout, [(6, 4), (1, 3), (12, 5)]);
        prop_assert_eq!((outcome.counts.cost(), outcome.counts.translations), (sum, translations));
        let found: HashMap<u64, Cost> = outcome.windows.iter().map(|window| (window.start, window.cost)).collect();
        prop_assert_eq!(found, windows);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_settled_page_is_what_would_be_found(
        list in prop::collection::vec(
            (prop_oneof![0_u64..300, 0_u64..30, 0_u64..5], 0_u64..4096, 0_u16..2, 1_usize..6, 0_u8..3), 1..800),
        first in 0_usize..3, second in 0_usize..3, coalesces: bool, many: bool, apart: bool,
    ) {
        let policies = ["lru", "tree-plru", "random"];
        // 128 sets are more than there are counters of changes.
        let entries = if many { 512 } else { 16 };
        let stores = if apart { r#", {"pages": [4096], "entries": 8, "ways": 2, "serves": "store"}"# } else { "" };
        let tlb = spec(&format!(
            r#"{{"coalesces": {coalesces}, "first": [{{"pages": [4096, 16384], "entries": {entries}, "ways": 4,
            "replacement": "{}", "serves": "{}"}}{stores}],
            "second": [{{"pages": [4096, 16384], "entries": 64, "ways": 4, "replacement": "{}"}}]}}"#,
            policies[first], if apart { "load" } else { "data" }, policies[second],
        ));
        let outcome = |together: bool| {
            let memory = Memory::new(&fresh(), Strategy::KERNEL, Layout::default(), 0);
            let new = Simulation::new(&tlb, None, memory, &fresh(), 3).unwrap();
            let mut simulation = if together { new } else { new.one_by_one() };
            for &(page, offset, asid, times, kind) in &list {
                let address = page << 12 | offset;
                let references = vec![Reference::new(address, Kind::from_code(kind), 1 + (offset % 70) as u32); times];
                simulation.feed(&Segment { asid, thread: 0, references: &references });
            }
            assert_eq!(simulation.check(), Ok(()));
            simulation.finish()
        };
        prop_assert_eq!(outcome(true), outcome(false));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn batches_cost_what_their_references_cost(
        seed: u64, pages in prop_oneof![Just(20_u64), Just(300), Just(4000), Just(300_000)], cut in 1_usize..3000,
        first_ways in 1_usize..10, second_ways in 1_usize..18, sets in 1_usize..10, walk_ways in 1_usize..6, walkers in 1_usize..3,
        policies in (0_usize..4, 0_usize..4, 0_usize..4), apart: bool, two: bool, nested: bool, large: bool, caches in 0_usize..4,
    ) {
        // The first policy appears twice, because batches use it.
        let policy = |number: usize, ways: usize| match ["lru", "lru", "random", "tree-plru"][number] {
            "tree-plru" if !ways.is_power_of_two() => "lru",
            policy => policy,
        };
        let array = |pages: &str, ways: usize, sets: usize, number: usize| {
            format!(r#"{{"pages": [{pages}], "entries": {}, "ways": {ways}, "replacement": "{}""#, ways * sets, policy(number, ways))
        };
        let stores = format!(r#", {}, "serves": "store"}}"#, array("4096, 2097152", 2, 4, 0));
        let second = if two {
            [array("4096", second_ways, sets, policies.1), array("2097152", 2, 2, policies.1)].join("}, ")
        } else {
            array("4096, 2097152", second_ways, sets, policies.1)
        };
        let spans = [2_u64 << 20, 1 << 30, 1 << 39];
        let walk: Vec<String> = spans[..caches].iter().map(|spans| {
            let policy = policy(policies.2, walk_ways);
            format!(r#"{{"spans": {spans}, "entries": {}, "ways": {walk_ways}, "replacement": "{policy}"}}"#, 2 * walk_ways)
        }).collect();
        let tlb = spec(&format!(
            r#"{{"first": [{}, "serves": "{}"}}{}], "second": [{second}}}], "walkers": {walkers}, "walk_caches": [{}]
            {}}}"#,
            array("4096, 2097152", first_ways, sets, policies.0), if apart { "load" } else { "data" },
            if apart { stores.as_str() } else { "" }, walk.join(", "),
            if nested { r#", "nested": {"page_bytes": 4096}"# } else { "" },
        ));
        let extents = [(0, 2 * MIB, 21), (1 << 30, 2 << 30, 30)].map(|(start, end, page_bits)| Extent { start, end, page_bits });
        let layout = if large { Layout::new(extents.to_vec(), 12).unwrap() } else { Layout::default() };
        let mut random = pagelab_stats::stream::SplitMix64::new(seed);
        let references: Vec<Reference> = (0..6000)
            .map(|nth| {
                // Half of them near the beginning, and every second batch on a few; one in about eighty crosses into the
                // next page.
                let pages = if nth / 1024 % 2 == 0 { pages } else { pages.min(9) };
                let page = random.below(pages).min(random.below(pages)) * if random.below(2) == 0 { 1 } else { 7 };
                let kind = Kind::from_code([0, 0, 0, 1, 1, 2][random.below(6) as usize]);
                Reference::new(page << 12 | random.below(4096), kind, 1 + random.below(100) as u32)
            })
            .collect();
        let outcome = |together: bool| {
            let history = History { memory_bytes: 4 << 30, ..fresh() };
            let memory = Memory::new(&history, Strategy::KERNEL, layout.clone(), 0);
            let new = Simulation::new(&tlb, None, memory, &history, 3).unwrap();
            let mut simulation = if together { new } else { new.one_by_one() };
            for (number, references) in references.chunks(cut).enumerate() {
                simulation.feed(&Segment { asid: (number % 2) as u16, thread: 0, references });
            }
            assert_eq!(simulation.check(), Ok(()));
            simulation.finish()
        };
        let one_by_one = outcome(false);
        for together in on_every_level(|| outcome(true)) {
            prop_assert_eq!(&together, &one_by_one);
        }
    }
}

/// The runs of these references, as a trace contains them.
fn runs_of(references: &[Reference]) -> Vec<Run> {
    let mut source = RunsOfReferences::new(MemoryReferences::new(references), 12, Kinds::DATA);
    let mut runs = vec![];
    while let Some(batch) = source.next_runs().unwrap() {
        runs.extend_from_slice(batch);
    }
    runs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn page_runs_cost_what_their_references_cost(
        list in prop::collection::vec((prop_oneof![0_u64..3000, 0_u64..40, 0_u64..5], 0_u64..4096, 1_usize..9), 1..800),
        large in prop::collection::btree_set(0_u64..6, 0..5),
        policy in 0_usize..3, size in prop_oneof![Just(1_u32), Just(8), Just(32), Just(64)], coalesces: bool, nested: bool,
        held in 0_usize..3,
    ) {
        // Where no array of the first level holds large pages, or none at all, each reference asks what is behind.
        let first = [r#", {"pages": [2097152], "entries": 4}"#, "", ""][held];
        let second = ["4096, 16384, 2097152", "4096, 16384, 2097152", "4096, 16384"][held];
        let policy = ["lru", "tree-plru", "random"][policy];
        let host = if nested { r#""nested": {"page_bytes": 2097152, "levels": 4},"# } else { "" };
        let tlb = spec(&format!(
            r#"{{"coalesces": {coalesces}, {host} "walkers": 2,
            "first": [{{"pages": [4096, 16384], "entries": 16, "ways": 4, "replacement": "{policy}"}}{first}],
            "second": [{{"pages": [{second}], "entries": 64, "ways": 4, "replacement": "{policy}"}}]}}"#
        ));
        let extents = large.into_iter().map(|at| Extent { start: at * 2 * MIB, end: (at + 1) * 2 * MIB, page_bits: 21 });
        let layout = Layout::new(extents.collect(), 12).unwrap();
        let references: Vec<Reference> = list
            .iter()
            .flat_map(|&(page, within, times)| (0..times).map(move |_| Reference::new(page << 12 | within, Kind::Store, size)))
            .collect();
        let simulation = || {
            let memory = Memory::new(&fresh(), Strategy::KERNEL, layout.clone(), 0);
            Simulation::new(&tlb, None, memory, &fresh(), 3).unwrap()
        };
        let (mut full, mut short) = (simulation(), simulation());
        full.feed(&Segment { asid: 0, thread: 0, references: &references });
        let runs = runs_of(&references);
        prop_assert_eq!(runs.iter().map(|run| run.count).sum::<u64>() >= references.len() as u64, true);
        short.feed_runs(&runs).unwrap();
        prop_assert_eq!(short.check(), Ok(()));
        let (full, short) = (full.finish(), short.finish());
        let crossing = references.iter().any(|one| one.address() >> 12 != one.last_byte() >> 12);
        if crossing && held > 0 {
            // Two runs do not tell that one reference crossed from one page to the other: each misses.
            prop_assert!(full.counts.by_leaf[1].hits <= short.counts.by_leaf[1].hits);
            prop_assert!(full.counts.by_leaf[1].misses <= short.counts.by_leaf[1].misses);
        } else if crossing {
            // From a reference that crosses the end of a page inside an entry, runs make two, so time passes a little
            // differently.
            prop_assert_eq!(full.counts.by_leaf, short.counts.by_leaf);
            prop_assert_eq!(full.counts.reads, short.counts.reads);
            prop_assert_eq!(full.windows, short.windows);
        } else {
            prop_assert_eq!(full, short);
        }
    }
}

#[test]
fn page_runs_are_refused_where_they_tell_too_little() {
    let refused = |json: &str| {
        let memory = Memory::new(&fresh(), Strategy::KERNEL, Layout::default(), 0);
        let mut simulation = Simulation::new(&spec(json), None, memory, &fresh(), 0).unwrap();
        simulation.feed_runs(&[Run::new(0, 1, 5)]).map_err(|error| error.to_string())
    };
    assert_eq!(refused(r#"{"first": [{"pages": [4096], "entries": 16}]}"#), Ok(()));
    let cores = refused(r#"{"cores": 2, "first": [{"pages": [4096], "entries": 16}]}"#);
    assert!(cores.unwrap_err().contains("threads"));
    let stores = refused(
        r#"{"first": [{"pages": [4096], "entries": 16, "serves": "load"}, {"pages": [4096], "entries": 16, "serves": "store"}]}"#,
    );
    assert!(stores.unwrap_err().contains("stores"));
}

/// A run of a page that no array holds was one miss, whatever its count; its list of misses is longer than a batch.
#[test]
fn long_runs_of_pages_that_no_array_holds_miss_each_time() {
    let tlb = spec(r#"{"first": [{"pages": [4096], "entries": 4}], "second": [{"pages": [4096], "entries": 16}]}"#);
    let memory = Memory::new(&fresh(), Strategy::KERNEL, Layout::new(vec![], 21).unwrap(), 0);
    let mut simulation = Simulation::new(&tlb, None, memory, &fresh(), 0).unwrap();
    simulation.feed_runs(&[Run::new(0, 1, 700); 9]).unwrap();
    simulation.feed_runs(&[Run::new(0, 1, 10_000)]).unwrap();
    let counts = simulation.finish().counts;
    assert_eq!((counts.translations, counts.cost().misses), (16_300, 16_300));
}

/// Its bits above the 44th are the address space of another page.
#[test]
fn runs_of_pages_that_no_address_has_are_refused() {
    let memory = Memory::new(&fresh(), Strategy::KERNEL, Layout::default(), 0);
    let tlb = spec(r#"{"first": [{"pages": [4096], "entries": 16}]}"#);
    let mut simulation = Simulation::new(&tlb, None, memory, &fresh(), 0).unwrap();
    simulation.feed_runs(&[Run::new(1, (1 << 44) - 1, 1)]).unwrap();
    let error = simulation.feed_runs(&[Run::new(0, 1 << 44, 1)]).unwrap_err().to_string();
    assert!(error.contains("0x100000000000 is at no address"), "{error}");
}
