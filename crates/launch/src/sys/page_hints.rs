//! Hints on page placement of a process: ioctls on `/proc/PID/page_hints`, which kernels with the series of `kernel/` have
//! (include/uapi/linux/page_hints.h of the patched kernel).

use super::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Turn colours by a hash of the process id.
pub const HASH_PID: u32 = 0x1;
/// Begin with the colour in `first`; without it the seed draws one.
pub const FIRST: u32 = 0x2;
/// Keep pages in their frames.
pub const PIN: u32 = 0x10;

/// Kinds of memory: what brk gives, anonymous mappings, data and bss, the main thread's stack.
pub const HEAP: u32 = 0x1;
/// See [`HEAP`].
pub const ANON: u32 = 0x2;
/// See [`HEAP`].
pub const DATA: u32 = 0x4;
/// See [`HEAP`].
pub const STACK: u32 = 0x8;
/// What the process brings into the page cache.
const FILE: u32 = 0x10;

/// `_IOW(0xDC, 0, struct page_hint)`.
const SET_DEFAULT: libc::c_ulong = 1 << 30 | (size_of::<Raw>() as libc::c_ulong) << 16 | 0xDC << 8;
/// `_IOW(0xDC, 5, struct page_hint)`.
const SET_FILE: libc::c_ulong = SET_DEFAULT | 5;
/// `_IOWR(0xDC, 8, struct page_hint_kind_counters)`.
const KIND_COUNTERS: libc::c_ulong = 3 << 30 | (size_of::<KindCounters>() as libc::c_ulong) << 16 | 0xDC << 8 | 8;
const NAME: usize = 32;

/// `struct page_hint`.
#[repr(C)]
struct Raw {
    size: u32,
    flags: u32,
    strategy: [u8; NAME],
    start: u64,
    length: u64,
    colors: u32,
    first: u32,
    seed: u64,
    masks: u64,
    values: u64,
    mask_count: u32,
    kinds: u32,
    value_count: u64,
}

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

/// `struct page_hint_counters`: pages that a process asked for under hints.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// They have the colour or frame.
    pub placed: u64,
    /// The strategy asked for nothing.
    pub unasked: u64,
    /// No free page of the colour, or the frame was not free.
    pub absent: u64,
    /// The search was ended by its bound.
    pub bound: u64,
    /// Memory was short.
    pub watermark: u64,
}

/// `struct page_hint_kind_counters`.
#[repr(C)]
#[derive(Default)]
struct KindCounters {
    kinds: u32,
    reserved: u32,
    counters: Counters,
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
/// ENOENT no such strategy, EPERM no right, ERANGE more colours than pages, EINVAL parameters that the strategy does not
/// take.
pub fn set(pid: i32, hint: &Hint<'_>, of: Of) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(format!("/proc/{pid}/page_hints"))?;
    let mut strategy = [0; NAME];
    let name = hint.strategy.as_bytes();
    strategy
        .get_mut(..name.len())
        .filter(|_| name.len() < NAME)
        .ok_or(io::ErrorKind::InvalidInput)?
        .copy_from_slice(name);
    let raw = Raw {
        size: size_of::<Raw>() as u32,
        flags: hint.flags,
        strategy,
        start: 0,
        length: 0,
        colors: hint.colours,
        first: hint.first,
        seed: hint.seed,
        masks: hint.masks.as_ptr() as u64,
        values: hint.values.as_ptr() as u64,
        mask_count: hint.masks.len() as u32,
        kinds: if let Of::Own(kinds) = of { kinds } else { 0 },
        value_count: hint.values.len() as u64,
    };
    let request = if of == Of::Files { SET_FILE } else { SET_DEFAULT };
    // SAFETY: the structure has the kernel's layout; it and the two lists that it points to are alive, and only read.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request, &raw const raw) }).map(drop)
}

/// What became of the pages that a process asked for, since its exec, of this memory.
///
/// # Errors
/// ENOTTY on a kernel whose series counts no kinds of memory yet: there a process has one strategy.
pub fn counters(pid: i32, of: Of) -> io::Result<Counters> {
    let file = File::open(format!("/proc/{pid}/page_hints"))?;
    let kinds = if let Of::Own(kinds) = of { kinds } else { FILE };
    let mut counted = KindCounters { kinds, ..KindCounters::default() };
    // SAFETY: the kernel reads and fills the structure, which has its layout, and no more.
    check(unsafe { libc::ioctl(file.as_raw_fd(), KIND_COUNTERS, &raw mut counted) })?;
    Ok(counted.counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_header() {
        // As a C compiler has them: sizes of 104 and 48 bytes.
        assert_eq!(SET_DEFAULT, 0x4068_dc00);
        assert_eq!(SET_FILE, 0x4068_dc05);
        assert_eq!(KIND_COUNTERS, 0xc030_dc08);
    }
}
