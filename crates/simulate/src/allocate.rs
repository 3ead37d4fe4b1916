//! Where pages come to lie on a simulated machine: Linux's page allocator with a history, and pagelab's own strategies on it.

mod buddy;
mod kernel;
mod layout;
mod memory;
pub(crate) mod random;
mod strategy;
pub(crate) mod tables;

/// Binary logarithm of the base page.
pub const PAGE_BITS: u32 = 12;

pub use buddy::{Buddy, MAX_ORDER};
pub use kernel::{BATCH, HIGH, History, Kernel, aged};
pub use layout::{Extent, Layout, PAGE_SIZES};
pub use memory::{Memory, PlaceCounts};
pub(crate) use random::Random;

pub use strategy::Strategy;
