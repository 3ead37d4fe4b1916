//! `PAGEMAP_SCAN`: runs of present pages and whether they are mapped huge.

use crate::boundary::span::Span;
use crate::boundary::sys::{self, Result, c};

const REQUEST: usize = 0xc060_6610;
const PRESENT: u64 = 1 << 3;
const ZERO: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;
const RUNS: usize = 128;

#[repr(C)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    runs: u64,
    run_count: u64,
    max_pages: u64,
    inverted: u64,
    required: u64,
    any_of: u64,
    returned: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
    categories: u64,
}

/// `/proc/self/pagemap`, open.
pub struct Pagemap(i32);

impl Pagemap {
    /// Opens it.
    pub fn open() -> Result<Pagemap> {
        sys::open(c"/proc/self/pagemap", c::O_RDONLY, 0).map(Pagemap)
    }

    /// The file behind descriptor `fd`, which is closed in the end.
    pub fn with(fd: i32) -> Pagemap {
        Pagemap(fd)
    }

    /// Opens it and checks that the kernel can scan.
    pub fn probe() -> Result<Pagemap> {
        let pagemap = Pagemap::open()?;
        let page = &raw const pagemap as usize & !(crate::boundary::arch::PAGE - 1);
        pagemap.each(Span::new(page, page + crate::boundary::arch::PAGE), &mut |_, _| {})?;
        Ok(pagemap)
    }

    /// Calls `visit` with each run of present pages of `span`, and whether huge entries map it; the shared zero page
    /// does not count.
    pub fn each(&self, span: Span, visit: &mut dyn FnMut(Span, bool)) -> Result<()> {
        let mut runs = [Run { start: 0, end: 0, categories: 0 }; RUNS];
        let mut at = span.start as u64;
        while at < span.end as u64 {
            let mut argument = Argument {
                size: size_of::<Argument>() as u64,
                flags: 0,
                start: at,
                end: span.end as u64,
                walk_end: 0,
                runs: runs.as_mut_ptr() as u64,
                run_count: RUNS as u64,
                max_pages: 0,
                inverted: ZERO,
                required: PRESENT | ZERO,
                any_of: 0,
                returned: PRESENT | HUGE,
            };
            // SAFETY: the argument is as the request wants it, with room for RUNS results.
            let found = unsafe { sys::ioctl(self.0, REQUEST, &raw mut argument as usize) }?;
            for run in runs.iter().take(found) {
                visit(Span::new(run.start as usize, run.end as usize), run.categories & HUGE != 0);
            }
            if argument.walk_end <= at {
                break;
            }
            at = argument.walk_end;
        }
        Ok(())
    }
}

impl Drop for Pagemap {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::arch::{PAGE, PMD};
    use crate::boundary::sys::Advice;

    fn bytes(pagemap: &Pagemap, span: Span) -> (usize, usize) {
        let (mut small, mut large) = (0, 0);
        let mut add = |run: Span, huge| if huge { large += run.len() } else { small += run.len() };
        pagemap.each(span, &mut add).unwrap();
        (small, large)
    }

    #[test]
    fn touched_pages_are_seen_one_by_one() {
        let at = sys::mmap_own(1000 * PAGE).unwrap();
        sys::advise(at, 1000 * PAGE, Advice::BasePages).unwrap();
        for page in (0..1000).step_by(3) {
            // SAFETY: our own memory.
            unsafe { core::ptr::write_volatile((at + page * PAGE) as *mut u8, 1) };
        }
        // A read only maps the shared zero page.
        // SAFETY: as above.
        unsafe { core::ptr::read_volatile((at + PAGE) as *const u8) };
        let pagemap = Pagemap::open().unwrap();
        assert_eq!(bytes(&pagemap, Span::new(at, at + 1000 * PAGE)), (334 * PAGE, 0));
    }

    #[test]
    fn huge_pages_are_seen() {
        let at = sys::mmap_own(2 * PMD).unwrap();
        let tile = at.next_multiple_of(PMD);
        for advice in [Advice::HugePages, Advice::PopulateWrite, Advice::Collapse] {
            sys::advise(tile, PMD, advice).unwrap();
        }
        let pagemap = Pagemap::open().unwrap();
        assert_eq!(bytes(&pagemap, Span::new(tile, tile + PMD)), (0, PMD));
    }
}
