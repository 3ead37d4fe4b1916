//! Page sizes between 4K and 2M, from the kernel's frame flags, which only root can read.

use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Result, c};

const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;
const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;
const MOST_PAGES: usize = PMD / PAGE;

/// `/proc/self/pagemap` and `/proc/kpageflags`, open.
pub struct Folios {
    pagemap: i32,
    flags: i32,
}

impl Folios {
    /// Opens them; fails without the right to see frame numbers.
    pub fn open() -> Result<Folios> {
        let flags = sys::open(c"/proc/kpageflags", c::O_RDONLY, 0)?;
        match sys::open(c"/proc/self/pagemap", c::O_RDONLY, 0) {
            Ok(pagemap) => Ok(Folios { pagemap, flags }),
            Err(errno) => {
                sys::close(flags);
                Err(errno)
            }
        }
    }

    /// Whether exactly one page of `tile`'s size covers it.
    pub fn covers(&self, tile: Span) -> bool {
        let pages = tile.len() / PAGE;
        let mut entries = [0u64; MOST_PAGES];
        let Some(entries) = entries.get_mut(..pages) else { return false };
        if !read_words(self.pagemap, tile.start / PAGE, entries) {
            return false;
        }
        let first = entries.first().map_or(0, |entry| entry & FRAME);
        let in_row = |(index, entry): (usize, &u64)| entry & PRESENT != 0 && entry & FRAME == first + index as u64;
        if first == 0 || !first.is_multiple_of(pages as u64) || !entries.iter().enumerate().all(in_row) {
            return false;
        }
        // One more: the page must end where the tile ends.
        let mut flags = [0u64; MOST_PAGES + 1];
        let Some(flags) = flags.get_mut(..=pages) else { return false };
        read_words(self.flags, first as usize, flags)
            && flags.first().is_some_and(|flag| flag & HEAD != 0)
            && flags.iter().take(pages).skip(1).all(|flag| flag & TAIL != 0)
            && flags.last().is_some_and(|flag| flag & TAIL == 0)
    }
}

fn read_words(fd: i32, index: usize, into: &mut [u64]) -> bool {
    sys::pread_words(fd, into, index * 8) == Ok(into.len() * 8)
}

impl Drop for Folios {
    fn drop(&mut self) {
        sys::close(self.pagemap);
        sys::close(self.flags);
    }
}
