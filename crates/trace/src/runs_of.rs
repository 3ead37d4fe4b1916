//! Sources of page runs made of other sources during reading: of references, and of runs of smaller pages.

use crate::error::TraceError;
use crate::reference::Kinds;
use crate::run::{NUMBER_BITS, NUMBER_MASK, PAGE_BITS, Run, RunBuilder};
use crate::source::{ReferenceSource, Result, RunSource};

const BATCH_RUNS: usize = 1 << 16;

/// The end of a source whose records are put together from those of others.
#[derive(Debug, Default)]
pub(crate) struct End {
    is_reached: bool,
    /// To be returned after the records before it.
    error: Option<TraceError>,
}

impl End {
    pub fn is_ahead(&self) -> bool {
        !self.is_reached
    }

    /// Nothing follows; an error is the reason, or none.
    pub fn reach(&mut self, error: Option<TraceError>) {
        *self = End { is_reached: true, error };
    }

    /// Returns the error, once, where no record before it is left to be given.
    pub fn check(&mut self, nothing_left: bool) -> Result<()> {
        self.error.take_if(|_| nothing_left).map_or(Ok(()), Err)
    }

    /// The answer of a source that has put these runs together.
    pub fn given<'a>(&mut self, runs: &'a [Run]) -> Result<Option<&'a [Run]>> {
        self.check(runs.is_empty())?;
        Ok((!runs.is_empty()).then_some(runs))
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
    end: End,
}

impl<S: ReferenceSource> RunsOfReferences<S> {
    /// The runs of those references of `source` that are of `kinds`, in pages of `1 << page_bits` bytes.
    ///
    /// # Panics
    /// Where `page_bits` is not in [`PAGE_BITS`].
    pub fn new(source: S, page_bits: u32, kinds: Kinds) -> Self {
        assert!(PAGE_BITS.contains(&page_bits), "pages have 16 bytes to 1 TiB");
        let runs = Vec::with_capacity(BATCH_RUNS);
        RunsOfReferences { source, page_bits, kinds, builder: RunBuilder::default(), runs, end: End::default() }
    }
}

impl<S: ReferenceSource> RunSource for RunsOfReferences<S> {
    fn page_bits(&self) -> u32 {
        self.page_bits
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        self.runs.clear();
        while self.runs.len() < BATCH_RUNS / 2 && self.end.is_ahead() {
            let batch = match self.source.next_references() {
                Ok(Some(batch)) => batch,
                other => {
                    self.builder.finish(&mut self.runs);
                    self.end.reach(other.err());
                    break;
                }
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
        self.end.given(&self.runs)
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
    end: End,
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
            end: End::default(),
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
        while self.runs.len() < BATCH_RUNS / 2 && self.end.is_ahead() {
            let batch = match self.source.next_runs() {
                Ok(Some(batch)) => batch,
                other => {
                    self.builder.finish(&mut self.runs);
                    self.end.reach(other.err());
                    break;
                }
            };
            for run in batch {
                let page = run.number() >> shift | run.page & !NUMBER_MASK;
                self.builder.push(page, run.count, &mut self.runs);
            }
        }
        self.end.given(&self.runs)
    }
}
