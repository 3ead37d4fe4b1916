//! Whether pages lie where they were meant to lie.
//!
//! Pages of the pool can change their frames before they are handed out: the kernel moves them (compaction) or swaps them
//! out. To ask before each move would cost as much as the move, and it might still happen in between. So a whole window is
//! looked up once it is there; single pages are looked up a few at a time, and at last when the process ends. What lies
//! elsewhere is exchanged, contents kept.

use pagelab_frames::Want;

use crate::arch::PAGE;
use crate::intervals::Span;
use crate::sys::Errno;

use super::engine::Engine;
use super::place::SHADOW;
use super::store::SLOTS;
use super::tally::{self, Got};
use super::uffd::Then;

/// Single pages looked up at a time.
const LATE: usize = 16;
/// Pages that lie no further apart are looked up by one system call.
const NEAR: usize = 32;

/// A page that was placed by itself.
#[derive(Clone, Copy)]
struct Single {
    page: usize,
    number: u32,
    want: Want,
    frame: u64,
}

/// Single pages that have not been looked up yet.
pub struct Late {
    singles: [Single; LATE],
    count: usize,
}

impl Late {
    /// None.
    pub const fn none() -> Late {
        Late { singles: [Single { page: 0, number: 0, want: Want::Any, frame: 0 }; LATE], count: 0 }
    }
}

impl Engine {
    /// Looks up the pages of `span`, which were placed just now for `self.wants` on `self.known`; exchanges what lies
    /// elsewhere.
    pub(super) fn verify(&mut self, number: u32, span: Span) {
        let count = span.len() / PAGE;
        if count == 1 {
            return self.verify_later(number, span.start);
        }
        // Not the engine's own: exchanging needs that.
        let mut frames = [0; SLOTS];
        let Some(words) = frames.get_mut(..count) else { return };
        if count == 0 || self.tools.pagemap.read(span.start, words).is_err() {
            return;
        }
        for (page, frame) in words.iter().enumerate() {
            if self.known.get(page) != Some(frame) {
                self.misplaced(number, span.start, page, *frame);
            }
        }
    }

    fn verify_later(&mut self, number: u32, page: usize) {
        let (want, frame) = (self.wants[0], self.known[0]);
        if let Some(place) = self.late.singles.get_mut(self.late.count) {
            *place = Single { page, number, want, frame };
            self.late.count += 1;
        }
        if self.late.count == LATE {
            self.verify_late();
        }
    }

    /// Looks up the single pages that have not been looked up yet.
    pub(super) fn verify_late(&mut self) {
        let mut singles = self.late.singles;
        let Some(singles) = singles.get_mut(..core::mem::take(&mut self.late.count)) else { return };
        singles.sort_unstable_by_key(|single| single.page);
        let is_near = |a: &Single, b: &Single| b.page - a.page <= NEAR * PAGE;
        singles.chunk_by(is_near).for_each(|group| self.verify_group(group));
    }

    fn verify_group(&mut self, group: &[Single]) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
        let mut frames = [0; LATE * NEAR];
        let Some(words) = frames.get_mut(..(last.page - first.page) / PAGE + 1) else { return };
        if self.tools.pagemap.read(first.page, words).is_err() {
            return;
        }
        for single in group {
            let frame = words.get((single.page - first.page) / PAGE).copied().unwrap_or(0);
            // Unless it was given back meanwhile, or placed anew.
            if frame != single.frame && SHADOW.get(single.page) == single.frame as u32 {
                (self.wants[0], self.known[0]) = (single.want, single.frame);
                self.misplaced(single.number, single.page, 0, frame);
            }
        }
    }

    /// A page that comes back out of swap while it is moved, the kernel (6.18) moves, tries again, and says EEXIST. Pages at
    /// the beginning of what was to be moved that are gone from the pool have been moved.
    #[cold]
    pub(super) fn told_wrongly(&self, from: usize, to: Span, then: Then) -> (usize, Option<Errno>) {
        let mut words = [0; SLOTS];
        let Some(words) = words.get_mut(..to.len() / PAGE) else { return (0, Some(Errno::EEXIST)) };
        let gone = match self.tools.pagemap.read_there(from, words) {
            Ok(()) => PAGE * words.iter().take_while(|there| **there == 0).count(),
            Err(_) => 0,
        };
        if gone > 0 && then == Then::Wake {
            let _ = self.tools.uffd.wake(Span::new(to.start, to.start + gone));
        }
        (gone, if gone == to.len() { None } else { Some(if gone > 0 { Errno::EAGAIN } else { Errno::EEXIST }) })
    }

    /// Page `at` of the span at `start` is on `frame` (0: in swap, or gone), which is not where it was put.
    #[cold]
    fn misplaced(&mut self, number: u32, start: usize, at: usize, frame: u64) {
        let (Some(want), Some(known)) = (self.wants.get(at).copied(), self.known.get(at).copied()) else { return };
        let before = if self.is_as_wanted(number, known, want) { Got::Wanted } else { Got::Other };
        if frame == 0 && !self.tools.pagemap.is_swapped(start + at * PAGE) {
            // It has just come back out of swap, or it is gone.
            let mut now = [0];
            let known_now = self.tools.pagemap.read(start + at * PAGE, &mut now).is_ok();
            if known_now && now[0] != 0 && now[0] != known {
                self.misplaced(number, start, at, now[0]);
            }
            return;
        }
        if frame != 0 && self.is_as_wanted(number, frame, want) == (before == Got::Wanted) {
            return SHADOW.set(start + at * PAGE, frame);
        }
        // If it goes well, the page is counted again. If not, somebody shares the page by now: a copy was made of it after
        // it was placed, which is what the count at exit is for.
        if let (_, 1..) = self.exchange(number, start, at, &[frame]) {
            tally::take_back(number, want, before);
        }
    }
}
