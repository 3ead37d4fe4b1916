//! Simulations of caches and TLBs: references in, from arrays or from a trace file; counts out as JSON.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::PathBuf;

use pagelab_policy::types::Frames;
use pagelab_simulate::allocate::{Extent, History, Kernel, Layout, Memory, PlaceCounts, Strategy, aged};
use pagelab_simulate::tasks::{Task, run_all};
use pagelab_simulate::{cache, tlb};
use pagelab_trace::{
    Content, Index, Kinds, Reference, ReferenceSource, References, Run, RunSource, Span, TraceError, TraceReader,
};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

/// Number of references between two checks for Ctrl-C and calls of the reporter.
const LOOK: u64 = 1 << 21;
/// Binary logarithm of the size of pages whose runs are simulated.
const PAGE_BITS: u32 = 12;
/// Fewest references in a turn of several threads: with so many, its beginning and end cost little.
const TURN: usize = 1 << 19;

/// A way to place pages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Placement {
    frames: Frames,
    /// Number of colours, if `frames` leaves it to the machine.
    colours: u32,
    /// Start, end and binary logarithm of the page size of each extent.
    extents: Vec<(u64, u64, u32)>,
    otherwise: u32,
}

/// Every placement, on every machine that the seeds draw.
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
        let kernel = aged(&self.history, seed).shared();
        self.placements.iter().map(|placement| placement.memory(&kernel, seed)).collect()
    }

    /// All memories with their seeds; those of the first seed come first. A machine's history takes time to simulate,
    /// hence the threads.
    fn all_memories(&self, threads: usize) -> PyResult<Vec<(u64, Memory)>> {
        let mut made: Vec<_> = self.seeds.iter().map(|seed| (*seed, Ok(vec![]))).collect();
        let task = |(seed, memories): &mut (u64, Result<Vec<Memory>, String>)| *memories = self.memories(*seed);
        let task = &task;
        run_all(threads, made.iter_mut().map(|one| Box::new(move || task(one)) as Task<'_>).collect());
        let mut all = vec![];
        for (seed, memories) in made {
            all.extend(memories.map_err(refused)?.into_iter().map(|memory| (seed, memory)));
        }
        Ok(all)
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

/// Free memory on the machines that the seeds draw, and the frames of a fresh process's first pages: JSON for each seed.
#[pyfunction]
pub fn aged_memory(py: Python<'_>, history: &str, seeds: Vec<u64>, pages: u32) -> PyResult<String> {
    let history: History = parsed(history, "history")?;
    history.check().map_err(refused)?;
    let one = |seed: &u64| {
        let mut kernel = aged(&history, *seed);
        let (blocks, available) = (kernel.zone().blocks(), kernel.available());
        let frames: Vec<u32> = (0..pages).map_while(|_| kernel.page(0)).collect();
        json!({ "seed": seed, "blocks": blocks, "available_pages": available, "frames": frames })
    };
    Ok(py.detach(|| Value::Array(seeds.iter().map(one).collect())).to_string())
}

/// The simulated executions: one for every placement and seed.
enum Executions {
    Caches(Box<cache::Simulation>),
    Tlbs(Vec<tlb::Simulation>),
}

impl Executions {
    /// Simulates the next references, on the caller's thread.
    fn feed(&mut self, batch: &References<'_>) {
        for segment in batch.segments() {
            match self {
                Self::Caches(simulation) => simulation.feed(&segment),
                Self::Tlbs(simulations) => simulations.iter_mut().for_each(|one| one.feed(&segment)),
            }
        }
    }

    /// Simulates the next page runs; each execution is a task.
    fn feed_runs(&mut self, runs: &[Run], threads: usize) -> PyResult<()> {
        let Self::Tlbs(simulations) = self else {
            return Err(trace_error(&TraceError::RunsOnly));
        };
        let mut fed: Vec<_> = simulations.iter_mut().map(|one| (one, Ok(()))).collect();
        let task =
            |(one, done): &mut (&mut tlb::Simulation, Result<(), cache::SpecError>)| *done = one.feed_runs(runs);
        let task = &task;
        if threads > 1 {
            run_all(threads, fed.iter_mut().map(|one| Box::new(move || task(one)) as Task<'_>).collect());
        } else {
            fed.iter_mut().for_each(task);
        }
        fed.into_iter().try_for_each(|(_, done)| done).map_err(refused)
    }

    /// The next references, as tasks for several threads; [`cache::Simulation::turn`] describes how to end.
    fn turn<'a>(&'a mut self, batch: Option<&'a References<'a>>) -> Vec<Task<'a>> {
        match (self, batch) {
            (Self::Caches(simulation), _) => simulation.turn(batch),
            (Self::Tlbs(_), None) => vec![],
            (Self::Tlbs(simulations), Some(batch)) => {
                let task = |one: &'a mut tlb::Simulation| -> Task<'a> {
                    Box::new(move || batch.segments().for_each(|segment| one.feed(&segment)))
                };
                simulations.iter_mut().map(task).collect()
            }
        }
    }

    fn finish(self) -> Vec<Value> {
        match self {
            Self::Caches(simulation) => simulation.finish().iter().map(cache_outcome).collect(),
            Self::Tlbs(simulations) => simulations.into_iter().map(|one| tlb_outcome(&one.finish())).collect(),
        }
    }
}

/// References with their own buffer.
#[derive(Default)]
struct Batch {
    spans: Vec<Span>,
    references: Vec<Reference>,
}

impl Batch {
    /// Takes the next references of a trace, as many as a turn has; none at the trace's end.
    fn read(&mut self, source: &mut impl ReferenceSource) -> Result<(), TraceError> {
        self.spans.clear();
        self.references.clear();
        while self.references.len() < TURN
            && let Some(batch) = source.next_references()?
        {
            self.spans.extend_from_slice(batch.spans());
            self.references.extend_from_slice(batch.all());
        }
        Ok(())
    }
}

/// A simulation of caches or TLBs under several placements, on several threads.
#[pyclass]
pub struct PlacedSimulation {
    executions: Option<Executions>,
    threads: usize,
}

#[pymethods]
impl PlacedSimulation {
    /// Makes the simulation of a cache hierarchy; both arguments are JSON.
    #[staticmethod]
    fn caches(py: Python<'_>, hierarchy: &str, design: &str, threads: usize) -> PyResult<Self> {
        let spec: cache::HierarchySpec = parsed(hierarchy, "hierarchy")?;
        spec.check().map_err(refused)?;
        let design = Design::parse(design)?;
        py.detach(|| {
            let memories = design.all_memories(threads)?.into_iter().map(|(_, memory)| memory);
            let simulation = cache::Simulation::new(&spec, memories.collect()).map_err(refused)?;
            Ok(Self { executions: Some(Executions::Caches(Box::new(simulation))), threads })
        })
    }

    /// Makes the simulation of translation hardware, and of the data caches from which walks read.
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
            let one = |(seed, memory)| tlb::Simulation::new(&spec, caches.as_ref(), memory, &design.history, seed);
            let simulations = design.all_memories(threads)?.into_iter().map(one).collect::<Result<_, _>>();
            Ok(Self { executions: Some(Executions::Tlbs(simulations.map_err(refused)?)), threads })
        })
    }

    /// Takes packed references of one thread.
    fn feed_array(&mut self, py: Python<'_>, references: PyBuffer<u64>, asid: u16, thread: u32) -> PyResult<()> {
        let references: Vec<Reference> = references.to_vec(py)?.into_iter().map(Reference::from_bits).collect();
        let threads = self.threads;
        let executions = self.executions()?;
        py.detach(|| {
            let spans = [Span { asid, thread, length: references.len() }];
            let batch = References::new(&spans, &references);
            if threads > 1 {
                run_all(threads, executions.turn(Some(&batch)));
            } else {
                executions.feed(&batch);
            }
        });
        Ok(())
    }

    /// Takes page runs of 4 KiB: page number, address space and count of each.
    fn feed_runs(
        &mut self,
        py: Python<'_>,
        page: PyBuffer<u64>,
        asid: PyBuffer<u16>,
        count: PyBuffer<u64>,
    ) -> PyResult<()> {
        let (page, asid, count) = (page.to_vec(py)?, asid.to_vec(py)?, count.to_vec(py)?);
        let threads = self.threads;
        let executions = self.executions()?;
        py.detach(|| {
            let columns = page.iter().zip(&asid).zip(&count).filter(|(_, count)| **count > 0);
            let runs: Vec<Run> = columns.map(|((page, asid), count)| Run::new(*asid, *page, *count)).collect();
            executions.feed_runs(&runs, threads)
        })
    }

    /// Takes all references of a trace file and returns its header as JSON. `report` gets the number of references so
    /// far, and the total if that is known. Ctrl-C ends it.
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
        let in_runs = matches!(reader.header().content, Content::Runs { .. });
        let threads = self.threads;
        let executions = self.executions()?;
        let mut done = 0;
        let mut tell = |references: u64| {
            let looks = done / LOOK;
            done += references;
            if done / LOOK == looks {
                return Ok(());
            }
            Python::attach(|py| {
                py.check_signals()?;
                report.as_ref().map_or(Ok(()), |report| report.call1(py, (done, total)).map(|_| ()))
            })
        };
        py.detach(|| {
            if in_runs && matches!(executions, Executions::Tlbs(_)) {
                let mut source = reader.into_runs(PAGE_BITS, Kinds::DATA).map_err(|error| trace_error(&error))?;
                while let Some(runs) = source.next_runs().map_err(|error| trace_error(&error))? {
                    executions.feed_runs(runs, threads)?;
                    tell(runs.iter().map(|run| run.count).sum())?;
                }
                return Ok(header);
            }
            let mut source = reader.into_references().map_err(|error| trace_error(&error))?;
            if threads > 1 {
                feed_in_turns(executions, &mut source, threads, tell)?;
            } else {
                while let Some(batch) = source.next_references().map_err(|error| trace_error(&error))? {
                    executions.feed(&batch);
                    tell(batch.all().len() as u64)?;
                }
            }
            Ok(header)
        })
    }

    /// The outcome of each execution as JSON: every placement with the first seed first. The simulation is empty
    /// afterwards.
    fn finish(&mut self, py: Python<'_>) -> PyResult<String> {
        let threads = self.threads;
        let mut executions = self.executions.take().ok_or_else(|| refused("the simulation was finished before"))?;
        let outcomes = py.detach(|| {
            drain(&mut executions, threads);
            executions.finish()
        });
        serde_json::to_string(&outcomes).map_err(refused)
    }
}

