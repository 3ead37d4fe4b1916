//! Frame placement in the guest file: one slot for each strategy, and one for the engine.
//!
//! Every word is updated while the program runs, and `pagelab stat` reads it then; words described as counted at exit
//! are the exception.

use core::sync::atomic::AtomicU64;

use crate::plan::MAX_STRATEGIES;

/// Slots for strategies, by number in the plan.
pub const FRAMES_SLOTS: usize = MAX_STRATEGIES;
/// Colours with a count of their own in a slot; with more colours, colour `c` is counted at `c % COLOUR_SLOTS`.
pub const COLOUR_SLOTS: usize = 1024;
/// Memory nodes with a count of their own; the last count includes those with higher numbers.
pub const NODE_SLOTS: usize = 16;
/// Room for reasons why memory is out of reach.
pub const OUT_OF_REACH_SLOTS: usize = 16;

/// A struct of words in the file, and the same as plain numbers.
macro_rules! words {
    (
        $(#[$outer:meta])* $slot:ident => $plain:ident {
            $($(#[$inner:meta])* $field:ident,)+
        }
    ) => {
        $(#[$outer])*
        #[repr(C)]
        pub struct $slot { $($(#[$inner])* pub $field: AtomicU64,)+ }

        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $plain { $($(#[$inner])* pub $field: u64,)+ }

        impl $slot {
            /// The numbers as they are now.
            pub fn load(&self) -> $plain {
                $plain { $($field: self.$field.load(core::sync::atomic::Ordering::Relaxed),)+ }
            }
        }

        impl $plain {
            /// Reads a slot by `word`, which gets byte offsets in the slot.
            pub(super) fn read(word: impl Fn(usize) -> u64) -> $plain {
                $plain { $($field: word(core::mem::offset_of!($slot, $field)),)+ }
            }

            /// Names and values, in order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)+].into_iter()
            }

            /// Adds every number of `other`.
            pub fn add(&mut self, other: &$plain) {
                $(self.$field = self.$field.saturating_add(other.$field);)+
            }
        }
    };
}

words! {
    /// Requests and results of one strategy. Pages are of 4096 bytes.
    FramesCountSlot => FramesCounts {
        /// Pages that were to be placed.
        requests,
        /// Pages placed on a wanted frame (of the colour, or the very frame; any frame where any would do).
        placed,
        /// Pages that got a frame of another colour, or another frame.
        fallbacks,
        /// Pages that the kernel filled (UFFDIO_ZEROPAGE) because no page could be moved there.
        zero_pages,
        /// Pages placed for faults of the program: the pages touched, and those around them.
        demand_pages,
        /// Pages placed ahead on request (MADV_POPULATE_WRITE, mlock, `fetch = "prefault"`).
        eager_pages,
        /// Missing-page faults of the program that were answered.
        faults,
        /// Moves (UFFDIO_MOVE) that placed pages; pages per move = pages placed / runs.
        runs,
        /// Pages of existing memory that were moved onto frames of the policy, their contents kept.
        remapped_pages,
        /// Of these, pages that had to be copied.
        copied_pages,
        /// Of the pages placed for faults, those that the fault did not touch: placed ahead.
        ahead_pages,
        /// At exit: of these, resident pages that hold nothing but zeros, so that perhaps nobody ever touched them (at
        /// most 32,768 pages are examined).
        ahead_zero_pages,
        /// At exit: resident pages of governed ranges.
        resident_pages,
        /// At exit: of these, still on the frame on which they were placed.
        kept_pages,
        /// At exit: of these, on another frame than the one on which they were placed.
        moved_pages,
        /// At exit: of these, never placed by the engine.
        unplaced_pages,
    }
}

/// All counts of one strategy.
#[repr(C)]
pub struct FramesSlot {
    /// [`crate::plan::StrategyKind`] code plus one; 0: empty.
    pub kind: AtomicU64,
    /// Number of colours.
    pub colours: AtomicU64,
    /// Its requests and results.
    pub counts: FramesCountSlot,
    /// Bytes governed by the strategy that could not be placed, by [`super::OutOfReach`] code.
    pub out_of_reach: [AtomicU64; OUT_OF_REACH_SLOTS],
    /// Requests by wanted colour.
    pub requests_by_colour: [AtomicU64; COLOUR_SLOTS],
    /// Pages placed as wanted, by colour.
    pub placed_by_colour: [AtomicU64; COLOUR_SLOTS],
    /// Fallbacks by wanted colour.
    pub fallbacks_by_colour: [AtomicU64; COLOUR_SLOTS],
}

words! {
    /// Counts of the process's engine, for all strategies together.
    EngineCountSlot => EngineCounts {
        /// Messages read from the userfaultfd.
        messages,
        /// Times the handler woke to one or more messages.
        batches,
        /// Moves answered by EEXIST: the page was present already.
        eexist,
        /// Moves answered by EINVAL: locked, read-only, or changed meanwhile.
        einval,
        /// Moves answered by EBUSY: the pool's page was in use.
        ebusy,
        /// Faults that had to be repeated, since nothing could be moved there: an outdated message, or memory of that
        /// kind.
        doubted,
        /// UFFDIO_MOVE calls, splitting included.
        moves,
        /// Pages moved by these calls.
        move_pages,
        /// Faults that waited for a refill.
        waits,
        /// Their waiting time.
        wait_ns,
        /// Times the pool was refilled.
        refills,
        /// Pages populated for the pool.
        refill_pages,
        /// Time that the refills took.
        refill_ns,
        /// Time that splitting huge pages took (part of `refill_ns`).
        split_ns,
        /// Chunks of the pool that were made.
        chunks,
        /// Of these, without a huge page behind them: they have hardly any contiguous frames.
        small_chunks,
        /// Bytes the pool holds now.
        pool_bytes,
        /// Most bytes it held.
        pool_peak_bytes,
        /// Bytes that it may hold besides the placed pages.
        budget_bytes,
        /// Pages returned to the kernel.
        released_pages,
        /// Times the program had closed or replaced the userfaultfd's descriptor.
        lost_descriptors,
        /// Memory nodes for which pools were made.
        nodes,
        /// Pages on another node than the one that the program's memory policy wants, because that one had no memory.
        other_node_pages,
        /// Free pages that were found on other frames than before, or swapped out, when they were about to be handed out.
        strayed_pages,
        /// Pages handed out without being held while the kernel moved free pages: some may lie elsewhere.
        unheld_pages,
    }
}

/// The engine of one process.
#[repr(C)]
pub struct EngineSlot {
    /// [`super::EngineState`] code.
    pub state: AtomicU64,
    /// [`super::EngineFailure`] code.
    pub failure: AtomicU64,
    /// The errno for it (0: none).
    pub errno: AtomicU64,
    /// CLOCK_MONOTONIC when it was started.
    pub start_ns: AtomicU64,
    /// CLOCK_MONOTONIC when its first page could be placed.
    pub ready_ns: AtomicU64,
    /// Its counts.
    pub counts: EngineCountSlot,
    /// Pages placed, by node, if there are several memory nodes.
    pub pages_by_node: [AtomicU64; NODE_SLOTS],
}
