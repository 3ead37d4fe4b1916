//! Simulations of paging: references in, from arrays or from a trace file; curves out as native integers. And the
//! analytical model of page colours.

mod input;
mod paging;

pub use input::PageRuns;
pub use paging::Paging;

use pagelab_simulate::analytical_model;
use pagelab_trace::TraceError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

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

/// E(c, k) of the model, for each pair (c, k).
#[pyfunction]
pub fn model_expected_requests(py: Python<'_>, cases: Vec<(u32, u64)>) -> PyResult<Vec<f64>> {
    if cases.iter().any(|&(colours, _)| colours == 0) {
        return Err(refused("the model needs at least one colour"));
    }
    Ok(py.detach(|| {
        cases.into_iter().map(|(colours, pages)| analytical_model::expected_requests(colours, pages)).collect()
    }))
}

/// Requests at random until a colour has had `target`, `runs` times: mean and standard deviation.
#[pyfunction]
pub fn model_fill(py: Python<'_>, colours: u32, target: u32, runs: u32, seed: u64) -> PyResult<(f64, f64)> {
    if colours == 0 || target == 0 || runs < 2 {
        return Err(refused("the check needs a colour, a page and two runs"));
    }
    let fill = py.detach(|| analytical_model::fill(colours, target, runs, seed));
    Ok((fill.mean, fill.deviation))
}
