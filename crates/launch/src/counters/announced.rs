//! The process tree of a run as the kernel announces it: forks, execs, names and exits, with or without counters.
//!
//! On each CPU the program may use, one event that counts nothing is inherited by every process and thread and writes
//! these records. Only these records show processes on which the library never reported: a program started with an
//! empty environment, a static child.

use crate::sys::perf::{RecordKind, Ring};
use perf_event_open_sys::bindings as abi;
use std::collections::{BTreeMap, HashMap};

/// A process as the kernel announced it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// Its parent when it began.
    pub ppid: i32,
    /// When it was forked (CLOCK_MONOTONIC).
    pub start_ns: Option<u64>,
    /// When its first thread ended.
    pub end_ns: Option<u64>,
    /// Its name, of at most 15 bytes.
    pub name: Option<String>,
    /// The programs it executed.
    pub images: Vec<Image>,
}

/// A program that a process executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// When (CLOCK_MONOTONIC).
    pub at_ns: u64,
    /// The file's name, of at most 15 bytes.
    pub name: String,
}

/// Everything announced so far.
#[derive(Debug, Default)]
pub struct Family {
    /// By process id; the root too, once it has executed or ended.
    pub processes: BTreeMap<i32, Announced>,
    /// Process of every thread.
    pub tasks: HashMap<u32, i32>,
    /// Records that were lost for lack of room, or are malformed.
    pub lost: u64,
}

/// The ring buffers with the announcements.
pub struct Watch {
    /// One a CPU.
    pub rings: Vec<Ring>,
    /// The tree, as read from the buffers so far.
    pub family: Family,
}

/// What is known of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tree {
    /// Every process, and every program it executed.
    #[default]
    Known,
    /// Some processes may be missing, for this reason. It concerns this run only.
    Partial(String),
    /// Nothing is known, for this reason. It is the same in every run on this machine.
    Unknown(String),
}

pub(super) fn u32_at(body: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn u64_at(body: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?))
}

impl Watch {
    /// Empties the buffers.
    pub fn drain(&mut self) {
        let family = &mut self.family;
        for ring in &mut self.rings {
            if ring.drain(|kind, body| family.hear(kind, body)).is_err() {
                family.lost += 1;
            }
        }
    }
}

impl Family {
    /// Nothing yet, of a tree that begins with this process.
    pub fn of(program: i32) -> Family {
        Family { tasks: HashMap::from([(program as u32, program)]), ..Family::default() }
    }

    pub(super) fn hear(&mut self, kind: RecordKind, body: &[u8]) {
        let understood = match kind.number {
            abi::PERF_RECORD_FORK => self.hear_fork(body),
            abi::PERF_RECORD_EXIT => self.hear_exit(body),
            abi::PERF_RECORD_COMM => self.hear_name(body, kind.is_exec()),
            abi::PERF_RECORD_LOST => None,
            _ => Some(()),
        };
        if understood.is_none() {
            self.lost += 1;
        }
    }

    /// pid, ppid, tid, ptid, time; pid equal to ppid: a new thread.
    fn hear_fork(&mut self, body: &[u8]) -> Option<()> {
        let (pid, ppid, time) = (u32_at(body, 0)? as i32, u32_at(body, 4)? as i32, u64_at(body, 16)?);
        self.tasks.insert(u32_at(body, 8)?, pid);
        if pid != ppid {
            let process = self.processes.entry(pid).or_default();
            (process.ppid, process.start_ns) = (ppid, Some(time));
        }
        Some(())
    }

    fn hear_exit(&mut self, body: &[u8]) -> Option<()> {
        let (pid, tid, time) = (u32_at(body, 0)?, u32_at(body, 8)?, u64_at(body, 16)?);
        if pid == tid {
            self.processes.entry(pid as i32).or_default().end_ns = Some(time);
        }
        Some(())
    }

    /// pid, tid, name padded with NULs, and at the end the time.
    fn hear_name(&mut self, body: &[u8], is_exec: bool) -> Option<()> {
        let (pid, tid) = (u32_at(body, 0)?, u32_at(body, 4)?);
        let text = body.get(8..body.len().checked_sub(8)?)?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        if pid == tid {
            let name = String::from_utf8_lossy(text.get(..end)?).into_owned();
            let process = self.processes.entry(pid as i32).or_default();
            if is_exec {
                let image = Image { at_ns: u64_at(body, body.len() - 8)?, name: name.clone() };
                // Each CPU has a buffer of its own, so records are not read in the order of their times.
                let place = process.images.partition_point(|other| other.at_ns <= image.at_ns);
                process.images.insert(place, image);
            }
            process.name = Some(name);
        }
        Some(())
    }

