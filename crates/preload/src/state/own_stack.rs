//! Work on one of the library's stacks; a forked child is set up first.

use crate::boundary::stack;

use super::child;

/// Does `what` on a stack of the library's own, with all signals blocked; a forked child is set up first.
pub fn run<F: FnOnce() -> R, R>(what: F) -> R {
    stack::run(first, what)
}

/// What the caller, in a child that nobody has set up yet, does first. (Not inlined: it would be, into every call.)
#[inline(never)]
fn first() -> Option<extern "C" fn(usize)> {
    if child::claim() { Some(set_up) } else { None }
}

extern "C" fn set_up(_: usize) {
    child::set_up();
}
