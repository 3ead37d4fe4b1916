//! The analytical model of page colours.

use pagelab_simulate::model;
use pyo3::prelude::*;

use super::refused;

/// E(c, k) of the model, for each pair (c, k).
#[pyfunction]
pub fn model_expected_requests(py: Python<'_>, cases: Vec<(u32, u64)>) -> PyResult<Vec<f64>> {
    if cases.iter().any(|&(colours, _)| colours == 0) {
        return Err(refused("the model needs at least one colour"));
    }
    Ok(py.detach(|| cases.into_iter().map(|(colours, pages)| model::expected_requests(colours, pages)).collect()))
}

/// Requests at random until a colour has had `target`, `runs` times: mean and standard deviation.
#[pyfunction]
pub fn model_fill(py: Python<'_>, colours: u32, target: u32, runs: u32, seed: u64) -> PyResult<(f64, f64)> {
    if colours == 0 || target == 0 || runs < 2 {
        return Err(refused("the check needs a colour, a page and two runs"));
    }
    let fill = py.detach(|| model::fill(colours, target, runs, seed));
    Ok((fill.mean, fill.deviation))
}
