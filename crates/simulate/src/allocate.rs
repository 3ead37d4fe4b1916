//! Page allocation on a simulated machine: Linux's allocator with a history, and pagelab's strategies on it.

mod buddy;
mod cells;
mod history;
mod kernel;
mod layout;
mod memory;
mod past;
mod processor;
mod strategy;

/// Binary logarithm of the base page.
pub const PAGE_BITS: u32 = 12;

pub use buddy::{Buddy, MAX_ORDER};
pub use history::History;
pub use kernel::Kernel;
pub use layout::{Extent, Layout, PAGE_SIZES};
pub use memory::{Memory, PlaceCounts};
pub use past::aged;

pub use strategy::Strategy;
