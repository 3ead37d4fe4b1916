//! `clock`: the present duration of a cycle, for measurements of time where cycles cannot be counted.

use std::hint::black_box;
use std::time::Instant;

/// Nanoseconds of a cycle now: the quickest of several chains of dependent additions, as JSON
#[derive(clap::Args)]
pub struct Args {
    /// Chains that are timed; each takes about a tenth of a millisecond
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    chains: u32,
}

/// Prints one JSON object, `{"cycle_ns": N}`.
pub fn run(args: &Args) {
    println!(r#"{{"cycle_ns":{:.6}}}"#, addition_ns(args.chains));
}

/// Nanoseconds of one of many additions that wait for each other: a cycle of the clock at which the processor now runs;
/// the quickest of `chains` chains, since others were interrupted.
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
}
