//! Reference traces: a file format, foreign formats, mixing, exact reduction. Everything streams.
//!
//! # For those who use traces
//!
//! A trace is a stream of batches in buffers that are used again. There are two kinds, and two traits:
//!
//! - [`ReferenceSource`]: full references, [`Reference`] packed in a word (address, [`Kind`], size), in [`Segment`]s
//!   that carry the thread and the address space;
//! - [`RunSource`]: page runs, [`Run`] (page number and address space in one word, and how many consecutive
//!   references).
//!
//! [`TraceReader`] opens a file of either; [`TraceReader::into_runs`] gives runs of any page size from either,
//! [`TraceReader::into_references`] gives references, or an error if there are none. Take `&mut dyn RunSource` or a
//! generic source: files, foreign traces, arrays in memory, mixed and reduced traces all fit. The [`Header`] says what
//! a trace is exact for: `require_every_reference` refuses samples, and `reduction` has the memories of a reduced
//! trace.
//!
//! A page's colour is a function of [`Run::number`] (and, where processes are to differ, of [`Run::asid`]); two address
//! spaces never share a page, so [`Run::page`] as a whole is the identity of a page.
//! Neighbouring runs may be of one page: correct consumers need not care, because a repeated reference at distance 0
//! hits.
#![deny(unsafe_code)]

pub mod capture;
mod error;
pub mod foreign;
mod format;
mod mix;
pub mod operations;
mod reduce;
mod reference;
mod run;
mod runs_of;
mod source;

pub use error::{Place, TraceError};
pub use format::{
    Chunk, Content, Entry, FileReferences, Header, Index, Reduction, Sampling, Selection, Settings, TraceReader,
    TraceWriter,
};
pub use mix::{MixedReferences, MixedRuns, Spaces};
pub use reduce::Reduced;
pub use reference::{ADDRESS_BITS, Kind, Kinds, Reference, SIZES};
pub use run::{MAX_ASID, NUMBER_BITS, PAGE_BITS, Run, RunBuilder, number_bits};
pub use runs_of::{CoarserRuns, RunsOfReferences};
pub use source::{MemoryReferences, MemoryRuns, ReferenceSource, References, Result, RunSource, Segment, Span};
