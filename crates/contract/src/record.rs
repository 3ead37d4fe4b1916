//! The record (`pagelab.record/1`): the request of one run, what the machine did, and what it cost.
//!
//! The launcher writes it and analysis reads it; nothing else passes between the two. Units are in the names; null means
//! "not measured", never zero.

#![allow(missing_docs, reason = "where there is no line, the name says it")]

use std::collections::BTreeMap;
use std::rc::Rc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::request::FlushMode;
use crate::warning::RunWarning;

/// The record's schema name.
pub const SCHEMA: &str = "pagelab.record/1";

/// One run, whole.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Record {
    #[cfg_attr(feature = "schema", schemars(default = "own_schema", extend("const" = SCHEMA)))]
    pub schema: &'static str,
    /// Given by the package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub started_at: String,
    pub command: Command,
    pub policy: PolicyAsked,
    pub settings: Settings,
    pub outcome: Outcome,
    pub time: Times,
    /// Largest single process of the tree (getrusage), not the sum.
    pub peak_rss_bytes: u64,
    pub faults: Faults,
    pub counters: Vec<Counter>,
    pub processes: Vec<Process>,
    pub placement: Placement,
    /// Null where the policy leaves frames to the kernel.
    pub frames: Option<Frames>,
    pub fetch: Fetch,
    pub measurements: Vec<Measurement>,
    pub warnings: Vec<RunWarning>,
    /// What the machine offers, as the package describes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Map<String, Value>>,
    /// Versions, commit and digests, given by the package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Map<String, Value>>,
}

/// What was run.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Command {
    pub argv: Vec<String>,
    pub cwd: String,
    /// Resolved path; for a script, the interpreter that the kernel starts.
    pub executable: String,
    /// Only what matters: LD_*, MALLOC_*, GLIBC_TUNABLES, OMP_*, LANG, LC_*, PATH and what the request set.
    pub env: BTreeMap<String, String>,
    /// Bytes of argv and envp strings together: they shift the stack.
    pub env_bytes: usize,
}

/// The policy of the run.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PolicyAsked {
    pub name: String,
    pub toml: String,
    pub path: Option<String>,
    /// SHA-256 of the canonical TOML.
    pub digest: String,
}

/// Settings of the run.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub cpus: Vec<usize>,
    pub aslr: Option<bool>,
    pub node: Option<u32>,
    pub uid: u32,
    pub gid: u32,
    pub timeout_s: Option<f64>,
    pub preloaded: bool,
    pub flush: FlushMode,
    pub scheduler: String,
    /// Free memory that was touched before the program started, so that the host backs it; null: none.
    #[serde(default)]
    pub host_backed_bytes: Option<u64>,
    /// Limits in force: memory.max, cpu.max, cpuset.cpus.effective … as read.
    #[serde(default)]
    pub cgroup: BTreeMap<String, String>,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub enum Status {
    Ok,
    Failed,
    Signalled,
    TimedOut,
    NotStarted,
}

/// How the run ended.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    pub status: Status,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub message: Option<String>,
    /// A signal to the launcher ended the run; decides the exit code only.
    #[serde(skip)]
    pub interrupted: bool,
}

/// Times of the whole tree of processes.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// From just before exec is let go to the exit of the last process of the tree that the program waited for.
    pub wall_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    /// How long the program's first thread was ready to run and had no processor (schedstat). Null where that is not
    /// known.
    pub waiting_ns: Option<u64>,
    /// Time that a hypervisor gave to others while processors that the program may use had work to do, in the
    /// kernel's ticks (10 ms mostly). Null where it is not told.
    pub steal_ns: Option<u64>,
    /// From spawn to the end of the guest's start-up code; what pagelab adds before main.
    pub spawn_to_main_ns: Option<u64>,
    /// What all processes together took to measure their placement at exit. The program's own share is not in
    /// `wall_ns`; `system_ns` has it all.
    pub measuring_ns: Option<u64>,
}

/// Page faults, by whether they waited for a device.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Faults {
    pub minor: u64,
    pub major: u64,
}

/// Whether a counter counted.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub enum CounterStatus {
    Ok,
    Multiplexed,
    Unsupported,
    Denied,
    Implausible,
}

