//! Page runs of a trace file, a batch at a time.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pagelab_trace::{Index, Kinds, RunSource, TraceReader};
use pyo3::prelude::*;

use super::paging::Paging;
use super::trace_error;

/// The page runs of a trace file.
#[pyclass]
pub struct PageRuns {
    source: Mutex<Box<dyn RunSource + Send>>,
    /// The trace's header, as JSON.
    #[pyo3(get)]
    header: String,
    /// References in the whole file; none where it has no index.
    #[pyo3(get)]
    references: Option<u64>,
}

#[pymethods]
impl PageRuns {
    /// Opens a trace; `kinds`: "demand" (loads, stores, fetches) or "data" (loads and stores), where the trace tells them.
    #[new]
    fn new(path: PathBuf, page_bits: u32, data_only: bool) -> PyResult<Self> {
        let mut file = File::open(&path)?;
        let index = Index::read(&mut file).ok().filter(|index| index.complete);
        file.rewind()?;
        let reader = TraceReader::new(BufReader::new(file)).map_err(trace_error)?;
        let header = serde_json::to_string(reader.header()).map_err(super::refused)?;
        let kinds = if data_only { Kinds::DATA } else { Kinds::DEMAND };
        let source = reader.into_runs(page_bits, kinds).map_err(trace_error)?;
        let source = Mutex::new(source);
        Ok(Self { source, header, references: index.map(|index| index.references()) })
    }

    /// Feeds the next batch to every simulation; how many references it had, none at the end.
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
