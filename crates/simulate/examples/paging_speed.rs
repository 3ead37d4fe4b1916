//! Page numbers (or page runs) per CPU-second of the stacks for all memory sizes, in memory: one JSON object a line.
//!
//! usage: `paging_speed zipf|sweep|FILE [ROUNDS [THREADS [TIMES]]]` (FILE: a pagelab trace; it is counted TIMES over)

#![allow(unsafe_code, reason = "CPU time comes from the C library")]

use std::time::{Duration, Instant};

use pagelab_simulate::paging::{Colouring, Parallel};
use pagelab_trace::{Kinds, RunSource, TraceReader};

const PAGES: u64 = 100_000;
const REFERENCES: u64 = 20_000_000;
/// As much as is handed over at once elsewhere.
const PIECE: usize = 1 << 16;

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that lives.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Zipf 0.9, ranks scattered over the pages.
fn zipf() -> Vec<u64> {
    let mut sum = 0.0;
    let mut add = |rank: u64| {
        sum += (rank as f64).powf(-0.9);
        sum
    };
    let cumulated: Vec<f64> = (1..=PAGES).map(&mut add).collect();
    let draw = |i: u64| {
        let drawn = (pagelab_stats::stream::mix(i) >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        cumulated.partition_point(|value| *value < drawn) as u64 * 48_271 % 100_003
    };
    (0..REFERENCES).map(draw).collect()
}

fn runs(path: &str) -> Vec<u64> {
    let file = std::fs::File::open(path).expect("the trace opens");
    let reader = TraceReader::new(std::io::BufReader::new(file)).expect("it is a trace");
    let mut source = reader.into_runs(12, Kinds::DEMAND).expect("it has runs");
    let mut all = vec![];
    while let Some(batch) = source.next_runs().expect("it is whole") {
        all.extend(batch.iter().map(|run| run.page));
    }
    all
}

fn main() {
    let input = std::env::args().nth(1).expect("usage: paging_speed zipf|sweep|FILE [ROUNDS [THREADS [TIMES]]]");
    let number = |nth| std::env::args().nth(nth).map(|text| text.parse::<usize>().expect("a number"));
    let (rounds, threads, times) = (number(2).unwrap_or(3), number(3).unwrap_or(1), number(4).unwrap_or(1));
    let pages = match &input[..] {
        "zipf" => zipf(),
        "sweep" => (0..REFERENCES).map(|i| i % PAGES).collect(),
        path => runs(path),
    };
    for counts in [&[1][..], &[1, 2, 4, 8, 16, 32, 64]] {
        for _ in 0..rounds {
            let (cpu, wall) = (cpu_time(), Instant::now());
            let mut stacks = Parallel::new(&Colouring::Modulo, counts, threads).expect("colours that there are");
            (0..times).for_each(|_| pages.chunks(PIECE).for_each(|piece| stacks.feed(piece)));
            let found: u64 = stacks.curves().iter().map(|curve| curve.faults().iter().sum::<u64>()).sum();
            let [cpu, wall] = [cpu_time() - cpu, wall.elapsed()].map(|time| time.as_secs_f64());
            let rate = (times * pages.len()) as f64 / cpu / 1e6;
            println!(
                r#"{{"input": "{input}", "colour_counts": {}, "threads": {threads}, "m_per_cpu_s": {rate:.1}, "cpu_s": {cpu:.3}, "wall_s": {wall:.3}, "check": {found}}}"#,
                counts.len()
            );
        }
    }
}
