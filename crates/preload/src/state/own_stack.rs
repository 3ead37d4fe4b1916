//! Work on a stack of the library's own, which a forked child does not begin before it is set up.

use crate::boundary::stack;

use super::child;

/// Does `what` on a stack of the library's own, with all signals blocked; a forked child is set up first.
pub fn run<F: FnOnce() -> R, R>(what: F) -> R {
    stack::run(|| child::claim().then_some(set_up as extern "C" fn(usize)), what)
}

extern "C" fn set_up(_: usize) {
    child::set_up();
}
