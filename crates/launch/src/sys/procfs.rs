//! The processes below the launcher, as /proc shows them.

use crate::words;
use std::collections::{HashMap, HashSet};
use std::fs;

/// One line of /proc/PID/stat, the part needed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Process id.
    pub pid: i32,
    /// Its parent.
    pub ppid: i32,
    /// State letter (`Z`: ended, not yet reaped).
    pub state: char,
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
        Some(Stat { pid, ppid, state })
    }
}

fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numeric = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().parse::<i32>().is_ok());
    numeric.filter_map(|entry| Stat::parse(&fs::read_to_string(entry.path().join("stat")).ok()?)).collect()
}

/// Processes and threads of a user, as RLIMIT_NPROC counts them.
pub fn tasks_of(uid: u32) -> u64 {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let numeric = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().parse::<i32>().is_ok());
    let status = numeric.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    status.filter_map(|text| threads_of(&text, uid)).sum()
}

fn threads_of(status: &str, uid: u32) -> Option<u64> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    let owner: u32 = field("Uid:")?.parse().ok()?;
    if owner == uid { field("Threads:")?.parse().ok() } else { None }
}

/// All living descendants of `root`, without itself. The launcher is a subreaper, so none can have left its tree.
pub fn descendants(root: i32) -> Vec<i32> {
    below(root, &all())
}

fn below(root: i32, processes: &[Stat]) -> Vec<i32> {
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
                if child.state != 'Z' && child.state != 'X' {
                    found.push(child.pid);
                }
            }
        }
    }
    found
}

/// Whether `pid` is a living descendant of `root`. Looks at its ancestors only, so that who asks in vain costs little.
pub fn descends(pid: i32, root: i32) -> bool {
    // A parent that ends on the way leaves its children to another: begin anew.
    (0..3).any(|_| {
        let mut at = pid;
        for _ in 0..MOST_ANCESTORS {
            let line = fs::read_to_string(format!("/proc/{at}/stat"));
            match line.ok().and_then(|line| Stat::parse(&line)) {
                Some(stat) if stat.ppid == root => return true,
                Some(stat) if stat.ppid > 1 => at = stat.ppid,
                _ => return false,
            }
        }
        false
    })
}

/// A chain of processes longer than this is not one's own.
const MOST_ANCESTORS: usize = 100_000;

/// Effective user and group of a process.
pub fn effective_ids(pid: i32) -> Option<(u32, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let id = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    Some((id("Uid:")?, id("Gid:")?))
}

/// The command name of a process, or `?`.
pub fn name(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or_else(|_| "?".to_owned(), |name| words::plain(name.trim_end_matches('\n')).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_command_name_does_not_confuse_the_parser() {
        let stat = Stat::parse("12 (a) R 1 (x) S 7 12 12 0").expect("parses");
        assert_eq!(stat, Stat { pid: 12, ppid: 7, state: 'S' });
        assert_eq!(Stat::parse("garbage"), None);
    }

    #[test]
    fn descendants_are_found_through_zombies_and_cycles_end() {
        let process = |pid, ppid, state| Stat { pid, ppid, state };
        let all =
            [process(2, 1, 'S'), process(3, 2, 'Z'), process(4, 3, 'R'), process(9, 8, 'R'), process(1, 4, 'R')];
        let mut found = below(1, &all);
        found.sort_unstable();
        assert_eq!(found, [2, 4]);
    }
}
