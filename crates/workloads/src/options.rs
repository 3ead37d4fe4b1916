//! Options shared by several workloads.

use clap::ValueEnum;

/// Options of every workload that works on memory.
#[derive(clap::Args)]
pub struct Memory {
    /// Bytes of the working set: 4096, 64K, 256M, 1G …
    #[arg(long, default_value = "256M", value_parser = crate::size::parse_bytes)]
    pub bytes: usize,
    /// Repetitions, each reported as one measurement
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub repetitions: u64,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Order in which pages are visited.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// First to last
    Sequential,
    /// A seeded permutation
    Random,
}