    /// What is known, now that the whole tree has ended.
    pub fn tree(&self) -> Tree {
        if self.lost > 0 {
            return Tree::Partial(format!("{} of the kernel's reports of processes were lost", self.lost));
        }
        // The kernel removes the events of a program that the user may not read, or that changes its user. (And an
        // event of one CPU sees nothing of a process that runs on another CPU, which only a process that changes its
        // own affinity can do.)
        let unfollowed = self.processes.values().filter(|process| process.end_ns.is_none()).count();
        if unfollowed > 0 {
            return Tree::Partial(format!(
                "{unfollowed} processes could not be followed to their end (set-user-ID or unreadable programs, or CPUs \
                 outside the run's)"
            ));
        }
        Tree::Known
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    pub fn pair(low: u32, high: u32) -> u64 {
        u64::from_ne_bytes([low.to_ne_bytes(), high.to_ne_bytes()].concat().try_into().expect("eight bytes"))
    }

    pub fn kind(number: u32) -> RecordKind {
        RecordKind { number, misc: 0 }
    }

    pub fn fork(family: &mut Family, pid: u32) {
        family.hear(kind(abi::PERF_RECORD_FORK), &words(&[pair(pid, 10), pair(pid, 10), 1000]));
    }

    fn exec(family: &mut Family, pid: u32, name: &[u8; 8], at: u64) {
        let exec = RecordKind { number: abi::PERF_RECORD_COMM, misc: abi::PERF_RECORD_MISC_COMM_EXEC as u16 };
        family.hear(exec, &words(&[pair(pid, pid), u64::from_ne_bytes(*name), at]));
    }

    fn exit(family: &mut Family, pid: u32, tid: u32, at: u64) {
        family.hear(kind(abi::PERF_RECORD_EXIT), &words(&[pair(pid, 10), pair(tid, 10), at]));
    }

    #[test]
    fn the_tree_is_put_together_from_forks_names_and_exits() {
        let mut family = Family::of(10);
        fork(&mut family, 20);
        family.hear(kind(abi::PERF_RECORD_FORK), &words(&[pair(20, 20), pair(22, 20), 1100]));
        exec(&mut family, 20, b"cc1\0\0\0\0\0", 1200);
        let renamed = words(&[pair(20, 22), u64::from_ne_bytes(*b"worker\0\0"), 1250]);
        family.hear(kind(abi::PERF_RECORD_COMM), &renamed);
        exit(&mut family, 20, 22, 1300);
        exit(&mut family, 20, 20, 1400);
        let expected = Announced {
            ppid: 10,
            start_ns: Some(1000),
            end_ns: Some(1400),
            name: Some("cc1".to_owned()),
            images: vec![Image { at_ns: 1200, name: "cc1".to_owned() }],
        };
        assert_eq!(family.processes, BTreeMap::from([(20, expected)]));
        assert_eq!(family.tasks, HashMap::from([(10, 10), (20, 20), (22, 20)]));
        assert_eq!(family.tree(), Tree::Known);
    }

    #[test]
    fn programs_are_in_the_order_of_their_execs_whichever_buffer_is_read_first() {
        let mut family = Family::of(10);
        exec(&mut family, 10, b"prog\0\0\0\0", 300);
        exec(&mut family, 10, b"bash\0\0\0\0", 100);
        exec(&mut family, 10, b"env\0\0\0\0\0", 200);
        let renamed = words(&[pair(10, 10), u64::from_ne_bytes(*b"itself\0\0"), 350]);
        family.hear(kind(abi::PERF_RECORD_COMM), &renamed);
        let names: Vec<&str> = family.processes[&10].images.iter().map(|image| image.name.as_str()).collect();
        assert_eq!(names, ["bash", "env", "prog"]);
    }

    #[test]
    fn a_tree_with_holes_says_so() {
        let mut family = Family::of(10);
        fork(&mut family, 20);
        assert!(matches!(family.tree(), Tree::Partial(why) if why.contains("1 processes could not be followed")));
        exit(&mut family, 20, 20, 1300);
        assert_eq!(family.tree(), Tree::Known);
        family.hear(kind(abi::PERF_RECORD_LOST), &words(&[1, 5]));
        family.hear(kind(abi::PERF_RECORD_FORK), &[1, 2, 3]);
        assert!(matches!(family.tree(), Tree::Partial(why) if why.starts_with("2 of the kernel's reports")));
    }
}
