//! Counts of the engine in the guest file.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU64};

use pagelab_abi::guest::{
    COLOUR_SLOTS, EngineCountSlot, EngineFailure, EngineState, FramesCountSlot, FramesSlot, NODE_SLOTS, OutOfReach,
};
use pagelab_abi::plan::StrategyKind;
use pagelab_frames::Want;

use crate::boundary::sys::Errno;
use crate::frames::areas::PLACERS;
use crate::state::guest_file;

/// Adds to a count that other threads may add to as well.
pub fn engine(field: impl Fn(&EngineCountSlot) -> &AtomicU64, by: u64) {
    if let Some(file) = guest_file::file() {
        field(&file.engine.counts).fetch_add(by, Relaxed);
    }
}

/// Stores a count.
pub fn engine_set(field: impl Fn(&EngineCountSlot) -> &AtomicU64, value: u64) {
    if let Some(file) = guest_file::file() {
        field(&file.engine.counts).store(value, Relaxed);
    }
}

/// Records that the pools hold `bytes` now, if that is more than ever.
pub fn engine_peak(bytes: u64) {
    if let Some(file) = guest_file::file() {
        file.engine.counts.pool_peak_bytes.fetch_max(bytes, Relaxed);
    }
}

/// Counts `pages` placed on memory node `node`; `elsewhere`: this is not the node from which they should have come.
pub fn on_node(node: usize, elsewhere: bool, pages: usize) {
    if let Some(file) = guest_file::file() {
        if let Some(place) = file.engine.pages_by_node.get(node.min(NODE_SLOTS - 1)) {
            place.fetch_add(pages as u64, Relaxed);
        }
        if elsewhere {
            file.engine.counts.other_node_pages.fetch_add(pages as u64, Relaxed);
        }
    }
}

/// Records the state of the engine.
pub fn state(state: EngineState) {
    if let Some(file) = guest_file::file() {
        guest_file::set(&file.engine.state, state.code());
    }
}

/// Records why there is no engine.
pub fn failed(state: EngineState, failure: EngineFailure, errno: Option<Errno>) {
    if let Some(file) = guest_file::file() {
        guest_file::set(&file.engine.failure, failure.code());
        guest_file::set(&file.engine.errno, errno.map_or(0, |errno| errno.0 as u64));
        guest_file::set(&file.engine.state, state.code());
    }
}

/// The accounts of hints' strategies, whose numbers are beyond the file's slots: slot plus one.
static SLOTS_OF_HINTS: [AtomicU8; PLACERS] = [const { AtomicU8::new(0) }; PLACERS];

/// The account of strategy `number`.
pub fn slot(number: u32) -> Option<&'static FramesSlot> {
    let slot = match SLOTS_OF_HINTS.get(number as usize)?.load(Relaxed) {
        0 => number as usize,
        slot => usize::from(slot) - 1,
    };
    guest_file::frames_in_use(guest_file::file()?).get(slot)
}

/// Opens an account for the strategy of a hint: shared with strategies of the same kind and number of colours, or a new
/// one, or, when all are taken, shared with the last.
pub fn assign(number: usize, kind: StrategyKind, colours: u32) {
    let Some(file) = guest_file::file() else { return };
    let has = |slot: &FramesSlot, kind: u64| slot.kind.load(Relaxed) == kind;
    let code = kind as u64 + 1;
    let same = |slot: &FramesSlot| has(slot, code) && slot.colours.load(Relaxed) == u64::from(colours);
    let at = guest_file::frames_in_use(file).iter().position(same).or_else(|| guest_file::take_frames(file));
    if let Some(slot) = at.and_then(|at| file.frames.get(at)) {
        slot.kind.store(code, Relaxed);
        slot.colours.store(u64::from(colours), Relaxed);
    }
    if let Some(place) = SLOTS_OF_HINTS.get(number) {
        place.store(at.unwrap_or(guest_file::frames_in_use(file).len().saturating_sub(1)) as u8 + 1, Relaxed);
    }
}

/// Adds to a count of strategy `number`.
pub fn frames(number: u32, field: impl Fn(&FramesCountSlot) -> &AtomicU64, by: usize) {
    if let Some(slot) = slot(number) {
        field(&slot.counts).fetch_add(by as u64, Relaxed);
    }
}

/// Adds bytes of strategy `number` that could not be placed.
pub fn out_of_reach(number: u32, why: OutOfReach, bytes: usize) {
    if let Some(field) = slot(number).and_then(|slot| slot.out_of_reach.get(why as usize)) {
        field.fetch_add(bytes as u64, Relaxed);
    }
}

/// The result of one page's want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// A wanted frame.
    Wanted,
    /// Another frame.
    Other,
    /// A frame of the kernel's choice.
    Nothing,
}

/// Counts one page of `slot`'s strategy. (Only the holder of the engine's lock does: no bus lock is needed.)
#[inline]
pub fn page(slot: &FramesSlot, want: Want, got: Got) {
    let more = |field: &AtomicU64| field.store(field.load(Relaxed) + 1, Relaxed);
    let by_colour = |fields: &[AtomicU64]| {
        if let Want::Colour(colour) = want
            && let Some(field) = fields.get(colour as usize % COLOUR_SLOTS)
        {
            more(field);
        }
    };
    more(&slot.counts.requests);
    by_colour(&slot.requests_by_colour);
    match got {
        Got::Wanted => {
            more(&slot.counts.placed);
            by_colour(&slot.placed_by_colour);
        }
        Got::Other => {
            more(&slot.counts.fallbacks);
            by_colour(&slot.fallbacks_by_colour);
        }
        Got::Nothing => more(&slot.counts.zero_pages),
    }
}
