//! Pages of the stock that can be returned to the kernel.

use super::{CHUNK_SLOTS, Run, SlotId, State, Stock};

impl Stock<'_> {
    /// Takes up to `most` neighbouring free pages of colours that have more than `keep` pages, leaving each of them at
    /// least `keep`. The colours take turns. The caller gives the pages back to the kernel, then calls
    /// [`Stock::emptied`].
    pub fn take_surplus(&mut self, keep: u32, most: u32) -> Option<Run> {
        let colour = self.next_colour(keep)?;
        let head = SlotId(self.list(colour)?.head);
        let first = self.surplus_before(head, keep, most);
        let mut taken = Run { slot: first, len: 0 };
        while taken.len < most && first.index() + taken.len < CHUNK_SLOTS as u32 {
            let slot = SlotId(first.0 + taken.len);
            if !self.is_surplus(slot, keep) {
                break;
            }
            self.hold(slot);
            taken.len += 1;
        }
        (taken.len > 0).then_some(taken)
    }

    /// The first chunk from number `from` on that can go as a whole ([`Stock::remove_chunk`]): nobody works on its slots,
    /// and it has at most `most_free` free pages (0: all its pages went to the program).
    pub fn spare_chunk(&self, from: u32, most_free: u32) -> Option<u32> {
        let spare = |counts: super::Counts| counts.held == 0 && counts.free <= most_free;
        (from..self.used).find(|number| self.chunk_counts(*number).is_some_and(spare))
    }

    fn is_surplus(&self, slot: SlotId, keep: u32) -> bool {
        let entry = self.slot(slot).filter(|entry| entry.state() == State::Free);
        entry.is_some_and(|entry| self.count(entry.colour()) > keep)
    }

    /// The first slot of the surplus run that ends with `slot`, at most half of `most` back.
    fn surplus_before(&self, slot: SlotId, keep: u32, most: u32) -> SlotId {
        let mut first = slot;
        while first.index() > 0 && slot.0 - first.0 < most / 2 && self.is_surplus(SlotId(first.0 - 1), keep) {
            first = SlotId(first.0 - 1);
        }
        first
    }
}
