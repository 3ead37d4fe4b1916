//! References whose place in the reduced trace is not decided yet, in their order.

use super::links::NONE;

/// A reference that waits.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub page: u64,
    /// References that it stands for.
    pub count: u64,
    /// Time of the reference to the same page that was kept before it; 0 where there is none that matters.
    pub before: u64,
    /// Another reference to the page has come and did not drop it: it stays.
    pub settled: bool,
    older: u32,
    newer: u32,
}

/// A queue from whose middle entries can be taken.
pub(super) struct Pending {
    entries: Vec<Entry>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl Default for Pending {
    fn default() -> Self {
        Pending { entries: Vec::new(), free: Vec::new(), oldest: NONE, newest: NONE }
    }
}

impl Pending {
    /// The oldest.
    #[inline]
    pub fn front(&self) -> Option<&Entry> {
        (self.oldest != NONE).then(|| &self.entries[self.oldest as usize])
    }

    /// Appends one; returns its slot.
    pub fn push(&mut self, page: u64, count: u64, before: u64) -> u32 {
        let entry = Entry { page, count, before, settled: false, older: self.newest, newer: NONE };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.entries[newest as usize].newer = slot,
        }
        self.newest = slot;
        slot
    }

    /// Records that this reference stays in the trace.
    #[inline]
    pub fn settle(&mut self, slot: u32) {
        self.entries[slot as usize].settled = true;
    }

    /// Takes one out of the middle; returns how many references it stands for.
    pub fn remove(&mut self, slot: u32) -> u64 {
        let Entry { count, older, newer, .. } = self.entries[slot as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        self.free.push(slot);
        count
    }

    /// Takes the oldest, with its slot; the queue must not be empty.
    pub fn pop(&mut self) -> (u32, Entry) {
        let slot = self.oldest;
        let entry = self.entries[slot as usize];
        self.remove(slot);
        (slot, entry)
    }
}
