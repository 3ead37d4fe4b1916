//! Tiles that are whole again after a split: collapsed into one page.
//!
//! The first time this is done at once: it costs about as much as the page faults on the refilled part would. But a
//! program that maps and unmaps in a loop would pay that in each turn. So a tile that was collapsed a short while ago
//! and is broken again already waits [`REST_NS`], and the tiles that wait get at most a twentieth of the time.

use crate::backing::thp::{self, Collapsed};
use crate::boundary::span::Span;
use crate::boundary::{huge_pages, sys};
use crate::state::seccomp;

const ROOM: usize = 64;
/// Time for which a tile must have been left alone, ns.
const REST_NS: u64 = 20_000_000;
/// Share of time that collapsing may take: one part in this many.
const SHARE: u64 = 20;

#[derive(Clone, Copy)]
struct Waiting {
    tile: Span,
    since_ns: u64,
}

/// The tiles that wait, oldest first.
pub struct Pending {
    tiles: [Waiting; ROOM],
    count: usize,
    not_before_ns: u64,
    /// Tiles collapsed recently, in a ring.
    lately: [Span; ROOM],
    next: usize,
}

impl Pending {
    /// No tiles wait.
    pub const fn new() -> Pending {
        let none = Waiting { tile: Span::new(0, 0), since_ns: 0 };
        Pending { tiles: [none; ROOM], count: 0, not_before_ns: 0, lately: [Span::new(0, 0); ROOM], next: 0 }
    }

    fn position(&self, tile: Span) -> Option<usize> {
        self.tiles.iter().take(self.count).position(|waiting| waiting.tile == tile)
    }

    fn take(&mut self, index: usize) {
        self.tiles.copy_within(index + 1..self.count, index);
        self.count -= 1;
    }

    fn collapse(&mut self, tile: Span) -> Collapsed {
        if tile.len() != crate::boundary::arch::PMD {
            return Collapsed::Untouched;
        }
        // It may consist of base pages because nothing else was requested yet; and pages touched later should be huge.
        huge_pages::advise_huge(tile);
        let collapsed = thp::collapse(tile);
        if let Some(slot) = self.lately.get_mut(self.next) {
            *slot = tile;
        }
        self.next = (self.next + 1) % ROOM;
        collapsed
    }

    /// Handles `tile`, which was made whole just now. Returns the result, if it was collapsed at once.
    pub fn push(&mut self, tile: Span) -> Option<Collapsed> {
        if seccomp::is_active() {
            return None;
        }
        if !self.lately.contains(&tile) {
            return Some(self.collapse(tile));
        }
        self.wait(tile);
        None
    }

    /// Records that `tile` contains small pages and is to be collapsed later, if it is left alone.
    pub fn wait(&mut self, tile: Span) {
        if let Some(index) = self.position(tile) {
            self.take(index);
        } else if self.count == ROOM {
            self.take(0);
        }
        let since_ns = sys::monotonic_ns();
        if let Some(slot) = self.tiles.get_mut(self.count) {
            *slot = Waiting { tile, since_ns };
            self.count += 1;
        }
    }

    /// Forgets tiles that `span` touches: they are not whole any more.
    pub fn forget(&mut self, span: Span) {
        let mut index = 0;
        while index < self.count {
            match self.tiles.get(index) {
                Some(waiting) if !waiting.tile.and(span).is_empty() => self.take(index),
                _ => index += 1,
            }
        }
    }

    /// Records that the tiles of `old` have moved to `at`.
    pub fn follow(&mut self, old: Span, at: usize) {
        for waiting in
            self.tiles.iter_mut().take(self.count).filter(|waiting| waiting.tile.and(old) == waiting.tile)
        {
            let start = at + (waiting.tile.start - old.start);
            waiting.tile = Span::new(start, start + waiting.tile.len());
        }
    }

    /// Collapses the oldest tile, if its time has come. Returns the tile, and the result.
    pub fn work(&mut self) -> Option<(Span, Collapsed)> {
        let oldest = self.tiles.first().copied().filter(|_| self.count > 0 && !seccomp::is_active())?;
        let now = sys::monotonic_ns();
        if now < self.not_before_ns || now < oldest.since_ns + REST_NS {
            return None;
        }
        self.take(0);
        let collapsed = self.collapse(oldest.tile);
        let spent = sys::monotonic_ns() - now;
        self.not_before_ns = now + spent * SHARE;
        Some((oldest.tile, collapsed))
    }
}
