//! Counters and the process tree by process, from the ring buffers of the perf events.
//!
//! The kernel writes the counts of each task when it ends (`inherit_stat`, PERF_RECORD_READ), except for one: the task
//! that holds the original counters at that time. This is not always the first task, since the kernel swaps the
//! contexts of related tasks instead of switching them. Its counts are the totals minus those of all other tasks. The
//! kernel may write such a record into one CPU's buffer from another CPU, so that two tasks that end at the same
//! instant on two CPUs could overwrite each other's. Forks and exits are written by their own CPU only, into buffers of
//! their own, so they say how many counts there must be: a breakdown in which one is missing is dropped as a whole.
//! Totals never come from here: they have counters of their own.

use super::announced::{Family, u32_at, u64_at};
use super::session::Opened;
use crate::sys::perf::{RecordKind, Ring};
use perf_event_open_sys::bindings as abi;
use std::collections::{BTreeMap, HashMap};

/// Which counter an id belongs to: (number of the role, number of its part).
pub type Slot = (usize, usize);

/// Contents of the ring buffers so far.
#[derive(Debug, Default)]
pub struct Heard {
    /// Counts by process and counter, without those of the task that writes none.
    pub counts: BTreeMap<i32, HashMap<Slot, u64>>,
    /// Records that were lost for lack of room, or are malformed.
    pub lost: u64,
    /// By id: the slot, and a bit of its own.
    ids: HashMap<u64, (Slot, u32)>,
    /// Tasks whose counts have been read, by thread id: a bit for each id of theirs.
    tasks: HashMap<u32, u128>,
}

/// Number of ids that have a bit.
pub const MOST_IDS: usize = u128::BITS as usize;

