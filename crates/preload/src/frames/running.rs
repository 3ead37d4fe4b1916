//! State of the engine for the program's threads: running or not.

use core::sync::atomic::{AtomicU8, Ordering};

/// State of the engine.
static STATE: AtomicU8 = AtomicU8::new(NONE);
/// No frame is governed.
pub const NONE: u8 = 0;
/// Not started yet.
pub const IDLE: u8 = 1;
/// The engine runs and answers faults.
pub const RUNNING: u8 = 2;
/// The engine could not start, or has ended.
pub const GONE: u8 = 3;

/// The engine's state.
pub fn state() -> u8 {
    STATE.load(Ordering::Acquire)
}

/// Changes the engine's state.
pub fn set_state(state: u8) {
    STATE.store(state, Ordering::Release);
}

/// Records that something is governed after all, so that the engine can start.
pub fn want() {
    let _ = STATE.compare_exchange(NONE, IDLE, Ordering::AcqRel, Ordering::Acquire);
}

/// Whether the plan governs frames of this process.
pub fn is_wanted() -> bool {
    STATE.load(Ordering::Relaxed) != NONE
}

/// Whether it runs.
pub fn is_running() -> bool {
    STATE.load(Ordering::Acquire) == RUNNING
}
