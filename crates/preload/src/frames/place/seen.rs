//! Which pages are in memory, or in swap. Of the pages that a request names, all may be there already, or none; to try
//! each of them would cost at least a system call, but one look-up is enough for 512.

use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::frames::kernel::pagemap::Pagemap;
use crate::frames::pool::chunks::SLOTS;

/// What the last look-up showed. It may be outdated: other threads bring in pages.
pub struct Seen {
    span: Span,
    there: [u64; SLOTS],
}

impl Seen {
    /// Nothing was looked up.
    pub const fn new() -> Seen {
        Seen { span: Span::new(0, 0), there: [0; SLOTS] }
    }

    /// Whether the page at `page` has contents, or that cannot be known.
    pub fn has(&mut self, pagemap: Pagemap, page: usize) -> bool {
        self.has_by(page, &mut |addr, words| {
            if pagemap.read_there(addr, words).is_err() {
                words.fill(1);
            }
        })
    }

    fn has_by(&mut self, page: usize, look_up: &mut dyn FnMut(usize, &mut [u64])) -> bool {
        if !(self.span.start..self.span.end).contains(&page) {
            self.span = Span::new(page, page.saturating_add(SLOTS * PAGE));
            look_up(page, &mut self.there);
        }
        self.there.get((page - self.span.start) / PAGE) != Some(&0)
    }

    /// The first pages of `span` that have no contents, up to the next that has, or to the end of what was looked up.
    pub fn first_missing(&mut self, pagemap: Pagemap, span: Span) -> Option<Span> {
        self.first_by(span, &mut |addr, words| {
            if pagemap.read_there(addr, words).is_err() {
                words.fill(0);
            }
        })
    }

    fn first_by(&mut self, span: Span, look_up: &mut dyn FnMut(usize, &mut [u64])) -> Option<Span> {
        let mut at = span.start;
        while at < span.end {
            if !(self.span.start..self.span.end).contains(&at) {
                let end = span.end.min(at.saturating_add(SLOTS * PAGE));
                self.span = Span::new(at, end);
                look_up(at, self.there.get_mut(..(end - at) / PAGE)?);
            }
            let end = self.span.end.min(span.end);
            let pages = self.there.get((at - self.span.start) / PAGE..(end - self.span.start) / PAGE)?;
            if let Some(present) = pages.iter().position(|there| *there == 0) {
                let missing = pages.get(present..)?.iter().take_while(|there| **there == 0).count();
                let start = at + present * PAGE;
                return Some(Span::new(start, start + missing * PAGE));
            }
            at = end;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The missing pages, each run with its length, and the number of look-ups.
    fn runs(pages: usize, is_there: &dyn Fn(usize) -> bool) -> (Vec<(usize, usize)>, usize) {
        let base = 0x7000_0000_0000;
        let (mut seen, mut found, mut looks) = (Seen::new(), Vec::new(), 0);
        let mut look_up = |addr: usize, words: &mut [u64]| {
            looks += 1;
            for (word, page) in words.iter_mut().zip((addr - base) / PAGE..) {
                *word = u64::from(is_there(page));
            }
        };
        let mut rest = Span::new(base, base + pages * PAGE);
        while let Some(run) = seen.first_by(rest, &mut look_up) {
            found.push(((run.start - base) / PAGE, run.len() / PAGE));
            rest = Span::new(run.end, rest.end);
        }
        (found, looks)
    }

    #[test]
    fn pages_in_memory_cost_one_look_up_for_512() {
        assert_eq!(runs(1 << 17, &|_| true), (vec![], 256));
        assert_eq!(runs(1030, &|page| page != 1029), (vec![(1029, 1)], 3));
        assert_eq!(runs(3, &|_| false), (vec![(0, 3)], 1));
        let (every_other, looks) = runs(1024, &|page| page % 2 == 0);
        assert_eq!((every_other.len(), looks), (512, 2));
        let (all, looks) = runs(1024, &|_| false);
        assert_eq!((all, looks), (vec![(0, 512), (512, 512)], 2));
    }

    #[test]
    fn single_pages_cost_one_look_up_for_512() {
        let (mut seen, mut looks) = (Seen::new(), 0);
        let base = 0x7000_0000_0000;
        let mut look_up = |addr: usize, words: &mut [u64]| {
            looks += 1;
            words.fill(u64::from(addr == base));
        };
        let there = (0..1 << 17).filter(|page| seen.has_by(base + page * PAGE, &mut look_up)).count();
        assert_eq!((there, looks), (512, 256));
    }
}
