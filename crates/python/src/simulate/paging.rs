//! One simulation of paging, of any kind.

use pagelab_simulate::paging::stack::Curve;
use pagelab_simulate::paging::{Colouring, Memories, Parallel, Policy, Run, Sampled, Sampling, Size, Touch};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::refused;

enum Kind {
    Stacks(Parallel),
    Memories(Memories),
    Sampled(Sampled),
}

/// A simulation that takes references and returns its results.
#[pyclass]
pub struct Paging(Kind);

impl Paging {
    /// Takes the next references.
    pub fn feed<T: Touch>(&mut self, references: &[T]) {
        match &mut self.0 {
            Kind::Stacks(stacks) => stacks.feed(references),
            Kind::Memories(memories) => memories.feed(references),
            Kind::Sampled(sampled) => sampled.feed(references),
        }
    }
}

/// A colouring by its name; the masks are those of "xor".
fn colouring(name: &str, masks: Vec<u64>) -> PyResult<Colouring> {
    match name {
        "modulo" => Ok(Colouring::Modulo),
        "pid-hashed" => Ok(Colouring::PidHashed),
        "xor" => Ok(Colouring::Xor(masks)),
        _ => Err(refused(format_args!("colouring {name:?}: modulo, pid-hashed and xor are known"))),
    }
}

fn sizes(sizes: &[(u32, u32)]) -> PyResult<Vec<Size>> {
    if sizes.iter().any(|&(_, frames)| frames == 0) {
        return Err(refused("each colour needs at least one frame"));
    }
    Ok(sizes.iter().map(|&(colours, frames)| Size { colours, frames }).collect())
}

fn integers<'py>(py: Python<'py>, values: &[u64]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>())
}

/// Row of a curve: colours, references, first uses, re-uses by distance, pages used when a colour first had 1, 2 …
/// pages.
type CurveRow<'py> = (u32, u64, u64, Bound<'py, PyBytes>, Bound<'py, PyBytes>);
/// Row of an epoch: rate, curves of the sample, curves of each group.
type EpochRow<'py> = (f64, Vec<CurveRow<'py>>, Vec<Vec<CurveRow<'py>>>);
/// Row of a memory: colours, frames of each, faults.
type SizeRow = (u32, u32, u64);

fn rows<'py>(py: Python<'py>, curves: &[Curve]) -> Vec<CurveRow<'py>> {
    let row =
        |one: &Curve| (one.colours, one.references, one.cold, integers(py, &one.reused), integers(py, &one.filled));
    curves.iter().map(row).collect()
}

fn size_row((size, faults): (Size, u64)) -> SizeRow {
    (size.colours, size.frames, faults)
}

#[pymethods]
impl Paging {
    /// Makes stacks: LRU for all memory sizes from `smallest` pages on, at these colour counts.
    #[staticmethod]
    fn stacks(name: &str, masks: Vec<u64>, colours: Vec<u32>, smallest: u64, threads: usize) -> PyResult<Self> {
        let stacks =
            Parallel::exact_from(&colouring(name, masks)?, &colours, smallest, threads).map_err(refused)?;
        Ok(Self(Kind::Stacks(stacks)))
    }

    /// Makes memories of (colours, frames of each) under "lru", "fifo", "clock", "random" or "opt".
    #[staticmethod]
    fn memories(policy: &str, name: &str, masks: Vec<u64>, memories: Vec<(u32, u32)>, seed: u64) -> PyResult<Self> {
        let policy = match policy {
            "opt" => Policy::Optimal,
            "lru" => Policy::Lru,
            "fifo" => Policy::Fifo,
            "clock" => Policy::Clock,
            "random" => Policy::Random { seed },
            _ => {
                return Err(refused(format_args!("policy {policy:?}: lru, fifo, clock, random and opt are known")));
            }
        };
        let memories = Memories::new(policy, &colouring(name, masks)?, &sizes(&memories)?).map_err(refused)?;
        Ok(Self(Kind::Memories(memories)))
    }

    /// Makes sampled stacks: LRU for all memory sizes from a sample of the pages.
    #[staticmethod]
    fn sampled(
        name: &str,
        masks: Vec<u64>,
        colours: Vec<u32>,
        rate: f64,
        most_pages: Option<usize>,
        seed: u64,
    ) -> PyResult<Self> {
        let sampling = Sampling { rate, most_pages, seed };
        let sampled = Sampled::new(&colouring(name, masks)?, &colours, sampling).map_err(refused)?;
        Ok(Self(Kind::Sampled(sampled)))
    }

    /// Takes references to these pages; if `counts` is given, so many in sequence to each.
    #[pyo3(signature = (pages, counts = None))]
    fn feed_array(&mut self, py: Python<'_>, pages: PyBuffer<u64>, counts: Option<PyBuffer<u64>>) -> PyResult<()> {
        let pages = pages.to_vec(py)?;
        let counts = counts.map(|counts| counts.to_vec(py)).transpose()?;
        if counts.as_ref().is_some_and(|counts| counts.len() != pages.len()) {
            return Err(PyValueError::new_err("pages and counts differ in length"));
        }
        py.detach(|| match (counts, &mut self.0) {
            (None, _) => self.feed(&pages),
            // The length of a run does not matter to the stacks.
            (Some(counts), Kind::Stacks(stacks)) if !counts.contains(&0) => {
                stacks.feed(&pages);
                stacks.repeat(counts.iter().map(|count| count - 1).sum());
            }
            (Some(counts), _) => {
                let runs = pages.iter().zip(&counts).filter(|(_, count)| **count > 0);
                self.feed(&runs.map(|(&page, &count)| Run { page, count }).collect::<Vec<_>>());
            }
        });
        Ok(())
    }

    /// Results of stacks, for each colour count.
    fn curves<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<CurveRow<'py>>> {
        let Kind::Stacks(stacks) = &mut self.0 else { return Err(refused("only stacks have curves")) };
        let curves = py.detach(|| stacks.curves());
        Ok(rows(py, &curves))
    }

    /// The results of a sample, in sequence for each rate, and the references of the whole trace.
    fn epochs<'py>(&self, py: Python<'py>) -> PyResult<(u64, Vec<EpochRow<'py>>)> {
        let Kind::Sampled(sampled) = &self.0 else { return Err(refused("only samples have epochs")) };
        let epochs = sampled.epochs();
        let row = |one: &pagelab_simulate::paging::sampled::Epoch| {
            (one.rate, rows(py, &one.whole), one.groups.iter().map(|group| rows(py, group)).collect())
        };
        Ok((sampled.references(), epochs.iter().map(row).collect()))
    }

    /// The number of references, and the faults of each memory.
    fn faults(&self) -> PyResult<(u64, Vec<SizeRow>)> {
        let Kind::Memories(memories) = &self.0 else { return Err(refused("these have curves")) };
        Ok((memories.references(), memories.faults().into_iter().map(size_row).collect()))
    }
}
