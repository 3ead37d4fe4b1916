//! The guest file: the report of one process image, as one fixed-layout shared mapping.
//!
//! The guest creates `<run dir>/guests/<pid>-<n>.guest` at start, maps it shared and closes the descriptor at once.
//! Every later update is a plain store, so the contents survive even SIGKILL. All fields are 64-bit words in the
//! machine's byte order (writer and reader run on the same host), or byte arrays. The launcher decodes with
//! [`Report::decode`].
//!
//! If no file can be made (a limit on file sizes, a full file system, no descriptor) the guest leaves a symbolic link
//! `<pid>-<n>.lost` instead, whose target is the errno: it takes neither a descriptor nor space.

mod decode;
mod frames;
mod names;
mod report;
#[cfg(test)]
mod tests;

use core::sync::atomic::{AtomicU8, AtomicU64};

pub use decode::DecodeError;
pub use frames::{
    COLOUR_SLOTS, EngineCountSlot, EngineCounts, EngineSlot, FRAMES_SLOTS, FramesCountSlot, FramesCounts,
    FramesSlot, NODE_SLOTS, OUT_OF_REACH_SLOTS,
};
pub use names::{Counter, DisabledReason, EngineFailure, EngineState, GuestWarning, OutOfReach, Started, State};
pub use report::{
    ColourCounts, EngineReport, FramesReport, Measuring, PlacementMethod, RegionReport, Report, Residency, Rusage,
    WarningReport,
};

/// First word of a guest file ("PGLBGUST").
pub const MAGIC: u64 = u64::from_le_bytes(*b"PGLBGUST");
/// Version of the layout.
pub const VERSION: u64 = 4;

/// Bytes kept of the executable's path.
pub const EXE_BYTES: usize = 512;
/// Room for counters (more than there are, so that adding one keeps the layout).
pub const COUNTER_SLOTS: usize = 64;
/// Kinds of warning kept.
pub const WARNING_SLOTS: usize = 20;
/// Files kept in the residency table.
pub const RESIDENCY_SLOTS: usize = 256;
/// Bytes kept of a file's path.
pub const PATH_BYTES: usize = 232;
/// Regions kept.
pub const REGION_SLOTS: usize = 1024;

/// Directory of the guest files in the run directory: it belongs to the program's user, the run directory to the launcher's.
pub const DIRECTORY: &str = "guests";

/// Page sizes of the columns of a region's `by_size`, in bytes.
pub const SIZE_COLUMNS: [u64; 10] =
    [4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 1 << 30];

/// One kind of warning, and how often it occurred.
#[repr(C)]
pub struct WarningSlot {
    /// [`GuestWarning`] code plus one; 0: empty.
    pub kind: AtomicU64,
    /// Number of occurrences.
    pub count: AtomicU64,
    /// errno of the first occurrence (0: none).
    pub errno: AtomicU64,
    /// An address or a file descriptor of the first occurrence; see [`GuestWarning`].
    pub address: AtomicU64,
    /// Bytes concerned at the first occurrence.
    pub bytes: AtomicU64,
}

/// The part of one file that was in the page cache at start.
#[repr(C)]
pub struct ResidencySlot {
    /// Pages of the file's mappings.
    pub pages: AtomicU64,
    /// Of these, resident in the page cache.
    pub resident: AtomicU64,
    /// Used bytes of `path`.
    pub path_bytes: AtomicU64,
    /// The path, cut to [`PATH_BYTES`] from its end (the file's name is kept).
    pub path: [AtomicU8; PATH_BYTES],
}

/// One governed range, or one interval of it.
#[repr(C)]
pub struct RegionSlot {
    /// [`crate::plan::Memory`] code plus one; [`REGION_OTHER`] for memory that no section governs.
    pub memory: AtomicU64,
    /// Requested page size, bytes; 0: left to the kernel.
    pub asked: AtomicU64,
    /// [`crate::plan::Via`] code.
    pub via: AtomicU64,
    /// The rule that it comes from.
    pub rule: AtomicU64,
    /// Lowest address concerned.
    pub start: AtomicU64,
    /// One past the highest.
    pub end: AtomicU64,
    /// Bytes mapped inside.
    pub mapped: AtomicU64,
    /// Bytes resident inside.
    pub resident: AtomicU64,
    /// Resident bytes by size of the page that maps them; columns: [`SIZE_COLUMNS`].
    pub by_size: [AtomicU64; SIZE_COLUMNS.len()],
    /// Tiles of the requested size wholly inside mapped memory, with at least one page resident.
    pub whole_touched: AtomicU64,
    /// Of these, mapped as requested.
    pub as_asked: AtomicU64,
    /// Start of the interval with an account of its own, plus one; 0: the whole section is one account.
    pub interval: AtomicU64,
    /// Resident bytes by page size of memory that the program gave back or broke up before: measured just before that.
    pub retired_by_size: [AtomicU64; SIZE_COLUMNS.len()],
    /// Whole touched tiles among them.
    pub retired_whole: AtomicU64,
    /// Of these, mapped as requested.
    pub retired_as_asked: AtomicU64,
}

