//! The loops of `pagelab.stats.nondeterminism`: arrays in through the buffer protocol, rows of doubles out as bytes.

use std::sync::atomic::AtomicBool;

use pagelab_stats::executions::Moments;
use pagelab_stats::{Batch, BatchError, COLUMNS, Experiment, Settings, impact, report};
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

/// One row of `stats_columns` an experiment, native doubles. Ctrl-C ends it.
#[pyfunction]
#[pyo3(signature = (
    values, ends, experiment_ends, groups, keys, *,
    seed, resamples, ratio_draws, estimate_draws, null_draws, tail, threads
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
    resamples: u32,
    ratio_draws: u32,
    estimate_draws: u32,
    null_draws: u32,
    tail: f64,
    threads: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let settings = Settings { seed, resamples, ratio_draws, estimate_draws, null_draws, tail, threads };
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

/// The resampled statistics of one experiment, one row a resample: mean, within, pooled, impact factor, its geometric
/// mean. The last two are left out where `group` is 0, and NaN where a resample has no spread within.
#[pyfunction]
#[pyo3(signature = (values, ends, group, key, *, seed, resamples, ratio_draws))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of one call")]
pub fn stats_replicates<'py>(
    py: Python<'py>,
    values: PyBuffer<f64>,
    ends: PyBuffer<u64>,
    group: usize,
    key: u64,
    seed: u64,
    resamples: u32,
    ratio_draws: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    let settings = Settings { seed, resamples, ratio_draws, ..Settings::default() };
    let (values, ends) = (values.to_vec(py)?, ends.to_vec(py)?);
    let ends: Vec<usize> = ends.into_iter().map(|end| end as usize).collect();
    let experiment =
        Experiment::new(&values, &ends).ok_or_else(|| PyValueError::new_err("the executions' ends do not fit"))?;
    if group == 1 || group > experiment.executions().min(experiment.fewest()) {
        return Err(PyValueError::new_err("the group size does not fit"));
    }
    let rows: Vec<f64> = py.detach(|| {
        let moments: Vec<Moments> = experiment.rows().map(Moments::of).collect();
        let [means, withins, pooleds] = report::spread_replicates(&moments, key, &settings);
        let impacts = if group == 0 {
            vec![]
        } else {
            impact::replicates(&experiment, group, key, &settings, &AtomicBool::new(false)).0
        };
        (0..means.len())
            .flat_map(|i| {
                let mut row = vec![means[i], withins[i], pooleds[i]];
                if group > 0 {
                    row.extend(impacts[i].map_or([f64::NAN; 2], |ratio| [ratio.mean, ratio.log_mean]));
                }
                row
            })
            .collect()
    });
    Ok(bytes(py, rows.into_iter()))
}
