//! Errors of traces, as data.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The place of an error in a trace file, and the number of records before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Complete chunks before it.
    pub chunks: u64,
    /// Records (references or runs) in them.
    pub records: u64,
    /// Its offset in the file, in bytes.
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { chunks, records, offset } = self;
        write!(formatter, "at byte {offset}, after {chunks} complete chunks with {records} records")
    }
}

/// An error of reading, writing or converting a trace.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system refused.
    Io {
        /// The operation.
        operation: &'static str,
        /// The error, with its number.
        source: io::Error,
    },
    /// The file does not begin as a trace does.
    NotATrace,
    /// The file was written by another version of the format.
    Version(u16),
    /// The file's header is damaged or cut off: nothing of the trace can be read but by
    /// [`crate::TraceReader::recover`].
    Header(String),
    /// The file ends in the middle: its writer was interrupted, or the file was cut. All complete chunks were returned.
    Torn(Place),
    /// A chunk's checksum or contents are wrong. All chunks before it were returned.
    Damaged {
        /// Its place.
        place: Place,
        /// The fault.
        what: String,
    },
    /// Full references are wanted, but the trace has page runs.
    RunsOnly,
    /// Pages are wanted that are smaller than those of the trace's runs.
    FinerPages {
        /// Binary logarithm of the trace's page size.
        has: u32,
        /// Binary logarithm of the page size wanted.
        wanted: u32,
    },
    /// Every reference is needed, but the trace is a sample.
    Sampled(String),
    /// The trace was reduced, and is not exact for the request.
    Reduced(String),
    /// A foreign trace, or a value to be written, is invalid.
    Invalid(String),
    /// An error in one of several traces.
    In {
        /// The trace's file.
        trace: PathBuf,
        /// The error.
        error: Box<TraceError>,
    },
}

impl TraceError {
    /// For `map_err`: an input/output error during `operation`.
    pub fn io(operation: &'static str) -> impl Fn(io::Error) -> TraceError {
        move |source| TraceError::Io { operation, source }
    }

    /// For `map_err`: an error in this one of several traces.
    pub fn in_trace(trace: &Path) -> impl Fn(TraceError) -> TraceError {
        move |error| TraceError::In { trace: trace.to_owned(), error: Box::new(error) }
    }

    /// The error without the name of its trace.
    pub fn plain(&self) -> &TraceError {
        match self {
            TraceError::In { error, .. } => error.plain(),
            other => other,
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io { operation, source } => write!(formatter, "cannot {operation}: {source}"),
            TraceError::NotATrace => write!(
                formatter,
                "not a pagelab trace: it does not begin with PAGELABT; foreign traces: pagelab trace convert --from FORMAT; \
                 one whose beginning is damaged: pagelab trace convert --recover DAMAGED NEW"
            ),
            TraceError::Version(version) => {
                write!(
                    formatter,
                    "the trace is in version {version} of the format; this pagelab reads versions 1 and 2 (or its header is \
                     damaged: pagelab trace convert --recover DAMAGED NEW)"
                )
            }
            TraceError::Header(what) => write!(
                formatter,
                "the trace's header is damaged: {what}; where its copy is whole (traces of version 1 have none), the chunks \
                 can be had: pagelab trace convert --recover DAMAGED NEW"
            ),
            TraceError::Torn(place) => write!(
                formatter,
                "the trace is torn {place}: it was cut, or its writer was interrupted; keep what is complete: \
                 pagelab trace convert --recover TORN NEW"
            ),
            TraceError::Damaged { place, what } => write!(
                formatter,
                "the trace is damaged {place}: {what}; keep the chunks that are whole: pagelab trace convert --recover \
                 DAMAGED NEW"
            ),
            TraceError::RunsOnly => write!(
                formatter,
                "the trace has page runs only, this needs full references: capture it again with --full"
            ),
            TraceError::FinerPages { has, wanted } => write!(
                formatter,
                "the trace has runs of {} B pages, which cannot be cut into pages of {} B: capture it again with smaller \
                 pages or with full references",
                1u64 << has,
                1u64 << wanted
            ),
            TraceError::Sampled(what) => {
                write!(
                    formatter,
                    "the trace is a sample ({what}), this needs every reference: capture it with pagelab trace"
                )
            }
            TraceError::Reduced(what) => {
                write!(formatter, "the trace was reduced: {what}; use the full trace, or reduce it again")
            }
            TraceError::Invalid(what) => formatter.write_str(what),
            TraceError::In { trace, error } => write!(formatter, "{}: {error}", trace.display()),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TraceError::Io { source, .. } => Some(source),
            TraceError::In { error, .. } => Some(error.as_ref()),
            _ => None,
        }
    }
}
