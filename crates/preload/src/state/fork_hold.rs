//! One fork at a time, and none while data are half changed.

use crate::boundary::sys;
use crate::state::lock::Turn;

/// Who forks, or holds.
pub static TURN: Turn = Turn::new();

/// While it lives, nobody forks (through libc): for what must not be copied half done. Signals are blocked, because their
/// handlers may fork.
pub struct Hold {
    mask: u64,
}

/// In a forked child, before it does anything else: nobody has the turn.
pub fn forget() {
    TURN.give();
}

impl Hold {
    /// Waits for a fork under way. Not to be called with the guest's lock held.
    pub fn new() -> Hold {
        let mask = sys::signal_mask(u64::MAX);
        TURN.take();
        Hold { mask }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        TURN.give();
        sys::signal_mask(self.mask);
    }
}
