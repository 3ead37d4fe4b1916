//! References per CPU-second of the cache and TLB simulators, on references decoded in memory: one JSON object a line.
//!
//! usage: `cache_speed FILE [REPEATS [WORK]]` (a pagelab trace, or `zipf`; WORK: only this one)

#![allow(unsafe_code, reason = "CPU time comes from the C library")]

use std::time::Duration;

use pagelab_simulate::allocate::{History, Layout, Memory, Strategy};
use pagelab_simulate::{cache, tlb};
use pagelab_trace::{Kind, Kinds, Reference, ReferenceSource, Segment, TraceReader};

const CACHES: &str = r#"{"memory_cycles": 200, "levels": [{"name": "L1d", "bytes": 32768, "ways": 8, "cycles": 4},
    {"name": "L2", "bytes": 524288, "ways": 8, "cycles": 14}, {"name": "L3", "bytes": 33554432, "ways": 16, "cycles": 46}]}"#;
const TLB: &str = r#"{"first": [{"pages": [4096], "entries": 64, "ways": 4}, {"pages": [2097152], "entries": 32, "ways": 4}],
    "second": [{"pages": [4096, 2097152], "entries": 1536, "ways": 12}],
    "walk_caches": [{"spans": 2097152, "entries": 32, "ways": 4}, {"spans": 1073741824, "entries": 4}]}"#;

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that lives.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn memory() -> Memory {
    let history = History { turnover: 0.0, ..History::default() };
    Memory::new(&history, Strategy::KERNEL, Layout::default(), 1)
}

/// Zipf 0.9 over 100,000 lines that are scattered over as many pages.
fn zipf(count: usize) -> Vec<Reference> {
    let mut sum = 0.0;
    let cumulated: Vec<f64> = (1..=100_000)
        .map(|rank| {
            sum += f64::from(rank).powf(-0.9);
            sum
        })
        .collect();
    let mut state = 42_u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    };
    let one = |_| {
        let drawn = (next() >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        let rank = cumulated.partition_point(|value| *value < drawn) as u64;
        let page = rank.wrapping_mul(48_271) % 100_003;
        Reference::new(page << 12 | (rank.wrapping_mul(2_654_435_761) >> 7 & 63) << 6, Kind::Load, 8)
    };
    (0..count).map(one).collect()
}

fn read(path: &str) -> Vec<Reference> {
    let file = std::fs::File::open(path).expect("the trace opens");
    let reader = TraceReader::new(std::io::BufReader::new(file)).expect("it is a trace");
    let mut source = reader.into_references().expect("it has references");
    let mut all = vec![];
    while let Some(batch) = source.next_references().expect("it is whole") {
        all.extend(batch.all().iter().filter(|reference| Kinds::DATA.has(reference.kind())));
    }
    all
}

fn time(name: &str, count: usize, work: impl FnOnce()) {
    if std::env::args().nth(3).is_some_and(|only| only != name) {
        return;
    }
    let before = cpu_time();
    work();
    let seconds = (cpu_time() - before).as_secs_f64();
    println!(
        r#"{{"work": "{name}", "references": {count}, "cpu_s": {seconds:.3}, "mref_per_cpu_s": {:.1}}}"#,
        count as f64 / seconds / 1e6
    );
}

fn main() {
    let path = std::env::args().nth(1).expect("usage: cache_speed FILE|zipf [REPEATS [WORK]]");
    let repeats: usize = std::env::args().nth(2).map_or(1, |text| text.parse().expect("REPEATS is a number"));
    let references = if path == "zipf" { zipf(20_000_000) } else { read(&path) };
    let segment = Segment { asid: 0, thread: 0, references: &references };
    let count = references.len() * repeats;
    let caches: cache::HierarchySpec = serde_json::from_str(CACHES).expect("a hierarchy");
    for lockstep in [false, true] {
        let simulation = cache::Simulation::new(&caches, vec![memory()]).expect("a simulation");
        let mut simulation = if lockstep { simulation.in_lockstep() } else { simulation };
        time(if lockstep { "caches, lockstep" } else { "caches" }, count, || {
            (0..repeats).for_each(|_| simulation.feed(&segment))
        });
        let outcome = &simulation.finish()[0];
        eprintln!("{:?}", outcome.levels.iter().map(cache::Counts::totals).collect::<Vec<_>>());
    }
    let mut many = cache::Simulation::new(&caches, (0..10).map(|_| memory()).collect()).expect("a simulation");
    time("caches, 10 executions", count * 10, || (0..repeats).for_each(|_| many.feed(&segment)));
    let spec: tlb::TlbSpec = serde_json::from_str(TLB).expect("a TLB");
    for with in [false, true] {
        let hierarchy = with.then_some(&caches);
        let mut simulation =
            tlb::Simulation::new(&spec, hierarchy, memory(), &History::default(), 1).expect("a simulation");
        time(if with { "TLB and caches" } else { "TLB" }, count, || {
            (0..repeats).for_each(|_| simulation.feed(&segment))
        });
        eprintln!("{:?}", simulation.finish().counts.cost());
    }
}
