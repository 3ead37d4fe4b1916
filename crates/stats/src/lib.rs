//! The loops of ALLOC's statistical method that are too slow in Python.
//!
//! ALLOC is Hocko and Kalibera, "Reducing performance non-determinism via cache-aware page allocation strategies" (ICPE
//! 2010), section 4. `docs/method/nondeterminism.md` describes what is computed and why. This crate is pure: slices in,
//! numbers out, no clock, no global state. The recipe of every random draw is part of the interface: the same seed
//! gives the same digits, whatever the number of threads, and a second implementation in the tests repeats it draw by
//! draw.
//!
//! Times are positive and between 1e-60 and 1e60, so that neither squares nor the quotient of any two squares overflows
//! or vanishes (differences are at least 1e-76). The Python side refuses other times before they come here.
#![deny(unsafe_code)]

pub mod batch;
pub mod change;
pub mod dependence;
pub mod errors;
pub mod executions;
pub mod groups;
pub mod impact;
pub mod report;
pub mod stream;
pub mod trend;

pub use batch::{Batch, BatchError};
pub use executions::Experiment;
pub use impact::Settings;
pub use report::{COLUMNS, Report};
pub use stream::{Part, Stream};
