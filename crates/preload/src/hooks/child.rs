//! What a forked child resets: one list. A room that keeps what is not a child's adds a function of its own here.

use crate::backing;
use crate::memory::tables;
use crate::state::child::Reset;
use crate::state::{fork_hold, guest_file};

use super::{exit, windows};

/// In this order. (Stacks of the library's own come before all of it, since it runs on one: `state::child::claim`.)
pub static RESETS: [Reset; 8] = [
    tables::free_lock,
    guest_file::adopt_child,
    windows::forget,
    exit::forget,
    tables::adopt_child,
    fork_hold::forget,
    backing::adopt_child,
    guest_file::ready,
];
