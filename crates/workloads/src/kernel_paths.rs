//! Paths of the kernel, each by the work of a program that goes through it: the rows of lmbench's summary (McVoy and
//! Staelin 1996; 3.0 as the page-colouring patch for Linux 2.4.23 printed it), in its order, and a compilation.
//!
//! Written from a description of what the rows measure, not from lmbench's code. Three things are as in the paper: a
//! context switch is a ring of processes that pass a token and sum an array each; the cost of the same work without
//! switches is subtracted; several rounds are measured, and the least counts, because disturbances only make a round
//! longer. But the paper also takes the least over processes started anew, because the kernel gives them other frames
//! each time, which changed switches by up to 30%. pagelab measures exactly this change. So here the rounds of one
//! measurement have the same processes and memory; each repetition starts them anew, and is a measurement of its own.
//!
//! All runs on one processor: a round trip then has two switches in it, as it had on the machine of the patch.

mod bandwidths;
mod communication;
mod compilation;
mod files;
mod ground;
mod processes;
mod rounds;
mod switches;
mod system;

use std::path::PathBuf;

use clap::ValueEnum;

use crate::measure::{Measurements, Proof};
use crate::options::parse_bytes_or_cache;
use crate::rng::mix;
use ground::{Ground, PrivateDirectory};
use rounds::{Clock, Failure, Path};

pub use processes::{NOTHING, NOTHING_STATUS};

/// Paths of the kernel: lmbench's rows, and a compilation
#[derive(clap::Args)]
pub struct Args {
    /// Rows or tables of rows, by name; all without any
    #[arg(value_name = "ROW", value_parser = known)]
    rows: Vec<String>,
    /// Measurements of each row; processes and memory are made anew for each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: u64,
    /// Where files are made, in a directory that is removed at the end
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// Bytes of the files that are mapped and read, and of the arrays that are copied
    #[arg(long, default_value = "8M", value_parser = parse_bytes_or_cache)]
    bytes: usize,
    /// What counts
    #[arg(long, value_enum, default_value_t = ClockName::Time)]
    clock: ClockName,
    /// For caches behind an emulated machine: a window around one round more of each row
    #[arg(long, hide = true)]
    windows: bool,
    /// Be the process that removes this directory when its standard input ends
    #[arg(long, hide = true)]
    remove: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ClockName {
    /// Nanoseconds
    Time,
    /// Ticks of the time-stamp counter: instructions, in a QEMU with `-icount shift=0` and one processor
    Tsc,
}

/// What a row is divided by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Per {
    Operation,
    Kib,
}

/// A row: its name, and what makes its path ready.
struct Row {
    name: &'static str,
    per: Per,
    prepare: fn(&Ground) -> Result<Path, Failure>,
}

struct Table {
    name: &'static str,
    rows: &'static [Row],
}

const fn each(name: &'static str, prepare: fn(&Ground) -> Result<Path, Failure>) -> Row {
    Row { name, per: Per::Operation, prepare }
}

const fn bytes(name: &'static str, prepare: fn(&Ground) -> Result<Path, Failure>) -> Row {
    Row { name, per: Per::Kib, prepare }
}

