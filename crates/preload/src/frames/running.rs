//! State of the engine for the program's threads: running or not.

use core::sync::atomic::{AtomicU8, Ordering};

/// State of the engine.
static STATE: AtomicU8 = AtomicU8::new(NONE);
/// No frame is governed.
pub const NONE: u8 = 0;
/// Not started yet.
pub const IDLE: u8 = 1;
/// It answers.
pub const RUNNING: u8 = 2;
/// Cannot be had, or ended.
pub const GONE: u8 = 3;

/// Its state.
pub fn state() -> u8 {
    STATE.load(Ordering::Acquire)
}

/// It stands elsewhere now.
pub fn set_state(state: u8) {
    STATE.store(state, Ordering::Release);
}

/// Something is governed after all.
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