/// A hardware or software counter over the whole tree.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// Role in its set (`tlb.hits`, `tlb.walks`, `tlb.walk_cycles`, `cycles` …) or the raw code.
    pub name: String,
    pub code: String,
    pub count: Option<u64>,
    pub enabled_ns: Option<u64>,
    pub running_ns: Option<u64>,
    pub status: CounterStatus,
    /// The event code was checked on hardware against a program with a known answer.
    pub verified: bool,
    pub source: String,
}

/// Resident bytes of one region, by the size of the page that maps them.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SizeBytes {
    pub page_bytes: u64,
    pub bytes: u64,
}

/// A governed range, or one tile interval of it: requested and achieved pages.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Region {
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["heap", "anon", "arenas", "file", "data", "stack", "range", "other"])))]
    pub region: &'static str,
    /// Requested page size; `kernel` where it was left to the kernel.
    pub asked: String,
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["thp", "hugetlb", null])))]
    pub via: Option<&'static str>,
    pub start: u64,
    pub end: u64,
    pub mapped_bytes: u64,
    /// At the end of the process.
    pub resident_bytes: u64,
    /// Over the whole run: resident at the end, and what the program gave back before, as it was just then. Memory
    /// that was given back and mapped again counts each time.
    pub by_size: Vec<SizeBytes>,
    /// The part of `by_size` that was given back before the end. Small pieces are not looked at (docs/preload).
    #[serde(default)]
    pub given_back_bytes: u64,
    /// Tiles of the requested size that lie wholly inside mapped memory and have at least one page resident.
    pub whole_touched_tiles: Option<u64>,
    pub tiles_as_asked: Option<u64>,
}

/// What the preload library did, by name (docs/preload.md has the list); counters that are 0 are left out.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GuestCounters {
    pub values: BTreeMap<String, u64>,
}

/// One process of the tree.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Process {
    pub pid: i32,
    pub ppid: i32,
    pub executable: String,
    pub governed: bool,
    /// Since the start of the run.
    pub start_ns: Option<u64>,
    pub wall_ns: Option<u64>,
    pub user_ns: Option<u64>,
    pub system_ns: Option<u64>,
    pub minor_faults: Option<u64>,
    pub major_faults: Option<u64>,
    pub peak_rss_bytes: Option<u64>,
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    #[serde(default)]
    pub placement: Vec<Region>,
    pub frames: Option<Frames>,
    pub guest: Option<GuestCounters>,
}

/// Frame placement. In the sum over a tree, `engine` has the sum of the engines' counters, but the largest of
/// `budget_bytes`, `pool_peak_bytes` and `nodes`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Frames {
    /// How processes got frame numbers and a userfaultfd; `kernel`: the kernel placed the frames, under hints. Only in
    /// the sum, and not where only programs' own hints placed frames.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["own", "broker", "kernel", null])))]
    pub rights: Option<&'static str>,
    /// placed_pages / requested_pages over all strategies; Null where nothing was requested.
    pub placed_fraction: Option<f64>,
    /// kept_pages / (kept_pages + moved_pages) at exit.
    pub kept_fraction: Option<f64>,
    pub engines_started: u64,
    pub engines_failed: u64,
    pub engine: Option<FramesEngine>,
    pub strategies: Vec<FramesStrategy>,
    /// Where the kernel placed frames: what /proc/page_color counted during the run, of all programs of the machine, by
    /// strategy.
    #[serde(default)]
    pub page_color: Option<BTreeMap<String, BTreeMap<String, u64>>>,
}

/// The engine that placed the pages of a process, or of all processes together.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FramesEngine {
    /// At the end; a process that was killed leaves it running.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["off", "running", "stopped", "failed"])))]
    pub state: &'static str,
    pub failure: Option<&'static str>,
    pub errno: Option<i32>,
    /// Until the first page could be placed.
    pub start_up_ns: u64,
    /// Counters by name; docs/frames.md has the list.
    pub values: BTreeMap<String, u64>,
}

