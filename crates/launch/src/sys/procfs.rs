//! The processes below the launcher, as /proc shows them.
//!
//! A process chooses its own name, which may not be UTF-8; such a process must not be overlooked.

use crate::sys::process;
use crate::words;
use rustix::process::Signal;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;

/// A file of /proc/PID as text, whatever bytes the process put into its name.
pub fn text(pid: i32, name: &str) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{name}"))?).into_owned())
}

/// One line of /proc/PID/stat, the part needed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Process id.
    pub pid: i32,
    /// Its parent.
    pub ppid: i32,
    /// Its process group.
    pub group: i32,
    /// State letter of its first thread (`Z`: ended).
    pub state: char,
    /// Threads, with the first as long as it was not reaped.
    pub threads: u64,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

impl Stat {
    /// Parses a stat line; the command name may contain anything, also parentheses and spaces.
    pub fn parse(line: &str) -> Option<Stat> {
        let open = line.find('(')?;
        let close = line.rfind(')')?;
        let pid = line.get(..open)?.trim().parse().ok()?;
        let mut rest = line.get(close + 1..)?.split_whitespace();
        let state = rest.next()?.chars().next()?;
        let ppid = rest.next()?.parse().ok()?;
        let group = rest.next()?.parse().ok()?;
        let threads = rest.nth(14)?.parse().ok()?;
        let start = rest.nth(1)?.parse().ok()?;
        Some(Stat { pid, ppid, group, state, threads, start })
    }

    /// Whether it runs: other threads may go on when the first has ended.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') || self.threads > 1
    }

    /// Stat line of a process that exists.
    fn of(pid: i32) -> Option<Stat> {
        Stat::parse(&text(pid, "stat").ok()?)
    }
}

/// Whether another thread of a process than its first runs on: none does after exit_group(2) or a fatal signal.
pub fn others_run(pid: i32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads = tasks.filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok());
    threads.filter(|&thread| thread != pid).any(|thread| {
        let texts = text(thread, "stat").ok().zip(text(thread, "status").ok());
        texts.is_some_and(|(stat, status)| runs_on(&stat, &status))
    })
}

/// Whether a signal ends a process's first thread (PF_SIGNALED), as the exec of another thread does.
pub fn is_signalled(pid: i32) -> bool {
    const SIGNALED: u64 = 0x400;
    text(pid, "stat").is_ok_and(|stat| flags(&stat) & SIGNALED != 0)
}

/// A thread's flags (PF_ of the kernel), from its stat line; 0 where it shows none.
fn flags(stat: &str) -> u64 {
    let rest = stat.rfind(')').and_then(|at| stat.get(at + 1..)).unwrap_or_default();
    rest.split_ascii_whitespace().nth(6).and_then(|flags| flags.parse().ok()).unwrap_or(0)
}

/// Whether a thread neither ends (PF_EXITING, PF_SIGNALED) nor has to (a pending SIGKILL), by its stat and its status.
fn runs_on(stat: &str, status: &str) -> bool {
    const ENDING: u64 = 0x4 | 0x400;
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    flags(stat) & ENDING == 0 && pending & KILL == 0
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn all() -> Vec<Stat> {
    pids().filter_map(Stat::of).collect()
}

/// Processes and threads of a user, as RLIMIT_NPROC counts them.
pub fn tasks_of(uid: u32) -> u64 {
    pids().filter_map(|pid| threads_of(&text(pid, "status").ok()?, uid)).sum()
}

fn threads_of(status: &str, uid: u32) -> Option<u64> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    let owner: u32 = field("Uid:")?.parse().ok()?;
    if owner == uid { field("Threads:")?.parse().ok() } else { None }
}

/// Whether a process other than this one's ancestors and descendants is in its process group: a pager behind it in a
/// pipeline, another job of a script.
pub fn shares_its_group() -> bool {
    shares_group(process::own_pid(), &all())
}

fn shares_group(own: i32, processes: &[Stat]) -> bool {
    let by_pid: HashMap<i32, &Stat> = processes.iter().map(|process| (process.pid, process)).collect();
    let Some(group) = by_pid.get(&own).map(|process| process.group) else { return false };
    let (_, mut family) = below(own, processes);
    let mut at = own;
    while let Some(parent) = by_pid.get(&at).map(|process| process.ppid).filter(|&parent| family.insert(parent)) {
        at = parent;
    }
    processes.iter().any(|one| one.group == group && one.is_alive() && !family.contains(&one.pid))
}

/// All living descendants of `root`, without itself. The launcher is a subreaper, so none can have left its tree.
pub fn descendants(root: i32) -> Vec<i32> {
    below(root, &all()).0.iter().map(|process| process.pid).collect()
}

