//! `pagelab.trace`: operations as JSON, batches as native integers in bytes objects, arrays in through the buffer
//! protocol.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pagelab_trace::operations::Work;
use pagelab_trace::{
    ADDRESS_BITS, Header, Kind, Kinds, NUMBER_BITS, Reference, ReferenceSource, Run, RunSource, Settings,
    TraceError, TraceReader, TraceWriter,
};
use pyo3::buffer::PyBuffer;
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

create_exception!(pagelab._native, TraceRefused, PyValueError, "Arguments: what kind of error, and the message.");

fn refused(error: TraceError) -> PyErr {
    let kind = match error.plain() {
        TraceError::Io { source, .. } => {
            return match source.raw_os_error() {
                Some(errno) => PyOSError::new_err((errno, error.to_string())),
                None => TraceRefused::new_err(("io", error.to_string())),
            };
        }
        TraceError::Torn(_) => "torn",
        TraceError::Damaged { .. } => "damaged",
        TraceError::Sampled(_) => "sampled",
        TraceError::Reduced(_) => "reduced",
        TraceError::NotATrace => "not-a-trace",
        _ => "invalid",
    };
    TraceRefused::new_err((kind, error.to_string()))
}

fn invalid(error: impl std::fmt::Display) -> PyErr {
    TraceRefused::new_err(("invalid", error.to_string()))
}

/// Interval between checks for signals.
const SIGNALS: Duration = Duration::from_millis(50);

/// Carries out a `pagelab_trace::operations::Work`, given as JSON; the answer is JSON. Ctrl-C ends it.
#[pyfunction]
pub fn trace_work(py: Python<'_>, work: &str) -> PyResult<String> {
    let work: Work = serde_json::from_str(work).map_err(invalid)?;
    let (answer, interrupted) = py.detach(|| {
        let (mut interrupted, mut looked) = (None, Instant::now());
        let mut go_on = || {
            if interrupted.is_none() && looked.elapsed() > SIGNALS {
                looked = Instant::now();
                interrupted = Python::attach(|py| py.check_signals()).err();
            }
            interrupted.is_none()
        };
        let answer = work.run(&mut go_on);
        (answer, interrupted)
    });
    match (answer, interrupted) {
        (_, Some(interrupted)) => Err(interrupted),
        (Ok(answer), None) => Ok(answer.to_string()),
        (Err(error), None) => Err(refused(error)),
    }
}

/// The kinds whose bits are set in `codes`.
fn kinds_of(codes: u8) -> Kinds {
    Kind::ALL.into_iter().filter(|kind| codes >> *kind as u8 & 1 == 1).fold(Kinds::NONE, Kinds::with)
}

enum Source {
    References(Box<dyn ReferenceSource + Send>),
    Runs(Box<dyn RunSource + Send>),
}

type Shared = Mutex<Source>;

/// Reads a trace file, batch by batch.
#[pyclass(frozen)]
pub struct TraceBatches {
    source: Shared,
    /// The file's header, as JSON.
    #[pyo3(get)]
    header: String,
    kinds: Kinds,
}

#[pymethods]
impl TraceBatches {
    /// `page_bits`: none for references; `kinds`: a bit each; `shard`: number and count, none for the whole file.
    #[new]
    fn new(path: PathBuf, page_bits: Option<u32>, kinds: u8, shard: Option<(usize, usize)>) -> PyResult<Self> {
        let file = BufReader::with_capacity(1 << 18, File::open(&path)?);
        match shard {
            None => Self::of(TraceReader::new(file).map_err(refused)?, page_bits, kinds),
            Some((number, count)) => {
                Self::of(TraceReader::shard(file, number, count).map_err(refused)?, page_bits, kinds)
            }
        }
    }

