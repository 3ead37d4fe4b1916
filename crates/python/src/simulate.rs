//! Simulations of paging: references in, from arrays or from a trace file; curves out as native integers.

mod input;
pub mod model;
mod paging;

pub use input::PageRuns;
pub use paging::Paging;

use pagelab_trace::TraceError;
use pyo3::PyErr;
use pyo3::exceptions::PyValueError;

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn trace_error(error: TraceError) -> PyErr {
    match error {
        TraceError::Io { operation, source } => match source.raw_os_error() {
            Some(errno) => pyo3::exceptions::PyOSError::new_err((errno, format!("cannot {operation}: {source}"))),
            None => refused(format_args!("cannot {operation}: {source}")),
        },
        other => refused(other),
    }
}