/// Requests to one strategy of the policy, and its placements. Pages have 4096 bytes and count when they are placed: one
/// that is given back and touched again counts twice.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FramesStrategy {
    /// In the order of the policy's rules that have a strategy, the default last.
    pub number: u32,
    #[cfg_attr(feature = "schema", schemars(with = "StrategyKind"))]
    pub kind: &'static str,
    pub colours: u64,
    /// = placed + fallback + zero, where nothing was under way when the process ended.
    pub requested_pages: u64,
    /// On a frame as wanted: of the colour, or the very frame.
    pub placed_pages: u64,
    /// On another, because the pool had none within its budget.
    pub fallback_pages: u64,
    /// Filled by the kernel, because no page could be moved there.
    pub zero_pages: u64,
    pub demand_pages: u64,
    pub eager_pages: u64,
    /// Missing-page faults answered; pages placed a fault = demand_pages / faults.
    pub faults: u64,
    /// Calls that placed pages (runs of contiguous frames).
    pub moves: u64,
    /// Existing pages that were moved onto frames of the policy.
    pub remapped_pages: u64,
    /// Of these, copied.
    pub copied_pages: u64,
    /// Only in older records: frames that came back to the pool from pages given up.
    #[serde(default)]
    pub harvested_pages: Option<u64>,
    /// Of the pages placed by faults, those that the fault did not touch.
    #[serde(default)]
    pub ahead_pages: u64,
    /// At exit: of these, resident pages of zeros. At most so many were placed in vain.
    #[serde(default)]
    pub ahead_zero_pages: u64,
    /// At exit, like the three that follow; 0 where the process ended without measuring.
    pub resident_pages: u64,
    /// On the frame they were placed on.
    pub kept_pages: u64,
    /// Placed, and on another frame now.
    pub moved_pages: u64,
    pub unplaced_pages: u64,
    /// By reason: `larger-page`, `file`, `shared`, `locked-readonly`, `stack-in-use`, `early`, `other`.
    #[serde(default)]
    pub out_of_reach_bytes: BTreeMap<String, u64>,
    /// Only in the sum over all processes.
    pub by_colour: Option<ColourTable>,
}

/// The names of strategies, which are those of the table in `pagelab_abi`.
#[cfg(feature = "schema")]
struct StrategyKind;

#[cfg(feature = "schema")]
impl schemars::JsonSchema for StrategyKind {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StrategyKind".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let names: Vec<&str> = pagelab_abi::plan::StrategyKind::ALL.iter().map(|kind| kind.name()).collect();
        schemars::json_schema!({
            "description": "Strategies that place frames, by the names that `pagelab_abi` gives them.",
            "type": "string",
            "enum": names,
        })
    }
}

/// Pages by colour: index i is colour i, or all colours that are i modulo the length where `folded`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ColourTable {
    pub folded: bool,
    pub requested_pages: Vec<u64>,
    pub placed_pages: Vec<u64>,
    pub fallback_pages: Vec<u64>,
}

/// Summed over all processes of the tree that reported.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Placement {
    pub by_size: Vec<SizeBytes>,
    pub whole_touched_tiles: u64,
    pub tiles_as_asked: u64,
    /// tiles_as_asked / whole_touched_tiles; Null when the policy named no tile that was touched.
    pub placed_fraction: Option<f64>,
}

/// How much of a file was in the page cache.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FileResidency {
    pub path: String,
    pub pages: u64,
    pub resident_pages: u64,
}

/// State of the page cache and of prepaging around the run.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Fetch {
    #[serde(default)]
    pub readahead_kb_before: BTreeMap<String, u64>,
    #[serde(default)]
    pub readahead_kb_during: BTreeMap<String, u64>,
    pub fault_around_bytes: Option<u64>,
    #[serde(default)]
    pub residency_at_start: Vec<FileResidency>,
}

/// One timed operation inside the execution, as the program reported it.
#[derive(Clone, Debug, Serialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    #[serde(serialize_with = "shared")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub name: Rc<str>,
    pub value: f64,
    #[serde(serialize_with = "shared")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub unit: Rc<str>,
}

#[cfg(feature = "schema")]
fn own_schema() -> &'static str {
    SCHEMA
}

fn shared<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}
