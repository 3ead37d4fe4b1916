//! Simulations of caches and TLBs: references in, from arrays or from a trace file; counts out as JSON.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::PathBuf;

use pagelab_policy::types::Frames;
use pagelab_simulate::allocate::{Extent, History, Kernel, Layout, Memory, PlaceCounts, Strategy, aged};
use pagelab_simulate::{cache, tlb};
use pagelab_trace::{Index, Reference, ReferenceSource, References, Span, TraceError, TraceReader};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

/// Batches between two looks for Ctrl-C and calls of the reporter.
const BATCHES_A_TURN: u64 = 16;

/// A way to place pages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Placement {
    frames: Frames,
    /// Colours where `frames` leaves them to the machine.
    colours: u32,
    /// Start, end and binary logarithm of the page size.
    extents: Vec<(u64, u64, u32)>,
    otherwise: u32,
}

/// Every placement on every machine that the seeds draw.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Design {
    history: History,
    placements: Vec<Placement>,
    seeds: Vec<u64>,
}

impl Design {
    fn parse(text: &str) -> PyResult<Design> {
        let design: Design = parsed(text, "placement")?;
        design.history.check().map_err(refused)?;
        Ok(design)
    }

    /// The memories of one seed: the same machine for each placement.
    fn memories(&self, seed: u64) -> Result<Vec<Memory>, String> {
        let kernel = aged(&self.history, seed);
        self.placements.iter().map(|placement| placement.memory(&kernel, seed)).collect()
    }
}

impl Placement {
    fn memory(&self, kernel: &Kernel, seed: u64) -> Result<Memory, String> {
        let extents =
            self.extents.iter().map(|&(start, end, page_bits)| Extent { start, end, page_bits }).collect();
        let layout = Layout::new(extents, self.otherwise)?;
        let strategy = Strategy::new(&self.frames, self.colours, seed)?;
        Ok(Memory::on(kernel.clone(), strategy, layout))
    }
}

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn trace_error(error: &TraceError) -> PyErr {
    match error {
        TraceError::Io { operation, source } => match source.raw_os_error() {
            Some(errno) => PyOSError::new_err((errno, format!("cannot {operation}: {source}"))),
            None => refused(error),
        },
        _ => refused(error),
    }
}

fn parsed<'j, T: Deserialize<'j>>(text: &'j str, what: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| refused(format_args!("{what}: {error}")))
}

/// A part of the executions, which one thread simulates.
enum Part {
    Caches(cache::Simulation),
    Tlbs(Vec<tlb::Simulation>),
}

impl Part {
    fn feed(&mut self, batch: &References<'_>) {
        for segment in batch.segments() {
            match self {
                Part::Caches(simulation) => simulation.feed(&segment),
                Part::Tlbs(simulations) => simulations.iter_mut().for_each(|one| one.feed(&segment)),
            }
        }
    }

    fn finish(self) -> Vec<Value> {
        match self {
            Part::Caches(simulation) => simulation.finish().iter().map(cache_outcome).collect(),
            Part::Tlbs(simulations) => simulations.into_iter().map(|one| tlb_outcome(&one.finish())).collect(),
        }
    }
}

/// Caches or TLBs under several placements, in as many threads.
#[pyclass]
pub struct PlacedSimulation {
    parts: Vec<Part>,
}

/// Seeds in `threads` shares of neighbours, none empty.
fn shares(seeds: &[u64], threads: usize) -> impl Iterator<Item = &[u64]> {
    seeds.chunks(seeds.len().div_ceil(threads.max(1)).max(1))
}

#[pymethods]
impl PlacedSimulation {
    /// A cache hierarchy; both are JSON.
    #[staticmethod]
    fn caches(py: Python<'_>, hierarchy: &str, design: &str, threads: usize) -> PyResult<Self> {
        let spec: cache::HierarchySpec = parsed(hierarchy, "hierarchy")?;
        spec.check().map_err(refused)?;
        let design = Design::parse(design)?;
        py.detach(|| {
            let part = |seeds: &[u64]| {
                let memories: Vec<Vec<Memory>> =
                    seeds.iter().map(|seed| design.memories(*seed)).collect::<Result<_, _>>()?;
                let memories = memories.into_iter().flatten().collect();
                cache::Simulation::new(&spec, memories).map(Part::Caches).map_err(|error| error.to_string())
            };
            Self::new(&design, threads, part)
        })
    }

    /// Translation hardware, and the data caches that walks read from.
    #[staticmethod]
    fn tlbs(
        py: Python<'_>,
        hardware: &str,
        hierarchy: Option<&str>,
        design: &str,
        threads: usize,
    ) -> PyResult<Self> {
        let spec: tlb::TlbSpec = parsed(hardware, "hardware")?;
        let caches: Option<cache::HierarchySpec> = hierarchy.map(|text| parsed(text, "hierarchy")).transpose()?;
        spec.check().map_err(refused)?;
        let design = Design::parse(design)?;
        py.detach(|| {
            let part = |seeds: &[u64]| {
                let mut simulations = vec![];
                for seed in seeds {
                    for memory in design.memories(*seed)? {
                        let one = tlb::Simulation::new(&spec, caches.as_ref(), memory, &design.history, *seed);
                        simulations.push(one.map_err(|error| error.to_string())?);
                    }
                }
                Ok(Part::Tlbs(simulations))
            };
            Self::new(&design, threads, part)
        })
    }

