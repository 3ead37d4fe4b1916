//! Capture: what the plugin in the emulator sends, and what becomes of it.

mod collect;
pub mod instructions;
pub mod protocol;
mod sink;

pub use collect::{Outcome, Request, capture};
pub use sink::{Image, Totals};
