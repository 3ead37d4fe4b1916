//! Counters and the process tree by process, from the ring buffers of the perf events.
//!
//! Every task's counters are written out when it ends (`inherit_stat`, PERF_RECORD_READ); only the first task's are
//! not, which is what remains of the total. The kernel may write such a record into one CPU's buffer from another CPU,
//! so that two tasks that end at the same instant can tear each other's: the sums are checked against the totals, and
//! a breakdown that does not add up is dropped as a whole. Totals never come from here: they have counters of their own.

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
    /// Counts by process and counter, without the first task's.
    pub counts: BTreeMap<i32, HashMap<Slot, u64>>,
    /// Processes of the tree.
    pub processes: BTreeMap<i32, Announced>,
    /// Records that found no room, or made no sense.
    pub lost: u64,
    ids: HashMap<u64, Slot>,
}

/// The ring buffers of a run.
pub struct Breakdown {
    /// One a CPU.
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
    /// Makes a counter's id known.
    pub fn learn(&mut self, id: u64, slot: Slot) {
        self.ids.insert(id, slot);
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
        let (pid, value, id) = (u32_at(body, 0)?, u64_at(body, 8)?, u64_at(body, 32)?);
        let slot = *self.ids.get(&id)?;
        *self.counts.entry(pid as i32).or_default().entry(slot).or_default() += value;
        Some(())
    }

    /// pid, ppid, tid, ptid, time; pid equal to ppid: a new thread.
    fn hear_fork(&mut self, body: &[u8]) -> Option<()> {
        let (pid, ppid, time) = (u32_at(body, 0)? as i32, u32_at(body, 4)? as i32, u64_at(body, 16)?);
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

    /// The first task's share of every counter, given the totals; None when the records cannot be right.
    pub fn remainders(&self, totals: &HashMap<Slot, u64>) -> Option<HashMap<Slot, u64>> {
        if self.lost > 0 {
            return None;
        }
        let mut rest = totals.clone();
        for (slot, count) in self.counts.values().flatten() {
            let left = rest.get_mut(slot)?;
            *left = left.checked_sub(*count)?;
        }
        Some(rest)
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

    #[test]
    fn the_first_task_has_what_the_others_leave_of_the_total() {
        let mut heard = Heard::default();
        heard.learn(7, (0, 0));
        read(&mut heard, 20, 30, 7);
        read(&mut heard, 21, 12, 7);
        read(&mut heard, 20, 1, 7);
        assert_eq!(heard.counts[&20][&(0, 0)], 31);
        let rest = heard.remainders(&HashMap::from([((0, 0), 100)])).expect("adds up");
        assert_eq!(rest[&(0, 0)], 57);
    }

    #[test]
    fn records_that_do_not_add_up_make_no_breakdown() {
        let mut heard = Heard::default();
        heard.learn(7, (0, 0));
        read(&mut heard, 20, 101, 7);
        assert_eq!(heard.remainders(&HashMap::from([((0, 0), 100)])), None);
        let mut heard = Heard::default();
        read(&mut heard, 20, 1, 99);
        assert_eq!(heard.lost, 1, "an unknown id is a torn record");
        heard.hear(abi::PERF_RECORD_LOST, &words(&[1, 5]));
        heard.hear(abi::PERF_RECORD_FORK, &[1, 2, 3]);
        assert_eq!(heard.lost, 3);
    }

    #[test]
    fn the_tree_is_put_together_from_forks_names_and_exits() {
        let mut heard = Heard::default();
        heard.hear(abi::PERF_RECORD_FORK, &words(&[pair(20, 10), pair(20, 10), 1000]));
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
