//! Counters and the process tree by process, from the ring buffers of the perf events.
//!
//! Every task's counters are written out when it ends (`inherit_stat`, PERF_RECORD_READ), but for one: the task that
//! holds the original counters at that time. That is not always the first task, since the kernel swaps the contexts of
//! related tasks instead of switching them. It is the one task of which nothing is heard, and what remains of the sum
//! is its count. The kernel may write such a record into one CPU's buffer from another CPU, so that two tasks that end
//! at the same instant on two CPUs could overwrite each other's. Forks and exits are written by their own CPU only,
//! into buffers of their own, so they say how many counts there must be: a breakdown in which one is missing is
//! dropped as a whole. Totals never come from here: they have counters of their own.

use super::session::Opened;
use crate::sys::perf::Ring;
use perf_event_open_sys::bindings as abi;
use std::collections::{BTreeMap, HashMap};

/// Which counter an id belongs to: (number of the role, number of its part).
pub type Slot = (usize, usize);

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
}

/// What the ring buffers have said so far.
#[derive(Debug, Default)]
pub struct Heard {
    /// Counts by process and counter, without the silent task's.
    pub counts: BTreeMap<i32, HashMap<Slot, u64>>,
    /// Processes of the tree.
    pub processes: BTreeMap<i32, Announced>,
    /// Records that found no room, or made no sense.
    pub lost: u64,
    /// By id: the slot, and a bit of its own.
    ids: HashMap<u64, (Slot, u32)>,
    /// Tasks of the tree, by thread id.
    tasks: HashMap<u32, Task>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    pid: i32,
    /// Bits of the ids of which its count has come.
    seen: u128,
}

/// Ids there is a bit for.
pub const MOST_IDS: usize = u128::BITS as usize;

/// The ring buffers of a run.
pub struct Breakdown {
    /// For each CPU one with forks, exits and names, and one with counts.
    pub rings: Vec<Ring>,
    /// The counters whose records land there; a set of its own, so that the totals do not depend on it.
    pub opened: Vec<Opened>,
    /// What they said.
    pub heard: Heard,
}

fn u32_at(body: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(body: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?))
}

impl Breakdown {
    /// Empties the buffers.
    pub fn drain(&mut self) {
        let heard = &mut self.heard;
        for ring in &mut self.rings {
            if ring.drain(|kind, body| heard.hear(kind, body)).is_err() {
                heard.lost += 1;
            }
        }
    }
}

impl Heard {
    /// Nothing yet, of a tree that begins with this process.
    pub fn of(program: i32) -> Heard {
        let first = (program as u32, Task { pid: program, seen: 0 });
        Heard { tasks: HashMap::from([first]), ..Heard::default() }
    }

    /// Makes a counter's id known.
    pub fn learn(&mut self, id: u64, slot: Slot) {
        let bit = self.ids.len() as u32;
        self.ids.insert(id, (slot, bit));
    }

    fn hear(&mut self, kind: u32, body: &[u8]) {
        let understood = match kind {
            abi::PERF_RECORD_READ => self.hear_read(body),
            abi::PERF_RECORD_FORK => self.hear_fork(body),
            abi::PERF_RECORD_EXIT => self.hear_exit(body),
            abi::PERF_RECORD_COMM => self.hear_name(body),
            abi::PERF_RECORD_LOST => None,
            _ => Some(()),
        };
        if understood.is_none() {
            self.lost += 1;
        }
    }

    /// pid, tid, then the read format: value, enabled, running, id.
    fn hear_read(&mut self, body: &[u8]) -> Option<()> {
        let (pid, tid) = (u32_at(body, 0)?, u32_at(body, 4)?);
        let (value, id) = (u64_at(body, 8)?, u64_at(body, 32)?);
        let (slot, bit) = *self.ids.get(&id)?;
        let task = self.tasks.entry(tid).or_default();
        let bit = 1_u128.checked_shl(bit)?;
        if task.seen & bit != 0 {
            return None;
        }
        *task = Task { pid: pid as i32, seen: task.seen | bit };
        *self.counts.entry(pid as i32).or_default().entry(slot).or_default() += value;
        Some(())
    }

