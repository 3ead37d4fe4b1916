//! Warnings of limits that leave little room for the library's own needs, before the program starts.
//!
//! The needs are stated once, in [`surcharge::TABLE`]; docs/preload.md shows that table, and tests measure it.

mod surcharge;

use crate::cgroup;
use crate::sys::procfs;
use crate::sys::{files, process};
use crate::warnings::{Kind, Severity, Warnings};
use pagelab_policy::guest::GuestFile;
use pagelab_policy::plan::{Fetch, PlanSpec};
use rustix::process::Resource;
use serde_json::json;
use std::path::Path;
use surcharge::GROUP_MEMORY;

pub use surcharge::{Column, Surcharge, TABLE, Unit, document};

/// A limit below this multiple of what a policy takes causes a warning: a program that natively needs more than the
/// rest fails.
const TIMES: u64 = 8;

impl Column {
    /// The work of the library under the plan.
    pub fn of(plan: &PlanSpec) -> Column {
        let has_tiles = plan.sections.iter().any(|section| {
            section.otherwise != 0 || !section.intervals.is_empty() || section.fetch == Fetch::Prefault
        });
        match (plan.strategies.is_empty(), has_tiles) {
            (false, _) => Column::Frames,
            (true, true) => Column::Sizes,
            (true, false) => Column::Kernel,
        }
    }
}

/// A limit as it is in force when the run starts.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// In the unit of its row.
    limit: u64,
    /// How far the user may raise it without further rights.
    most: u64,
    /// In use already, by others that share the limit.
    used: u64,
}

/// Adds a warning for each limit that leaves too little room.
pub fn warn(column: Column, uid: u32, run_dir: &Path, warnings: &mut Warnings) {
    for row in TABLE {
        if let Some(found) = in_force(row, column, uid) {
            judge(row, row.adds(column), found, warnings);
        }
    }
    record_room(
        process::limit(Resource::Fsize).0,
        files::free_bytes(run_dir.parent().unwrap_or(run_dir)).ok(),
        run_dir,
        warnings,
    );
}

/// The limit of a row, where there is one and the policy takes something of it.
fn in_force(row: &Surcharge, column: Column, uid: u32) -> Option<Found> {
    if row.adds(column) == 0 {
        return None;
    }
    if row.name == "vm.max_map_count" {
        let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()?;
        return Some(Found { limit, most: 0, used: 0 });
    }
    if row.name == GROUP_MEMORY {
        return cgroup::memory().map(|group| Found { limit: group.limit, most: 0, used: group.used });
    }
    let number = row.number?;
    let (limit, most) = process::limit(number);
    let used = match number {
        Resource::Nproc if uid == 0 => {
            return cgroup::processes().map(|(limit, used)| Found { limit, most: 0, used });
        }
        Resource::Nproc => procfs::tasks_of(uid),
        _ => 0,
    };
    let own = (limit != libc::RLIM_INFINITY).then_some(Found { limit, most, used });
    let group = (number == Resource::Nproc).then(cgroup::processes).flatten().map(|(limit, used)| Found {
        limit,
        most: 0,
        used,
    });
    own.into_iter().chain(group).min_by_key(|found| found.limit.saturating_sub(found.used))
}

fn judge(row: &Surcharge, adds: u64, found: Found, warnings: &mut Warnings) {
    let room = found.limit.saturating_sub(found.used);
    if room >= adds.saturating_mul(TIMES) {
        return;
    }
    let left = room.saturating_sub(adds);
    let severity = if left == 0 { Severity::Serious } else { Severity::Warning };
    let taken = if found.used > 0 {
        format!(", of which {} are in use", row.unit.shown(found.used))
    } else {
        String::new()
    };
    let message = format!(
        "{} limited to {}{taken} ({}), and this policy takes up to {}: the program has {} for itself; run: {}",
        row.subject(),
        row.unit.shown(found.limit),
        row.name,
        row.unit.shown(adds),
        row.unit.shown(left),
        row.raise(found.limit.saturating_add(adds.saturating_mul(TIMES)), found.most),
    );
    let data = json!({
        "resource": row.name, "limit": found.limit, "used": found.used, "adds": adds, "unit": row.unit.name(),
    });
    warnings.add(Kind::RoomScarce, severity, message, data);
}

