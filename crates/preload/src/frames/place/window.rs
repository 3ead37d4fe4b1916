//! The number of pages that one fault brings in.
//!
//! Memory that is touched in order should need one move for many pages, and scattered touches should bring in no
//! unneeded page. So a fault at the end of one of the last runs doubles the window of this run; every other fault
//! begins a run of one page.
//!
//! If the answer depends on the order of faults (bin hopping), pages come ahead only in the order in which their faults
//! would have come. The only evidence for that order is that the program touches one run and nothing else. A fault
//! anywhere else ends that run.

use crate::boundary::arch::PAGE;

/// Runs remembered: about as many as a program reads and writes side by side.
const RUNS: usize = 8;
/// If order counts, this many faults in sequence are no coincidence.
const EVIDENT: usize = 8;
/// Largest window, pages.
pub const WIDEST: usize = 64;

#[derive(Clone, Copy)]
struct Run {
    /// The first page after the run.
    next: usize,
    pages: usize,
}

/// The recent runs, latest first.
pub struct Windows {
    runs: [Run; RUNS],
    fixed: usize,
    /// Whether any other fault ends a run.
    one_by_one: bool,
    /// Faults in sequence until now, since the last other one.
    in_order: usize,
}

const NO_RUN: Run = Run { next: usize::MAX, pages: 0 };

impl Windows {
    /// `fixed`: always this many pages; 0: the window follows the program's touches.
    pub const fn new(fixed: usize) -> Windows {
        Windows { runs: [NO_RUN; RUNS], fixed, one_by_one: false, in_order: 0 }
    }

    /// A window that follows the program's touches, for strategies whose answer depends on the order of faults: no page
    /// comes in before a page whose fault would have come earlier.
    pub const fn one_by_one() -> Windows {
        Windows { runs: [NO_RUN; RUNS], fixed: 0, one_by_one: true, in_order: 0 }
    }

    /// Number of pages, from `addr` on, that a fault at `addr` is to bring in. The caller then calls
    /// [`Windows::placed`].
    pub fn pages(&mut self, addr: usize) -> usize {
        let (at, pages) = match self.runs.iter().position(|run| run.next == addr) {
            Some(at) => (at, self.runs.get(at).map_or(1, |run| (2 * run.pages).min(WIDEST))),
            None => (RUNS - 1, 1),
        };
        let pages = if self.one_by_one { self.while_alone(at, pages) } else { pages };
        if let Some(front) = self.runs.get_mut(..=at) {
            front.rotate_right(1);
        }
        if let Some(first) = self.runs.first_mut() {
            *first = Run { next: addr + PAGE, pages };
        }
        if self.fixed > 0 { self.fixed } else { pages }
    }

    /// The window where order counts, for a fault that continues the latest run (number 0), or none.
    fn while_alone(&mut self, run: usize, pages: usize) -> usize {
        self.in_order = if run == 0 { self.in_order.saturating_add(1) } else { 0 };
        self.runs = [NO_RUN; RUNS];
        if self.in_order < EVIDENT { 1 } else { pages }
    }

    /// Records that the latest run ends at `next` now.
    pub fn placed(&mut self, next: usize) {
        if let Some(first) = self.runs.first_mut() {
            first.next = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(windows: &mut Windows, page: usize) -> usize {
        let pages = windows.pages(page * PAGE);
        windows.placed((page + pages) * PAGE);
        pages
    }

    #[test]
    fn touching_in_order_widens() {
        let mut windows = Windows::new(0);
        let (mut page, mut seen) = (100, Vec::new());
        for _ in 0..9 {
            let pages = touch(&mut windows, page);
            seen.push(pages);
            page += pages;
        }
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    }

    #[test]
    fn touching_here_and_there_stays_at_one() {
        let mut windows = Windows::new(0);
        assert!((0..100).all(|page| touch(&mut windows, page * 32) == 1));
    }

    #[test]
    fn several_streams_widen_side_by_side() {
        let mut windows = Windows::new(0);
        let mut streams = [1000, 20_000, 300_000, 4_000_000];
        for _ in 0..6 {
            for next in &mut streams {
                *next += touch(&mut windows, *next);
            }
        }
        assert_eq!(touch(&mut windows, streams[2]), 64);
    }

    #[test]
    fn where_order_counts_any_other_fault_ends_a_run() {
        let mut windows = Windows::one_by_one();
        let mut seen = Vec::new();
        let mut next = 100;
        for _ in 0..13 {
            seen.push(touch(&mut windows, next));
            next += seen.last().unwrap();
        }
        assert_eq!(seen, [1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 16, 32]);
        assert_eq!(touch(&mut windows, 9_000), 1);
        assert_eq!(touch(&mut windows, next), 1, "from the beginning");
        let mut streams = [1000, 20_000];
        for _ in 0..6 {
            for next in &mut streams {
                assert_eq!(touch(&mut windows, *next), 1);
                *next += 1;
            }
        }
    }

    #[test]
    fn a_fixed_window_is_fixed() {
        let mut windows = Windows::new(16);
        assert_eq!([5, 21, 999].map(|page| touch(&mut windows, page)), [16; 3]);
    }
}
