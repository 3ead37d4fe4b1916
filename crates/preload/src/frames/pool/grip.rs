//! References that hold free pages in place from their look-up to their move.
//!
//! The kernel moves free pages of the pool (compaction) and swaps them out. Between a page's look-up and its move the
//! library cannot see that. A page with a further reference is not moved. Nor does it lose its frame by swapping: reclaim
//! unmaps it all the same, but it stays in the swap cache while the reference lasts, and a touch maps it again. (A page
//! that was unmapped does not show its frame, and is given up: see [`super::verify`].) A pipe can give a reference:
//! vmsplice(2) of a byte of a page takes one, which ends when the byte is read. UFFDIO_MOVE refuses pages that are pinned
//! for DMA, and shared pages, but not pages that a pipe refers to.
//!
//! A page keeps its reference after it is moved into the program, with two disadvantages: the page cannot be migrated,
//! collapsed or freed by swapping, and copy-on-write after a fork copies it even if the child has ended. So pages are
//! released when the next ones are held, before a fork, and at the latest a moment after the last fault.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::boundary::arch::PAGE;
use crate::boundary::sys::pipes::{MOST_PAGES, Pipe};
use crate::boundary::sys::{self, Result};

/// Whether pages are held, for threads that cannot ask the engine.
static HOLDING: AtomicBool = AtomicBool::new(false);

/// Whether the process may hold pages.
pub fn is_holding() -> bool {
    HOLDING.load(Ordering::Relaxed)
}

/// The requests that hold pages, oldest first, with the number of pages of each.
pub struct Grip {
    pipe: Option<Pipe>,
    room: usize,
    used: usize,
    counts: [u8; MOST_PAGES],
    /// Number of the oldest request that still holds, and of the next one. Numbers begin with 1 and wrap around.
    oldest: u32,
    next: u32,
}

impl Grip {
    /// No pipe, and nothing held.
    pub const fn none() -> Grip {
        Grip { pipe: None, room: 0, used: 0, counts: [0; MOST_PAGES], oldest: 1, next: 1 }
    }

    /// Makes the pipe, in the descriptor table of the calling thread.
    pub fn open(&mut self) -> Result<()> {
        let pipe = Pipe::open()?;
        self.room = pipe.widen().unwrap_or(0);
        self.pipe = Some(pipe);
        Ok(())
    }

    /// Closes the pipe: nothing is held any more.
    pub fn close(&mut self) {
        if let Some(pipe) = self.pipe {
            sys::close(pipe.from);
            sys::close(pipe.into);
        }
        *self = Grip::none();
    }

    /// Number of pages that can be held at a time.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Whether anything is held.
    pub fn holds(&self) -> bool {
        self.used > 0
    }

    /// Whether request `number` still holds its pages.
    pub fn has(&self, number: u32) -> bool {
        number != 0 && number.wrapping_sub(self.oldest) & LAST < self.next.wrapping_sub(self.oldest) & LAST
    }

    /// Holds the pages at `pages`, which must be present. Returns the request's number; `None`: not all of them are
    /// held.
    pub fn hold(&mut self, pages: &[usize]) -> Option<u32> {
        let pipe = self.pipe?;
        if pages.is_empty() || pages.len() > self.room {
            return None;
        }
        while self.used + pages.len() > self.room {
            self.let_oldest_go();
        }
        let held = pipe.hold(pages).unwrap_or(0);
        if held == 0 {
            return None;
        }
        let number = self.next;
        if let Some(count) = self.counts.get_mut(number as usize % MOST_PAGES) {
            *count = held as u8;
        }
        self.used += held;
        HOLDING.store(true, Ordering::Relaxed);
        self.next = after(number);
        (held == pages.len()).then_some(number)
    }

    /// Releases all pages.
    pub fn let_go(&mut self) {
        while self.used > 0 {
            self.let_oldest_go();
        }
        HOLDING.store(false, Ordering::Relaxed);
    }

