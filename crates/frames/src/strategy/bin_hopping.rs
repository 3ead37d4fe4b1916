//! Bin hopping: each page gets the colour after the last page's, at any address.

use super::{Strategy, Want};
use crate::mix::mix_below;

/// The bins in cyclic order and the next one's number (ALLOC, section 2).
#[derive(Clone, Copy, Debug)]
pub struct BinHopping {
    colours: u64,
    next: u64,
}

impl BinHopping {
    /// Begins with bin `first` modulo the number of colours (0 colours count as 1).
    pub fn starting_at(colours: u32, first: u32) -> BinHopping {
        let colours = u64::from(colours.max(1));
        BinHopping { colours, next: u64::from(first).checked_rem(colours).unwrap_or(0) }
    }

    /// Begins with a bin drawn from `seed`.
    pub fn seeded(colours: u32, seed: u64) -> BinHopping {
        BinHopping::starting_at(colours, mix_below(seed, colours))
    }
}

impl Strategy for BinHopping {
    #[inline]
    fn want(&mut self, _vpn: u64) -> Want {
        let colour = self.next;
        self.next = if colour + 1 == self.colours { 0 } else { colour + 1 };
        Want::Colour(colour as u32)
    }

    fn take_back(&mut self, count: usize) {
        let back = (count as u64).checked_rem(self.colours).unwrap_or(0);
        self.next = if self.next >= back { self.next - back } else { self.next + self.colours - back };
    }

    fn is_by_address(&self) -> bool {
        false
    }

    fn period(&self) -> u64 {
        1
    }
}