/// A process without room for its guest file continues, but reports nothing.
fn record_room(file_bytes: u64, free_bytes: Option<u64>, run_dir: &Path, warnings: &mut Warnings) {
    let needed = size_of::<GuestFile>() as u64;
    let told = "each process has a record of its own there, and processes without space for it are not recorded";
    if file_bytes < needed {
        let message = format!(
            "the size of a file is limited to {} (RLIMIT_FSIZE), and a process's record takes {}: its page placement \
             is not recorded; run: ulimit -f {}",
            Unit::Bytes.shown(file_bytes),
            Unit::Bytes.shown(needed),
            needed.div_ceil(1024)
        );
        let data =
            json!({"resource": "RLIMIT_FSIZE", "limit": file_bytes, "used": 0, "adds": needed, "unit": "bytes"});
        warnings.add(Kind::RoomScarce, Severity::Warning, message, data);
    }
    if let Some(free) = free_bytes.filter(|&free| free < needed * TIMES) {
        let place = run_dir.parent().unwrap_or(run_dir).display();
        let message = format!(
            "{place} has {} free, and a process's record takes up to {}: {told}; \
             run with another place that has {}: --run-dir DIR",
            Unit::Bytes.shown(free),
            Unit::Bytes.shown(needed),
            Unit::Bytes.shown(needed * TIMES)
        );
        let data = json!({
            "resource": "space in the run directory", "limit": free, "used": 0, "adds": needed, "unit": "bytes",
        });
        warnings.add(Kind::RoomScarce, Severity::Warning, message, data);
    }
}

/// Room for a file of output: a program can write faster than its output is copied and searched.
const OUTPUT_BYTES: u64 = 1 << 30;

/// Whether a program's output can go through a file in the run directory; adds the reason if not.
pub fn for_output(run_dir: &Path, warnings: &mut Warnings) -> bool {
    output_room(process::limit(Resource::Fsize).0, files::free_bytes(run_dir).ok(), run_dir, warnings)
}

