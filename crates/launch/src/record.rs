//! The record (`pagelab.record/1`) as the launcher writes it; `src/pagelab/record.py` is authoritative.
#![allow(missing_docs, reason = "field by field as in record.py, which says what they mean")]

use crate::request::FlushMode;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The record's schema name.
pub const SCHEMA: &str = "pagelab.record/1";

pub use pagelab_policy::warning::{RunWarning as Warning, Severity, WarningKind as Kind};

/// Key in a warning's data: what it is about, when that is not this run.
pub const SCOPE: &str = "scope";
/// Value of [`SCOPE`]: the machine; every run there has the same to say, and a study says it once.
pub const SCOPE_MACHINE: &str = "machine";

/// The warnings of a run, in the order in which they came up.
#[derive(Debug, Default)]
pub struct Warnings(pub Vec<Warning>);

impl Warnings {
    /// Adds one of severity `warning`.
    pub fn warn(&mut self, kind: Kind, message: impl Into<String>, data: Value) {
        self.add(kind, Severity::Warning, message, data);
    }

    /// Adds one; `data` must be an object or null.
    pub fn add(&mut self, kind: Kind, severity: Severity, message: impl Into<String>, data: Value) {
        let data = match data {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        self.0.push(Warning { kind, severity, message: message.into(), data });
    }
}

/// See record.py; field by field the same.
#[derive(Debug, Serialize)]
pub struct Record {
    pub schema: &'static str,
    pub started_at: String,
    pub command: Command,
    pub policy: PolicyAsked,
    pub settings: Settings,
    pub outcome: Outcome,
    pub time: Times,
    pub peak_rss_bytes: u64,
    pub faults: Faults,
    pub counters: Vec<Counter>,
    pub processes: Vec<Process>,
    pub placement: Placement,
    pub frames: Option<Frames>,
    pub fetch: Fetch,
    pub measurements: Vec<Measurement>,
    pub warnings: Vec<Warning>,
}

#[derive(Debug, Serialize)]
pub struct Command {
    pub argv: Vec<String>,
    pub cwd: String,
    pub executable: String,
    pub env: BTreeMap<String, String>,
    pub env_bytes: usize,
}

#[derive(Debug, Serialize)]
pub struct PolicyAsked {
    pub name: String,
    pub toml: String,
    pub path: Option<String>,
    pub digest: String,
}

#[derive(Debug, Serialize)]
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
    pub cgroup: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Ok,
    Failed,
    Signalled,
    TimedOut,
    NotStarted,
}

#[derive(Debug, Serialize)]
pub struct Outcome {
    pub status: Status,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub message: Option<String>,
    /// A signal to the launcher ended the run; decides the exit code only.
    #[serde(skip)]
    pub interrupted: bool,
}

#[derive(Debug, Default, Serialize)]
pub struct Times {
    pub wall_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub waiting_ns: Option<u64>,
    pub steal_ns: Option<u64>,
    pub spawn_to_main_ns: Option<u64>,
    pub measuring_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Faults {
    pub minor: u64,
    pub major: u64,
}

#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum CounterStatus {
    Ok,
    Multiplexed,
    Unsupported,
    Denied,
    Implausible,
}

#[derive(Clone, Debug, Serialize)]
pub struct Counter {
    pub name: String,
    pub code: String,
    pub count: Option<u64>,
    pub enabled_ns: Option<u64>,
    pub running_ns: Option<u64>,
    pub status: CounterStatus,
    pub verified: bool,
    pub source: String,
}

#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
pub struct SizeBytes {
    pub page_bytes: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Region {
    pub region: &'static str,
    pub asked: String,
    pub via: Option<&'static str>,
    pub start: u64,
    pub end: u64,
    pub mapped_bytes: u64,
    pub resident_bytes: u64,
    pub by_size: Vec<SizeBytes>,
    pub given_back_bytes: u64,
    pub whole_touched_tiles: Option<u64>,
    pub tiles_as_asked: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct GuestCounters {
    pub values: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Process {
    pub pid: i32,
    pub ppid: i32,
    pub executable: String,
    pub governed: bool,
    pub start_ns: Option<u64>,
    pub wall_ns: Option<u64>,
    pub user_ns: Option<u64>,
    pub system_ns: Option<u64>,
    pub minor_faults: Option<u64>,
    pub major_faults: Option<u64>,
    pub peak_rss_bytes: Option<u64>,
    pub counters: BTreeMap<String, u64>,
    pub placement: Vec<Region>,
    pub frames: Option<Frames>,
    pub guest: Option<GuestCounters>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Frames {
    pub rights: Option<&'static str>,
    pub placed_fraction: Option<f64>,
    pub kept_fraction: Option<f64>,
    pub engines_started: u64,
    pub engines_failed: u64,
    pub engine: Option<FramesEngine>,
    pub strategies: Vec<FramesStrategy>,
}

#[derive(Clone, Debug, Serialize)]
pub struct FramesEngine {
    pub state: &'static str,
    pub failure: Option<&'static str>,
    pub errno: Option<i32>,
    pub start_up_ns: u64,
    pub values: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct FramesStrategy {
    pub number: u32,
    pub kind: &'static str,
    pub colours: u64,
    pub requested_pages: u64,
    pub placed_pages: u64,
    pub fallback_pages: u64,
    pub zero_pages: u64,
    pub demand_pages: u64,
    pub eager_pages: u64,
    pub faults: u64,
    pub moves: u64,
    pub remapped_pages: u64,
    pub copied_pages: u64,
    pub ahead_pages: u64,
    pub ahead_zero_pages: u64,
    pub resident_pages: u64,
    pub kept_pages: u64,
    pub moved_pages: u64,
    pub unplaced_pages: u64,
    pub out_of_reach_bytes: BTreeMap<String, u64>,
    pub by_colour: Option<ColourTable>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ColourTable {
    pub folded: bool,
    pub requested_pages: Vec<u64>,
    pub placed_pages: Vec<u64>,
    pub fallback_pages: Vec<u64>,
}

#[derive(Debug, Default, Serialize)]
pub struct Placement {
    pub by_size: Vec<SizeBytes>,
    pub whole_touched_tiles: u64,
    pub tiles_as_asked: u64,
    pub placed_fraction: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct FileResidency {
    pub path: String,
    pub pages: u64,
    pub resident_pages: u64,
}

#[derive(Debug, Default, Serialize)]
pub struct Fetch {
    pub readahead_kb_before: BTreeMap<String, u64>,
    pub readahead_kb_during: BTreeMap<String, u64>,
    pub fault_around_bytes: Option<u64>,
    pub residency_at_start: Vec<FileResidency>,
}

#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Measurement {
    #[serde(serialize_with = "shared")]
    pub name: Rc<str>,
    pub value: f64,
    #[serde(serialize_with = "shared")]
    pub unit: Rc<str>,
}

fn shared<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}
