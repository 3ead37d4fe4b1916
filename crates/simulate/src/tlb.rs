//! Translation lookaside buffers and page walks, with any mixture of page sizes.

mod array;
mod behind;
mod core;
mod run;
mod settled;
mod spec;
#[cfg(test)]
mod tests;
mod walk;
mod windows;

pub use self::core::CoreCounts;
pub use run::{Outcome, Simulation};
pub use spec::{ArraySpec, NestedSpec, Side, TlbSpec, WalkCacheSpec};
pub use windows::{Cost, WINDOW_BITS, Window};
