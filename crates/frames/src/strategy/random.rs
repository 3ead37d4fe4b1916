//! Random colours that depend on seed and address, not on the order of faults.

use super::{Strategy, Want};
use crate::mix::{mix, mix_below};

/// A hash of seed and address, reduced to a colour.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    colours: u32,
    key: u64,
}

impl Random {
    /// Colours drawn by `seed` (0 colours count as 1).
    pub fn new(colours: u32, seed: u64) -> Random {
        Random { colours: colours.max(1), key: mix(seed) }
    }
}

impl Strategy for Random {
    #[inline]
    fn want(&mut self, vpn: u64) -> Want {
        Want::Colour(mix_below(self.key ^ vpn, self.colours))
    }

    fn take_back(&mut self, _count: usize) {}

    fn is_by_address(&self) -> bool {
        true
    }

    fn period(&self) -> u64 {
        0
    }
}
