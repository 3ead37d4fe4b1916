//! Sources of page runs made of other sources during reading: of references, and of runs of smaller pages.

use crate::reference::Kinds;
use crate::run::{NUMBER_BITS, NUMBER_MASK, PAGE_BITS, Run, RunBuilder};
use crate::source::{ReferenceSource, Result, RunSource};

const BATCH_RUNS: usize = 1 << 16;

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
