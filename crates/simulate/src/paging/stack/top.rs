//! The sixteen most recent pages of all colours: most references of real programs are to them.
//!
//! Recency is a bit matrix (as in a true-LRU cache set), and so is "has the same colour": a distance is the population
//! count of the intersection of two rows. Every loop is over sixteen lanes, which compilers turn into one vector.
//! Vectors that are read as a whole are also written as a whole, because a vector read waits for a single lane that was
//! just written. The rows of a place for all levels are together: one vector has all its distances.

use crate::cpu::{self, lanes};
use crate::pages::Id;

/// Number of places in the top.
pub const PLACES: usize = 16;

/// `BITS[s]`: the bit of place s.
const BITS: [u16; PLACES] = {
    let mut bits = [0; PLACES];
    let mut place = 0;
    while place < PLACES {
        bits[place] = 1 << place;
        place += 1;
    }
    bits
};
/// `OTHERS[p][s]`: all bits; none if s = p.
const OTHERS: [[u16; PLACES]; PLACES] = {
    let mut rows = [[u16::MAX; PLACES]; PLACES];
    let mut place = 0;
    while place < PLACES {
        rows[place][place] = 0;
        place += 1;
    }
    rows
};

/// `ALL_OTHERS[s]`: all bits but that of place s.
const ALL_OTHERS: [u16; PLACES] = {
    let mut rows = [0; PLACES];
    let mut place = 0;
    while place < PLACES {
        rows[place] = !(1 << place);
        place += 1;
    }
    rows
};

/// The top of all stacks of one chain, with `L` colour counts; `W`: these and unused ones, in a vector.
#[derive(Debug)]
pub struct Top<const L: usize, const W: usize> {
    ids: [Id; PLACES],
    codes: [u16; PLACES],
    filled: usize,
    /// Bit t of `newer[s]`: place t was used after place s.
    newer: [u16; PLACES],
    /// Bit t of `same[s][j]`: places s and t have the same colour at level j.
    same: [[u16; W]; PLACES],
    masks: [u16; W],
}

impl<const L: usize, const W: usize> Top<L, W> {
    /// An empty top; pages have the same colour at level j when their codes are equal under `masks[j]`.
    pub fn new(masks: [u16; L]) -> Self {
        let rows = [0; PLACES];
        let mut all_masks = [0; W];
        all_masks[..L].copy_from_slice(&masks);
        Self {
            ids: rows.map(u32::from),
            codes: rows,
            filled: 0,
            newer: rows,
            same: [[u16::MAX; W]; PLACES],
            masks: all_masks,
        }
    }

    /// Number of pages of its colour used after the page at `place`, at the first level.
    #[inline(always)]
    pub fn first_above(&self, place: usize) -> u32 {
        (self.newer[place % PLACES] & self.same[place % PLACES][0]).count_ones()
    }

    /// Number of pages of its colour used after the page at `place`, for each level.
    #[inline(always)]
    pub fn above<const LEVEL: u8>(&self, place: usize) -> [u8; W] {
        lanes::count_bits::<W, LEVEL>(&self.same[place % PLACES], self.newer[place % PLACES])
    }

    /// Makes the page at `place` the most recent one.
    #[inline(always)]
    pub fn touch(&mut self, place: usize) {
        let place = place % PLACES;
        let (bit, others) = (BITS[place], &OTHERS[place]);
        for (row, keep) in self.newer.iter_mut().zip(others) {
            *row = (*row | bit) & keep;
        }
    }

    /// The place for a new page, and the page (with its code) that has to leave it.
    #[inline(always)]
    pub fn victim(&self) -> (usize, Option<(Id, u16)>) {
        if self.filled < PLACES {
            return (self.filled, None);
        }
        // The oldest place is the one after which all others were used.
        let place = cpu::equal_lanes(&self.newer, &ALL_OTHERS).trailing_zeros() as usize % PLACES;
        (place, Some((self.ids[place], self.codes[place])))
    }

    /// Puts a page on top, at the place that [`Top::victim`] named.
    #[inline(always)]
    pub fn insert<const LEVEL: u8>(&mut self, place: usize, id: Id, code: u16) {
        let place = place % PLACES;
        let (bit, others) = (BITS[place], &OTHERS[place]);
        self.filled = self.filled.max(place + 1);
        self.ids[place] = id;
        for (other, keep) in self.codes.iter_mut().zip(others) {
            *other = (*other & keep) | (code & !keep);
        }
        // With one colour, all pages always have the same. Rows may contain anything for empty places: none of these is
        // newer.
        if L > 1 || self.masks[0] != 0 {
            let differ = self.codes.map(|other| other ^ code);
            self.same[place] = lanes::mark::<W, LEVEL>(&mut self.same, &differ, &self.masks, bit);
        }
        self.touch(place);
    }

    /// The codes of the pages, in no order.
    #[inline(always)]
    pub fn codes(&self) -> &[u16] {
        &self.codes[..self.filled]
    }

    /// The pages and their codes, the one used longest ago first.
    pub fn pages(&self) -> impl Iterator<Item = (Id, u16)> {
        let mut places: Vec<usize> = (0..self.filled).collect();
        places.sort_by_key(|&place| std::cmp::Reverse(self.newer[place].count_ones()));
        places.into_iter().map(|place| (self.ids[place], self.codes[place]))
    }
}
