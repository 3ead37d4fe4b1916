//! Capture: references from the plugin in the emulator to a trace.

mod changes;
mod collect;
mod descriptors;
pub mod instructions;
pub mod packed;
pub mod protocol;
mod sink;

pub use collect::{Outcome, Request, capture};
pub(crate) use sink::Begun;
pub use sink::{Image, Totals};