/// All rows, in the order of the patch's tables.
const TABLES: [Table; 6] = [
    Table {
        name: "processes",
        rows: &[
            each("null-call", processes::null_call),
            each("null-io", processes::null_io),
            each("stat", processes::stat),
            each("open-close", processes::open_close),
            each("select-tcp", communication::select_tcp),
            each("signal-install", processes::signal_install),
            each("signal-handle", processes::signal_handle),
            each("fork", processes::fork),
            each("exec", processes::exec),
            each("sh", processes::sh),
        ],
    },
    Table {
        name: "switches",
        rows: &[
            each("switch-2p-0k", |_| switches::ring(2, 0)),
            each("switch-2p-16k", |_| switches::ring(2, 16)),
            each("switch-2p-64k", |_| switches::ring(2, 64)),
            each("switch-8p-16k", |_| switches::ring(8, 16)),
            each("switch-8p-64k", |_| switches::ring(8, 64)),
            each("switch-16p-16k", |_| switches::ring(16, 16)),
            each("switch-16p-64k", |_| switches::ring(16, 64)),
        ],
    },
    Table {
        name: "communication",
        rows: &[
            each("pipe", communication::pipe_latency),
            each("unix", communication::unix),
            each("udp", communication::udp),
            each("tcp", communication::tcp),
            each("tcp-connect", communication::tcp_connect),
        ],
    },
    Table {
        name: "files",
        rows: &[
            each("create-0k", |ground| files::create(ground, 0)),
            each("delete-0k", |ground| files::delete(ground, 0)),
            each("create-10k", |ground| files::create(ground, 10 << 10)),
            each("delete-10k", |ground| files::delete(ground, 10 << 10)),
            each("mmap", files::mmap),
            each("protection-fault", files::protection_fault),
            each("page-fault", files::page_fault),
            each("select-100", communication::select_pipes),
        ],
    },
    Table {
        name: "bandwidths",
        rows: &[
            bytes("pipe-bytes", bandwidths::pipe),
            bytes("unix-bytes", bandwidths::unix),
            bytes("tcp-bytes", bandwidths::tcp),
            bytes("file-reread", bandwidths::file_reread),
            bytes("mmap-reread", bandwidths::mmap_reread),
            bytes("copy-libc", bandwidths::copy_libc),
            bytes("copy-hand", bandwidths::copy_hand),
            bytes("memory-read", bandwidths::memory_read),
            bytes("memory-write", bandwidths::memory_write),
        ],
    },
    Table { name: "compilation", rows: &[each("compile", compilation::compile)] },
];

/// A name of a row or a table; the error lists them.
fn known(name: &str) -> Result<String, String> {
    let is = |table: &Table| table.name == name || table.rows.iter().any(|row| row.name == name);
    if TABLES.iter().any(is) {
        return Ok(name.to_owned());
    }
    let lines = TABLES.iter().map(|table| {
        let rows: Vec<&str> = table.rows.iter().map(|row| row.name).collect();
        format!("\n  {}: {}", table.name, rows.join(", "))
    });
    Err(format!("no such row; tables and their rows are{}", lines.collect::<String>()))
}

/// Paths with processes and memory of their own that are tried for one measurement.
const PATHS: usize = 3;
const HIDDEN: &str = "its overhead alone takes as long as all of it; try again on a quiet machine";

/// A row that was asked for, and its values over the repetitions; none where it is left out.
struct Asked {
    row: &'static Row,
    table: &'static str,
    /// By its own name, not by that of its table.
    by_name: bool,
    values: Vec<f64>,
}

/// Measures the rows; the proof has what the rounds returned. `None`: this process only removed a directory.
pub fn run(args: &Args, measurements: &mut Measurements) -> Result<Option<Proof>, String> {
    if let Some(directory) = &args.remove {
        return ground::remove_at_end(directory).map(|()| None);
    }
    let clock = args.clock.start()?;
    system::stay_on_one_processor()?;
    let directory = PrivateDirectory::new(&args.directory)?;
    let ground = Ground { directory: directory.path().to_owned(), bytes: args.bytes };
    let mut rows = asked(&args.rows);
    let mut left_out = Vec::new();
    let mut proof = Proof { checksum: 0, expected: 0 };
    for repetition in 0..args.repetitions {
        for row in &mut rows {
            row.measure(&ground, clock, args.windows, measurements, &mut proof, &mut left_out)?;
        }
        if repetition == 0 {
            rows.retain(|row| !row.values.is_empty());
        }
    }
    drop(directory);
    tell_left_out(&left_out);
    if !measurements.wanted() {
        print(&rows, clock);
    }
    Ok(Some(proof))
}

