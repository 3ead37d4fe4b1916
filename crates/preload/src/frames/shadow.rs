//! What each page was placed on: the low 32 bits of a frame number for every governed page, 0 where we placed nothing.
//!
//! Two levels, each made when first needed: a directory over all user addresses, and leaves of one word a page. A leaf
//! is never taken away; words of memory that was given back stay, and are written over when their page is placed again.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::arch::PAGE;
use crate::intervals::Span;
use crate::sys;

/// Addresses that one leaf covers.
const REACH: usize = 1 << 30;
/// User addresses have 47 bits.
const LEAVES: usize = (1 << 47) / REACH;
const PAGES: usize = REACH / PAGE;

type Leaf = [AtomicU32; PAGES];

/// The words.
pub struct Shadow {
    directory: AtomicPtr<[AtomicPtr<Leaf>; LEAVES]>,
}

/// Fresh zeroed memory for `place`, unless somebody was faster.
fn fill<T>(place: &AtomicPtr<T>) -> Option<&'static T> {
    let at = sys::mmap_own(size_of::<T>()).ok()?;
    let made = at as *mut T;
    match place.compare_exchange(core::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: a fresh zeroed mapping of that size, never unmapped; zero is a value of everything kept here.
        Ok(_) => Some(unsafe { &*made }),
        Err(first) => {
            // SAFETY: nobody else knows of the mapping.
            let _ = unsafe { sys::munmap(at, size_of::<T>()) };
            // SAFETY: not null, and as above.
            Some(unsafe { &*first })
        }
    }
}

fn get<T>(place: &AtomicPtr<T>) -> Option<&'static T> {
    // SAFETY: null, or a mapping that `fill` made.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

impl Shadow {
    /// Nothing placed anywhere.
    pub const fn new() -> Shadow {
        Shadow { directory: AtomicPtr::new(core::ptr::null_mut()) }
    }

    fn word(&self, addr: usize) -> Option<&'static AtomicU32> {
        get(get(&self.directory)?.get(addr / REACH)?)?.get(addr % REACH / PAGE)
    }

    fn word_made(&self, addr: usize) -> Option<&'static AtomicU32> {
        let directory = get(&self.directory).or_else(|| fill(&self.directory))?;
        let place = directory.get(addr / REACH)?;
        let leaf = get(place).or_else(|| fill(place))?;
        leaf.get(addr % REACH / PAGE)
    }

    /// The page at `addr` was placed on frame `frame` (0: not by us).
    pub fn set(&self, addr: usize, frame: u64) {
        let word = if frame == 0 { self.word(addr) } else { self.word_made(addr) };
        if let Some(word) = word {
            word.store(frame as u32, Ordering::Relaxed);
        }
    }

    /// Low bits of the frame that the page at `addr` was placed on; 0: not by us.
    pub fn get(&self, addr: usize) -> u32 {
        self.word(addr).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Nothing of ours lies at the pages of `span` any more.
    pub fn forget(&self, span: Span) {
        for addr in (span.start..span.end).step_by(PAGE) {
            self.set(addr, 0);
        }
    }

    /// Calls `visit` with each longest run of pages of `span` that were placed, until it says no.
    pub fn runs(&self, span: Span, visit: &mut dyn FnMut(Span) -> bool) {
        let (mut at, mut start) = (span.start, None);
        while at < span.end {
            let Some(leaf) = get(&self.directory).and_then(|leaves| get(leaves.get(at / REACH)?)) else {
                if let Some(from) = start.take()
                    && !visit(Span::new(from, at))
                {
                    return;
                }
                at = (at / REACH + 1) * REACH;
                continue;
            };
            let placed = leaf.get(at % REACH / PAGE).is_some_and(|word| word.load(Ordering::Relaxed) != 0);
            match start {
                None if placed => start = Some(at),
                Some(from) if !placed => {
                    start = None;
                    if !visit(Span::new(from, at)) {
                        return;
                    }
                }
                _ => {}
            }
            at += PAGE;
        }
        if let Some(from) = start {
            visit(Span::new(from, span.end));
        }
    }

    /// The pages of `old` lie at `new` from now on.
    pub fn carry(&self, old: Span, new: usize) {
        for offset in (0..old.len()).step_by(PAGE) {
            let frame = self.get(old.start + offset);
            self.set(old.start + offset, 0);
            self.set(new + offset, u64::from(frame));
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
        shadow.set(FAR, 0);
        assert_eq!(shadow.get(FAR), 0);
        shadow.set(FAR, 77);
        shadow.set(FAR + PAGE, 78);
        shadow.set(FAR + REACH, 79);
        assert_eq!([0, PAGE, REACH, 2 * PAGE].map(|at| shadow.get(FAR + at)), [77, 78, 79, 0]);
        assert_eq!(shadow.get(FAR + 5), 77);
        assert_eq!(shadow.get(usize::MAX), 0);
        shadow.set(usize::MAX - 1, 5);
    }

    #[test]
    fn runs_of_placed_pages_are_found() {
        let shadow = Shadow::new();
        let runs = |pages: core::ops::Range<usize>, most: usize| {
            let mut seen = Vec::new();
            shadow.runs(Span::new(FAR + pages.start * PAGE, FAR + pages.end * PAGE), &mut |run| {
                seen.push(((run.start - FAR) / PAGE, (run.end - FAR) / PAGE));
                seen.len() < most
            });
            seen
        };
        assert_eq!(runs(0..3 * PAGES, 9), []);
        let placed = [0, 1, 2, 5, PAGES - 1, PAGES, 3 * PAGES - 1, 3 * PAGES];
        placed.iter().for_each(|page| shadow.set(FAR + page * PAGE, 1));
        // The second GiB has one page, the third none before its last; the leaf after it has the run's second half.
        let all = [(0, 3), (5, 6), (PAGES - 1, PAGES + 1), (3 * PAGES - 1, 3 * PAGES + 1)];
        assert_eq!(runs(0..4 * PAGES, 9), all);
        assert_eq!(runs(0..4 * PAGES, 2), all[..2]);
        assert_eq!(runs(1..PAGES, 9), [(1, 3), (5, 6), (PAGES - 1, PAGES)]);
        shadow.forget(Span::new(FAR + PAGE, FAR + 6 * PAGE));
        assert_eq!(runs(0..10, 9), [(0, 1)]);
    }

    #[test]
    fn moved_pages_keep_theirs() {
        let shadow = Shadow::new();
        shadow.set(FAR, 1);
        shadow.set(FAR + 2 * PAGE, 3);
        shadow.carry(Span::new(FAR, FAR + 3 * PAGE), FAR + REACH - PAGE);
        assert_eq!([0, PAGE, 2 * PAGE].map(|at| shadow.get(FAR + at)), [0; 3]);
        assert_eq!([0, PAGE, 2 * PAGE].map(|at| shadow.get(FAR + REACH - PAGE + at)), [1, 0, 3]);
    }
}