fn output_room(file_bytes: u64, free_bytes: Option<u64>, run_dir: &Path, warnings: &mut Warnings) -> bool {
    let free = free_bytes.filter(|&free| free < OUTPUT_BYTES);
    let (limit, why, next) = match free {
        _ if file_bytes != libc::RLIM_INFINITY => (
            file_bytes,
            format!("the size of a file is limited to {} (RLIMIT_FSIZE)", Unit::Bytes.shown(file_bytes)),
            "run: ulimit -f unlimited".to_owned(),
        ),
        Some(free) => (
            free,
            format!("{} has {} free", run_dir.parent().unwrap_or(run_dir).display(), Unit::Bytes.shown(free)),
            format!("run with another place that has {}: --run-dir DIR", Unit::Bytes.shown(OUTPUT_BYTES)),
        ),
        None => return true,
    };
    let message =
        format!("standard output goes through a pipe, and a program waits while that is full: {why}; {next}");
    let data = json!({
        "resource": "room for standard output", "limit": limit, "used": 0, "adds": OUTPUT_BYTES, "unit": "bytes",
    });
    warnings.add(Kind::RoomScarce, Severity::Info, message, data);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> &'static Surcharge {
        TABLE.iter().find(|row| row.name == name).expect("in the table")
    }

    fn told(name: &str, column: Column, found: Found) -> Vec<(Severity, String)> {
        let mut warnings = Warnings::default();
        judge(row(name), row(name).adds(column), found, &mut warnings);
        warnings.0.into_iter().map(|warning| (warning.severity, warning.message)).collect()
    }

    fn free(limit: u64) -> Found {
        Found { limit, most: u64::MAX, used: 0 }
    }

    #[test]
    fn every_row_is_told_below_eight_times_what_it_takes_and_not_from_there_on() {
        for row in TABLE {
            for column in Column::ALL {
                let adds = row.adds(column);
                if adds == 0 {
                    continue;
                }
                assert!(told(row.name, column, free(8 * adds)).is_empty(), "{}", row.name);
                let (severity, message) = told(row.name, column, free(8 * adds - 1)).remove(0);
                assert_eq!(severity, Severity::Warning);
                assert!(message.contains(row.name) && message.contains("; run: "), "{message}");
                assert_eq!(told(row.name, column, free(adds))[0].0, Severity::Serious, "{}", row.name);
            }
        }
    }

    #[test]
    fn what_others_use_is_no_room() {
        let processes = |used| Found { limit: 1000, most: 1000, used };
        // Eight times the three that frames take.
        assert!(told("RLIMIT_NPROC", Column::Frames, processes(976)).is_empty());
        let (_, message) = told("RLIMIT_NPROC", Column::Frames, processes(977)).remove(0);
        assert!(message.contains("limited to 1000, of which 977 are in use"), "{message}");
    }

    #[test]
    fn the_next_command_is_one_that_may_be_given() {
        let limit = 32 << 20;
        let allowed = told("RLIMIT_AS", Column::Sizes, free(limit)).remove(0).1;
        assert!(allowed.ends_with("run: ulimit -v 86016"), "{allowed}");
        let denied = told("RLIMIT_AS", Column::Sizes, Found { limit, most: limit, used: 0 }).remove(0).1;
        assert!(denied.ends_with("run: sudo prlimit --pid $$ --as=88080384"), "{denied}");
        let setting = told("vm.max_map_count", Column::Kernel, free(100)).remove(0).1;
        assert!(setting.ends_with("run: sudo sysctl vm.max_map_count=292"), "{setting}");
    }

    #[test]
    fn a_record_without_room_is_told_whatever_the_policy() {
        let needed = size_of::<GuestFile>() as u64;
        let told = |file, free| {
            let mut warnings = Warnings::default();
            record_room(file, free, Path::new("/dev/shm/pagelab-0"), &mut warnings);
            warnings
                .0
                .iter()
                .map(|warning| warning.data["resource"].as_str().unwrap_or("").to_owned())
                .collect::<Vec<_>>()
        };
        assert!(told(needed, Some(8 * needed)).is_empty());
        assert_eq!(told(needed - 1, None), ["RLIMIT_FSIZE"]);
        assert_eq!(told(u64::MAX, Some(8 * needed - 1)), ["space in the run directory"]);
    }

    #[test]
    fn output_goes_through_a_file_only_where_much_has_room() {
        let told = |file, free| {
            let mut warnings = Warnings::default();
            let has_room = output_room(file, free, Path::new("/dev/shm/pagelab-0"), &mut warnings);
            assert_eq!(has_room, warnings.0.is_empty());
            warnings.0.pop().map_or(String::new(), |warning| warning.message)
        };
        assert_eq!(told(libc::RLIM_INFINITY, Some(1 << 30)), "");
        assert_eq!(told(libc::RLIM_INFINITY, None), "");
        assert!(told(libc::RLIM_INFINITY, Some(64 << 20)).contains("/dev/shm has 64 MiB free; run with another"));
        assert!(told(1 << 40, Some(1 << 40)).ends_with("run: ulimit -f unlimited"));
    }

    #[test]
    fn plans_have_the_column_of_what_the_library_does() {
        use pagelab_policy::plan::{Memory, SectionSpec, Via};
        let of = |page_bytes, fetch| {
            let section = SectionSpec { fetch, ..SectionSpec::uniform(Memory::Heap, page_bytes, Via::Thp) };
            Column::of(&PlanSpec { sections: vec![section], ..PlanSpec::default() })
        };
        assert_eq!(of(0, Fetch::Kernel), Column::Kernel);
        assert_eq!(of(0, Fetch::Demand), Column::Kernel);
        assert_eq!(of(0, Fetch::Prefault), Column::Sizes);
        assert_eq!(of(2 << 20, Fetch::Kernel), Column::Sizes);
    }
}
