//! Hints on page placement that the kernel keeps and carries out: structures and requests of `/proc/PID/page_hints`,
//! which kernels with the patch series of `kernel/` have (include/uapi/linux/page_hints.h of the patched kernel).

use core::ffi::CStr;

/// Bytes of a strategy's name, with its NUL.
pub const NAME_BYTES: usize = 32;
/// The strategy that leaves pages to the kernel.
pub const USUAL: &str = "usual";

/// Turn colours by a hash of the process id.
pub const HASH_PID: u32 = 0x1;
/// Begin with the colour in `first`; without it the seed draws one.
pub const FIRST: u32 = 0x2;
/// Neither compaction nor NUMA balancing moves the pages.
pub const PIN: u32 = 0x10;

/// Kind of memory: what brk gives. ([`ANON`]: anonymous mappings; [`DATA`]: data and bss; [`STACK`]: the main thread's
/// stack.)
pub const HEAP: u32 = 0x1;
/// See [`HEAP`].
pub const ANON: u32 = 0x2;
/// See [`HEAP`].
pub const DATA: u32 = 0x4;
/// See [`HEAP`].
pub const STACK: u32 = 0x8;
/// Pages that the process brings into the page cache.
pub const FILE: u32 = 0x10;

/// `struct page_hint`. The addresses in it point to lists that live during the call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the kernel's")]
pub struct Hint {
    pub size: u32,
    pub flags: u32,
    pub strategy: [u8; NAME_BYTES],
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
    /// A hint with this strategy and nothing else; a longer name is cut.
    pub fn named(name: &str) -> Hint {
        let mut hint = Hint { size: size_of::<Hint>() as u32, ..Hint::default() };
        for (to, byte) in hint.strategy.iter_mut().take(NAME_BYTES - 1).zip(name.bytes()) {
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the kernel's")]
pub struct Range {
    pub start: u64,
    pub length: u64,
}

/// `struct page_hint_counters`: pages that a process requested under hints.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages with the wanted colour or frame.
    pub placed: u64,
    /// Pages for which the strategy wanted nothing.
    pub unasked: u64,
    /// Pages for which no free page had the colour, or the frame was not free.
    pub absent: u64,
    /// Pages whose search was ended by its bound.
    pub bound: u64,
    /// Pages for which memory was short, or (pages to be written to files) nodes were at their dirty limits.
    pub watermark: u64,
}

/// `struct page_hint_kind_counters`: the same counters for the memory of some kinds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the kernel's")]
pub struct KindCounters {
    pub kinds: u32,
    pub reserved: u32,
    pub counters: Counters,
}

/// `struct page_hint_remap`; the last three are pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the kernel's")]
pub struct Remap {
    pub start: u64,
    pub length: u64,
    pub flags: u32,
    pub reserved: u32,
    pub moved: u64,
    pub there: u64,
    pub failed: u64,
}

/// The kernel reads the structure.
const WRITE: u32 = 1;
/// The kernel fills the structure.
const READ: u32 = 2;

/// `_IOC(direction, 0xDC, number, T)`.
const fn request<T>(direction: u32, number: u32) -> u32 {
    direction << 30 | (size_of::<T>() as u32) << 16 | 0xDC << 8 | number
}

/// Sets the default of the kinds that the [`Hint`] names.
pub const SET_DEFAULT: u32 = request::<Hint>(WRITE, 0);
/// Sets the [`Hint`] of the range that it names.
pub const SET_RANGE: u32 = request::<Hint>(WRITE, 1);
/// Withdraws the hints of a [`Range`]; of length 0: all hints.
pub const CLEAR: u32 = request::<Range>(WRITE, 2);
/// Fills in the [`Hint`] that holds at its address.
pub const GET: u32 = request::<Hint>(READ | WRITE, 3);
/// Fills in [`Counters`] of the process.
pub const COUNTERS: u32 = request::<Counters>(READ, 4);
/// Sets the [`Hint`] for pages that the process brings into the page cache.
pub const SET_FILE: u32 = request::<Hint>(WRITE, 5);
/// Moves the pages of a range to the frames that their hints want: [`Remap`].
pub const REMAP: u32 = request::<Remap>(READ | WRITE, 7);
/// Fills in [`KindCounters`] for the kinds that it names.
pub const KIND_COUNTERS: u32 = request::<KindCounters>(READ | WRITE, 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_header() {
        // Values as a C compiler has them, for sizes of 104, 16, 40, 48 and 48 bytes.
        assert_eq!((SET_DEFAULT, SET_RANGE, SET_FILE), (0x4068_dc00, 0x4068_dc01, 0x4068_dc05));
        assert_eq!((CLEAR, GET), (0x4010_dc02, 0xc068_dc03));
        assert_eq!((COUNTERS, REMAP, KIND_COUNTERS), (0x8028_dc04, 0xc030_dc07, 0xc030_dc08));
    }

    #[test]
    fn names_are_cut_where_the_kernel_has_no_room() {
        let long = "a-strategy-with-a-name-of-40-bytes-------";
        for (name, wanted) in [("usual", "usual"), (long, &long[..NAME_BYTES - 1]), ("", "")] {
            assert_eq!(Hint::named(name).name(), wanted);
        }
    }
}
