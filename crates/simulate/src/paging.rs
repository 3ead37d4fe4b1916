//! Paging with colours: page faults for every memory size and every colour count.
//!
//! A memory of M frames with c colours is c lists of M/c frames, each with its own replacement (PAGING, section 2:
//! Lynch and Flynn, "Paging performance with page coloring", CSL-TR-91-492, 1991).

pub mod colouring;
pub mod memory;
pub mod sampled;
pub mod stack;

pub use pagelab_trace::Run;

pub use colouring::{Chain, Colouring, ColouringError};
pub use memory::{Memories, Policy, Size};
pub use sampled::{Sampled, Sampling};
pub use stack::{Curve, Parallel, Stacks};

/// Bits of a page's number that hold the virtual page number; the address-space identifier lies above.
pub const VPN_BITS: u32 = pagelab_trace::NUMBER_BITS;

/// References to one page in sequence: a page number stands for one, a run for as many as it counts.
pub trait Touch: Copy {
    /// Virtual page number, with the address-space identifier shifted up by [`VPN_BITS`].
    fn page(&self) -> u64;
    /// Number of references.
    fn count(&self) -> u64;
}

impl Touch for u64 {
    #[inline(always)]
    fn page(&self) -> u64 {
        *self
    }
    #[inline(always)]
    fn count(&self) -> u64 {
        1
    }
}

impl Touch for Run {
    #[inline(always)]
    fn page(&self) -> u64 {
        self.page
    }
    #[inline(always)]
    fn count(&self) -> u64 {
        self.count
    }
}
