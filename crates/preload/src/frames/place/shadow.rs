//! The frame on which each page was placed: the low 31 bits of a frame number for every governed page, 0 where the
//! library placed nothing, and one bit for pages that were placed ahead of a touch.
//!
//! The table has two levels, each made when first needed: a directory over all user addresses, and leaves of one word a
//! page. A leaf is never taken away. Words of memory that was given back stay, and are overwritten when their page is
//! placed again.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::boundary::arch::PAGE;
use crate::boundary::own::{Fresh, Published, Zeroed};
use crate::boundary::span::Span;

/// Addresses that one leaf covers.
const REACH: usize = 1 << 30;
/// User addresses have 47 bits.
const LEAVES: usize = (1 << 47) / REACH;
const PAGES: usize = REACH / PAGE;

/// Flag of a page that was placed ahead of a touch.
const AHEAD: u32 = 1 << 31;

/// The part of a frame number that is kept.
pub fn low(frame: u64) -> u32 {
    frame as u32 & !AHEAD
}

type Leaf = [AtomicU32; PAGES];

/// The table of these words.
pub struct Shadow {
    directory: Published<[Published<Leaf>; LEAVES]>,
}

/// Gives `place` fresh zeroed memory, unless another thread was faster.
fn fill<T: Sync + Zeroed>(place: &Published<T>) -> Option<&'static T> {
    place.set_first(Fresh::map_sparse(size_of::<T>()).ok()?)
}

impl Shadow {
    /// A table without placed pages.
    pub const fn new() -> Shadow {
        Shadow { directory: Published::none() }
    }

    fn word(&self, addr: usize) -> Option<&'static AtomicU32> {
        self.directory.get()?.get(addr / REACH)?.get()?.get(addr % REACH / PAGE)
    }

    fn word_made(&self, addr: usize) -> Option<&'static AtomicU32> {
        let directory = self.directory.get().or_else(|| fill(&self.directory))?;
        let place = directory.get(addr / REACH)?;
        let leaf = place.get().or_else(|| fill(place))?;
        leaf.get(addr % REACH / PAGE)
    }

    /// Records that the page at `addr` was placed on `frame` (0: not by the library), `ahead` of a touch.
    pub fn set(&self, addr: usize, frame: u64, ahead: bool) {
        self.store(addr, low(frame) | if ahead { AHEAD } else { 0 });
    }

    fn store(&self, addr: usize, value: u32) {
        let word = if value == 0 { self.word(addr) } else { self.word_made(addr) };
        if let Some(word) = word {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn load(&self, addr: usize) -> u32 {
        self.word(addr).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Low bits of the frame on which the page at `addr` was placed; 0: the library did not place it.
    pub fn get(&self, addr: usize) -> u32 {
        self.load(addr) & !AHEAD
    }

    fn leaf(&self, addr: usize) -> Option<&'static Leaf> {
        self.directory.get()?.get(addr / REACH)?.get()
    }

    /// The parts of `span` for which there are leaves, here or (`also`) at a distance. A span may be far larger than
    /// the memory behind it, so whole leaves are skipped.
    fn parts(&self, span: Span, also: usize) -> impl Iterator<Item = Span> {
        let mut at = span.start;
        core::iter::from_fn(move || {
            while at < span.end {
                let other = at.wrapping_add(also);
                let whole = (REACH - at % REACH).min(REACH - other % REACH);
                let part = Span::new(at, span.end.min(at.saturating_add(whole)));
                at = part.end;
                if self.leaf(part.start).is_some() || self.leaf(other).is_some() {
                    return Some(part);
                }
            }
            None
        })
    }

    /// Calls `visit` for each page of `span` that was placed ahead of a touch.
    pub fn each_ahead(&self, span: Span, visit: &mut dyn FnMut(usize)) {
        self.parts(span, 0)
            .flat_map(|part| (part.start..part.end).step_by(PAGE))
            .filter(|page| self.is_ahead(*page))
            .for_each(visit);
    }

    /// Whether the page at `addr` was placed ahead of a touch.
    pub fn is_ahead(&self, addr: usize) -> bool {
        self.load(addr) & AHEAD != 0
    }

    /// Records that the pages of `old` lie at `new` from now on.
    pub fn carry(&self, old: Span, new: usize) {
        let distance = new.wrapping_sub(old.start);
        for page in self.parts(old, distance).flat_map(|part| (part.start..part.end).step_by(PAGE)) {
            let word = self.load(page);
            self.store(page, 0);
            self.store(page.wrapping_add(distance), word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: usize = 0x6100_0000_0000;

    #[test]
    fn words_are_kept_by_page() {
        let shadow = Shadow::new();
        assert_eq!(shadow.get(FAR), 0);
        shadow.set(FAR, 0, false);
        assert_eq!(shadow.get(FAR), 0);
        shadow.set(FAR, 77, false);
        shadow.set(FAR + PAGE, 78, false);
        shadow.set(FAR + REACH, 79, false);
        assert_eq!([0, PAGE, REACH, 2 * PAGE].map(|at| shadow.get(FAR + at)), [77, 78, 79, 0]);
        assert_eq!(shadow.get(FAR + 5), 77);
        assert_eq!(shadow.get(usize::MAX), 0);
        shadow.set(usize::MAX - 1, 5, false);
    }

    #[test]
    fn moved_pages_keep_theirs() {
        let shadow = Shadow::new();
        shadow.set(FAR, 1, true);
        shadow.set(FAR + 2 * PAGE, 3, false);
        shadow.carry(Span::new(FAR, FAR + 3 * PAGE), FAR + REACH - PAGE);
        assert_eq!([0, PAGE, 2 * PAGE].map(|at| shadow.get(FAR + at)), [0; 3]);
        assert_eq!([0, PAGE, 2 * PAGE].map(|at| shadow.get(FAR + REACH - PAGE + at)), [1, 0, 3]);
        assert!(shadow.is_ahead(FAR + REACH - PAGE) && !shadow.is_ahead(FAR + REACH + PAGE));
    }

    #[test]
    fn only_leaves_that_exist_are_visited() {
        let shadow = Shadow::new();
        let visits = |span, also| shadow.parts(span, also).map(|part| part.len() / PAGE).sum::<usize>();
        let large = Span::new(FAR, FAR + 512 * REACH);
        let apart = 1024 * REACH + 3 * PAGE;
        assert_eq!((visits(large, 0), visits(large, apart)), (0, 0));
        shadow.set(FAR + 7 * REACH + PAGE, 5, true);
        assert_eq!((visits(large, 0), visits(large, apart)), (PAGES, PAGES));
        shadow.carry(large, FAR + apart);
        assert_eq!(shadow.get(FAR + 7 * REACH + PAGE), 0);
        assert_eq!(shadow.get(FAR + 7 * REACH + PAGE + apart), 5);
        // The leaf that was left stays; that of the new place begins three pages before it.
        assert_eq!(visits(large, apart), PAGES + 3);
        let mut seen = Vec::new();
        shadow.each_ahead(Span::new(0, 1 << 47), &mut |page| seen.push(page));
        assert_eq!(seen, [FAR + 7 * REACH + PAGE + apart]);
    }
}
