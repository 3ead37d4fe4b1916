//! The processes of a run, from the guests' reports and the launcher's own reaping; warnings of programs that ran
//! ungoverned, and of tiles that are missing.

use crate::counters::{Announced, Counted, Image, Tree};
use crate::guests::{FORKED, Guests};
use crate::process_tree::reap::Story;
use crate::sys::process;
use crate::target::Target;
use crate::warnings::{Kind, SCOPE, SCOPE_MACHINE, Severity, Warnings};
use pagelab_contract::record::{Placement, Process, Region};
use serde_json::json;
use std::collections::HashSet;

/// All processes that are known of, in order of their start.
///
/// A process that the launcher reaped itself has times and faults *with* those of the children it waited for, so
/// these numbers are used only where the kernel announced that there was no other process.
pub fn list(story: &Story, started_ns: u64, program: i32, target: &Target, seen: &Seen<'_>) -> Vec<Process> {
    let mut processes = seen.guests.processes(started_ns);
    for ended in &story.ended {
        let pid = ended.pid;
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
    }
    for (&pid, values) in &seen.counted.by_process {
        processes.entry(pid).or_insert_with(|| Process { pid, ..Process::default() }).counters.clone_from(values);
    }
    for (&pid, announced) in &seen.counted.announced {
        announce(
            processes.entry(pid).or_insert_with(|| Process { pid, ..Process::default() }),
            announced,
            started_ns,
        );
    }
    let alone = seen.counted.tree == Tree::Known && processes.len() == 1;
    if let (true, Some(ended), Some(process)) = (alone, story.program, processes.get_mut(&program)) {
        let usage = ended.usage;
        let measuring = seen.guests.measuring(Some(program));
        process.user_ns = Some(usage.user_ns.saturating_sub(measuring.user_ns));
        process.system_ns = Some(usage.system_ns.saturating_sub(measuring.system_ns));
        process.minor_faults = Some(usage.minor_faults.saturating_sub(measuring.minor_faults));
        process.major_faults = Some(usage.major_faults.saturating_sub(measuring.major_faults));
        process.peak_rss_bytes = Some(usage.peak_rss_bytes);
    }
    let mut list: Vec<Process> = processes.into_values().collect();
    list.sort_by_key(|process| (process.start_ns, process.pid));
    list
}

/// Sources of what is known of processes.
pub struct Seen<'s> {
    /// What the library reported.
    pub guests: &'s Guests,
    /// The counts by process, and the kernel's announcements.
    pub counted: &'s Counted,
}

/// Warns of programs of a governed run that were not governed: the kernel announced their exec and the library did not
/// report on them. The first program is not among them; the caller judges it.
pub fn warn_ungoverned(seen: &Seen<'_>, program: i32, warnings: &mut Warnings) {
    match &seen.counted.tree {
        Tree::Known => {}
        Tree::Partial(why) => {
            let message = format!("whether every process was governed is not known: {why}");
            warnings.warn(Kind::ProcessTreeUnknown, message, json!({"reason": why}));
        }
        Tree::Unknown(why) => {
            let message = format!("whether every process was governed is not known on this machine: {why}");
            let data = json!({"reason": why, SCOPE: SCOPE_MACHINE});
            warnings.add(Kind::ProcessTreeUnknown, Severity::Info, message, data);
        }
    }
    let all = seen.counted.announced.iter();
    let ungoverned: Vec<(i32, &Image)> =
        all.flat_map(|(&pid, of)| unreported(pid, of, program, seen.guests)).collect();
    if ungoverned.is_empty() {
        return;
    }
    let mut names: Vec<&str> = ungoverned.iter().map(|(_, image)| image.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut pids: Vec<i32> = ungoverned.iter().map(|(pid, _)| *pid).collect();
    pids.dedup();
    let message = format!(
        "{} programs that the program started ran without the library: {}; they are static, or were started with an \
         environment of their own (env -i)",
        ungoverned.len(),
        names.join(", ")
    );
    warnings.warn(Kind::ChildUngoverned, message, json!({"pids": pids, "executables": names}));
}

/// Warns of tiles that are not as the policy requests. The target is 99%: less than 1% short is information only.
///
/// The kernel splits a huge page that two processes share after a fork when either writes to it; this is no fault of
/// the machine. The library does not see whether a process forked, or started others without a fork, so the message
/// names it as a possibility.
pub fn warn_short_placed(placement: &Placement, processes: &[Process], warnings: &mut Warnings) {
    let (got, asked) = (placement.tiles_as_asked, placement.whole_touched_tiles);
    if got >= asked {
        return;
    }
    let parents: HashSet<i32> = processes.iter().map(|process| process.ppid).collect();
    let is_forked =
        |process: &Process| process.guest.as_ref().is_some_and(|guest| guest.values.contains_key(FORKED));
    let forks = |process: &&Process| parents.contains(&process.pid) || is_forked(process);
    let short = |process: &Process| process.placement.iter().map(tiles_short).sum::<u64>();
    let by_fork = processes.iter().filter(forks).map(short).sum::<u64>().min(asked - got);
    let others = asked - got - by_fork;
    let is_little = |tiles: u64| tiles * 100 <= asked;
    let severity = if is_little(asked - got) {
        Severity::Info
    } else if is_little(others) {
        Severity::Warning
    } else {
        Severity::Serious
    };
    let fraction = placement.placed_fraction.unwrap_or(0.0);
    let mut message =
        format!("{got} of {asked} whole, touched tiles are backed as the policy asks ({:.1}%)", fraction * 100.0);
    if by_fork > 0 {
        let whose = if others == 0 { "the others are" } else { &format!("{by_fork} of the others are") };
        message.push_str(&format!(
            "; {whose} in processes that were forked or started others: of a huge page that two processes share after a \
             fork the kernel makes small ones when either writes"
        ));
    }
    if others > 0 {
        message.push_str("; run: pagelab doctor");
    }
    let data = json!({
        "tiles_as_asked": got, "whole_touched_tiles": asked, "placed_fraction": fraction, "short_by_fork": by_fork,
    });
    warnings.add(Kind::PlacementShortfall, severity, message, data);
}

fn tiles_short(region: &Region) -> u64 {
    region
        .whole_touched_tiles
        .zip(region.tiles_as_asked)
        .map_or(0, |(whole, as_asked)| whole.saturating_sub(as_asked))
}

/// The programs of one process that no report is about. An image's report begins between its exec and the next one.
fn unreported<'a>(
    pid: i32,
    process: &'a Announced,
    program: i32,
    guests: &'a Guests,
) -> impl Iterator<Item = (i32, &'a Image)> {
    let ends = process.images.iter().skip(1).map(|next| next.at_ns).chain([u64::MAX]);
    let own_start = usize::from(pid == program);
    let images = process.images.iter().zip(ends).skip(own_start);
    images.filter(move |(image, end)| !guests.reported(pid, image.at_ns..*end)).map(move |(image, _)| (pid, image))
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
