//! The linked lists through the slots: one for each colour, and one of empty slots.

use super::{End, SlotId, State, Stock};

/// Number that stands for no slot.
pub(super) const NIL: u32 = u32::MAX;
/// Number of the list of empty slots; the other lists have their colour as the number.
pub(super) const EMPTIES: u32 = u32::MAX;

/// Both ends of a list and its length. Zeroed memory is a valid (meaningless) value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) count: u32,
    /// Recent requests for its colour.
    pub(super) asked: u32,
}

impl List {
    /// A list without slots.
    pub const EMPTY: List = List { head: NIL, tail: NIL, count: 0, asked: 0 };
}

impl Stock<'_> {
    #[inline]
    pub(super) fn list(&self, number: u32) -> Option<&List> {
        if number == EMPTIES { Some(&self.empties) } else { self.lists.get(number as usize) }
    }

    #[inline]
    fn list_mut(&mut self, number: u32) -> Option<&mut List> {
        if number == EMPTIES { Some(&mut self.empties) } else { self.lists.get_mut(number as usize) }
    }

    fn note(&mut self, slot: SlotId, from: State, to: State) {
        if let Some(Some(chunk)) = self.chunks.get_mut(slot.chunk() as usize) {
            chunk.note(slot.index(), from, to);
            *self.totals.of_mut(from) -= 1;
            *self.totals.of_mut(to) += 1;
        }
    }

    /// Links a slot, which the caller has just made free or empty, into its new list.
    pub(super) fn link(&mut self, slot: SlotId, end: End) {
        let Some(entry) = self.slot(slot).copied() else { return };
        let number = if entry.state() == State::Free { entry.colour() } else { EMPTIES };
        let Some(list) = self.list_mut(number) else { return };
        list.count += 1;
        let (next, prev) = match end {
            End::Front => (core::mem::replace(&mut list.head, slot.0), NIL),
            End::Back => (NIL, core::mem::replace(&mut list.tail, slot.0)),
        };
        match end {
            End::Front if next == NIL => list.tail = slot.0,
            End::Back if prev == NIL => list.head = slot.0,
            End::Front => self.set_prev(next, slot.0),
            End::Back => self.set_next(prev, slot.0),
        }
        if let Some(entry) = self.slot_mut(slot) {
            (entry.next, entry.prev) = (next, prev);
        }
        self.note(slot, State::Held, entry.state());
        if let (State::Free, Some(frame)) = (entry.state(), entry.frame()) {
            self.index.insert(frame, slot.0);
        }
    }

    /// Takes a free or empty slot out of its list and makes it held; other slots stay as they are.
    #[inline]
    pub(super) fn hold(&mut self, slot: SlotId) {
        let Some(entry) = self.slot_mut(slot) else { return };
        let before = *entry;
        let state = before.state();
        if state == State::Held {
            return;
        }
        entry.set_held();
        let number = if state == State::Free { before.colour() } else { EMPTIES };
        if let Some(list) = self.list_mut(number) {
            list.count -= 1;
            if before.prev == NIL {
                list.head = before.next;
            }
            if before.next == NIL {
                list.tail = before.prev;
            }
        }
        self.set_next(before.prev, before.next);
        self.set_prev(before.next, before.prev);
        self.note(slot, state, State::Held);
        if let (State::Free, Some(frame)) = (state, before.frame()) {
            self.index.remove(frame, slot.0);
        }
    }

    #[inline]
    fn set_next(&mut self, slot: u32, next: u32) {
        if slot != NIL
            && let Some(entry) = self.slot_mut(SlotId(slot))
        {
            entry.next = next;
        }
    }

    #[inline]
    fn set_prev(&mut self, slot: u32, prev: u32) {
        if slot != NIL
            && let Some(entry) = self.slot_mut(SlotId(slot))
        {
            entry.prev = prev;
        }
    }
}