/// Sends signals to all living descendants of `root`; returns whether each got them.
///
/// A process may end after it was seen, and its number may go to another process. So it is held by a pidfd first, and
/// gets the signals only if it is still the process that was seen, or another descendant of `root`.
pub fn signal_descendants(root: i32, signals: &[Signal]) -> Vec<(i32, io::Result<()>)> {
    let (living, family) = below(root, &all());
    let is_the_same =
        |seen: &Stat| Stat::of(seen.pid).is_some_and(|now| now.start == seen.start && family.contains(&now.ppid));
    let signal = |seen: &Stat| (seen.pid, process::signal_if(seen.pid, signals, || is_the_same(seen)));
    living.iter().map(signal).collect()
}

/// The living descendants of `root`, and the ids of its whole family: these, descendants that were not reaped yet, and
/// `root`.
fn below(root: i32, processes: &[Stat]) -> (Vec<Stat>, HashSet<i32>) {
    let mut children: HashMap<i32, Vec<&Stat>> = HashMap::new();
    for process in processes {
        children.entry(process.ppid).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if seen.insert(child.pid) {
                open.push(child.pid);
                if child.is_alive() {
                    found.push(**child);
                }
            }
        }
    }
    (found, seen)
}

/// Whether `pid` is a living descendant of `root`. Examines only its ancestors, so that a refusal costs little.
pub fn descends(pid: i32, root: i32) -> bool {
    // A parent that ends on the way leaves its children to another: begin anew.
    (0..3).any(|_| {
        let mut at = pid;
        for _ in 0..MOST_ANCESTORS {
            match Stat::of(at) {
                Some(stat) if stat.ppid == root => return true,
                Some(stat) if stat.ppid > 1 => at = stat.ppid,
                _ => return false,
            }
        }
        false
    })
}

/// Longer chains of ancestors are not followed.
const MOST_ANCESTORS: usize = 100_000;

/// Effective user and group of a process.
pub fn effective_ids(pid: i32) -> Option<(u32, u32)> {
    let text = text(pid, "status").ok()?;
    let id = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    Some((id("Uid:")?, id("Gid:")?))
}

/// The command name of a process, or `?`.
pub fn name(pid: i32) -> String {
    let name = text(pid, "comm");
    name.map_or_else(|_| "?".to_owned(), |name| words::plain(name.trim_end_matches('\n')).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_command_name_does_not_confuse_the_parser() {
        let stat =
            Stat::parse("12 (a) R 1 (x) S 7 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 99 0").expect("parses");
        assert_eq!(stat, Stat { pid: 12, ppid: 7, group: 2, state: 'S', threads: 17, start: 99 });
        assert_eq!(Stat::parse("garbage"), None);
    }

    #[test]
    fn descendants_are_found_through_zombies_and_cycles_end() {
        let process = |pid, ppid, state| Stat { pid, ppid, group: 1, state, threads: 1, start: 0 };
        let all =
            [process(2, 1, 'S'), process(3, 2, 'Z'), process(4, 3, 'R'), process(9, 8, 'R'), process(1, 4, 'R')];
        let (living, family) = below(1, &all);
        let mut found: Vec<i32> = living.iter().map(|process| process.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [2, 4]);
        assert_eq!(family, HashSet::from([1, 2, 3, 4]));
        assert!(Stat { threads: 2, ..process(3, 2, 'Z') }.is_alive(), "another thread goes on");
    }

    #[test]
    fn a_group_is_shared_with_who_is_neither_above_nor_below() {
        let process = |pid, ppid, group| Stat { pid, ppid, group, state: 'S', threads: 1, start: 0 };
        // A shell, the caller in a group of its own, the guard, the launcher, its child, and another job.
        let alone = [(1, 0, 1), (5, 1, 5), (6, 5, 5), (7, 6, 5), (8, 7, 5), (9, 1, 9)];
        let mut all = alone.map(|(pid, ppid, group)| process(pid, ppid, group)).to_vec();
        assert!(!shares_group(7, &all));
        all.push(Stat { state: 'Z', ..process(10, 1, 5) });
        assert!(!shares_group(7, &all), "it has ended");
        all.push(process(11, 1, 5));
        assert!(shares_group(7, &all), "a pager");
    }

    #[test]
    fn threads_that_end_do_not_run_on() {
        let stat = |flags: u64| format!("12 (a) R 1) S 7 2 3 4 5 {flags} 7 8 9");
        let status = |pending: &str| format!("Name:\ta\nSigPnd:\t{pending}\nShdPnd:\t0000000000000100\n");
        let quiet = status("0000000000000000");
        assert!(runs_on(&stat(0x40_0040), &quiet));
        assert!(!runs_on(&stat(0x40_0044), &quiet), "it exits");
        assert!(!runs_on(&stat(0x40_0440), &quiet), "a signal ends it");
        assert!(!runs_on(&stat(0x40_0040), &status("0000000000000100")), "SIGKILL is pending");

        let (tell, told) = std::sync::mpsc::channel::<()>();
        let waits = std::thread::spawn(move || told.recv().is_err());
        assert!(others_run(std::process::id() as i32));
        drop(tell);
        assert!(waits.join().expect("it ends"));
    }
}
