//! Every invariant of a stock, checked from end to end.

use core::fmt;

use super::chunk::bit;
use super::lists::EMPTIES;
use super::{CHUNK_SLOTS, Counts, NIL, SlotId, State, Stock};

/// An invariant that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The fault.
    pub what: &'static str,
    /// The number of the slot, chunk or colour concerned.
    pub number: u32,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (number {})", self.what, self.number)
    }
}

fn check(holds: bool, what: &'static str, number: u32) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { what, number }) }
}

impl Stock<'_> {
    /// Checks all chunks and lists. For tests and expensive builds.
    pub fn validate(&self) -> Result<(), Broken> {
        let mut totals = Counts::default();
        let mut chunks = 0;
        for number in 0..self.used {
            if let Some(counts) = self.validate_chunk(number)? {
                chunks += 1;
                totals.free += counts.free;
                totals.empty += counts.empty;
                totals.held += counts.held;
            }
        }
        check(chunks == self.chunk_count, "the number of chunks", chunks)?;
        check(totals == self.totals, "the totals", totals.free)?;
        let beyond = self.chunks.iter().skip(self.used as usize).all(Option::is_none);
        check(beyond, "a chunk beyond the highest number", self.used)?;
        let mut listed = 0;
        for colour in 0..self.colours.count() {
            listed += self.validate_list(colour, State::Free)?;
        }
        check(listed == totals.free, "free slots outside the lists", listed)?;
        let empties = self.validate_list(EMPTIES, State::Empty)?;
        check(empties == totals.empty, "empty slots outside the list", empties)?;
        let asked = self.lists.iter().map(|list| list.asked).sum::<u32>();
        check(asked == self.asked, "the sum of what was asked for", asked)?;
        let indexed = if self.index.is_on() { listed as usize } else { 0 };
        check(self.index.entries() == indexed, "the number of frames in the index", listed)
    }

    fn validate_chunk(&self, number: u32) -> Result<Option<Counts>, Broken> {
        let Some(chunk) = self.chunk(number) else { return Ok(None) };
        let mut counts = Counts::default();
        for index in 0..CHUNK_SLOTS as u32 {
            let (slot, id) = (chunk.slot(index), SlotId::new(number, index));
            *counts.of_mut(slot.state()) += 1;
            check(bit(&chunk.free_bits(), index) == (slot.state() == State::Free), "the map of free slots", id.0)?;
            check(
                bit(chunk.empty_bits(), index) == (slot.state() == State::Empty),
                "the map of empty slots",
                id.0,
            )?;
            if slot.state() == State::Free {
                let frame = slot.frame().unwrap_or(0);
                check(frame != 0, "a free slot without a frame", id.0)?;
                check(slot.colour() == self.colours.of(frame), "the colour of a slot", id.0)?;
                let found = !self.index.is_on() || self.index.contains(frame, id.0);
                check(found, "a frame outside the index", id.0)?;
            }
        }
        check(counts == chunk.counts(), "the counts of a chunk", number)?;
        Ok(Some(counts))
    }

    /// Checks links, ends, states and length of one list; returns its length.
    fn validate_list(&self, number: u32, state: State) -> Result<u32, Broken> {
        let list = *self.list(number).ok_or(Broken { what: "a list that is missing", number })?;
        let (mut at, mut before, mut count) = (list.head, NIL, 0);
        while at != NIL {
            let slot = self.slot(SlotId(at)).ok_or(Broken { what: "a link to no slot", number: at })?;
            check(slot.state() == state, "the state of a slot in a list", at)?;
            check(number == EMPTIES || slot.colour() == number, "the colour of a slot in a list", at)?;
            check(slot.prev == before, "a link back", at)?;
            count += 1;
            check(count <= list.count, "the length of a list", number)?;
            (before, at) = (at, slot.next);
        }
        check(list.tail == before, "the end of a list", number)?;
        check(count == list.count, "the length of a list", number)?;
        Ok(count)
    }
}
