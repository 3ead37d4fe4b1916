//! Taking pages: single ones, runs with the wanted colours, and the surplus that goes back to the kernel.

use super::chunk::{Chunk, bit};
use super::lists::EMPTIES;
use super::{CHUNK_SLOTS, NIL, Run, SlotId, State, Stock};
use crate::strategy::Want;

/// Number of slots of a list that are examined, at each end, for the longest run that begins there.
const LOOKS: u32 = 4;
/// Greatest distance from the wanted colour of a substitute; beyond it, any colour is taken.
const NEIGHBOURS: u32 = 8;

impl Stock<'_> {
    /// Takes the longest run that satisfies the first of `wants` and as many as possible of those after it:
    /// neighbouring slots for neighbouring pages. `None` if not even the first can be satisfied.
    ///
    /// It examines a bounded number of candidates, so it may miss the longest run; it never misses the first page.
    pub fn take_run(&mut self, wants: &[Want]) -> Option<Run> {
        let run = match *wants.first()? {
            Want::Colour(colour) => self.longest(colour, wants)?,
            Want::Frame(pfn) => self.extent(self.find(pfn)?, wants),
            Want::Any => {
                let colour = self.next_colour(0)?;
                self.longest(colour, wants)?
            }
        };
        for slot in run.slots() {
            self.hold(slot);
        }
        Some(run)
    }

    /// Takes a page of colour `colour`.
    pub fn take(&mut self, colour: u32) -> Option<SlotId> {
        let head = self.lists.get(colour as usize)?.head;
        self.take_slot(head)
    }

    /// Takes the page with frame number `pfn`.
    pub fn take_frame(&mut self, pfn: u64) -> Option<SlotId> {
        self.take_slot(self.find(pfn)?.0)
    }

    /// Takes a page of another colour where `colour` has none: of the colours up to 8 away, the one with most pages;
    /// then any colour.
    pub fn take_near(&mut self, colour: u32) -> Option<SlotId> {
        let colours = self.colours.count();
        let colour = colour.min(colours - 1);
        let neighbours = (1..=NEIGHBOURS.min(colours / 2)).flat_map(|away| {
            let up = if colour + away < colours { colour + away } else { colour + away - colours };
            let down = if colour >= away { colour - away } else { colour + colours - away };
            [up, down]
        });
        let best = neighbours.max_by_key(|colour| self.count(*colour)).filter(|colour| self.count(*colour) > 0);
        match best {
            Some(near) => self.take(near),
            None => self.take_any(),
        }
    }

    /// Takes a page of any colour; the colours take turns.
    pub fn take_any(&mut self) -> Option<SlotId> {
        let colour = self.next_colour(0)?;
        self.take(colour)
    }

    /// Takes a free or empty slot by number, to work on it; returns whether the slot was free or empty.
    pub fn take_this(&mut self, slot: SlotId) -> bool {
        let can = matches!(self.state(slot), Some(State::Free | State::Empty));
        self.hold(slot);
        can
    }

    /// Takes up to `most` neighbouring empty slots, to which pages that come back can be moved.
    pub fn take_empty_run(&mut self, most: u32) -> Option<Run> {
        let mut best: Option<Run> = None;
        let mut at = self.empties.head;
        for _ in 0..LOOKS {
            if at == NIL || best.is_some_and(|run| run.len >= most) {
                break;
            }
            let run = self.empty_extent(SlotId(at), most);
            if best.is_none_or(|best| best.len < run.len) {
                best = Some(run);
            }
            at = self.slot(SlotId(at)).map_or(NIL, |slot| slot.next);
        }
        let run = best.filter(|run| run.len > 0)?;
        for slot in run.slots() {
            self.hold(slot);
        }
        Some(run)
    }

    /// The first run of free slots from `from` on, whatever their colours: for a walk through all free pages.
    pub fn next_free(&self, from: SlotId) -> Option<Run> {
        let (mut number, mut index) = (from.chunk(), from.index());
        while number < self.used {
            if let Some(chunk) = self.chunk(number).filter(|chunk| chunk.counts().free > 0) {
                let free = chunk.free_bits();
                while index < CHUNK_SLOTS as u32 && !bit(&free, index) {
                    index += 1;
                }
                let slot = index;
                while index < CHUNK_SLOTS as u32 && bit(&free, index) {
                    index += 1;
                }
                if index > slot {
                    return Some(Run { slot: SlotId::new(number, slot), len: index - slot });
                }
            }
            (number, index) = (number + 1, 0);
        }
        None
    }

    fn take_slot(&mut self, slot: u32) -> Option<SlotId> {
        if slot == NIL {
            return None;
        }
        self.hold(SlotId(slot));
        Some(SlotId(slot))
    }

    /// A colour with more than `keep` free pages: the next one from the cursor on.
    pub(super) fn next_colour(&mut self, keep: u32) -> Option<u32> {
        if self.totals.free == 0 {
            return None;
        }
        let from = (self.cursor as usize).min(self.lists.len());
        let (before, after) = self.lists.split_at_checked(from)?;
        let has = |list: &super::List| list.count > keep;
        let found = after.iter().position(has).map(|at| from + at).or_else(|| before.iter().position(has))?;
        self.cursor = found as u32 + 1;
        Some(found as u32)
    }

    fn longest(&self, colour: u32, wants: &[Want]) -> Option<Run> {
        let list = *self.lists.get(colour as usize)?;
        let most = wants.len().min(CHUNK_SLOTS) as u32;
        let mut best = Run { slot: SlotId(list.head), len: 0 };
        for end in [super::End::Front, super::End::Back] {
            let mut at = if end == super::End::Front { list.head } else { list.tail };
            let looks = if end == super::End::Front { LOOKS } else { LOOKS.min(list.count.saturating_sub(LOOKS)) };
            for _ in 0..looks {
                let Some(slot) = self.slot(SlotId(at)) else { break };
                let run = self.extent(SlotId(at), wants);
                if run.len > best.len {
                    best = run;
                }
                if best.len >= most {
                    return Some(best);
                }
                at = if end == super::End::Front { slot.next } else { slot.prev };
            }
        }
        (best.len > 0).then_some(best)
    }

    /// Number of slots from `slot` on that have the wanted colours.
    #[inline]
    fn extent(&self, slot: SlotId, wants: &[Want]) -> Run {
        let Some(chunk) = self.chunk(slot.chunk()) else { return Run { slot, len: 0 } };
        let room = CHUNK_SLOTS as u32 - slot.index();
        let as_wanted = |at: &(u32, &Want)| {
            let here = chunk.slot(at.0);
            here.state() == State::Free
                && match *at.1 {
                    Want::Colour(colour) => here.colour() == colour,
                    Want::Frame(pfn) => here.frame() == Some(pfn),
                    Want::Any => true,
                }
        };
        let places = (slot.index()..slot.index() + room).zip(wants);
        Run { slot, len: places.take_while(as_wanted).count() as u32 }
    }

    /// Up to `most` empty slots around `slot`.
    fn empty_extent(&self, slot: SlotId, most: u32) -> Run {
        let Some(empty) = self.chunk(slot.chunk()).map(Chunk::empty_bits) else { return Run { slot, len: 0 } };
        let (mut first, mut end) = (slot.index(), slot.index());
        while end < CHUNK_SLOTS as u32 && end - first < most && bit(empty, end) {
            end += 1;
        }
        while first > 0 && end - first < most && bit(empty, first - 1) {
            first -= 1;
        }
        Run { slot: SlotId::new(slot.chunk(), first), len: end - first }
    }

    /// Number of empty slots.
    pub fn empty_count(&self) -> u32 {
        self.list(EMPTIES).map_or(0, |list| list.count)
    }

    /// Takes up to `most` neighbouring free pages of colours that have more than `keep` pages; each colour keeps at
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

    /// The first chunk from number `from` on that can be removed as a whole ([`Stock::remove_chunk`]): nobody works on
    /// its slots, and it has at most `most_free` free pages (0: all its pages went to the program).
    pub fn spare_chunk(&self, from: u32, most_free: u32) -> Option<u32> {
        let spare = |counts: super::Counts| counts.held == 0 && counts.free <= most_free;
        (from..self.used).find(|number| self.chunk_counts(*number).is_some_and(spare))
    }

    fn is_surplus(&self, slot: SlotId, keep: u32) -> bool {
        let entry = self.slot(slot).filter(|entry| entry.state() == State::Free);
        entry.is_some_and(|entry| self.count(entry.colour()) > keep)
    }

    /// The first slot of the surplus run that ends with `slot`, at most half of `most` slots before it.
    fn surplus_before(&self, slot: SlotId, keep: u32, most: u32) -> SlotId {
        let mut first = slot;
        while first.index() > 0 && slot.0 - first.0 < most / 2 && self.is_surplus(SlotId(first.0 - 1), keep) {
            first = SlotId(first.0 - 1);
        }
        first
    }
}
