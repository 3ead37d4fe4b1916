//! Work on one of the library's stacks; a forked child is set up first.

use crate::boundary::stack;

use super::child;

/// Runs `what` on one of the library's own stacks, with all signals blocked; a forked child is set up first.
pub fn run<F: FnOnce() -> R, R>(what: F) -> R {
    stack::run(first, what)
}

/// As [`run`], for work that opens files; makes the stacks if there are none. (Beside one of them, other threads of the
/// program cannot reach those files: `boundary::apart`.)
pub fn with_files<F: FnOnce() -> R, R>(what: F) -> R {
    let _ = stack::install();
    run(what)
}

/// The function that the caller runs first, in a child that nobody has set up yet. (Never inlined: otherwise every call
/// would contain it.)
#[inline(never)]
fn first() -> Option<extern "C" fn(usize)> {
    if child::claim() { Some(set_up) } else { None }
}

extern "C" fn set_up(_: usize) {
    child::set_up();
}
