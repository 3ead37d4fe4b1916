//! Page numbers (or page runs) per CPU-second of the stacks for all memory sizes, in memory: one JSON object a line.
//!
//! usage: `paging_speed TRACE [ROUNDS [THREADS [TIMES [clock]]]]`; the trace is counted TIMES over. TRACE:
//! `zipf:EXPONENT:PAGES`, `uniform:PAGES`, `sweep:PAGES`, `mixed:PAGES` (Zipf 1.0, between sweeps over all pages), or a
//! pagelab trace's file. With `clock` or `opt`, not the stacks, but memories under CLOCK or OPT of 1/2, 1/4 ... 1/128
//! of the pages. With a number in its place, the stacks are for memories of at least so many pages.

#![allow(unsafe_code, reason = "CPU time comes from the C library")]

use std::time::{Duration, Instant};

use pagelab_simulate::paging::{Colouring, Curve, Memories, Parallel, Policy, Size};
use pagelab_trace::{Kinds, RunSource, TraceReader};

const REFERENCES: u64 = 20_000_000;
/// Number of references that other callers hand over at once.
const PIECE: usize = 1 << 16;

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that lives.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Independent references, the page of rank r drawn in proportion to r^-exponent; ranks are scattered over the pages.
fn zipf(exponent: f64, pages: u64) -> Vec<u64> {
    let mut sum = 0.0;
    let mut add = |rank: u64| {
        sum += (rank as f64).powf(-exponent);
        sum
    };
    let cumulated: Vec<f64> = (1..=pages).map(&mut add).collect();
    let scattered =
        (1..).map(|i| 48_271 + 2 * i).find(|step| greatest_common(*step, pages) == 1).expect("there is one");
    let draw = |i: u64| {
        let drawn = (pagelab_stats::stream::mix(i) >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        cumulated.partition_point(|value| *value < drawn) as u64 * scattered % pages
    };
    (0..REFERENCES).map(draw).collect()
}

fn greatest_common(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common(b, a % b) }
}

/// Half of the references sweep, in turns of a tenth of the trace.
fn mixed(pages: u64) -> Vec<u64> {
    let turn = REFERENCES / 10;
    let sweep = |(i, page): (u64, u64)| if (i / turn).is_multiple_of(2) { page } else { i % pages };
    (0..).zip(zipf(1.0, pages)).map(sweep).collect()
}

fn trace(words: &[&str]) -> Vec<u64> {
    let pages = |text: &str| text.parse::<u64>().expect("a number of pages");
    match words {
        ["zipf", exponent, count] => zipf(exponent.parse().expect("an exponent"), pages(count)),
        ["uniform", count] => (0..REFERENCES).map(|i| pagelab_stats::stream::mix(i) % pages(count)).collect(),
        ["sweep", count] => (0..REFERENCES).map(|i| i % pages(count)).collect(),
        ["mixed", count] => mixed(pages(count)),
        _ => runs(&words.join(":")),
    }
}

fn runs(path: &str) -> Vec<u64> {
    let file = std::fs::File::open(path).expect("the trace opens");
    let reader = TraceReader::new(std::io::BufReader::new(file)).expect("it is a trace");
    let mut source = reader.into_runs(12, Kinds::DEMAND).expect("it has runs");
    let mut all = vec![];
    let (before, mut decoding) = (cpu_time(), Duration::ZERO);
    loop {
        let begin = cpu_time();
        let batch = source.next_runs().expect("it is whole");
        decoding += cpu_time() - begin;
        let Some(batch) = batch else { break };
        all.extend(batch.iter().map(|run| run.page));
    }
    let rate = all.len() as f64 / decoding.as_secs_f64() / 1e6;
    eprintln!("{path}: {} runs, decoded {rate:.0} M/CPU-s, {:?}", all.len(), cpu_time() - before);
    all
}

fn main() {
    let input = std::env::args().nth(1).expect("usage: paging_speed TRACE [ROUNDS [THREADS [TIMES]]]");
    let number = |nth| std::env::args().nth(nth).map(|text| text.parse::<usize>().expect("a number"));
    let (rounds, threads, times) = (number(2).unwrap_or(3), number(3).unwrap_or(1), number(4).unwrap_or(1));
    let pages = trace(&input.split(':').collect::<Vec<_>>());
    match std::env::args().nth(5).as_deref() {
        Some("clock") => return seven_sizes(&input, Policy::Clock, &pages, rounds),
        Some("random") => return seven_sizes(&input, Policy::Random { seed: 1 }, &pages, rounds),
        Some("opt") => return seven_sizes(&input, Policy::Optimal, &pages, rounds),
        _ => {}
    }
    let memory = number(5).unwrap_or(1) as u64;
    for counts in [&[1][..], &[1, 2, 4, 8, 16, 32, 64]] {
        for _ in 0..rounds {
            let (cpu, wall) = (cpu_time(), Instant::now());
            let mut stacks =
                Parallel::exact_from(&Colouring::Modulo, counts, memory, threads).expect("colours that there are");
            (0..times).for_each(|_| pages.chunks(PIECE).for_each(|piece| stacks.feed(piece)));
            let faults = |curve: Curve| {
                curve.faults().iter().skip((memory as usize).div_ceil(curve.colours as usize)).sum::<u64>()
            };
            let found: u64 = stacks.curves().into_iter().map(faults).sum();
            let [cpu, wall] = [cpu_time() - cpu, wall.elapsed()].map(|time| time.as_secs_f64());
            let rate = (times * pages.len()) as f64 / cpu / 1e6;
            println!(
                r#"{{"input": "{input}", "colour_counts": {}, "threads": {threads}, "m_per_cpu_s": {rate:.1}, "cpu_s": {cpu:.3}, "wall_s": {wall:.3}, "check": {found}}}"#,
                counts.len()
            );
        }
    }
}

fn seven_sizes(input: &str, policy: Policy, pages: &[u64], rounds: usize) {
    let most = pages.iter().max().map_or(1, |page| *page as u32 + 1);
    let sizes: Vec<Size> = (1..8).map(|shift| Size { colours: 1, frames: (most >> shift).max(1) }).collect();
    for _ in 0..rounds {
        let before = cpu_time();
        let mut memories = Memories::new(policy, &Colouring::Modulo, &sizes).expect("sizes that there are");
        pages.chunks(PIECE).for_each(|piece| memories.feed(piece));
        let faults: Vec<u64> = memories.faults().into_iter().map(|(_, faults)| faults).collect();
        let cpu = (cpu_time() - before).as_secs_f64();
        let rate = pages.len() as f64 / cpu / 1e6;
        println!(
            r#"{{"input": "{input}", "{policy:?}": 7, "m_per_cpu_s": {rate:.1}, "cpu_s": {cpu:.3}, "faults": {faults:?}}}"#
        );
    }
}
