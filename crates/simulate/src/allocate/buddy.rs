//! The free lists of a zone, as Linux keeps them.
//!
//! Blocks have 2⁰ to 2¹⁰ pages. A request takes the first block of the smallest sufficient order and splits it: the
//! lower half is split further, and the upper one goes to the head of its list (`expand`). A block that comes back is
//! joined with its buddy as long as the buddy is free. The result goes to the head of its list, or to the tail if a
//! merge with the next larger buddy is likely soon (`__free_one_page`, `buddy_merge_likely`; Linux 6.12,
//! mm/page_alloc.c). There is one zone and one migrate type.

use super::cells::Cells;

/// Largest block, as a power of two of pages (Linux: `MAX_PAGE_ORDER`).
pub const MAX_ORDER: usize = 10;
const NIL: u32 = u32::MAX;
const NOT_FREE: u8 = u8::MAX;

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

/// The zone's blocks. Frames are numbered from 0.
#[derive(Clone, Debug)]
pub struct Buddy {
    lists: [List; MAX_ORDER + 1],
    /// Neighbours in its list, for the first page of a free block.
    next: Cells<u32>,
    prev: Cells<u32>,
    /// Order of the free block that begins at the page.
    order: Cells<u8>,
    free: u64,
}

impl Buddy {
    /// A zone of `frames` free pages, with the largest blocks in ascending order, as after boot.
    #[must_use]
    pub fn new(frames: u32) -> Buddy {
        let mut buddy = Buddy {
            lists: [List { first: NIL, last: NIL }; MAX_ORDER + 1],
            next: Cells::new(NIL, frames as usize),
            prev: Cells::new(NIL, frames as usize),
            order: Cells::new(NOT_FREE, frames as usize),
            free: u64::from(frames),
        };
        let mut at = 0;
        while at < frames {
            let aligned = if at == 0 { MAX_ORDER } else { (at.trailing_zeros() as usize).min(MAX_ORDER) };
            let order = (0..=aligned).rev().find(|order| frames - at >= 1 << order).unwrap_or(0);
            buddy.link(at, order, true);
            at += 1 << order;
        }
        buddy
    }

