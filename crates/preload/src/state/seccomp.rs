//! Whether the program is under its own seccomp filter: from then on a detoured call makes the program's own system
//! call and no other.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::boundary::arch;

/// Whether detoured calls go to the kernel as they are.
static RAW: AtomicBool = AtomicBool::new(false);
/// Whether the filter exists, or is about to: the library makes no calls of its own.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether detoured calls go to the kernel as they are.
pub fn is_raw() -> bool {
    RAW.load(Ordering::Relaxed)
}

/// Whether the program is under its own filter.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Sets whether detoured calls go to the kernel as they are.
pub fn set_raw(is: bool) {
    RAW.store(is, Ordering::SeqCst);
}

/// Records that the program has its own filter, or has none after all.
pub fn set_active(is: bool) {
    ACTIVE.store(is, Ordering::SeqCst);
    // A filter, or syscall user dispatch, may distinguish calls by the address from which they come.
    arch::call_from_libc(is);
}
