//! The windows file: the program's own measurements between `pagelab_begin` and `pagelab_end`.
//!
//! The guest creates `<run dir>/guests/<pid>-<n>.windows` beside its guest file when the first window begins. Like that
//! file it is a shared mapping that is changed only by stores, so windows survive whatever ends the program. All fields
//! are 64-bit words in the machine's byte order, or byte arrays.

mod decode;

use core::mem::size_of;
use core::sync::atomic::{AtomicU8, AtomicU64};

pub use decode::{Measured, Placed, Told, Usage, Windows, handed};

/// First word of a windows file ("PGLBWNDW").
pub const MAGIC: u64 = u64::from_le_bytes(*b"PGLBWNDW");
/// Version of the layout.
pub const VERSION: u64 = 3;
/// A prctl option that no kernel knows. A program that an emulator traces uses it to mark where its first window begins
/// (argument 1) and its last ends (argument 0).
pub const TRACE_MARKER: usize = 0x5047_4c42;
/// Suffix of the file's name.
pub const SUFFIX: &str = "windows";

/// Longest name of a window, in bytes.
pub const NAME_BYTES: usize = 56;
/// Most different names.
pub const NAMES: usize = 128;
/// Most threads with open windows at a time.
pub const THREADS: usize = 128;
/// Most windows open inside each other in one thread.
pub const DEPTH: usize = 8;
/// Most windows kept of one process image.
pub const WINDOWS: usize = 200_000;
/// The file grows by the space of this many windows.
pub const GROWTH: usize = 256;
/// Most events whose counters are read in windows.
pub const EVENTS: usize = 16;
/// Stands for a missing count: the counter could not be read, or was not on the hardware during the window.
pub const NOT_COUNTED: u64 = u64::MAX;

/// Name of the file in the run directory that lists the descriptors of the run's counters ([`HandedFile`]); it exists
/// if events are counted.
pub const HANDED: &str = "counters";
/// First word of that file ("PGLBCNTR").
pub const HANDED_MAGIC: u64 = u64::from_le_bytes(*b"PGLBCNTR");
/// Size of that file, bytes.
pub const HANDED_BYTES: usize = size_of::<HandedFile>();

/// A counter of the run of which the program's processes have a descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandedCounter {
    /// The descriptor.
    pub descriptor: u64,
    /// The kernel's id of the event: a file with another id, or without one, is not this counter.
    pub id: u64,
}

/// The counters that the launcher hands over, written before the program starts.
#[repr(C)]
pub struct HandedFile {
    /// [`HANDED_MAGIC`].
    pub magic: u64,
    /// Their number.
    pub count: u64,
    /// The counters.
    pub counters: [HandedCounter; EVENTS],
}

/// The readings of a thread and its process at one moment; a window keeps the differences.
#[repr(C)]
#[derive(Default)]
pub struct UsageSlot {
    /// CLOCK_MONOTONIC.
    pub wall_ns: AtomicU64,
    /// Processor time of the thread.
    pub thread_ns: AtomicU64,
    /// User time of the process, all its threads.
    pub user_ns: AtomicU64,
    /// System time of the process.
    pub system_ns: AtomicU64,
    /// The process's faults without I/O.
    pub minor_faults: AtomicU64,
    /// Its faults with I/O.
    pub major_faults: AtomicU64,
}

/// A name, by its number.
#[repr(C)]
pub struct NameSlot {
    /// Used bytes of `text`; 0: the slot is free.
    pub bytes: AtomicU64,
    /// The name.
    pub text: [AtomicU8; NAME_BYTES],
}

/// Memory of the process, at the last look inside a window.
#[repr(C)]
pub struct PlacedSlot {
    /// 1: the memory was looked at.
    pub looked: AtomicU64,
    /// Bytes in memory.
    pub resident: AtomicU64,
    /// Of these, bytes in huge pages: mapped by a page-middle entry, or from the hugetlb pools.
    pub huge: AtomicU64,
}

/// A window that has begun and not ended.
#[repr(C)]
pub struct OpenSlot {
    /// Number of its name.
    pub name: AtomicU64,
    /// Findings on memory in it so far.
    pub placed: PlacedSlot,
    /// Readings at its begin.
    pub begin: UsageSlot,
}

/// The open windows of one thread, the innermost last.
#[repr(C)]
pub struct ThreadSlot {
    /// Its thread pointer; 0: free.
    pub thread: AtomicU64,
    /// Number of its open windows.
    pub depth: AtomicU64,
    /// Its open windows.
    pub open: [OpenSlot; DEPTH],
}

/// A window that has ended.
#[repr(C)]
pub struct WindowSlot {
    /// Number of its name, plus one; stored last. 0: not finished.
    pub name: AtomicU64,
    /// CLOCK_MONOTONIC at its begin.
    pub begin_ns: AtomicU64,
    /// Findings on memory in it.
    pub placed: PlacedSlot,
    /// Time and usage in it.
    pub used: UsageSlot,
    /// Counts of the run's counters in it, or [`NOT_COUNTED`].
    pub counts: [AtomicU64; EVENTS],
}

/// Mistaken calls: without a window, or with a doubtful one.
#[repr(C)]
pub struct ToldSlot {
    /// Ends in a thread that had none open: it ended twice, was begun in another thread, or before a fork.
    pub not_begun: AtomicU64,
    /// Begun while a window of that name was open in the same thread.
    pub begun_twice: AtomicU64,
    /// Begun inside [`DEPTH`] others.
    pub too_deep: AtomicU64,
    /// Begun with a name beyond the [`NAMES`]th.
    pub names_left_out: AtomicU64,
    /// Begun while [`THREADS`] other threads had windows open.
    pub threads_left_out: AtomicU64,
    /// Ended after the [`WINDOWS`]th, or without space for it.
    pub windows_left_out: AtomicU64,
}

/// The whole file. A fresh file is all zero, which every field takes for "nothing yet".
#[repr(C)]
pub struct WindowsFile {
    /// [`MAGIC`], stored last at creation.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU64,
    /// `size_of::<WindowsFile>()`.
    pub file_bytes: AtomicU64,
    /// Process id.
    pub pid: AtomicU64,
    /// Counts of wrong calls.
    pub told: ToldSlot,
    /// Number of counters that were handed over; the rest of each window's `counts` is unused.
    pub events: AtomicU64,
    /// Windows that have ended.
    pub count: AtomicU64,
    /// Names; the first free slot ends the list.
    pub names: [NameSlot; NAMES],
    /// Open windows by thread.
    pub threads: [ThreadSlot; THREADS],
    /// Ended windows, in the order of their ends.
    pub windows: [WindowSlot; WINDOWS],
}

/// Bytes before the ended windows, for which the file has space from the start.
pub const HEAD_BYTES: usize = core::mem::offset_of!(WindowsFile, windows);
/// Bytes of the file.
pub const FILE_BYTES: usize = size_of::<WindowsFile>();