/// The ring buffers with the counts of a run.
pub struct Breakdown {
    /// One a CPU.
    pub rings: Vec<Ring>,
    /// The counters whose records land there; a set of its own, so that the totals do not depend on it.
    pub opened: Vec<Opened>,
    /// The counts, as read from the buffers so far.
    pub heard: Heard,
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
        let bit = self.ids.len() as u32;
        self.ids.insert(id, (slot, bit));
    }

    fn hear(&mut self, kind: RecordKind, body: &[u8]) {
        let understood = match kind.number {
            abi::PERF_RECORD_READ => self.hear_read(body),
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
        let seen = self.tasks.entry(tid).or_default();
        let bit = 1_u128.checked_shl(bit)?;
        if *seen & bit != 0 {
            return None;
        }
        *seen |= bit;
        *self.counts.entry(pid as i32).or_default().entry(slot).or_default() += value;
        Some(())
    }

    /// The process whose task held the original counters, and how many counts of other tasks are missing.
    fn silent(&self, family: &Family) -> (Option<i32>, u64) {
        let all = self.ids.len() as u64;
        let unheard = family.tasks.iter().filter(|(tid, _)| !self.tasks.contains_key(tid));
        let mut silent = unheard.map(|(_, pid)| *pid).collect::<Vec<i32>>().into_iter();
        let of_heard: u64 = self.tasks.values().map(|seen| all.saturating_sub(seen.count_ones().into())).sum();
        let total = of_heard + all * silent.len() as u64;
        match (silent.next(), silent.next()) {
            (Some(only), None) => (Some(only), total.saturating_sub(all)),
            _ => (None, total.max(1)),
        }
    }

    /// Whether more than one task ended and none wrote its counts: some kernels write no counts of tasks that end (seen
    /// on Linux 6.1).
    pub fn is_mute(&self, family: &Family) -> bool {
        self.lost + family.lost == 0 && self.tasks.is_empty() && family.tasks.len() > 1
    }

    /// Number of reports that are missing or invalid.
    pub fn problems(&self, family: &Family) -> u64 {
        self.lost + family.lost + self.silent(family).1
    }

    /// Counts by process, given the sums of all counters; None when the records cannot be right.
    pub fn by_process(
        &self,
        family: &Family,
        sums: &HashMap<Slot, u64>,
    ) -> Option<BTreeMap<i32, HashMap<Slot, u64>>> {
        if self.problems(family) > 0 {
            return None;
        }
        let mut rest = sums.clone();
        for (slot, count) in self.counts.values().flatten() {
            let left = rest.get_mut(slot)?;
            *left = left.checked_sub(*count)?;
        }
        let mut counts = self.counts.clone();
        let own = counts.entry(self.silent(family).0?).or_default();
        for (slot, count) in rest {
            *own.entry(slot).or_default() += count;
        }
        Some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::announced::tests::{fork, kind, pair, words};
    use super::*;

    fn read(heard: &mut Heard, pid: u32, value: u64, id: u64) {
        heard.hear(kind(abi::PERF_RECORD_READ), &words(&[pair(pid, pid), value, 5, 5, id]));
    }

    /// Process 10 with two children, one event on two CPUs (ids 7 and 8).
    fn family() -> (Heard, Family) {
        let (mut heard, mut family) = (Heard::default(), Family::of(10));
        heard.learn(7, (0, 0));
        heard.learn(8, (0, 0));
        fork(&mut family, 20);
        fork(&mut family, 21);
        read(&mut heard, 20, 30, 7);
        read(&mut heard, 20, 1, 8);
        (heard, family)
    }

    fn counts(heard: &Heard, family: &Family, sum: u64) -> Option<Vec<(i32, u64)>> {
        let counts = heard.by_process(family, &HashMap::from([((0, 0), sum)]))?;
        Some(counts.into_iter().map(|(pid, counts)| (pid, counts[&(0, 0)])).collect())
    }

    #[test]
    fn the_one_task_that_is_silent_has_what_the_others_leave() {
        let (mut heard, tree) = family();
        read(&mut heard, 21, 4, 7);
        read(&mut heard, 21, 5, 8);
        assert_eq!(counts(&heard, &tree, 100), Some(vec![(10, 60), (20, 31), (21, 9)]));
        let (mut heard, tree) = family();
        read(&mut heard, 10, 4, 7);
        read(&mut heard, 10, 5, 8);
        assert_eq!(counts(&heard, &tree, 100), Some(vec![(10, 9), (20, 31), (21, 60)]), "contexts were swapped");
    }

    #[test]
    fn a_kernel_that_tells_no_counts_is_not_taken_for_an_accident() {
        let (heard, tree) = family();
        assert!(!heard.is_mute(&tree));
        assert!(Heard::default().is_mute(&tree));
        assert!(!Heard::default().is_mute(&Family::of(10)), "a lone task is always silent");
        assert!(!Heard { lost: 1, ..Heard::default() }.is_mute(&tree));
    }

    #[test]
    fn records_that_are_missing_torn_or_too_much_make_no_breakdown() {
        let (heard, tree) = family();
        assert_eq!((counts(&heard, &tree, 100), heard.problems(&tree) > 0), (None, true), "two silent tasks");
        let (mut heard, mut tree) = family();
        read(&mut heard, 21, 4, 7);
        assert_eq!((counts(&heard, &tree, 100), heard.problems(&tree)), (None, 1), "one of two CPUs");
        read(&mut heard, 21, 5, 8);
        assert_eq!(counts(&heard, &tree, 30), None, "more than the sum");
        tree.lost += 1;
        assert_eq!(counts(&heard, &tree, 100), None, "a fork may be missing");
        tree.lost = 0;
        read(&mut heard, 21, 5, 8);
        assert_eq!((counts(&heard, &tree, 100), heard.lost), (None, 1), "twice");
        let (mut heard, _) = family();
        read(&mut heard, 21, 1, 99);
        heard.hear(kind(abi::PERF_RECORD_LOST), &words(&[1, 5]));
        heard.hear(kind(abi::PERF_RECORD_READ), &[1, 2, 3]);
        assert_eq!(heard.lost, 3, "an unknown id, a full buffer, a short record");
    }
}
