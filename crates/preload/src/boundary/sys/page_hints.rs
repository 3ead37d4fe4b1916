//! Hints on page placement that the kernel keeps and carries out: ioctls on `/proc/self/page_hints`, which kernels with the
//! series of `kernel/` have (include/uapi/linux/page_hints.h of the patched kernel).

use core::ffi::CStr;

use super::call::Plain;
use super::{Errno, Result, c};

const PATH: &CStr = c"/proc/self/page_hints";
/// Bytes of a strategy's name, with its NUL.
const NAME: usize = 32;
/// The strategy that leaves pages to the kernel.
pub const USUAL: &str = "usual";

/// Turn colours by a hash of the process id.
pub const HASH_PID: u32 = 0x1;
/// Begin with the colour in `first`; without it the seed draws one.
pub const FIRST: u32 = 0x2;
/// Neither compaction nor NUMA balancing moves the pages.
pub const PIN: u32 = 0x10;

/// Kinds of memory with a default of their own: what brk gives, and anonymous mappings.
pub const HEAP: u32 = 0x1;
/// See [`HEAP`].
pub const ANON: u32 = 0x2;

/// `struct page_hint`. The addresses in it are of lists that live during the call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the kernel's")]
pub struct Hint {
    pub size: u32,
    pub flags: u32,
    pub strategy: [u8; NAME],
    pub start: u64,
    pub length: u64,
    pub colors: u32,
    pub first: u32,
    pub seed: u64,
    pub masks: u64,
    pub values: u64,
    pub mask_count: u32,
    pub kinds: u32,
    pub value_count: u64,
}

impl Hint {
    /// A hint with this strategy and nothing else; of a longer name what fits.
    pub fn named(name: &str) -> Hint {
        let mut hint = Hint { size: size_of::<Hint>() as u32, ..Hint::zeroed() };
        for (to, byte) in hint.strategy.iter_mut().take(NAME - 1).zip(name.bytes()) {
            *to = byte;
        }
        hint
    }

    /// The strategy's name.
    pub fn name(&self) -> &str {
        let bytes = CStr::from_bytes_until_nul(&self.strategy).map_or(&[][..], CStr::to_bytes);
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

/// `struct page_hint_range`.
#[repr(C)]
struct Range {
    start: u64,
    length: u64,
}

/// `struct page_hint_counters`, pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// `struct page_hint_remap`; the last three are pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the kernel's")]
pub struct Remap {
    pub start: u64,
    pub length: u64,
    flags: u32,
    reserved: u32,
    pub moved: u64,
    pub there: u64,
    pub failed: u64,
}

// SAFETY: numbers only, as the four below.
unsafe impl Plain for Hint {}
// SAFETY: see above.
unsafe impl Plain for Range {}
// SAFETY: see above.
unsafe impl Plain for Counters {}
// SAFETY: see above.
unsafe impl Plain for Remap {}

/// `_IOC(direction, 0xDC, number, T)`; 1 writes, 2 reads.
const fn request<T>(direction: usize, number: usize) -> usize {
    direction << 30 | size_of::<T>() << 16 | 0xDC << 8 | number
}

const SET_DEFAULT: usize = request::<Hint>(1, 0);
const SET_RANGE: usize = request::<Hint>(1, 1);
const CLEAR: usize = request::<Range>(1, 2);
const GET: usize = request::<Hint>(3, 3);
const COUNTERS: usize = request::<Counters>(2, 4);
const REMAP: usize = request::<Remap>(3, 7);

/// Whether this kernel has hints.
pub fn are_there() -> bool {
    super::link_count(PATH).is_ok()
}

/// The hints of this process, open, by number in some descriptor table.
#[derive(Clone, Copy, Debug)]
pub struct Hints(i32);

impl Hints {
    /// Opens them: ENOENT on a kernel without, EACCES where the process may not be traced.
    pub fn open() -> Result<Hints> {
        super::open(PATH, c::O_RDWR, 0).map(Hints)
    }

    /// Closes them.
    pub fn close(self) {
        super::close(self.0);
    }

    fn ask<T: Plain>(self, request: usize, argument: &mut T) -> Result<()> {
        // SAFETY: the request is one of the above, and has the size of `T` in it, which is the kernel's layout.
        unsafe { super::ioctl(self.0, request, core::ptr::from_mut(argument) as usize) }.map(drop)
    }

    /// Sets the default of the kinds that it names. ENOENT no such strategy, EPERM no right, EINVAL what it does not take.
    pub fn set_default(self, mut hint: Hint) -> Result<()> {
        self.ask(SET_DEFAULT, &mut hint)
    }

    /// Sets the hint of the range that it names. As [`Hints::set_default`]; ENOMEM not mapped, ENOSPC too many ranges.
    pub fn set_range(self, mut hint: Hint) -> Result<()> {
        self.ask(SET_RANGE, &mut hint)
    }

    /// Takes the hints of `length` bytes from `start` on back; `length` is not 0, which would be all of them.
    pub fn clear(self, start: usize, length: usize) -> Result<()> {
        if length == 0 {
            return Err(Errno::EINVAL);
        }
        self.ask(CLEAR, &mut Range { start: start as u64, length: length as u64 })
    }

    /// The hint that holds at an address: without lists, with the range that it is for (length 0: the default).
    pub fn at(self, address: usize) -> Result<Option<Hint>> {
        self.get(Hint { start: address as u64, ..Hint::named(USUAL) })
    }

    /// The default of one kind of memory, with all kinds that share it (0: all there are).
    pub fn default_of(self, kind: u32) -> Result<Option<Hint>> {
        self.get(Hint { kinds: kind, ..Hint::named(USUAL) })
    }

    fn get(self, mut hint: Hint) -> Result<Option<Hint>> {
        match self.ask(GET, &mut hint) {
            Ok(()) => Ok(Some(hint)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// What became of the pages that the process asked for.
    pub fn counters(self) -> Result<Counters> {
        let mut counters = Counters::zeroed();
        self.ask(COUNTERS, &mut counters).map(|()| counters)
    }

    /// Moves the pages of a range to where their hints want them.
    pub fn remap(self, start: usize, length: usize) -> Result<Remap> {
        let mut remap = Remap { start: start as u64, length: length as u64, ..Remap::zeroed() };
        self.ask(REMAP, &mut remap).map(|()| remap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_header() {
        // As a C compiler has them: sizes of 104, 16, 40 and 48 bytes.
        assert_eq!((SET_DEFAULT, SET_RANGE), (0x4068_dc00, 0x4068_dc01));
        assert_eq!((CLEAR, GET), (0x4010_dc02, 0xc068_dc03));
        assert_eq!((COUNTERS, REMAP), (0x8028_dc04, 0xc030_dc07));
    }

    #[test]
    fn names_are_cut_where_the_kernel_has_no_room() {
        let long = "a-strategy-with-a-name-of-40-bytes-------";
        for (name, wanted) in [("usual", "usual"), (long, &long[..NAME - 1]), ("", "")] {
            assert_eq!(Hint::named(name).name(), wanted);
        }
    }

    #[test]
    fn clearing_nothing_never_clears_all() {
        assert_eq!(Hints(-1).clear(0, 0), Err(Errno::EINVAL));
    }
}
