//! Tiles that are repeatedly emptied and refilled.
//!
//! A program that maps and unmaps a few pages in a loop would have its tile's two megabytes cleared by the kernel each
//! turn. So a tile that was emptied again and again a moment ago is made of base pages at first, and collapsed later if
//! it lives ([`crate::memory::pool::pending`]). Holding the old tile back instead would be cheaper and wrong: the kernel may still read
//! its pages (in a pipe, a socket, a ring), and its mapping carries whatever the program put on it.

use crate::boundary::span::Span;
use crate::boundary::sys;

const ROOM: usize = 16;
/// Blocks of at most this many bytes: larger ones use what is cleared for them.
pub const SMALL: usize = 256 << 10;
/// Emptied so often ...
const OFTEN: u32 = 2;
/// ... with less than this in between.
const SOON_NS: u64 = 20_000_000;

#[derive(Clone, Copy)]
struct Emptied {
    tile: usize,
    at_ns: u64,
    times: u32,
}

/// The tiles emptied last, in a ring.
pub struct Churn {
    tiles: [Emptied; ROOM],
    next: usize,
}

impl Churn {
    /// None.
    pub const fn new() -> Churn {
        Churn { tiles: [Emptied { tile: 0, at_ns: 0, times: 0 }; ROOM], next: 0 }
    }

    /// `tile` is empty since now.
    pub fn note(&mut self, tile: Span) {
        let at_ns = sys::monotonic_ns();
        if let Some(known) = self.tiles.iter_mut().find(|known| known.tile == tile.start) {
            let soon = at_ns < known.at_ns + SOON_NS;
            *known =
                Emptied { tile: tile.start, at_ns, times: if soon { known.times.saturating_add(1) } else { 1 } };
            return;
        }
        if let Some(slot) = self.tiles.get_mut(self.next) {
            *slot = Emptied { tile: tile.start, at_ns, times: 1 };
        }
        self.next = (self.next + 1) % ROOM;
    }

    /// Whether `tile`, which is wanted now, is likely to be empty again at once.
    pub fn expects(&self, tile: Span) -> bool {
        let known = self.tiles.iter().find(|known| known.tile == tile.start && known.times >= OFTEN);
        known.is_some_and(|known| sys::monotonic_ns() < known.at_ns + SOON_NS)
    }
}