    /// All pages of the zone.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.order.len() as u32
    }

    /// Pages in the lists.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.free
    }

    /// From now on clones have their arrays in common, except for the parts that they change.
    pub(super) fn share(&mut self) {
        self.next.share();
        self.prev.share();
        self.order.share();
    }

    #[inline]
    fn link(&mut self, frame: u32, order: usize, at_tail: bool) {
        let List { first, last } = self.lists[order];
        let (before, after) = if at_tail { (last, NIL) } else { (NIL, first) };
        self.prev.set(frame, before);
        self.next.set(frame, after);
        self.order.set(frame, order as u8);
        self.relink(order, before, after, frame, frame);
    }

    fn unlink(&mut self, frame: u32, order: usize) {
        let (before, after) = (self.prev.get(frame).unwrap_or(NIL), self.next.get(frame).unwrap_or(NIL));
        self.order.set(frame, NOT_FREE);
        self.relink(order, before, after, after, before);
    }

    /// Links `first` behind `before`, and `last` in front of `after`.
    fn relink(&mut self, order: usize, before: u32, after: u32, first: u32, last: u32) {
        match before {
            NIL => self.lists[order].first = first,
            before => self.next.set(before, first),
        }
        match after {
            NIL => self.lists[order].last = last,
            after => self.prev.set(after, last),
        }
    }

    /// Takes 2^`order` contiguous, aligned pages and returns the first one; `None` if no block is that large.
    pub fn allocate(&mut self, order: usize) -> Option<u32> {
        let mut from = (order..=MAX_ORDER).find(|order| self.lists[*order].first != NIL)?;
        let frame = self.lists[from].first;
        self.unlink(frame, from);
        while from > order {
            from -= 1;
            self.link(frame + (1 << from), from, false);
        }
        self.free -= 1 << order;
        Some(frame)
    }

    /// Takes this page out of its free block; returns false if it is not free.
    pub fn take(&mut self, wanted: u32) -> bool {
        let Some(mut order) = (0..=MAX_ORDER).find(|order| self.is_free(wanted & !0 << order, *order)) else {
            return false;
        };
        let mut frame = wanted & !0 << order;
        self.unlink(frame, order);
        while order > 0 {
            order -= 1;
            let upper = frame + (1 << order);
            if wanted < upper {
                self.link(upper, order, false);
            } else {
                self.link(frame, order, false);
                frame = upper;
            }
        }
        self.free -= 1;
        true
    }

    /// Takes back the 2^`order` pages from `frame` on.
    pub fn release(&mut self, mut frame: u32, mut order: usize) {
        debug_assert!(frame.is_multiple_of(1 << order) && self.order.get(frame) == Some(NOT_FREE));
        self.free += 1 << order;
        while order < MAX_ORDER {
            let other = frame ^ 1 << order;
            if !self.is_free(other, order) {
                break;
            }
            self.unlink(other, order);
            frame &= other;
            order += 1;
        }
        let likely = order < MAX_ORDER - 1 && self.is_free((frame & !(1 << order)) ^ 1 << (order + 1), order + 1);
        self.link(frame, order, likely);
    }

    fn is_free(&self, frame: u32, order: usize) -> bool {
        self.order.get(frame) == Some(order as u8)
    }

    /// Number of free blocks of each order, smallest first, as in `/proc/buddyinfo`.
    #[must_use]
    pub fn blocks(&self) -> [u64; MAX_ORDER + 1] {
        let mut blocks = [0; MAX_ORDER + 1];
        for (_, order) in self.free_blocks() {
            blocks[usize::from(order)] += 1;
        }
        blocks
    }

    /// First page and order of each free block, in ascending order.
    fn free_blocks(&self) -> impl Iterator<Item = (u32, u8)> {
        let all = (0..self.frames()).filter_map(|frame| self.order.get(frame).map(|order| (frame, order)));
        all.filter(|(_, order)| *order != NOT_FREE)
    }

    /// Checks the invariants: lists are linked both ways and contain exactly the free blocks, which are aligned,
    /// disjoint, and not next to a free buddy of their order.
    ///
    /// # Errors
    /// The violated invariant.
    pub fn check(&self) -> Result<(), String> {
        let (mut listed, mut pages, mut end) = (0_u64, 0_u64, 0_u32);
        for order in 0..=MAX_ORDER {
            let (mut at, mut before) = (self.lists[order].first, NIL);
            while at != NIL {
                if self.prev.get(at) != Some(before) || !self.is_free(at, order) || !at.is_multiple_of(1 << order) {
                    return Err(format!("block {at} is not where list {order} has it"));
                }
                if order < MAX_ORDER && self.is_free(at ^ 1 << order, order) {
                    return Err(format!("block {at} of order {order} lies next to its free buddy"));
                }
                (before, at, listed) = (at, self.next.get(at).unwrap_or(NIL), listed + 1);
            }
        }
        for (frame, order) in self.free_blocks() {
            if frame < end {
                return Err(format!("block {frame} lies in the one before"));
            }
            (end, pages, listed) = (frame + (1 << order), pages + (1 << order), listed.wrapping_sub(1));
        }
        if listed != 0 || pages != self.free || end > self.frames() {
            return Err(format!("{pages} pages in blocks, {} counted free", self.free));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn splitting_hands_out_the_lower_half_first() {
        let mut buddy = Buddy::new(1 << 11);
        let taken: Vec<u32> = (0..5).map(|_| buddy.allocate(0).unwrap()).collect();
        assert_eq!(taken, [0, 1, 2, 3, 4]);
        // A larger request does not touch the split block until that has one of the size.
        assert_eq!(buddy.allocate(3), Some(8));
        assert_eq!(buddy.blocks()[0..4], [1, 1, 0, 0]);
    }

    #[test]
    fn a_page_is_taken_wherever_it_lies() {
        let mut buddy = Buddy::new(3000);
        for wanted in [1023, 0, 2999, 1500] {
            assert!(buddy.take(wanted) && !buddy.take(wanted));
            assert_eq!(buddy.check(), Ok(()));
        }
        assert!(!buddy.take(3000));
        let rest: Vec<u32> = std::iter::from_fn(|| buddy.allocate(0)).collect();
        assert_eq!(rest.len(), 2996);
        assert!([1023, 0, 2999, 1500].iter().all(|taken| !rest.contains(taken)));
    }

    #[test]
    fn buddies_join_again() {
        let mut buddy = Buddy::new(1 << 10);
        let taken: Vec<u32> = (0..1 << 10).map(|_| buddy.allocate(0).unwrap()).collect();
        assert_eq!(buddy.allocate(0), None);
        taken.iter().for_each(|frame| buddy.release(*frame, 0));
        assert_eq!((buddy.blocks()[MAX_ORDER], buddy.check()), (1, Ok(())));
    }

    #[test]
    fn a_zone_that_is_no_power_of_two_has_all_its_pages() {
        let mut buddy = Buddy::new(1000);
        assert_eq!(buddy.check(), Ok(()));
        let mut taken: Vec<u32> = std::iter::from_fn(|| buddy.allocate(0)).collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..1000).collect::<Vec<u32>>());
    }

    proptest! {
        #[test]
        fn blocks_never_overlap(actions in prop::collection::vec((0_usize..=4, 0_usize..40), 1..200)) {
            let mut buddy = Buddy::new(3000);
            let mut held: Vec<(u32, usize)> = vec![];
            for (order, which) in actions {
                if which < held.len() {
                    let (frame, order) = held.swap_remove(which);
                    buddy.release(frame, order);
                } else if let Some(frame) = buddy.allocate(order) {
                    let clash = held.iter().any(|(other, size)| frame < other + (1 << size) && *other < frame + (1 << order));
                    prop_assert!(!clash && frame.is_multiple_of(1 << order));
                    held.push((frame, order));
                }
                prop_assert_eq!(buddy.check(), Ok(()));
            }
        }

        #[test]
        fn zones_with_a_common_past_go_on_as_if_each_were_alone(
            before in prop::collection::vec(0_usize..=4, 0..60), after in prop::collection::vec((0_usize..=4, any::<bool>()), 0..60),
        ) {
            let mut alone = Buddy::new(3000);
            let held: Vec<_> = before.iter().filter_map(|order| Some((alone.allocate(*order)?, *order))).collect();
            let mut common = alone.clone();
            common.share();
            let mut other = common.clone();
            let mut back = held.iter();
            for (order, release) in after {
                // The other zone does something else meanwhile.
                other.allocate(4 - order);
                match back.next().filter(|_| release) {
                    Some((frame, order)) => [&mut alone, &mut common].map(|zone| zone.release(*frame, *order)),
                    None => {
                        prop_assert_eq!(alone.allocate(order), common.allocate(order));
                        [(), ()]
                    }
                };
                prop_assert_eq!((alone.blocks(), common.check(), other.check()), (common.blocks(), Ok(()), Ok(())));
            }
        }
    }
}
