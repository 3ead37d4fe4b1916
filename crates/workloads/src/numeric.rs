//! Numerical kernels after ALLOC's native benchmarks: SciMark's five, and a real Fourier transform by way of Hartley's.
//!
//! They are written from their mathematical definitions (docs/benchmarks.md names them). Each measurement is the mean
//! time of one operation in nanoseconds, over a number of operations that depends only on the size: nothing is
//! calibrated at run time. Memory is allocated and filled outside the timed part, as in ALLOC's warm-up.

mod complex_fft;
mod hartley;
mod lu;
mod monte_carlo;
mod sor;
mod sparse;

use clap::{Subcommand, ValueEnum};

use crate::measure::{Measurements, Proof};
use crate::options;
use crate::rng::Rng;

/// Number of floating-point operations for which a measurement aims: some milliseconds.
const WORK: u64 = 8_000_000;

/// Real Fourier transform by the fast Hartley transform, forward and back
#[derive(clap::Args)]
pub struct FftArgs {
    #[command(flatten)]
    how: How,
}

/// The five kernels of SciMark: numerical work on a stated number of bytes
#[derive(clap::Args)]
pub struct ScimarkArgs {
    #[command(subcommand)]
    kernel: Scimark,
}

#[derive(Subcommand)]
enum Scimark {
    /// Complex Fourier transform, forward and back
    Fft(How),
    /// Dense LU factorisation with partial pivoting
    Lu(How),
    /// π by random points: no memory to speak of
    MonteCarlo(How),
    /// Successive over-relaxation on a square grid
    Sor(How),
    /// Sparse matrix, compressed by rows, times a vector
    Sparse(How),
}

#[derive(clap::Args)]
struct How {
    /// Bytes of the working set: 512K, 4M …, or of a cache of this machine: L1, L2/2, L3*2
    #[arg(long, default_value = "L2", value_parser = options::parse_bytes_or_cache)]
    bytes: usize,
    /// Measurements
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: u64,
    /// When memory is allocated: once, or before each repetition
    #[arg(long, value_enum, default_value_t = When::Once)]
    memory: When,
    /// Operations in each measurement; default: by size, some milliseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    Once,
    Each,
}

/// A kernel of one size.
trait Kernel {
    /// The measurement's name.
    const NAME: &'static str;
    /// Allocated memory.
    type Data;

    /// Approximate number of floating-point operations in one operation.
    fn flops(&self) -> u64;
    /// Actual bytes of the working set.
    fn bytes(&self) -> usize;
    /// Allocates and fills memory; the contents are the same at each call.
    fn prepare(&self, rng: Rng) -> Self::Data;
    /// The timed operation.
    fn operate(&self, data: &mut Self::Data);
    /// Compares results with those of another way to compute them, after `operated` operations.
    fn check(&self, data: &Self::Data, operated: u64) -> Tally;
}

/// Counts of results, compared with the expected ones.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    right: u64,
    checked: u64,
}

impl Tally {
    fn count(pairs: impl IntoIterator<Item = bool>) -> Self {
        pairs.into_iter().fold(Self::default(), |sum, right| Self {
            right: sum.right + u64::from(right),
            checked: sum.checked + 1,
        })
    }

    fn and(self, other: Self) -> Self {
        Self { right: self.right + other.right, checked: self.checked + other.checked }
    }
}

/// Runs the real transform.
pub fn run_fft(args: &FftArgs, measurements: &mut Measurements) -> Result<Proof, String> {
    repeat(&hartley::RealFft::of_bytes(args.how.bytes), &args.how, measurements)
}

/// Runs one of SciMark's kernels.
pub fn run_scimark(args: &ScimarkArgs, measurements: &mut Measurements) -> Result<Proof, String> {
    match &args.kernel {
        Scimark::Fft(how) => repeat(&complex_fft::ComplexFft::of_bytes(how.bytes), how, measurements),
        Scimark::Lu(how) => repeat(&lu::Lu::of_bytes(how.bytes), how, measurements),
        Scimark::MonteCarlo(how) => repeat(&monte_carlo::MonteCarlo::new(), how, measurements),
        Scimark::Sor(how) => repeat(&sor::Sor::of_bytes(how.bytes), how, measurements),
        Scimark::Sparse(how) => repeat(&sparse::Sparse::of_bytes(how.bytes), how, measurements),
    }
}

