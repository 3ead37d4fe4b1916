//! Hints on page placement of a process: requests to `/proc/PID/page_hints`.

use super::check;
use pagelab_policy::page_hints::{
    self, CLEAR, FILE, KIND_COUNTERS, KindCounters, NAME_BYTES, Range, SET_DEFAULT, SET_FILE,
};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

pub use page_hints::{ANON, Counters, DATA, FIRST, HASH_PID, HEAP, PIN, STACK};

/// A strategy for pages of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint<'h> {
    /// Its name, at most 31 bytes.
    pub strategy: &'h str,
    /// [`HASH_PID`], [`FIRST`], [`PIN`].
    pub flags: u32,
    /// Number of colours.
    pub colours: u32,
    /// Colour to begin with.
    pub first: u32,
    /// Seed of what is drawn.
    pub seed: u64,
    /// Bit i of a frame's colour is the parity of its number and mask i; none: the number modulo the colours.
    pub masks: &'h [u64],
    /// Colours, repeated over the virtual pages.
    pub values: &'h [u64],
}

/// Whether this kernel has hints.
pub fn there() -> io::Result<()> {
    std::fs::metadata("/proc/self/page_hints").map(drop)
}

/// What a hint is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// What the process brings into the page cache.
    Files,
    /// Its own memory of these kinds: [`HEAP`] and the like.
    Own(u32),
}

/// Sets a hint of a process.
///
/// # Errors
/// ENOENT no such strategy, EPERM no right, ERANGE more colours than pages, EINVAL parameters that the strategy does
/// not take.
pub fn set(pid: i32, hint: &Hint<'_>, of: Of) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(format!("/proc/{pid}/page_hints"))?;
    if hint.strategy.len() >= NAME_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let raw = page_hints::Hint {
        flags: hint.flags,
        colors: hint.colours,
        first: hint.first,
        seed: hint.seed,
        masks: hint.masks.as_ptr() as u64,
        values: hint.values.as_ptr() as u64,
        mask_count: hint.masks.len() as u32,
        kinds: if let Of::Own(kinds) = of { kinds } else { 0 },
        value_count: hint.values.len() as u64,
        ..page_hints::Hint::named(hint.strategy)
    };
    let request = if of == Of::Files { SET_FILE } else { SET_DEFAULT };
    // SAFETY: the structure has the kernel's layout; it and the two lists that it points to are alive, and only read.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request.into(), &raw const raw) }).map(drop)
}

/// Withdraws all hints of a process, also that of the boot parameter.
///
/// # Errors
/// EACCES the process cannot be traced.
pub fn clear(pid: i32) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(format!("/proc/{pid}/page_hints"))?;
    let all = Range::default();
    // SAFETY: the structure has the kernel's layout, is alive, and only read.
    check(unsafe { libc::ioctl(file.as_raw_fd(), CLEAR.into(), &raw const all) }).map(drop)
}

/// Counts of the pages of this memory that a process has requested since its exec.
///
/// # Errors
/// ENOTTY on a kernel whose series counts no kinds of memory yet: there a process has one strategy.
pub fn counters(pid: i32, of: Of) -> io::Result<Counters> {
    let file = File::open(format!("/proc/{pid}/page_hints"))?;
    let kinds = if let Of::Own(kinds) = of { kinds } else { FILE };
    let mut counted = KindCounters { kinds, ..KindCounters::default() };
    // SAFETY: the kernel reads and fills the structure, which has its layout, and no more.
    check(unsafe { libc::ioctl(file.as_raw_fd(), KIND_COUNTERS.into(), &raw mut counted) })?;
    Ok(counted.counters)
}
