//! Page runs, and how references become runs.

use crate::reference::{ADDRESS_BITS, Kinds};
use crate::source::{ReferenceSource, Result, RunSource};

/// Bits of a run's page that number the page; the other 12 are the address space.
pub const NUMBER_BITS: u32 = 52;
/// Address spaces are 0 to 4095.
pub const MAX_ASID: u16 = (1 << (64 - NUMBER_BITS)) - 1;
/// The smallest page (16 bytes) and the largest (1 TiB) that runs may have, as shifts.
pub const PAGE_BITS: std::ops::RangeInclusive<u32> = 4..=40;

const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// Consecutive references to one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Run {
    /// Virtual page number (bits 0–51) and address space (bits 52–63).
    pub page: u64,
    /// How many consecutive references; at least 1.
    pub count: u64,
}

impl Run {
    /// A run of `count` references to page `number` of address space `asid` (0 to [`MAX_ASID`]).
    #[inline]
    pub const fn new(asid: u16, number: u64, count: u64) -> Run {
        Run { page: number & NUMBER_MASK | (asid as u64) << NUMBER_BITS, count }
    }

    /// The address space.
    #[inline]
    pub const fn asid(self) -> u16 {
        (self.page >> NUMBER_BITS) as u16
    }

    /// The virtual page number.
    #[inline]
    pub const fn number(self) -> u64 {
        self.page & NUMBER_MASK
    }
}

/// The first page that a source does not have: never a real one, because addresses have 56 bits and pages at least 16 bytes.
const NO_PAGE: u64 = u64::MAX;
const BATCH_RUNS: usize = 1 << 16;
const _: () = assert!(ADDRESS_BITS - *PAGE_BITS.start() <= NUMBER_BITS);

/// Puts together consecutive references to the same page.
#[derive(Debug)]
pub struct RunBuilder {
    page: u64,
    count: u64,
}

impl Default for RunBuilder {
    fn default() -> Self {
        RunBuilder { page: NO_PAGE, count: 0 }
    }
}

impl RunBuilder {
    /// `count` more references to `page` (with its address space); a run that this ends goes to `runs`.
    #[inline]
    pub fn push(&mut self, page: u64, count: u64, runs: &mut Vec<Run>) {
        if page == self.page {
            self.count += count;
        } else {
            self.finish(runs);
            (self.page, self.count) = (page, count);
        }
    }

    /// No more references: the last run goes to `runs`.
    #[inline]
    pub fn finish(&mut self, runs: &mut Vec<Run>) {
        if self.count > 0 {
            runs.push(Run { page: self.page, count: self.count });
        }
        self.count = 0;
        self.page = NO_PAGE;
    }
}

/// References as runs, on the fly.
///
/// A reference that crosses the end of a page is one reference to each of the pages it touches: it can fault on both.
#[derive(Debug)]
pub struct RunsOfReferences<S> {
    source: S,
    page_bits: u32,
    kinds: Kinds,
    builder: RunBuilder,
    runs: Vec<Run>,
    done: bool,
}

impl<S: ReferenceSource> RunsOfReferences<S> {
    /// The runs of those references of `source` that are of `kinds`, in pages of `1 << page_bits` bytes.
    ///
    /// # Panics
    /// Where `page_bits` is not in [`PAGE_BITS`].
    pub fn new(source: S, page_bits: u32, kinds: Kinds) -> Self {
        assert!(PAGE_BITS.contains(&page_bits), "pages have 16 bytes to 1 TiB");
        let runs = Vec::with_capacity(BATCH_RUNS);
        RunsOfReferences { source, page_bits, kinds, builder: RunBuilder::default(), runs, done: false }
    }
}

impl<S: ReferenceSource> RunSource for RunsOfReferences<S> {
    fn page_bits(&self) -> u32 {
        self.page_bits
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        self.runs.clear();
        while self.runs.len() < BATCH_RUNS / 2 && !self.done {
            let Some(batch) = self.source.next_references()? else {
                self.builder.finish(&mut self.runs);
                self.done = true;
                break;
            };
            for segment in batch.segments() {
                let space = u64::from(segment.asid) << NUMBER_BITS;
                for reference in segment.references.iter().filter(|reference| self.kinds.has(reference.kind())) {
                    let first = reference.page(self.page_bits);
                    let last = reference.last_byte() >> self.page_bits;
                    self.builder.push(first | space, 1, &mut self.runs);
                    if first != last {
                        pages_after(first, last, |page| self.builder.push(page | space, 1, &mut self.runs));
                    }
                }
            }
        }
        Ok((!self.runs.is_empty()).then_some(&self.runs))
    }
}

/// The pages after `first` up to `last`; none where the reference wraps around the end of the address space.
#[cold]
fn pages_after(first: u64, last: u64, touch: impl FnMut(u64)) {
    (first + 1..=last).for_each(touch);
}

/// Runs of small pages as runs of larger ones.
#[derive(Debug)]
pub struct CoarserRuns<S> {
    source: S,
    page_bits: u32,
    builder: RunBuilder,
    runs: Vec<Run>,
    done: bool,
}

impl<S: RunSource> CoarserRuns<S> {
    /// The runs of `source` in pages of `1 << page_bits` bytes; none where its own pages are larger.
    pub fn new(source: S, page_bits: u32) -> Option<Self> {
        let fits = PAGE_BITS.contains(&page_bits) && source.page_bits() <= page_bits;
        fits.then(|| CoarserRuns {
            source,
            page_bits,
            builder: RunBuilder::default(),
            runs: Vec::new(),
            done: false,
        })
    }
}

impl<S: RunSource> RunSource for CoarserRuns<S> {
    fn page_bits(&self) -> u32 {
        self.page_bits
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        let shift = self.page_bits - self.source.page_bits();
        self.runs.clear();
        while self.runs.len() < BATCH_RUNS / 2 && !self.done {
            let Some(batch) = self.source.next_runs()? else {
                self.builder.finish(&mut self.runs);
                self.done = true;
                break;
            };
            for run in batch {
                let page = run.number() >> shift | run.page & !NUMBER_MASK;
                self.builder.push(page, run.count, &mut self.runs);
            }
        }
        Ok((!self.runs.is_empty()).then_some(&self.runs))
    }
}
