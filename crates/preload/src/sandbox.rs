//! Programs that lock themselves in with seccomp.
//!
//! A filter may kill the process for any system call that the program itself does not make. So at the moment it asks for
//! one (prctl, or seccomp(2) through libc's `syscall`), placement is measured for the last time, and from then on the
//! guest makes none but memory calls: no accounts of what is given back, no collapsing, no look at /proc, no new guest
//! file in a forked child, nothing at exit. Filters set by a raw system call instruction are not noticed.

use core::sync::atomic::{AtomicBool, Ordering};

use pagelab_abi::guest::NoteKind;
use pagelab_abi::plan::Flags;

use crate::exit;
use crate::frames;
use crate::guest;
use crate::measure;
use crate::record;
use crate::sys::{Errno, Result};

static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether the program has locked itself in.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// The program is about to install a filter.
pub extern "C" fn enter() {
    if is_active() {
        return;
    }
    if !guest::is_new_child() && exit::is_own_file() && guest::has_flag(Flags::MEASURE) {
        measure::all();
        record::note(NoteKind::Sandboxed, None, 0, 0);
    }
    if !guest::is_new_child() {
        frames::stop();
    }
    ACTIVE.store(true, Ordering::Relaxed);
}

/// prctl with its five arguments.
pub fn prctl(args: [usize; 5]) -> Result<usize> {
    const PR_SET_SECCOMP: usize = 22;
    let filters = args[0] & 0xffff_ffff == PR_SET_SECCOMP;
    let before = is_active();
    if filters {
        enter();
    }
    // SAFETY: the program's own request.
    let result: core::result::Result<usize, Errno> = unsafe { crate::sys::prctl(args) };
    if filters && result.is_err() {
        ACTIVE.store(before, Ordering::Relaxed);
    }
    result
}
