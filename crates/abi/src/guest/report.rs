//! The contents of a guest file as plain values.

use alloc::string::String;
use alloc::vec::Vec;

use crate::guest::{
    DisabledReason, EngineCounts, EngineFailure, EngineState, FramesCounts, GuestWarning, OutOfReach, Started,
    State,
};
use crate::plan::{Memory, StrategyKind, Via};

/// Method of measuring placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PlacementMethod {
    /// Not measured (the process was killed, or the run did not request it).
    None = 0,
    /// `PAGEMAP_SCAN`: exact, page by page.
    PagemapScan = 1,
    /// `/proc/self/smaps`: sums by mapping; whole tiles are not counted.
    Smaps = 2,
}

/// One kind of warning, as a process counted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarningReport {
    /// The event.
    pub kind: GuestWarning,
    /// Its number of occurrences.
    pub count: u64,
    /// errno of the first occurrence.
    pub errno: Option<i32>,
    /// See [`GuestWarning`].
    pub address: u64,
    /// See [`GuestWarning`].
    pub bytes: u64,
}

/// One file's residency at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residency {
    /// Path; the beginning of a long one is cut off.
    pub path: String,
    /// Pages mapped.
    pub pages: u64,
    /// Of these, in the page cache.
    pub resident_pages: u64,
}

/// One region's placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionReport {
    /// Kind of memory; `None`: no section governs it.
    pub memory: Option<Memory>,
    /// Requested page size, bytes; `None`: left to the kernel.
    pub asked: Option<u64>,
    /// The requested way to make tiles; `None` without a request.
    pub via: Option<Via>,
    /// The rule that it comes from.
    pub rule: u64,
    /// Lowest address.
    pub start: u64,
    /// One past the highest.
    pub end: u64,
    /// Bytes mapped.
    pub mapped_bytes: u64,
    /// Bytes resident.
    pub resident_bytes: u64,
    /// `(page bytes, resident bytes)`, without empty columns.
    pub by_size: Vec<(u64, u64)>,
    /// Whole touched tiles, and tiles as requested; `None` without a request, or if they could not be counted.
    pub tiles: Option<(u64, u64)>,
    /// `(page bytes, resident bytes)` of memory that the program gave back or broke up before its end, measured just
    /// before that. Memory that is mapped, given back and mapped again counts each time.
    pub retired_by_size: Vec<(u64, u64)>,
    /// Whole touched tiles and tiles as requested among them; `None` without a request.
    pub retired_tiles: Option<(u64, u64)>,
}

/// Resource usage when placement was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rusage {
    /// User time.
    pub user_ns: u64,
    /// System time.
    pub system_ns: u64,
    /// Faults without I/O.
    pub minor_faults: u64,
    /// Faults with I/O.
    pub major_faults: u64,
    /// Largest resident set.
    pub max_rss_bytes: u64,
}

/// The cost of the library's own measuring, which the kernel accounts to the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measuring {
    /// User time.
    pub user_ns: u64,
    /// System time.
    pub system_ns: u64,
    /// Faults without I/O.
    pub minor_faults: u64,
    /// Faults with I/O.
    pub major_faults: u64,
}

/// Requests and results of one colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColourCounts {
    /// Requests for this colour.
    pub requests: u64,
    /// Of these, placed.
    pub placed: u64,
    /// Of these, given another colour.
    pub fallbacks: u64,
}

/// Frame placement by one strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramesReport {
    /// The strategy's number in the plan.
    pub number: u32,
    /// Its kind.
    pub kind: StrategyKind,
    /// Number of colours.
    pub colours: u64,
    /// Its requests and results.
    pub counts: FramesCounts,
    /// Bytes that could not be placed, by reason, without reasons that did not occur.
    pub out_of_reach: Vec<(OutOfReach, u64)>,
    /// Counts by colour, up to [`super::COLOUR_SLOTS`] (with more colours, colour c is counted at c modulo that).
    pub by_colour: Vec<ColourCounts>,
}

/// The engine of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineReport {
    /// Its state.
    pub state: EngineState,
    /// Why it is not running.
    pub failure: EngineFailure,
    /// The errno for it.
    pub errno: Option<i32>,
    /// CLOCK_MONOTONIC when it was started; `None`: it was not.
    pub start_ns: Option<u64>,
    /// CLOCK_MONOTONIC when its first page could be placed.
    pub ready_ns: Option<u64>,
    /// Its counts.
    pub counts: EngineCounts,
    /// Pages placed, by node, if there are several memory nodes.
    pub pages_by_node: [u64; super::NODE_SLOTS],
}

/// A decoded guest file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Process id.
    pub pid: u32,
    /// Parent's id.
    pub ppid: u32,
    /// Executable's path.
    pub exe: String,
    /// Start of the image.
    pub started: Started,
    /// Its state.
    pub state: State,
    /// Why it left the process alone, and errno, when [`State::Disabled`].
    pub disabled: Option<(DisabledReason, Option<i32>)>,
    /// CLOCK_MONOTONIC when start-up began.
    pub start_ns: u64,
    /// CLOCK_MONOTONIC when start-up was finished; `None`: it was not.
    pub ready_ns: Option<u64>,
    /// CLOCK_MONOTONIC when the exit measurement began; `None`: it did not.
    pub end_ns: Option<u64>,
    /// CLOCK_MONOTONIC when the exit measurement was finished.
    pub measured_ns: Option<u64>,
    /// Method of measuring placement.
    pub placement: PlacementMethod,
    /// Non-zero counters by name.
    pub counters: Vec<(&'static str, u64)>,
    /// Warnings, in the order of their first occurrence.
    pub warnings: Vec<WarningReport>,
    /// Residency of mapped files at start.
    pub residency: Vec<Residency>,
    /// Files that found no slot.
    pub residency_dropped: u64,
    /// Placement by region.
    pub regions: Vec<RegionReport>,
    /// Regions that found no slot.
    pub regions_dropped: u64,
    /// Usage at the end; `None`: not measured.
    pub rusage: Option<Rusage>,
    /// Cost of measuring.
    pub measuring: Measuring,
    /// The engine that places frames; `None`: neither started nor wanted.
    pub engine: Option<EngineReport>,
    /// Frame placement, by strategy.
    pub frames: Vec<FramesReport>,
}