    /// Takes packed references of one thread.
    fn feed_array(&mut self, py: Python<'_>, references: PyBuffer<u64>, asid: u16, thread: u32) -> PyResult<()> {
        let references: Vec<Reference> = references.to_vec(py)?.into_iter().map(Reference::from_bits).collect();
        py.detach(|| {
            let spans = [Span { asid, thread, length: references.len() }];
            self.feed(&References::new(&spans, &references));
        });
        Ok(())
    }

    /// Takes all references of a trace file and returns its header as JSON; `report` is told how many there have been, and how
    /// many there are where that is known. Ctrl-C ends it.
    #[pyo3(signature = (path, report = None))]
    fn feed_file(&mut self, py: Python<'_>, path: PathBuf, report: Option<Py<PyAny>>) -> PyResult<String> {
        let mut file = File::open(&path)?;
        let total = Index::read(&mut file).ok().filter(|index| index.complete).map(|index| index.references());
        file.rewind()?;
        let reader = TraceReader::new(BufReader::new(file)).map_err(|error| trace_error(&error))?;
        reader.header().require_every_reference().map_err(|error| trace_error(&error))?;
        if let Some(reduction) = &reader.header().reduction {
            return Err(refused(format_args!(
                "the trace was reduced ({reduction:?}): caches need every reference"
            )));
        }
        let header = serde_json::to_string(reader.header()).map_err(refused)?;
        let mut source = reader.into_references().map_err(|error| trace_error(&error))?;
        let (mut turns, mut done) = (0_u64, 0_u64);
        py.detach(|| {
            while let Some(batch) = source.next_references().map_err(|error| trace_error(&error))? {
                self.feed(&batch);
                (turns, done) = (turns + 1, done + batch.all().len() as u64);
                if turns.is_multiple_of(BATCHES_A_TURN) {
                    Python::attach(|py| {
                        py.check_signals()?;
                        report.as_ref().map_or(Ok(()), |report| report.call1(py, (done, total)).map(|_| ()))
                    })?;
                }
            }
            Ok(header)
        })
    }

    /// The outcome of each execution, of every placement with the first seed first, as JSON; the simulation is empty then.
    fn finish(&mut self, py: Python<'_>) -> PyResult<String> {
        let parts = std::mem::take(&mut self.parts);
        let outcomes: Vec<Value> = py.detach(|| parts.into_iter().flat_map(Part::finish).collect());
        serde_json::to_string(&outcomes).map_err(refused)
    }
}

impl PlacedSimulation {
    /// Parts made in as many threads: a machine's history takes its time.
    fn new(
        design: &Design,
        threads: usize,
        part: impl Fn(&[u64]) -> Result<Part, String> + Sync,
    ) -> PyResult<PlacedSimulation> {
        let made = std::thread::scope(|scope| {
            let part = &part;
            let started: Vec<_> =
                shares(&design.seeds, threads).map(|seeds| scope.spawn(move || part(seeds))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Part, String>>| {
                thread.join().unwrap_or_else(|_| Err("a thread of the simulation failed".to_owned()))
            };
            started.into_iter().map(join).collect::<Result<Vec<Part>, String>>()
        });
        made.map(|parts| PlacedSimulation { parts }).map_err(refused)
    }

    fn feed(&mut self, batch: &References<'_>) {
        match &mut self.parts[..] {
            [part] => part.feed(batch),
            parts => std::thread::scope(|scope| {
                for part in parts {
                    scope.spawn(|| part.feed(batch));
                }
            }),
        }
    }
}

fn level(counts: &cache::Counts) -> Value {
    json!({
        "accesses": counts.accesses,
        "misses": counts.misses,
        "writebacks_in": counts.writebacks_in,
        "writebacks_out": counts.writebacks_out,
        "evictions": counts.evictions,
        "invalidations": counts.invalidations,
    })
}

fn placed(counts: &PlaceCounts) -> Value {
    json!({
        "pages": counts.pages,
        "fallbacks": counts.fallbacks,
        "replayed": counts.replayed,
        "compacted": counts.compacted,
        "beyond": counts.beyond,
    })
}

fn cache_outcome(outcome: &cache::Outcome) -> Value {
    json!({
        "levels": outcome.levels.iter().map(level).collect::<Vec<_>>(),
        "memory_reads": outcome.memory.reads,
        "memory_writes": outcome.memory.writes,
        "cycles": outcome.cycles,
        "placed": placed(&outcome.placed),
    })
}

fn cost(cost: &tlb::Cost) -> Value {
    json!([cost.hits, cost.misses, cost.walk_cycles])
}

fn tlb_outcome(outcome: &tlb::Outcome) -> Value {
    let counts = &outcome.counts;
    let windows = outcome.windows.iter().map(|window| {
        let tlb::Cost { hits, misses, walk_cycles } = window.cost;
        json!([window.asid, window.start, hits, misses, walk_cycles])
    });
    json!({
        "translations": counts.translations,
        "by_leaf": counts.by_leaf.iter().map(cost).collect::<Vec<_>>(),
        "reads": counts.reads,
        "host_reads": counts.host_reads,
        "shortened": counts.shortened,
        "coalesced": counts.coalesced,
        "active_cycles": counts.active_cycles,
        "queue_cycles": counts.queue_cycles,
        "windows": windows.collect::<Vec<_>>(),
        "levels": outcome.levels.iter().map(level).collect::<Vec<_>>(),
        "memory_reads": outcome.memory.reads,
        "memory_writes": outcome.memory.writes,
        "placed": placed(&outcome.placed),
    })
}
