//! Physically indexed, set-associative caches under a placement of pages.

mod counts;
mod front;
mod hierarchy;
mod index;
#[cfg(test)]
mod naive;
mod passing;
mod run;
mod sets;
mod spec;
#[cfg(test)]
mod tests;

pub use counts::{Counts, KINDS, MemoryCounts, demand};
pub use hierarchy::Hierarchy;
pub use index::Index;
pub use run::{Outcome, Simulation};
pub(crate) use sets::{EMPTY, Place, Questions};
pub use sets::{Replacement, Sets, Victim};
pub use spec::{HierarchySpec, Inclusion, LevelSpec, MOST_CORES, MOST_LEVELS, Serves, SpecError, Straddling};