    fn let_oldest_go(&mut self) {
        let count = self.counts.get(self.oldest as usize % MOST_PAGES).map_or(0, |count| usize::from(*count));
        let mut bytes = [0u8; MOST_PAGES];
        if let (Some(pipe), Some(bytes)) = (self.pipe, bytes.get_mut(..count))
            && count > 0
        {
            // Never fewer: the pipe contains as many bytes as pages are held.
            let _ = sys::read(pipe.from, bytes);
        }
        self.used = self.used.saturating_sub(count.max(1));
        self.oldest = after(self.oldest);
    }
}

/// The highest number.
const LAST: u32 = u32::MAX >> 1;

/// The number after `number`: never 0, and with a different index in the table from the 63 before it.
fn after(number: u32) -> u32 {
    if number == LAST { MOST_PAGES as u32 } else { number + 1 }
}

/// Addresses of pages to be held.
pub struct List {
    pages: [usize; MOST_PAGES],
    len: usize,
}

impl List {
    /// An empty list.
    pub const fn new() -> List {
        List { pages: [0; MOST_PAGES], len: 0 }
    }

    /// Adds page `number` after `base`; pages beyond [`MOST_PAGES`] are left out.
    pub fn push(&mut self, base: usize, number: usize) {
        if let Some(place) = self.pages.get_mut(self.len) {
            *place = base + number * PAGE;
            self.len += 1;
        }
    }

    /// All addresses in the list.
    pub fn pages(&self) -> &[usize] {
        self.pages.get(..self.len).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` pages of the test's own memory, all present.
    fn memory(count: usize) -> usize {
        let at = sys::mmap_own(count * PAGE).unwrap();
        for page in 0..count {
            // SAFETY: the page lies in fresh writable memory of the test.
            unsafe { *((at + page * PAGE) as *mut u8) = 1 };
        }
        at
    }

    fn list(base: usize, pages: core::ops::Range<usize>) -> List {
        let mut list = List::new();
        pages.for_each(|page| list.push(base, page));
        list
    }

    #[test]
    fn the_oldest_are_let_go_for_the_latest() {
        let base = memory(200);
        let mut grip = Grip::none();
        assert_eq!(grip.hold(list(base, 0..1).pages()), None, "no pipe");
        grip.open().unwrap();
        let room = grip.room();
        assert!((2..=MOST_PAGES).contains(&room));
        let first = grip.hold(list(base, 0..room / 2).pages()).unwrap();
        let second = grip.hold(list(base, room / 2..room).pages()).unwrap();
        assert!(grip.has(first) && grip.has(second) && !grip.has(0) && !grip.has(second + 1));
        let third = grip.hold(list(base, room..room + 1).pages()).unwrap();
        assert!(!grip.has(first) && grip.has(second) && grip.has(third));
        grip.let_go();
        assert!(!grip.holds() && !grip.has(second) && !grip.has(third));
        assert!(grip.hold(list(base, 0..room).pages()).is_some(), "there is room again");
        grip.close();
        assert_eq!(grip.room(), 0);
    }

    #[test]
    fn numbers_go_round() {
        let base = memory(4);
        let mut grip = Grip::none();
        grip.open().unwrap();
        (grip.oldest, grip.next) = (LAST - 1, LAST - 1);
        for turn in 0..5 {
            let number = grip.hold(list(base, 0..1).pages()).unwrap();
            assert!(number != 0 && grip.has(number), "{turn}");
            grip.let_go();
            assert!(!grip.has(number));
        }
        grip.close();
    }

    #[test]
    fn what_is_not_there_is_not_held() {
        let base = memory(4);
        // SAFETY: the page lies in the test's own memory, and nothing uses it.
        unsafe { sys::munmap(base + 2 * PAGE, PAGE) }.unwrap();
        let mut grip = Grip::none();
        grip.open().unwrap();
        assert_eq!(grip.hold(list(base, 0..4).pages()), None);
        assert!(grip.hold(list(base, 0..2).pages()).is_some());
        grip.let_go();
        assert!(!grip.holds());
        grip.close();
    }
}