/// Value of [`RegionSlot::whole_touched`] for "could not be counted" (smaps contains only sums).
pub const UNCOUNTED: u64 = u64::MAX;

/// Value of [`RegionSlot::memory`] for memory that no section governs.
pub const REGION_OTHER: u64 = 255;

/// Resource usage of the process, when placement was measured.
#[repr(C)]
pub struct RusageSlot {
    /// User time.
    pub user_ns: AtomicU64,
    /// System time.
    pub system_ns: AtomicU64,
    /// Faults without I/O.
    pub minor_faults: AtomicU64,
    /// Faults with I/O.
    pub major_faults: AtomicU64,
    /// Largest resident set.
    pub max_rss_bytes: AtomicU64,
}

/// Cost of the library's own measuring, in the measuring threads; the kernel's accounts of the process include it.
#[repr(C)]
pub struct MeasuringSlot {
    /// User time.
    pub user_ns: AtomicU64,
    /// System time.
    pub system_ns: AtomicU64,
    /// Faults without I/O.
    pub minor_faults: AtomicU64,
    /// Faults with I/O.
    pub major_faults: AtomicU64,
}

/// The whole file. A fresh file is all zero, and zero means "nothing yet" in every field.
///
/// Only written pages take up space in the run directory. So the fields that every process writes come first, and the
/// long tables last: most processes write two pages.
#[repr(C)]
pub struct GuestFile {
    /// [`MAGIC`], stored last at creation.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU64,
    /// `size_of::<GuestFile>()`.
    pub file_bytes: AtomicU64,
    /// Process id.
    pub pid: AtomicU64,
    /// Parent's id.
    pub ppid: AtomicU64,
    /// The origin of this image: [`Started`] code.
    pub started: AtomicU64,
    /// [`State`] code.
    pub state: AtomicU64,
    /// [`DisabledReason`] code, when disabled.
    pub disabled_reason: AtomicU64,
    /// The errno for it (0: none).
    pub disabled_errno: AtomicU64,
    /// CLOCK_MONOTONIC when the guest's start-up code began.
    pub start_ns: AtomicU64,
    /// CLOCK_MONOTONIC when it was finished.
    pub ready_ns: AtomicU64,
    /// CLOCK_MONOTONIC when the exit measurement began (0: it did not).
    pub end_ns: AtomicU64,
    /// CLOCK_MONOTONIC when the exit measurement was finished.
    pub measured_ns: AtomicU64,
    /// [`PlacementMethod`] code.
    pub placement_method: AtomicU64,
    /// Usage at the time of measuring.
    pub rusage: RusageSlot,
    /// Cost of all measuring in this image.
    pub measuring: MeasuringSlot,
    /// The engine that places frames.
    pub engine: EngineSlot,
    /// By [`Counter`] code.
    pub counters: [AtomicU64; COUNTER_SLOTS],
    /// Warnings, in the order of their first occurrence.
    pub warnings: [WarningSlot; WARNING_SLOTS],
    /// Used bytes of `exe`.
    pub exe_bytes: AtomicU64,
    /// The executable's path, as `/proc/self/exe` gives it.
    pub exe: [AtomicU8; EXE_BYTES],
    /// Files that found no slot.
    pub residency_dropped: AtomicU64,
    /// Used slots of `residency`.
    pub residency_count: AtomicU64,
    /// Regions that found no slot.
    pub regions_dropped: AtomicU64,
    /// Used slots of `regions`.
    pub region_count: AtomicU64,
    /// Placement by region.
    pub regions: [RegionSlot; REGION_SLOTS],
    /// Residency of mapped files at start.
    pub residency: [ResidencySlot; RESIDENCY_SLOTS],
    /// Frame placement by strategy, in the plan's order.
    pub frames: [FramesSlot; FRAMES_SLOTS],
}
