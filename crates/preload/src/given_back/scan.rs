//! Scans of the page table by `PAGEMAP_SCAN`: runs of present pages and whether they are mapped huge.

use pagelab_abi::pagemap_scan::{Argument, HUGE, PRESENT, REQUEST, Run, ZERO};

use crate::boundary::span::Span;
use crate::boundary::sys::{self, Result, c};

const RUNS: usize = 128;
const NONE: Run = Run { start: 0, end: 0, categories: 0 };
/// Where the addresses end for a program that does not ask for more than 47 bits.
const ADDRESSES: usize = (1 << 47) - crate::boundary::arch::PAGE;
/// A call that looks ahead stops after this many pages (16 GiB), which take some 10 ms.
const MOST_PAGES: u64 = 1 << 22;

fn span_of(run: &Run) -> Span {
    Span::new(run.start as usize, run.end as usize)
}

fn is_huge(run: &Run) -> bool {
    run.categories & HUGE != 0
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
        let mut runs = [NONE; RUNS];
        let mut at = span.start;
        while at < span.end {
            let (found, walked) = self.scan(Span::new(at, span.end), 0, &mut runs)?;
            for run in runs.iter().take(found) {
                visit(span_of(run), is_huge(run));
            }
            if walked <= at {
                break;
            }
            at = walked;
        }
        Ok(())
    }

    /// Makes one call: returns how many runs it stored, and the address that it reached. `most_pages`: it may stop
    /// after so many; 0: never.
    fn scan(&self, span: Span, most_pages: u64, runs: &mut [Run; RUNS]) -> Result<(usize, usize)> {
        let mut argument = Argument {
            size: size_of::<Argument>() as u64,
            start: span.start as u64,
            end: span.end as u64,
            runs: runs.as_mut_ptr() as u64,
            run_count: RUNS as u64,
            max_pages: most_pages,
            inverted: ZERO,
            required: PRESENT | ZERO,
            returned: PRESENT | HUGE,
            ..Argument::default()
        };
        // SAFETY: the argument has the layout of the request, with room for RUNS results.
        let found = unsafe { sys::ioctl(self.0, REQUEST, &raw mut argument as usize) }?;
        Ok((found, argument.walk_end as usize))
    }
}

/// Runs of many spans in ascending order, for fewer calls: each call of the kernel scans beyond the requested span, and
/// the runs found there are kept for the next spans.
pub struct Sweep<'a> {
    pagemap: &'a Pagemap,
    runs: [Run; RUNS],
    found: usize,
    /// The range that `runs` covers.
    walked: Span,
}

impl Sweep<'_> {
    /// Nothing is scanned yet.
    pub fn new(pagemap: &Pagemap) -> Sweep<'_> {
        Sweep { pagemap, runs: [NONE; RUNS], found: 0, walked: Span::new(0, 0) }
    }

    /// As [`Pagemap::each`]. Pages that came or went since the call that found them are reported as they were then.
    pub fn each(&mut self, span: Span, visit: &mut dyn FnMut(Span, bool)) -> Result<()> {
        let mut at = span.start;
        while at < span.end {
            if !(self.walked.start..self.walked.end).contains(&at) && !self.go_on(at, span.end)? {
                break;
            }
            let known = Span::new(at, span.end.min(self.walked.end));
            for run in self.runs.iter().take(self.found) {
                let part = span_of(run).and(known);
                if !part.is_empty() {
                    visit(part, is_huge(run));
                }
            }
            at = known.end;
        }
        Ok(())
    }

    /// Scans from `at` on, at least to `end` if there is room for the runs; returns whether the kernel came further
    /// than `at`.
    fn go_on(&mut self, at: usize, end: usize) -> Result<bool> {
        let (found, walked) = self.pagemap.scan(Span::new(at, end.max(ADDRESSES)), MOST_PAGES, &mut self.runs)?;
        (self.found, self.walked) = (found, Span::new(at, walked.max(at)));
        Ok(walked > at)
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
            // SAFETY: the page lies in the test's own writable mapping.
            unsafe { core::ptr::write_volatile((at + page * PAGE) as *mut u8, 1) };
        }
        // A read only maps the shared zero page.
        // SAFETY: the page lies in the test's own mapping.
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

    #[test]
    fn a_sweep_tells_what_single_calls_tell() {
        let at = sys::mmap_own(3000 * PAGE).unwrap();
        sys::advise(at, 3000 * PAGE, Advice::BasePages).unwrap();
        // Single pages, more than a call has room for; then one long run.
        for page in (0..1000).step_by(3).chain(1500..2600) {
            // SAFETY: the page lies in the test's own writable mapping.
            unsafe { core::ptr::write_volatile((at + page * PAGE) as *mut u8, 1) };
        }
        let page = |number: usize| at + number * PAGE;
        let mut ascending = Vec::new();
        for pages in [(0, 1), (1, 7), (7, 900), (900, 900), (950, 1501), (1600, 1601), (1601, 3000), (10, 20)] {
            ascending.push(Span::new(page(pages.0), page(pages.1)));
        }
        let pagemap = Pagemap::open().unwrap();
        let mut sweep = Sweep::new(&pagemap);
        for span in ascending {
            let (mut told, mut swept) = (Vec::new(), Vec::new());
            pagemap.each(span, &mut |run, huge| told.push((run, huge))).unwrap();
            sweep.each(span, &mut |run, huge| swept.push((run, huge))).unwrap();
            // A run that spans two calls is reported in two parts.
            let pages = |runs: &[(Span, bool)]| {
                runs.iter()
                    .flat_map(|(run, huge)| (run.start..run.end).step_by(PAGE).map(|page| (page, *huge)))
                    .collect::<Vec<_>>()
            };
            assert_eq!(pages(&told), pages(&swept), "{span:?}");
        }
    }
}
