//! `pagelab-workload`: the bundled benchmark programs.
//!
//! Each does seeded work on a stated number of bytes, proves that it was done (checksum against expectation, exit
//! status 1 when they differ), and reports each repetition on `PAGELAB_MEASURE_FD`.

mod btree;
mod clock;
mod colour_chase;
mod cross_sections;
mod gap;
mod graph;
mod graph500;
mod gups;
mod hash_join;
mod kernel_paths;
mod malloc_storm;
mod measure;
mod mmap_scan;
mod numeric;
mod options;
mod page_chase;
mod ping;
mod pointer_chase;
mod rng;
mod stream;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use measure::{Measurements, Proof};

/// Benchmarks of memory and address translation
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    Gups(gups::Args),
    PointerChase(pointer_chase::Args),
    Stream(stream::Args),
    Btree(btree::Args),
    Graph500(graph500::Args),
    Gap(gap::Args),
    CrossSections(cross_sections::Args),
    HashJoin(hash_join::Args),
    KernelPaths(kernel_paths::Args),
    MmapScan(mmap_scan::Args),
    MallocStorm(malloc_storm::Args),
    MakeFile(mmap_scan::MakeArgs),
    ColourChase(colour_chase::Args),
    PageChase(page_chase::Args),
    Clock(clock::Args),
    Fft(numeric::FftArgs),
    Scimark(numeric::ScimarkArgs),
    Ping(ping::Args),
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == kernel_paths::NOTHING) {
        return ExitCode::from(kernel_paths::NOTHING_STATUS);
    }
    let cli = Cli::parse();
    match run(&cli.workload) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(proof)) if proof.checksum == proof.expected => {
            println!("checksum {:#018x} verified", proof.checksum);
            ExitCode::SUCCESS
        }
        Ok(Some(proof)) => {
            eprintln!(
                "pagelab-workload: checksum {:#018x} is wrong, {:#018x} was expected: memory or code is broken",
                proof.checksum, proof.expected
            );
            ExitCode::from(1)
        }
        Err(message) => {
            eprintln!("pagelab-workload: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(workload: &Workload) -> Result<Option<Proof>, String> {
    let mut measurements = Measurements::from_environment()?;
    match workload {
        Workload::Gups(args) => gups::run(args, &mut measurements).map(Some),
        Workload::PointerChase(args) => pointer_chase::run(args, &mut measurements).map(Some),
        Workload::Stream(args) => stream::run(args, &mut measurements).map(Some),
        Workload::Btree(args) => btree::run(args, &mut measurements).map(Some),
        Workload::Graph500(args) => graph500::run(args, &mut measurements).map(Some),
        Workload::Gap(args) => gap::run(args, &mut measurements).map(Some),
        Workload::CrossSections(args) => cross_sections::run(args, &mut measurements).map(Some),
        Workload::HashJoin(args) => hash_join::run(args, &mut measurements).map(Some),
        Workload::KernelPaths(args) => kernel_paths::run(args, &mut measurements),
        Workload::MmapScan(args) => mmap_scan::run(args, &mut measurements).map(Some),
        Workload::MallocStorm(args) => malloc_storm::run(args, &mut measurements).map(Some),
        Workload::MakeFile(args) => mmap_scan::make(args).map(|()| None),
        Workload::ColourChase(args) => colour_chase::run(args).map(|()| None),
        Workload::PageChase(args) => page_chase::run(args).map(|()| None),
        Workload::Clock(args) => {
            clock::run(args);
            Ok(None)
        }
        Workload::Fft(args) => numeric::run_fft(args, &mut measurements).map(Some),
        Workload::Scimark(args) => numeric::run_scimark(args, &mut measurements).map(Some),
        Workload::Ping(args) => ping::run(args, &mut measurements),
    }
}