    /// Address, kind, size, thread and address space of each reference of the next batch; none at the end.
    fn references<'py>(&self, py: Python<'py>) -> PyResult<Option<[Bound<'py, PyBytes>; 5]>> {
        let columns = py.detach(|| match &mut *self.source.lock().unwrap_or_else(PoisonError::into_inner) {
            Source::References(source) => Columns::read(source, self.kinds).map_err(refused),
            Source::Runs(_) => Err(refused(TraceError::RunsOnly)),
        })?;
        Ok(columns.map(|columns| columns.bytes(py)))
    }

    /// Each reference of the next batch in a word (address, kind, size code), its thread and address space; none at
    /// the end.
    fn words<'py>(&self, py: Python<'py>) -> PyResult<Option<[Bound<'py, PyBytes>; 3]>> {
        let columns = py.detach(|| match &mut *self.source.lock().unwrap_or_else(PoisonError::into_inner) {
            Source::References(source) => words(source, self.kinds).map_err(refused),
            Source::Runs(_) => Err(refused(TraceError::RunsOnly)),
        })?;
        Ok(columns.map(|columns| columns.map(|column| PyBytes::new(py, &column))))
    }

    /// How many references the next batch has; none at the end.
    fn count(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        py.detach(|| match &mut *self.source.lock().unwrap_or_else(PoisonError::into_inner) {
            Source::References(source) => {
                let batch = source.next_references().map_err(refused)?;
                let wanted = |reference: &&Reference| self.kinds.has(reference.kind());
                Ok(batch.map(|batch| batch.all().iter().filter(wanted).count() as u64))
            }
            Source::Runs(source) => {
                let runs = source.next_runs().map_err(refused)?;
                Ok(runs.map(|runs| runs.iter().map(|run| run.count).sum()))
            }
        })
    }

    /// Page number, address space and count of each run of the next batch; none at the end.
    fn runs<'py>(&self, py: Python<'py>) -> PyResult<Option<[Bound<'py, PyBytes>; 3]>> {
        let columns = py.detach(|| match &mut *self.source.lock().unwrap_or_else(PoisonError::into_inner) {
            Source::Runs(source) => {
                let runs = source.next_runs().map_err(refused)?;
                Ok(runs.map(|runs| {
                    let column =
                        |value: fn(&Run) -> u64| runs.iter().flat_map(|run| value(run).to_ne_bytes()).collect();
                    let spaces = runs.iter().flat_map(|run| run.asid().to_ne_bytes()).collect();
                    [column(|run| run.number()), spaces, column(|run| run.count)]
                }))
            }
            Source::References(_) => Err(invalid("opened for references")),
        })?;
        Ok(columns.map(|columns: [Vec<u8>; 3]| columns.map(|column| PyBytes::new(py, &column))))
    }
}

impl TraceBatches {
    fn of<R: std::io::Read + Send + 'static>(
        reader: TraceReader<R>,
        page_bits: Option<u32>,
        kinds: u8,
    ) -> PyResult<Self> {
        let header = serde_json::to_string(reader.header()).map_err(invalid)?;
        let kinds = kinds_of(kinds);
        let source = match page_bits {
            Some(bits) => Source::Runs(reader.into_runs(bits, kinds).map_err(refused)?),
            None => Source::References(Box::new(reader.into_references().map_err(refused)?)),
        };
        Ok(TraceBatches { source: Mutex::new(source), header, kinds })
    }
}

/// The columns of [`TraceBatches::words`].
fn words(source: &mut dyn ReferenceSource, kinds: Kinds) -> Result<Option<[Vec<u8>; 3]>, TraceError> {
    let mut columns: [Vec<u8>; 3] = Default::default();
    while columns[0].is_empty() {
        let Some(batch) = source.next_references()? else { return Ok(None) };
        let [word, thread, asid] = &mut columns;
        for segment in batch.segments() {
            for reference in segment.references.iter().filter(|reference| kinds.has(reference.kind())) {
                word.extend(reference.bits().to_ne_bytes());
                thread.extend(segment.thread.to_ne_bytes());
                asid.extend(segment.asid.to_ne_bytes());
            }
        }
    }
    Ok(Some(columns))
}

/// References of a batch, in one column for each property.
#[derive(Default)]
struct Columns {
    address: Vec<u8>,
    kind: Vec<u8>,
    size: Vec<u8>,
    thread: Vec<u8>,
    asid: Vec<u8>,
}

impl Columns {
    fn read(source: &mut dyn ReferenceSource, kinds: Kinds) -> Result<Option<Columns>, TraceError> {
        let mut columns = Columns::default();
        while columns.kind.is_empty() {
            let Some(batch) = source.next_references()? else { return Ok(None) };
            for segment in batch.segments() {
                let kept = segment.references.iter().filter(|reference| kinds.has(reference.kind()));
                for reference in kept {
                    columns.address.extend(reference.address().to_ne_bytes());
                    columns.kind.push(reference.kind() as u8);
                    columns.size.extend(reference.size().to_ne_bytes());
                    columns.thread.extend(segment.thread.to_ne_bytes());
                    columns.asid.extend(segment.asid.to_ne_bytes());
                }
            }
        }
        Ok(Some(columns))
    }

    fn bytes<'py>(&self, py: Python<'py>) -> [Bound<'py, PyBytes>; 5] {
        [&self.address, &self.kind, &self.size, &self.thread, &self.asid].map(|column| PyBytes::new(py, column))
    }
}

/// Writes a trace file from arrays.
#[pyclass(frozen)]
pub struct TraceFile {
    writer: Mutex<Option<TraceWriter<File>>>,
}