    /// pid, ppid, tid, ptid, time; pid equal to ppid: a new thread.
    fn hear_fork(&mut self, body: &[u8]) -> Option<()> {
        let (pid, ppid, time) = (u32_at(body, 0)? as i32, u32_at(body, 4)? as i32, u64_at(body, 16)?);
        self.tasks.entry(u32_at(body, 8)?).or_default().pid = pid;
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
    fn hear_name(&mut self, body: &[u8]) -> Option<()> {
        let (pid, tid) = (u32_at(body, 0)?, u32_at(body, 4)?);
        let text = body.get(8..body.len().checked_sub(8)?)?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        if pid == tid {
            let name = String::from_utf8_lossy(text.get(..end)?).into_owned();
            self.processes.entry(pid as i32).or_default().name = Some(name);
        }
        Some(())
    }

    /// The process whose task held the original counters, and how many counts of other tasks never came.
    fn silent(&self) -> (Option<i32>, u64) {
        let all = self.ids.len() as u64;
        let mut silent = self.tasks.values().filter(|task| task.seen == 0);
        let missing = |task: &Task| all.saturating_sub(task.seen.count_ones().into());
        let total: u64 = self.tasks.values().map(missing).sum();
        match (silent.next(), silent.next()) {
            (Some(only), None) => (Some(only.pid), total.saturating_sub(all)),
            _ => (None, total.max(1)),
        }
    }

    /// How many reports are missing or senseless.
    pub fn problems(&self) -> u64 {
        self.lost + self.silent().1
    }

    /// Counts by process, given the sums of all counters; None when the records cannot be right.
    pub fn by_process(&self, sums: &HashMap<Slot, u64>) -> Option<BTreeMap<i32, HashMap<Slot, u64>>> {
        let (silent, missing) = self.silent();
        if self.lost > 0 || missing > 0 {
            return None;
        }
        let mut rest = sums.clone();
        for (slot, count) in self.counts.values().flatten() {
            let left = rest.get_mut(slot)?;
            *left = left.checked_sub(*count)?;
        }
        let mut counts = self.counts.clone();
        let own = counts.entry(silent?).or_default();
        for (slot, count) in rest {
            *own.entry(slot).or_default() += count;
        }
        Some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn pair(low: u32, high: u32) -> u64 {
        u64::from_ne_bytes([low.to_ne_bytes(), high.to_ne_bytes()].concat().try_into().expect("eight bytes"))
    }

    fn read(heard: &mut Heard, pid: u32, value: u64, id: u64) {
        heard.hear(abi::PERF_RECORD_READ, &words(&[pair(pid, pid), value, 5, 5, id]));
    }

    fn fork(heard: &mut Heard, pid: u32) {
        heard.hear(abi::PERF_RECORD_FORK, &words(&[pair(pid, 10), pair(pid, 10), 1000]));
    }

    /// Process 10 with two children, one event on two CPUs (ids 7 and 8).
    fn family() -> Heard {
        let mut heard = Heard::of(10);
        heard.learn(7, (0, 0));
        heard.learn(8, (0, 0));
        fork(&mut heard, 20);
        fork(&mut heard, 21);
        read(&mut heard, 20, 30, 7);
        read(&mut heard, 20, 1, 8);
        heard
    }

    fn counts(heard: &Heard, sum: u64) -> Option<Vec<(i32, u64)>> {
        let counts = heard.by_process(&HashMap::from([((0, 0), sum)]))?;
        Some(counts.into_iter().map(|(pid, counts)| (pid, counts[&(0, 0)])).collect())
    }

    #[test]
    fn the_one_task_that_is_silent_has_what_the_others_leave() {
        let mut heard = family();
        read(&mut heard, 21, 4, 7);
        read(&mut heard, 21, 5, 8);
        assert_eq!(counts(&heard, 100), Some(vec![(10, 60), (20, 31), (21, 9)]));
        let mut heard = family();
        read(&mut heard, 10, 4, 7);
        read(&mut heard, 10, 5, 8);
        assert_eq!(counts(&heard, 100), Some(vec![(10, 9), (20, 31), (21, 60)]), "contexts were swapped");
    }

    #[test]
    fn records_that_are_missing_torn_or_too_much_make_no_breakdown() {
        let heard = family();
        assert_eq!((counts(&heard, 100), heard.problems() > 0), (None, true), "two silent tasks");
        let mut heard = family();
        read(&mut heard, 21, 4, 7);
        assert_eq!((counts(&heard, 100), heard.problems()), (None, 1), "one of two CPUs");
        read(&mut heard, 21, 5, 8);
        assert_eq!(counts(&heard, 30), None, "more than the sum");
        read(&mut heard, 21, 5, 8);
        assert_eq!((counts(&heard, 100), heard.lost), (None, 1), "twice");
        let mut heard = family();
        read(&mut heard, 21, 1, 99);
        heard.hear(abi::PERF_RECORD_LOST, &words(&[1, 5]));
        heard.hear(abi::PERF_RECORD_FORK, &[1, 2, 3]);
        assert_eq!(heard.lost, 3, "an unknown id, a full buffer, a short record");
    }

    #[test]
    fn the_tree_is_put_together_from_forks_names_and_exits() {
        let mut heard = Heard::of(10);
        fork(&mut heard, 20);
        heard.hear(abi::PERF_RECORD_FORK, &words(&[pair(20, 20), pair(22, 20), 1100]));
        let name = u64::from_ne_bytes(*b"cc1\0\0\0\0\0");
        heard.hear(abi::PERF_RECORD_COMM, &words(&[pair(20, 20), name, 1200]));
        heard.hear(abi::PERF_RECORD_COMM, &words(&[pair(20, 22), u64::from_ne_bytes(*b"worker\0\0"), 1250]));
        heard.hear(abi::PERF_RECORD_EXIT, &words(&[pair(20, 10), pair(22, 10), 1300]));
        heard.hear(abi::PERF_RECORD_EXIT, &words(&[pair(20, 10), pair(20, 10), 1400]));
        let expected =
            Announced { ppid: 10, start_ns: Some(1000), end_ns: Some(1400), name: Some("cc1".to_owned()) };
        assert_eq!(heard.processes, BTreeMap::from([(20, expected)]));
    }
}