fn repeat<K: Kernel>(kernel: &K, how: &How, measurements: &mut Measurements) -> Result<Proof, String> {
    let operations = how.operations.unwrap_or_else(|| (WORK / kernel.flops().max(1)).max(1));
    let rng = Rng::new(how.seed);
    let mut tally = Tally::default();
    let mut data = None;
    let mut operated = 0;
    for _ in 0..how.repetitions {
        if how.memory == When::Each {
            // Freed before the new allocation: the allocator may hand out the same frames, as for any program.
            data = None;
            operated = 0;
        }
        let data = data.get_or_insert_with(|| kernel.prepare(rng.clone()));
        measurements.time(K::NAME, operations, || (0..operations).for_each(|_| kernel.operate(data)))?;
        operated += operations;
        if how.memory == When::Each {
            tally = tally.and(kernel.check(data, operated));
        }
    }
    measurements.end_window();
    if let (When::Once, Some(data)) = (how.memory, &data) {
        tally = kernel.check(data, operated);
    }
    println!("{} of {} bytes, {operations} operations a measurement", K::NAME, kernel.bytes());
    Ok(Proof { checksum: tally.right, expected: tally.checked })
}

/// Whether `found` equals `wanted` except for rounding, on the scale given.
fn close(found: f64, wanted: f64, scale: f64) -> bool {
    (found - wanted).abs() <= 1e-9 * scale
}

/// A number in 0 … 1, of 53 random bits.
fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// The largest power-of-two number of elements that fits into `bytes`, at least `least`.
fn power_of_two(bytes: usize, element: usize, least: usize) -> usize {
    let fit = (bytes / element).max(least);
    1 << fit.ilog2()
}

/// The side of the largest square of numbers that fits, at least 2.
fn side(bytes: usize) -> usize {
    (bytes / size_of::<f64>()).isqrt().max(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests a kernel at small sizes: it is right with memory allocated once and anew, and notices a spoilt result.
    fn proves<K: Kernel>(kernel: &K, spoil: impl Fn(&mut K::Data)) {
        let mut data = kernel.prepare(Rng::new(3));
        for operated in 1..=3 {
            kernel.operate(&mut data);
            let tally = kernel.check(&data, operated);
            assert!(tally.checked > 0 && tally.right == tally.checked, "{}: {tally:?}", K::NAME);
        }
        spoil(&mut data);
        let tally = kernel.check(&data, 3);
        assert!(tally.right < tally.checked, "{}: a wrong result passed", K::NAME);
    }

    #[test]
    fn every_kernel_is_right_and_a_spoilt_result_is_noticed() {
        for bytes in [64, 1000, 4096, 70_000] {
            proves(&complex_fft::ComplexFft::of_bytes(bytes), |data| data.spoil());
            proves(&hartley::RealFft::of_bytes(bytes), |data| data.spoil());
            proves(&lu::Lu::of_bytes(bytes), |data| data.spoil());
            proves(&sor::Sor::of_bytes(bytes), |data| data.spoil());
            proves(&sparse::Sparse::of_bytes(bytes), |data| data.spoil());
        }
        proves(&monte_carlo::MonteCarlo::new(), |data| data.spoil());
    }

    #[test]
    fn sizes_come_out_near_what_was_asked() {
        for bytes in [16 << 10, 32 << 10, 1 << 20, 5 << 20] {
            let found = [
                complex_fft::ComplexFft::of_bytes(bytes).bytes(),
                hartley::RealFft::of_bytes(bytes).bytes(),
                lu::Lu::of_bytes(bytes).bytes(),
                sor::Sor::of_bytes(bytes).bytes(),
                sparse::Sparse::of_bytes(bytes).bytes(),
            ];
            for size in found {
                assert!(size <= bytes && 2 * size > bytes, "{size} of {bytes}");
            }
        }
    }
}
