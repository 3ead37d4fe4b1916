//! Tiles that are repeatedly emptied and refilled.
//!
//! If a program maps and unmaps a few pages in a loop, the kernel would clear the tile's two megabytes in each turn. So
//! a tile that was emptied several times within moments is made of base pages at first, and collapsed later if it lives
//! ([`crate::memory::pool::pending`]). To keep the old tile mapped instead would be cheaper, but wrong: the kernel may
//! still read its pages (in a pipe, a socket, a ring), and its mapping has the program's settings.

use crate::boundary::span::Span;
use crate::boundary::sys;

const ROOM: usize = 16;
/// Only blocks of at most this many bytes count: larger ones use the memory that is cleared for them.
pub const SMALL: usize = 256 << 10;
/// Emptied this often ...
const OFTEN: u32 = 2;
/// ... with less than this time in between, ns.
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
    /// No tiles.
    pub const fn new() -> Churn {
        Churn { tiles: [Emptied { tile: 0, at_ns: 0, times: 0 }; ROOM], next: 0 }
    }

    /// Notes that `tile` has just become empty.
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

    /// Whether `tile`, which is wanted now, is likely to become empty again at once.
    pub fn expects(&self, tile: Span) -> bool {
        let known = self.tiles.iter().find(|known| known.tile == tile.start && known.times >= OFTEN);
        known.is_some_and(|known| sys::monotonic_ns() < known.at_ns + SOON_NS)
    }
}