impl Asked {
    /// Adds one more measurement to values, report and proof; or, if there is none, the reason to `left_out`.
    fn measure(
        &mut self,
        ground: &Ground,
        clock: Clock,
        windows: bool,
        measurements: &mut Measurements,
        proof: &mut Proof,
        left_out: &mut Vec<(&'static str, String)>,
    ) -> Result<(), String> {
        let name = self.row.name;
        match measure(self.row, ground, clock, windows) {
            Ok((value, returned, expected)) => {
                measurements.report(&format!("kernel-paths.{name}"), value, unit(self.row, clock))?;
                proof.checksum = mix(proof.checksum.wrapping_add(returned));
                proof.expected = mix(proof.expected.wrapping_add(expected));
                self.values.push(value);
                Ok(())
            }
            Err(Failure::Impossible(why)) if !self.by_name => {
                left_out.push((name, why));
                Ok(())
            }
            Err(Failure::Hidden) if !self.by_name => {
                left_out.push((name, HIDDEN.to_owned()));
                Ok(())
            }
            Err(Failure::Hidden) => Err(format!("{name}: {HIDDEN}")),
            Err(Failure::Impossible(why) | Failure::Failed(why)) => Err(format!("{name}: {why}")),
        }
    }
}

impl ClockName {
    /// The clock, unless this processor lacks it.
    fn start(self) -> Result<Clock, String> {
        match self {
            ClockName::Time => Ok(Clock::Time(std::time::Instant::now())),
            ClockName::Tsc if cfg!(target_arch = "x86_64") => Ok(Clock::Tsc),
            ClockName::Tsc => Err("this processor has no time-stamp counter; use --clock time".to_owned()),
        }
    }
}

/// The rows that were named, by their own names or that of their table, in the order of the tables.
fn asked(names: &[String]) -> Vec<Asked> {
    let named = |name: &str| names.iter().any(|each| each == name);
    let all = TABLES.iter().flat_map(|table| table.rows.iter().map(move |row| (table.name, row)));
    all.filter(|(table, row)| names.is_empty() || named(table) || named(row.name))
        .map(|(table, row)| Asked { row, table, by_name: named(row.name), values: Vec::new() })
        .collect()
}

/// One measurement; where the overhead hides a path, others of its kind are tried.
fn measure(row: &Row, ground: &Ground, clock: Clock, windows: bool) -> Result<(f64, u64, u64), Failure> {
    let mut tries = (0..PATHS).map(|_| measure_one(row, ground, clock, windows));
    tries.find(|tried| !matches!(tried, Err(Failure::Hidden))).unwrap_or(Err(Failure::Hidden))
}

/// Ticks per operation or KiB, the result of a round, and the expected result.
fn measure_one(row: &Row, ground: &Ground, clock: Clock, windows: bool) -> Result<(f64, u64, u64), Failure> {
    let mut path = (row.prepare)(ground)?;
    let (ticks, returned) = path.least(clock)?;
    let expected = path.expected();
    if windows {
        path.in_window()?;
    }
    let divisor = match row.per {
        Per::Operation => path.operations as f64,
        Per::Kib => path.operations as f64 / 1024.0,
    };
    Ok((ticks / divisor, returned, expected))
}

/// The unit of a row.
fn unit(row: &Row, clock: Clock) -> &'static str {
    match (row.per, clock) {
        (Per::Operation, Clock::Time(_)) => "ns",
        (Per::Kib, Clock::Time(_)) => "ns/KiB",
        (Per::Operation, Clock::Tsc) => "ticks",
        (Per::Kib, Clock::Tsc) => "ticks/KiB",
    }
}

/// Names the rows that this machine cannot have, or that were hidden, together where the reason is the same.
fn tell_left_out(rows: &[(&str, String)]) {
    let mut reasons: Vec<&str> = rows.iter().map(|(_, why)| why.as_str()).collect();
    reasons.dedup();
    for (at, why) in reasons.iter().enumerate() {
        if !reasons[..at].contains(why) {
            let mut names: Vec<&str> = rows.iter().filter(|row| row.1 == *why).map(|row| row.0).collect();
            names.sort_unstable();
            names.dedup();
            eprintln!("pagelab-workload: left out: {}: {why}", names.join(", "));
        }
    }
}

