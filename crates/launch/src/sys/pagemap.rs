//! Which pages of a process are there: `PAGEMAP_SCAN` (Linux 6.7). Address space that was never touched costs nothing.

use super::check;
use pagelab_policy::pagemap_scan::{Argument, PRESENT, REQUEST, Run};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Most runs of one call.
const RUNS: usize = 512;

/// The first runs of present pages in a span of addresses, in their order, and the address up to which they are all.
/// `pagemap` is /proc/PID/pagemap.
///
/// # Errors
/// ENOTTY on older kernels.
pub fn present(pagemap: &File, span: Range<u64>) -> io::Result<(Vec<Range<u64>>, u64)> {
    let mut runs = [Run::default(); RUNS];
    let mut argument = Argument {
        size: size_of::<Argument>() as u64,
        start: span.start,
        end: span.end,
        runs: runs.as_mut_ptr() as u64,
        run_count: RUNS as u64,
        required: PRESENT,
        returned: PRESENT,
        ..Argument::default()
    };
    // SAFETY: the argument has the kernel's layout; it and the list that it points to are alive, and filled up to the
    // count that is given in it.
    let found = check(unsafe { libc::ioctl(pagemap.as_raw_fd(), REQUEST as libc::c_ulong, &raw mut argument) })?;
    let found = runs.iter().take(found as usize).map(|run| run.start..run.end);
    Ok((found.collect(), argument.walk_end))
}
