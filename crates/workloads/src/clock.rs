//! `clock`: the present duration of a cycle and of a load from memory, for measurements of time during which the
//! machine may change.

use std::hint::black_box;
use std::time::Instant;

const LINE: usize = 64;
const PAGE: usize = 4096;
/// Loads of one timed piece.
const LOADS: usize = 4096;
/// Timed pieces; the median is printed.
const PIECES: usize = 15;

/// Nanoseconds of a cycle and of a load from memory now, from chains of dependent operations, as JSON
#[derive(clap::Args)]
pub struct Args {
    /// Chains that are timed; each takes about a tenth of a millisecond
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    chains: u32,
    /// Memory whose lines are loaded in random order, each after the one before; rounded up to a power of two
    #[arg(long, default_value = "32M", value_parser = crate::options::parse_bytes)]
    bytes: usize,
}

/// Prints one JSON object, `{"cycle_ns": N, "memory_ns": N}`.
pub fn run(args: &Args) {
    println!(r#"{{"cycle_ns":{:.6},"memory_ns":{:.3}}}"#, addition_ns(args.chains), load_ns(args.bytes));
}

/// Nanoseconds of one addition in a chain of additions that wait for each other: a cycle of the clock at which the
/// processor now runs. The quickest of `chains` chains counts, since others were interrupted.
pub fn addition_ns(chains: u32) -> f64 {
    const ADDITIONS: u32 = 200_000;
    let mut quickest = f64::INFINITY;
    for _ in 0..chains {
        let begun = Instant::now();
        let mut sum = black_box(1_u64);
        for _ in 0..ADDITIONS / 8 {
            for _ in 0..8 {
                // Opaque, so that eight additions do not become one.
                sum = black_register(sum.wrapping_add(3));
            }
        }
        black_box(sum);
        quickest = quickest.min(begun.elapsed().as_nanos() as f64 / f64::from(ADDITIONS));
    }
    quickest
}

/// Nanoseconds of one load in a chain of loads that wait for each other, each of another line of `bytes` of memory: the
/// median of several pieces.
pub fn load_ns(bytes: usize) -> f64 {
    let lines = (bytes / LINE).next_power_of_two().max(PAGE / LINE);
    let words = LINE / size_of::<u64>();
    let mut memory = vec![0_u64; lines * words];
    for page in memory.chunks_mut(PAGE / size_of::<u64>()) {
        // Else all pages are the one of zeros.
        page[0] = black_box(0);
    }
    let mut line = 0;
    let mut pieces: Vec<f64> = (0..PIECES)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..LOADS {
                line = next_line(line, lines) ^ black_box(memory[line * words] as usize);
            }
            begun.elapsed().as_nanos() as f64 / LOADS as f64
        })
        .collect();
    black_box(line);
    pieces.sort_by(f64::total_cmp);
    pieces[PIECES / 2]
}

/// The line after this one, in an order that has every line once (a linear congruential generator of full period; Hull
/// and Dobell 1962). `lines` is a power of two.
fn next_line(line: usize, lines: usize) -> usize {
    line.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) & (lines - 1)
}

/// The time-stamp counter, which ticks at a constant rate on every x86-64 processor since 2008.
#[cfg(target_arch = "x86_64")]
pub fn time_stamp() -> u64 {
    // SAFETY: RDTSC is part of the architecture and reads no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Nanoseconds since the first call.
#[cfg(not(target_arch = "x86_64"))]
pub fn time_stamp() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The same value, of which the compiler knows nothing; it stays in its register.
#[cfg(target_arch = "x86_64")]
fn black_register(value: u64) -> u64 {
    let mut same = value;
    // SAFETY: no instruction at all: the register's value does not change.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) same, options(nomem, nostack, preserves_flags)) };
    same
}

#[cfg(not(target_arch = "x86_64"))]
fn black_register(value: u64) -> u64 {
    black_box(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_takes_what_a_processor_can_do() {
        let ns = addition_ns(5);
        assert!((0.05..20.0).contains(&ns), "{ns} ns a cycle");
    }

    #[test]
    fn a_chain_has_every_line_once() {
        for lines in [64, 1 << 12, 1 << 19] {
            let mut seen = vec![false; lines];
            let mut line = 0;
            for _ in 0..lines {
                assert!(!seen[line], "line {line} of {lines} twice");
                seen[line] = true;
                line = next_line(line, lines);
            }
            assert_eq!(line, 0);
        }
    }

    #[test]
    fn a_load_takes_what_memory_can_do() {
        for bytes in [0, 1, 64 << 10, 8 << 20] {
            let ns = load_ns(bytes);
            assert!((0.1..100_000.0).contains(&ns), "{ns} ns a load from {bytes} bytes");
        }
    }
}