/// The tables: medians, with least and most where there are several values, and bandwidths in MB/s also.
fn print(rows: &[Asked], clock: Clock) {
    let mut table = "";
    for each in rows {
        if each.table != table {
            table = each.table;
            println!("{table}");
        }
        let mut values = each.values.clone();
        values.sort_by(f64::total_cmp);
        let middle = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        let unit = unit(each.row, clock);
        let mut line = format!("  {:<18}{middle:>14.1} {unit:<10}", each.row.name);
        if unit == "ns/KiB" {
            line += &format!("{:>10.0} MB/s", 1024.0 * 1000.0 / middle);
        }
        if values.len() > 1 {
            line += &format!("  ({:.1} – {:.1})", values[0], values[values.len() - 1]);
        }
        println!("{}", line.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Rows that execute `pagelab-workload` itself are in tests/workloads.rs: here that would be this test.
    const NEED_THE_PROGRAM: [&str; 2] = ["exec", "sh"];

    fn ground(directory: &std::path::Path) -> Ground {
        Ground { directory: directory.to_owned(), bytes: 256 << 10 }
    }

    #[test]
    fn every_row_returns_what_it_must_and_costs_something() {
        system::stay_on_one_processor().expect("a processor");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let clock = Clock::Time(std::time::Instant::now());
        for each in asked(&[]).iter().filter(|each| !NEED_THE_PROGRAM.contains(&each.row.name)) {
            match measure(each.row, &ground(folder.path()), clock, false) {
                Ok((value, returned, expected)) => {
                    assert_eq!(returned, expected, "{}", each.row.name);
                    assert!(value > 0.0, "{}: {value}", each.row.name);
                }
                Err(Failure::Impossible(why)) => eprintln!("{}: {why}", each.row.name),
                Err(Failure::Hidden) => assert_eq!(each.table, "switches", "{}: {HIDDEN}", each.row.name),
                Err(Failure::Failed(why)) => panic!("{}: {why}", each.row.name),
            }
        }
    }

    #[test]
    fn names_are_unique_and_choose_their_rows() {
        let all = asked(&[]);
        let names: HashSet<&str> =
            all.iter().map(|each| each.row.name).chain(TABLES.iter().map(|table| table.name)).collect();
        assert_eq!(names.len(), all.len() + TABLES.len());
        let some = asked(&["fork".to_owned(), "switches".to_owned(), "null-call".to_owned()]);
        let some: Vec<&str> = some.iter().map(|each| each.row.name).collect();
        assert_eq!(some[..3], ["null-call", "fork", "switch-2p-0k"]);
        assert_eq!(some.len(), 9);
        assert!(known("switch-3p-0k").expect_err("there is none").contains("switch-16p-64k"));
    }

    #[test]
    fn the_overhead_is_taken_off_and_wrong_work_is_noticed() {
        let mut wait = Path::new(1, 7, || {
            std::thread::sleep(std::time::Duration::from_millis(2));
            Ok(7)
        });
        let clock = Clock::Time(std::time::Instant::now());
        let (alone, returned) = wait.least(clock).expect("a measurement");
        assert_eq!(returned, wait.expected());
        assert!(alone >= 2e6, "{alone} ns");
        let mut less = wait.less(|| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            Ok(7)
        });
        assert!(less.least(clock).expect("a measurement").0 < alone);
        let mut longer = Path::new(1, 7, || Ok(7)).less(|| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            Ok(7)
        });
        assert!(matches!(longer.least(clock), Err(Failure::Hidden)));
        let rounds = std::cell::Cell::new(0);
        let mut once_lazy = Path::new(1, 7, move || {
            rounds.set(rounds.get() + 1);
            Ok(if rounds.get() == 4 { 6 } else { 7 })
        });
        let (_, returned) = once_lazy.least(clock).expect("a measurement");
        assert_ne!(returned, once_lazy.expected());
    }
}
