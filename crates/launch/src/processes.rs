//! The processes of a run: from the guests' reports and the launcher's own reaping.

use crate::counters::{Announced, Counted};
use crate::guests::Guests;
use crate::record::Process;
use crate::sys::process;
use crate::target::Target;
use crate::tree::Story;

/// All processes that are known of, in order of their start.
///
/// A process that the launcher reaped itself has times and faults *with* those of the children it waited for, so
/// these numbers are used only where the guest reported none and no other process is known (then they are its own).
pub fn list(
    story: &Story,
    started_ns: u64,
    program: i32,
    target: &Target,
    guests: &Guests,
    counted: &Counted,
) -> Vec<Process> {
    let mut processes = guests.processes(started_ns);
    let alone = story.ended.len() == 1 && processes.keys().all(|&pid| pid == program);
    for ended in &story.ended {
        let pid = ended.reaped.pid;
        let process = processes.entry(pid).or_insert_with(|| Process { pid, ..Process::default() });
        if pid == program {
            process.ppid = process::own_pid();
            process.start_ns = Some(0);
            process.wall_ns = Some(ended.at_ns.saturating_sub(started_ns));
            if process.executable.is_empty() {
                process.executable = target.binary.display().to_string();
            }
        } else if let Some(start) = process.start_ns {
            process.wall_ns = Some(ended.at_ns.saturating_sub(started_ns + start));
        }
        if alone {
            let usage = ended.reaped.usage;
            process.user_ns = Some(usage.user_ns);
            process.system_ns = Some(usage.system_ns);
            process.minor_faults = Some(usage.minor_faults);
            process.major_faults = Some(usage.major_faults);
            process.peak_rss_bytes = Some(usage.peak_rss_bytes);
        }
    }
    for (pid, values) in &counted.by_process {
        let process = processes.entry(*pid).or_insert_with(|| Process { pid: *pid, ..Process::default() });
        process.counters.clone_from(values);
    }
    for (&pid, seen) in &counted.announced {
        announce(processes.entry(pid).or_insert_with(|| Process { pid, ..Process::default() }), seen, started_ns);
    }
    let mut list: Vec<Process> = processes.into_values().collect();
    list.sort_by_key(|process| (process.start_ns, process.pid));
    list
}

/// Fills in what only the kernel's announcements know of a process that the library did not report on.
fn announce(process: &mut Process, seen: &Announced, started_ns: u64) {
    if process.ppid == 0 {
        process.ppid = seen.ppid;
    }
    if process.executable.is_empty() {
        process.executable = seen.name.clone().unwrap_or_default();
    }
    if process.start_ns.is_none() {
        process.start_ns = seen.start_ns.map(|start| start.saturating_sub(started_ns));
    }
    if process.wall_ns.is_none() {
        process.wall_ns = seen.start_ns.zip(seen.end_ns).map(|(start, end)| end.saturating_sub(start));
    }
}
