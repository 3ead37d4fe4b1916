//! One simulation of paging, of whatever kind.

use pagelab_simulate::paging::{Colouring, Run, Stacks};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{Feed, refused};

impl Feed for Stacks {
    fn pages(&mut self, pages: &[u64]) {
        self.feed(pages);
    }
    fn runs(&mut self, runs: &[Run]) {
        self.feed(runs);
    }
}

enum Kind {
    Stacks(Stacks),
}

/// A simulation that takes references and tells what it found.
#[pyclass]
pub struct Paging(Kind);

impl Paging {
    /// What the references go to.
    pub fn feed(&mut self) -> &mut dyn Feed {
        match &mut self.0 {
            Kind::Stacks(stacks) => stacks,
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

fn integers<'py>(py: Python<'py>, values: &[u64]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>())
}

/// Colours, references, first uses, re-uses by distance, pages used when a colour first had 1, 2 … pages.
type Curve<'py> = (u32, u64, u64, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pymethods]
impl Paging {
    /// LRU for all memory sizes at these colour counts.
    #[staticmethod]
    fn stacks(name: &str, masks: Vec<u64>, colours: Vec<u32>) -> PyResult<Self> {
        Stacks::new(&colouring(name, masks)?, &colours).map(|stacks| Self(Kind::Stacks(stacks))).map_err(refused)
    }

    /// Takes references to these pages, `counts` in a row where it is given.
    #[pyo3(signature = (pages, counts = None))]
    fn feed_array(&mut self, py: Python<'_>, pages: PyBuffer<u64>, counts: Option<PyBuffer<u64>>) -> PyResult<()> {
        let pages = pages.to_vec(py)?;
        let counts = counts.map(|counts| counts.to_vec(py)).transpose()?;
        if counts.as_ref().is_some_and(|counts| counts.len() != pages.len()) {
            return Err(PyValueError::new_err("pages and counts differ in length"));
        }
        let feed = self.feed();
        py.detach(|| match counts {
            None => feed.pages(&pages),
            Some(counts) => {
                let runs = pages.iter().zip(&counts).filter(|(_, count)| **count > 0);
                feed.runs(&runs.map(|(&page, &count)| Run { page, count }).collect::<Vec<_>>());
            }
        });
        Ok(())
    }

    /// What the stacks found, for each colour count.
    fn curves<'py>(&self, py: Python<'py>) -> Vec<Curve<'py>> {
        let Kind::Stacks(stacks) = &self.0;
        let curve = |one: pagelab_simulate::paging::stack::Curve| {
            (one.colours, one.references, one.cold, integers(py, &one.reused), integers(py, &one.filled))
        };
        stacks.curves().into_iter().map(curve).collect()
    }
}