#[pymethods]
impl TraceFile {
    /// A new file at `path`, with a header given as JSON.
    #[new]
    fn new(path: PathBuf, header: &str, level: i32) -> PyResult<Self> {
        let header: Header = serde_json::from_str(header).map_err(invalid)?;
        let settings = Settings { level, ..Settings::default() };
        let writer = TraceWriter::new(File::create(path)?, &header, settings).map_err(refused)?;
        Ok(TraceFile { writer: Mutex::new(Some(writer)) })
    }

    /// Appends references: columns of the same length.
    fn references(
        &self,
        py: Python<'_>,
        address: PyBuffer<u64>,
        kind: PyBuffer<u8>,
        size: PyBuffer<u32>,
        thread: PyBuffer<u32>,
        asid: PyBuffer<u16>,
    ) -> PyResult<()> {
        let (address, kind, size) = (address.to_vec(py)?, kind.to_vec(py)?, size.to_vec(py)?);
        let (thread, asid) = (thread.to_vec(py)?, asid.to_vec(py)?);
        if [kind.len(), size.len(), thread.len(), asid.len()].iter().any(|length| *length != address.len()) {
            return Err(invalid("the columns have different lengths"));
        }
        self.write(py, |writer| {
            let mut start = 0;
            while start < address.len() {
                let who = (asid[start], thread[start]);
                let same = (start..address.len()).take_while(|at| (asid[*at], thread[*at]) == who).count();
                let part = start..start + same;
                let before = writer.records();
                let wrong = |at: usize, what: String| {
                    TraceError::Invalid(format!("reference {}: {what}", before + (at - start) as u64 + 1))
                };
                let reference = |at: usize| {
                    let kind = Kind::of_code(kind[at]).ok_or_else(|| {
                        let known =
                            (0..).zip(Kinds::ALL.names()).map(|(code, name): (u8, _)| format!("{code} {name}"));
                        wrong(at, format!("kind {}: {}", kind[at], known.collect::<Vec<_>>().join(", ")))
                    })?;
                    Reference::checked(address[at], kind, size[at]).ok_or_else(|| {
                        wrong(at, format!("address {:#x} has more than {ADDRESS_BITS} bits", address[at]))
                    })
                };
                let references: Vec<Reference> = part.map(reference).collect::<Result<_, _>>()?;
                writer.references(who.0, who.1, &references)?;
                start += same;
            }
            Ok(())
        })
    }

    /// Appends runs: columns of the same length.
    fn runs(&self, py: Python<'_>, page: PyBuffer<u64>, asid: PyBuffer<u16>, count: PyBuffer<u64>) -> PyResult<()> {
        let (page, asid, count) = (page.to_vec(py)?, asid.to_vec(py)?, count.to_vec(py)?);
        if page.len() != asid.len() || page.len() != count.len() {
            return Err(invalid("the columns have different lengths"));
        }
        if asid.iter().any(|asid| *asid > pagelab_trace::MAX_ASID) {
            return Err(invalid(format!("address spaces are 0 to {}", pagelab_trace::MAX_ASID)));
        }
        let columns = page.iter().zip(&asid).zip(&count);
        let runs: Vec<Run> = columns.map(|((page, asid), count)| Run::new(*asid, *page, *count)).collect();
        self.write(py, |writer| {
            // In a run, bits above are the address space; the writer refuses those that pages of its size do not have.
            let wrong = (1..).zip(&page).find(|(_, page)| *page >> NUMBER_BITS != 0);
            match wrong.map(|(number, page): (u64, _)| (writer.records() + number, page)) {
                Some((number, page)) => Err(TraceError::Invalid(format!(
                    "run {number}: {page:#x} is no page number: those have at most {NUMBER_BITS} bits"
                ))),
                None => writer.runs(&runs),
            }
        })
    }

    /// Ends the file with the facts known only at the end, as JSON.
    fn finish(&self, py: Python<'_>, ending: &str) -> PyResult<()> {
        let ending = serde_json::from_str(ending).map_err(invalid)?;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let writer = writer.ok_or_else(|| invalid("the trace is finished"))?;
        py.detach(|| writer.finish(&ending).map(drop)).map_err(refused)
    }
}

impl TraceFile {
    fn write(
        &self,
        py: Python<'_>,
        action: impl FnOnce(&mut TraceWriter<File>) -> Result<(), TraceError> + Send,
    ) -> PyResult<()> {
        py.detach(|| {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let writer = writer.as_mut().ok_or_else(|| invalid("the trace is finished"))?;
            action(writer).map_err(refused)
        })
    }
}
