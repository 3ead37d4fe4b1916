//! The list of resets in a forked child. A module whose data a child must not keep adds a function here.

use crate::backing::{self, hints};
use crate::memory::tables;
use crate::state::child::Reset;
use crate::state::{guest_file, lock, own_locks};

use super::{exit, windows};

/// Run in this order. (The library's own stacks are reset before, because the resets run on one:
/// `state::child::claim`.)
pub static RESETS: [Reset; 10] = [
    tables::free_lock,
    guest_file::adopt_child,
    windows::forget,
    exit::forget,
    tables::adopt_child,
    lock::free_fork_hold,
    hints::forget_holder,
    own_locks::forget,
    backing::adopt_child,
    guest_file::ready,
];
