//! Page colouring: a page gets the colour of its virtual address, so that neighbouring pages never compete.

use super::{Strategy, Want};
use crate::mix::mix_below;

/// `(vpn + shift) mod colours` (ALLOC, section 2: the virtual page index's own cache colour).
#[derive(Clone, Copy, Debug)]
pub struct PageColoring {
    colours: u64,
    shift: u64,
}

impl PageColoring {
    /// The plain virtual colour (0 colours count as 1).
    pub fn new(colours: u32) -> PageColoring {
        PageColoring { colours: u64::from(colours.max(1)), shift: 0 }
    }

    /// Shifted by a hash of the process id, to keep processes with equal layouts apart (ALLOC, section 2). A shift and
    /// not an XOR, because runs of consecutive colours survive it for every number of colours.
    pub fn hashed(colours: u32, pid: u32) -> PageColoring {
        PageColoring { shift: u64::from(mix_below(u64::from(pid), colours)), ..PageColoring::new(colours) }
    }
}

impl Strategy for PageColoring {
    #[inline]
    fn want(&mut self, vpn: u64) -> Want {
        Want::Colour(vpn.wrapping_add(self.shift).checked_rem(self.colours).unwrap_or(0) as u32)
    }

    fn take_back(&mut self, _count: usize) {}

    fn is_by_address(&self) -> bool {
        true
    }

    fn period(&self) -> u64 {
        self.colours
    }
}
