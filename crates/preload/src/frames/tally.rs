//! Counting into the guest file.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use pagelab_abi::guest::{
    COLOUR_SLOTS, EngineCountSlot, EngineFailure, EngineState, FramesCountSlot, FramesSlot, OutOfReach,
};
use pagelab_frames::Want;

use crate::record;
use crate::sys::Errno;

/// Adds to a number that other threads may add to as well.
pub fn engine(field: impl Fn(&EngineCountSlot) -> &AtomicU64, by: u64) {
    if let Some(file) = record::file() {
        field(&file.engine.counts).fetch_add(by, Relaxed);
    }
}

/// Stores a number.
pub fn engine_set(field: impl Fn(&EngineCountSlot) -> &AtomicU64, value: u64) {
    if let Some(file) = record::file() {
        field(&file.engine.counts).store(value, Relaxed);
    }
}

/// The pool holds `bytes` now: more than ever?
pub fn engine_peak(bytes: u64) {
    if let Some(file) = record::file() {
        file.engine.counts.pool_peak_bytes.fetch_max(bytes, Relaxed);
    }
}

/// Where the engine stands.
pub fn state(state: EngineState) {
    if let Some(file) = record::file() {
        record::set(&file.engine.state, state.code());
    }
}

/// Why there is none.
pub fn failed(state: EngineState, failure: EngineFailure, errno: Option<Errno>) {
    if let Some(file) = record::file() {
        record::set(&file.engine.failure, failure.code());
        record::set(&file.engine.errno, errno.map_or(0, |errno| errno.0 as u64));
        record::set(&file.engine.state, state.code());
    }
}

/// The account of strategy `number`.
pub fn slot(number: u32) -> Option<&'static FramesSlot> {
    record::file()?.frames.get(number as usize)
}

/// Adds to a number of strategy `number`.
pub fn frames(number: u32, field: impl Fn(&FramesCountSlot) -> &AtomicU64, by: usize) {
    if let Some(slot) = slot(number) {
        field(&slot.counts).fetch_add(by as u64, Relaxed);
    }
}

/// Bytes of strategy `number` that could not be placed.
pub fn out_of_reach(number: u32, why: OutOfReach, bytes: usize) {
    if let Some(field) = slot(number).and_then(|slot| slot.out_of_reach.get(why as usize)) {
        field.fetch_add(bytes as u64, Relaxed);
    }
}

/// What one page wanted and got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// A frame as wanted.
    Wanted,
    /// Another frame.
    Other,
    /// The kernel's.
    Nothing,
}

/// Counts one page of `slot`'s strategy. (Only the engine's lock's holder does: no bus lock is needed.)
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
        Got::Nothing => {}
    }
}
