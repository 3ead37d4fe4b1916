//! Simulations of paging: references in, from arrays or from a trace file; curves out as native integers. Also the
//! analytical model of page colours.

mod paging;

pub use paging::Paging;

use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pagelab_simulate::analytical_model;
use pagelab_trace::{Index, Kinds, RunSource, TraceError, TraceReader};
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

/// The page runs of a trace file.
#[pyclass]
pub struct PageRuns {
    source: Mutex<Box<dyn RunSource + Send>>,
    /// The trace's header, as JSON.
    #[pyo3(get)]
    header: String,
    /// References in the whole file; `None` if it has no index.
    #[pyo3(get)]
    references: Option<u64>,
}

#[pymethods]
impl PageRuns {
    /// Opens a trace; `kinds`: "demand" (loads, stores, fetches) or "data" (loads and stores), if the trace has kinds.
    #[new]
    fn new(path: PathBuf, page_bits: u32, data_only: bool) -> PyResult<Self> {
        let mut file = File::open(&path)?;
        let index = Index::read(&mut file).ok().filter(|index| index.complete);
        file.rewind()?;
        let reader = TraceReader::new(BufReader::new(file)).map_err(trace_error)?;
        let header = serde_json::to_string(reader.header()).map_err(refused)?;
        let kinds = if data_only { Kinds::DATA } else { Kinds::DEMAND };
        let source = reader.into_runs(page_bits, kinds).map_err(trace_error)?;
        let source = Mutex::new(source);
        Ok(Self { source, header, references: index.map(|index| index.references()) })
    }

    /// Feeds the next batch to every simulation. Returns how many references it had; `None` at the end.
    fn feed(&mut self, py: Python<'_>, mut simulations: Vec<PyRefMut<'_, Paging>>) -> PyResult<Option<u64>> {
        let mut feeds: Vec<&mut Paging> = simulations.iter_mut().map(|one| &mut **one).collect();
        let source = self.source.get_mut().unwrap_or_else(PoisonError::into_inner);
        py.detach(move || {
            let Some(runs) = source.next_runs().map_err(trace_error)? else { return Ok(None) };
            for feed in &mut feeds {
                feed.feed(runs);
            }
            Ok(Some(runs.iter().map(|run| run.count).sum()))
        })
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

/// Makes random requests until a colour has had `target`, `runs` times: mean and standard deviation of their number.
#[pyfunction]
pub fn model_fill(py: Python<'_>, colours: u32, target: u32, runs: u32, seed: u64) -> PyResult<(f64, f64)> {
    if colours == 0 || target == 0 || runs < 2 {
        return Err(refused("the check needs a colour, a page and two runs"));
    }
    let fill = py.detach(|| analytical_model::fill(colours, target, runs, seed));
    Ok((fill.mean, fill.deviation))
}
