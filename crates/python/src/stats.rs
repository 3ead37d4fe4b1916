//! The loops of `pagelab.stats.nondeterminism`: arrays in through the buffer protocol, rows of doubles out as bytes.

use pagelab_stats::{Batch, BatchError, COLUMNS, Settings, report};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

fn bytes<'py, I: Iterator<Item = f64>>(py: Python<'py>, values: I) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &values.flat_map(f64::to_ne_bytes).collect::<Vec<u8>>())
}

/// Names of the columns of `stats_reports`.
#[pyfunction]
pub fn stats_columns() -> Vec<&'static str> {
    COLUMNS.to_vec()
}

/// One row of `stats_columns` for each experiment, as native doubles. Ctrl-C ends it.
#[pyfunction]
#[pyo3(signature = (
    values, ends, experiment_ends, groups, keys, *, seed, estimate_draws, null_draws, threads
))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of one call")]
pub fn stats_reports<'py>(
    py: Python<'py>,
    values: PyBuffer<f64>,
    ends: PyBuffer<u64>,
    experiment_ends: PyBuffer<u64>,
    groups: PyBuffer<u64>,
    keys: PyBuffer<u64>,
    seed: u64,
    estimate_draws: u32,
    null_draws: u32,
    threads: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let settings = Settings { seed, estimate_draws, null_draws, threads };
    let values = values.to_vec(py)?;
    let (ends, experiment_ends) = (ends.to_vec(py)?, experiment_ends.to_vec(py)?);
    let (groups, keys) = (groups.to_vec(py)?, keys.to_vec(py)?);
    let (result, interrupted) = py.detach(|| {
        let mut interrupted = None;
        let go_on = || {
            if interrupted.is_none() {
                interrupted = Python::attach(|py| py.check_signals()).err();
            }
            interrupted.is_none()
        };
        let mut scratch = Vec::with_capacity(ends.len());
        let result = Batch::new(&values, &ends, &experiment_ends, &groups, &keys, &mut scratch)
            .and_then(|batch| batch.reports(&settings, go_on));
        (result, interrupted)
    });
    match (result, interrupted) {
        (Ok(reports), _) => Ok(bytes(py, reports.iter().flat_map(report::Report::row))),
        (Err(BatchError::Stopped), Some(interrupted)) => Err(interrupted),
        (Err(error), _) => Err(PyValueError::new_err(error.to_string())),
    }
}