impl PlacedSimulation {
    fn executions(&mut self) -> PyResult<&mut Executions> {
        self.executions.as_mut().ok_or_else(|| refused("the simulation was finished before"))
    }
}

/// Simulates a whole trace in turns: while threads simulate the references read before, one of them reads on.
fn feed_in_turns(
    executions: &mut Executions,
    source: &mut (impl ReferenceSource + Send),
    threads: usize,
    mut tell: impl FnMut(u64) -> PyResult<()>,
) -> PyResult<()> {
    let (mut now, mut next) = (Batch::default(), Batch::default());
    now.read(source).map_err(|error| trace_error(&error))?;
    while !now.references.is_empty() {
        let mut read = Ok(());
        let batch = References::new(&now.spans, &now.references);
        let mut tasks = executions.turn(Some(&batch));
        tasks.insert(0, Box::new(|| read = next.read(source)));
        run_all(threads, tasks);
        tell(now.references.len() as u64)?;
        read.map_err(|error| trace_error(&error))?;
        std::mem::swap(&mut now, &mut next);
    }
    Ok(())
}

/// Simulates the references that are still in work.
fn drain(executions: &mut Executions, threads: usize) {
    loop {
        let tasks = executions.turn(None);
        if tasks.is_empty() {
            return;
        }
        run_all(threads, tasks);
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
