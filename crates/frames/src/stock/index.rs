//! The optional index from frame numbers to free slots, by open addressing.

use super::{NIL, SlotId, State, Stock};

const FRAME_BITS: u32 = 40;
const FRAME_MASK: u64 = (1 << FRAME_BITS) - 1;

/// Linear probing over words of frame number (40 bits) and slot + 1 (24 bits); 0 is a vacant place. A deletion shifts
/// the following entries back, so there are no tombstones and the table never degrades.
pub(super) struct Index<'m> {
    table: Option<&'m mut [u64]>,
    entries: usize,
}

fn place(frame: u64, mask: usize) -> usize {
    // Fibonacci hashing: consecutive frames, the usual case, spread evenly.
    (frame.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask
}

fn entry(frame: u64, slot: u32) -> u64 {
    (u64::from(slot) + 1) << FRAME_BITS | (frame & FRAME_MASK)
}

impl<'m> Index<'m> {
    pub fn none() -> Index<'m> {
        Index { table: None, entries: 0 }
    }

    pub fn is_on(&self) -> bool {
        self.table.is_some()
    }

    pub fn entries(&self) -> usize {
        self.entries
    }

    pub fn clear(&mut self) {
        self.entries = 0;
        if let Some(table) = &mut self.table {
            table.fill(0);
        }
    }

    /// Adds an entry. A table that becomes nearly full is switched off instead: a search in it would take too long.
    pub fn insert(&mut self, frame: u64, slot: u32) {
        let Some(table) = self.table.as_deref_mut() else { return };
        if (self.entries + 1) * 8 > table.len() * 7 {
            self.table = None;
            self.entries = 0;
            return;
        }
        let mask = table.len() - 1;
        let mut at = place(frame, mask);
        while let Some(here) = table.get_mut(at) {
            if *here == 0 {
                *here = entry(frame, slot);
                self.entries += 1;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// The place of the entry that `matches`, among those of frame `frame`.
    fn search(&self, frame: u64, matches: impl Fn(u64) -> bool) -> Option<usize> {
        let table = self.table.as_deref()?;
        let mask = table.len() - 1;
        let mut at = place(frame, mask);
        loop {
            match *table.get(at)? {
                0 => return None,
                here if matches(here) => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    pub fn find(&self, frame: u64) -> Option<u32> {
        let at = self.search(frame, |here| here & FRAME_MASK == frame)?;
        let here = *self.table.as_deref()?.get(at)?;
        Some((here >> FRAME_BITS) as u32 - 1)
    }

    pub fn contains(&self, frame: u64, slot: u32) -> bool {
        self.search(frame, |here| here == entry(frame, slot)).is_some()
    }

    pub fn remove(&mut self, frame: u64, slot: u32) {
        let Some(mut hole) = self.search(frame, |here| here == entry(frame, slot)) else { return };
        let Some(table) = self.table.as_deref_mut() else { return };
        self.entries -= 1;
        let mask = table.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let here = table.get(at).copied().unwrap_or(0);
            if here == 0 {
                break;
            }
            // An entry may move back into the hole if the hole is not before the place it hashes to.
            let home = place(here & FRAME_MASK, mask);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                if let Some(place) = table.get_mut(hole) {
                    *place = here;
                }
                hole = at;
            }
        }
        if let Some(place) = table.get_mut(hole) {
            *place = 0;
        }
    }
}

impl<'m> Stock<'m> {
    /// Gives the stock memory (or more memory) for an index by frame number, or takes it away; returns the old memory.
    ///
    /// Only the largest power of two of `table` is used. Without a table, or when it fills up, a search for a frame
    /// goes through all chunks, and [`Stock::index_room`] returns the size that would be enough.
    pub fn set_index(&mut self, table: Option<&'m mut [u64]>) -> Option<&'m mut [u64]> {
        let usable = |table: &'m mut [u64]| {
            let len = if table.is_empty() { 0 } else { 1 << table.len().ilog2() };
            table.get_mut(..len).filter(|table| !table.is_empty())
        };
        let old = core::mem::replace(&mut self.index, Index { table: table.and_then(usable), entries: 0 });
        self.index.clear();
        let mut from = SlotId(0);
        while let Some(run) = self.next_free(from).filter(|_| self.index.is_on()) {
            for slot in run.slots() {
                if let Some(frame) = self.frame(slot) {
                    self.index.insert(frame, slot.0);
                }
            }
            from = SlotId(run.slot.0 + run.len);
        }
        old.table
    }

    /// Words that an index should have: two to four times the number of free pages, with one chunk to spare.
    pub fn index_room(&self) -> usize {
        (2 * (self.totals.free as usize + 512)).next_power_of_two()
    }

    /// Whether frames are found by number without a walk through all chunks.
    pub fn has_index(&self) -> bool {
        self.index.is_on()
    }

    /// The free slot that holds frame `pfn`.
    pub fn find(&self, pfn: u64) -> Option<SlotId> {
        let slot = if self.index.is_on() { self.index.find(pfn).unwrap_or(NIL) } else { self.scan(pfn) };
        Some(SlotId(slot)).filter(|slot| self.state(*slot) == Some(State::Free))
    }

    fn scan(&self, pfn: u64) -> u32 {
        let mut from = SlotId(0);
        while let Some(run) = self.next_free(from) {
            if let Some(slot) = run.slots().find(|slot| self.frame(*slot) == Some(pfn)) {
                return slot.0;
            }
            from = SlotId(run.slot.0 + run.len);
        }
        NIL
    }
}
