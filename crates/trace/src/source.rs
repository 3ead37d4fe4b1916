//! The interface of every trace: a source of batches.

use crate::error::TraceError;
use crate::reference::Reference;
use crate::run::Run;

/// Functions that can fail return a [`TraceError`].
pub type Result<T> = std::result::Result<T, TraceError>;

/// Consecutive references of one thread of one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The address space, 0 to [`MAX_ASID`](crate::MAX_ASID).
    pub asid: u16,
    /// The thread, numbered from 0 within its address space.
    pub thread: u32,
    /// Its references, in order.
    pub references: &'a [Reference],
}

/// Place of a segment in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The address space.
    pub asid: u16,
    /// The thread.
    pub thread: u32,
    /// Number of its references.
    pub length: usize,
}

/// References in the trace's order, with the segments that they fall into.
#[derive(Clone, Copy, Debug)]
pub struct References<'a> {
    spans: &'a [Span],
    references: &'a [Reference],
}

impl<'a> References<'a> {
    /// A batch; the lengths of `spans` must add up to the number of `references`.
    pub fn new(spans: &'a [Span], references: &'a [Reference]) -> Self {
        debug_assert_eq!(spans.iter().map(|span| span.length).sum::<usize>(), references.len());
        References { spans, references }
    }

    /// Every reference, whosever it is.
    pub fn all(&self) -> &'a [Reference] {
        self.references
    }

    /// The spans of the segments.
    pub fn spans(&self) -> &'a [Span] {
        self.spans
    }

    /// The segments, in the trace's order.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'a>> + use<'a> {
        let mut rest = self.references;
        self.spans.iter().map(move |span| {
            let (references, after) = rest.split_at(span.length);
            rest = after;
            Segment { asid: span.asid, thread: span.thread, references }
        })
    }
}

/// A stream of full references.
///
/// ```
/// # use pagelab_trace::{Kind, MemoryReferences, Reference, ReferenceSource};
/// let references = [Reference::new(0x1000, Kind::Load, 8)];
/// let mut source = MemoryReferences::new(&references);
/// let mut loads = 0;
/// while let Some(batch) = source.next_references()? {
///     for segment in batch.segments() {
///         loads += segment.references.iter().filter(|reference| reference.kind() == Kind::Load).count();
///     }
/// }
/// assert_eq!(loads, 1);
/// # Ok::<(), pagelab_trace::TraceError>(())
/// ```
pub trait ReferenceSource {
    /// The next references, in a buffer that is used again by the next call; never empty; none at the end.
    ///
    /// After an error, the next call gives none.
    fn next_references(&mut self) -> Result<Option<References<'_>>>;
}

/// A stream of page runs. Neighbouring runs may be of the same page where batches, chunks or traces meet.
pub trait RunSource {
    /// The binary logarithm of the page size in bytes.
    fn page_bits(&self) -> u32;

    /// The next runs, in a buffer that is used again by the next call; never empty; none at the end.
    ///
    /// After an error, the next call gives none.
    fn next_runs(&mut self) -> Result<Option<&[Run]>>;
}

impl<S: ReferenceSource + ?Sized> ReferenceSource for Box<S> {
    fn next_references(&mut self) -> Result<Option<References<'_>>> {
        (**self).next_references()
    }
}

impl<S: ReferenceSource + ?Sized> ReferenceSource for &mut S {
    fn next_references(&mut self) -> Result<Option<References<'_>>> {
        (**self).next_references()
    }
}

impl<S: RunSource + ?Sized> RunSource for Box<S> {
    fn page_bits(&self) -> u32 {
        (**self).page_bits()
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        (**self).next_runs()
    }
}

impl<S: RunSource + ?Sized> RunSource for &mut S {
    fn page_bits(&self) -> u32 {
        (**self).page_bits()
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        (**self).next_runs()
    }
}

/// References in memory, of thread 0 of address space 0, as a source of one batch.
#[derive(Debug)]
pub struct MemoryReferences<'a> {
    span: [Span; 1],
    references: &'a [Reference],
}

impl<'a> MemoryReferences<'a> {
    /// A source of these references.
    pub fn new(references: &'a [Reference]) -> Self {
        MemoryReferences { span: [Span { asid: 0, thread: 0, length: references.len() }], references }
    }
}

impl ReferenceSource for MemoryReferences<'_> {
    fn next_references(&mut self) -> Result<Option<References<'_>>> {
        let references = std::mem::take(&mut self.references);
        Ok((!references.is_empty()).then(|| References::new(&self.span, references)))
    }
}

/// Runs in memory, as a source of one batch.
#[derive(Debug)]
pub struct MemoryRuns<'a> {
    page_bits: u32,
    runs: &'a [Run],
}

impl<'a> MemoryRuns<'a> {
    /// A source of these runs of pages of `1 << page_bits` bytes.
    pub fn new(page_bits: u32, runs: &'a [Run]) -> Self {
        MemoryRuns { page_bits, runs }
    }
}

impl RunSource for MemoryRuns<'_> {
    fn page_bits(&self) -> u32 {
        self.page_bits
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        let runs = std::mem::take(&mut self.runs);
        Ok((!runs.is_empty()).then_some(runs))
    }
}
