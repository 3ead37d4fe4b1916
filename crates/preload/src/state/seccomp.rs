//! Whether the program has locked itself in with seccomp: from then on a detoured call makes the program's own system call and
//! no other.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::boundary::arch;

/// Detoured calls go to the kernel as they are.
static RAW: AtomicBool = AtomicBool::new(false);
/// The filter is there, or about to be: nothing of the library's own is called.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether detoured calls are to be made as they are.
pub fn is_raw() -> bool {
    RAW.load(Ordering::Relaxed)
}

/// Whether the program has locked itself in.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Has detoured calls made as they are, or not.
pub fn set_raw(is: bool) {
    RAW.store(is, Ordering::SeqCst);
}

/// The program has locked itself in, or has not after all.
pub fn set_active(is: bool) {
    ACTIVE.store(is, Ordering::SeqCst);
    // A filter, or syscall user dispatch, may tell calls by where they come from.
    arch::call_from_libc(is);
}
