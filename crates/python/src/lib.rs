//! The `pagelab._native` extension module: glue between Python and the Rust crates, nothing else.
use pyo3::prelude::*;

/// The native half of the pagelab package.
#[pymodule]
fn _native(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
