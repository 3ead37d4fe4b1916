//! The request (`pagelab.request/1`): what to run, how, and what to measure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

// A field with `x-setting` is a setting of a run that people choose, too: `study` names the tables of study.toml that may
// say it (with the key of the field, without its unit); `flag`, `metavar` and `help` are its option of `pagelab run`;
// `compared` the help where `try` and `compare` offer it, `short` its name before a value there, `label` its name in
// reports. tools/contract.py makes src/pagelab/contract/settings.py of it, which all of these read.

/// The request's schema name.
pub const SCHEMA: &str = "pagelab.request/1";

/// A request, as the launcher reads it.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The name of this schema.
    #[cfg_attr(feature = "schema", schemars(default = "own_schema", extend("const" = SCHEMA)))]
    pub schema: String,
    /// The program and its arguments; the first is looked up in PATH as a shell does.
    pub argv: Vec<String>,
    /// Working directory; null: the launcher's.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// Changes to the environment.
    #[serde(default)]
    pub env: EnvChanges,
    /// The policy's text.
    #[serde(default)]
    pub policy_toml: String,
    /// Where the text came from, for messages and for CSV paths relative to it.
    #[serde(default)]
    pub policy_path: Option<String>,
    /// What this machine offers, as `pagelab.machine.describe()` gives it.
    #[serde(default)]
    pub machine: serde_json::Value,
    /// Whether the library is loaded into the program.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("x-setting" = {
        "study": ["study"],
    })))]
    pub preload: Preload,
    /// Path of `libpagelab.so`; needed unless `preload` is `never`.
    #[serde(default)]
    pub library: Option<PathBuf>,
    /// CPUs the program may run on; empty: all it may use now.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("x-setting" = {
        "study": ["study", "policy"],
        "flag": "cpu", "metavar": "LIST", "help": "Pin to these CPUs: 1, 0-3,8.",
        "compared": "Pinned to these CPUs: 1, 0-3,8.",
        "label": "pinned to CPUs", "short": "CPU",
    })))]
    pub cpus: Vec<usize>,
    /// Address-space randomisation; null: as it is.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("x-setting" = {
        "study": ["study", "policy"],
        "flag": "aslr", "metavar": "on|off", "help": "Randomise addresses, or not.",
        "compared": "Addresses randomised, or not.",
        "label": "ASLR", "short": "ASLR",
    })))]
    pub aslr: Option<bool>,
    /// Scheduling policy; null: as it is.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("x-setting" = {
        "study": ["study", "policy"],
        "flag": "scheduler", "metavar": "fifo", "help": "Real-time priority (SCHED_FIFO).",
        "label": "scheduler",
    })))]
    pub scheduler: Option<Scheduler>,
    /// Memory node to bind to; null: no binding.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("x-setting" = {
        "study": ["study"],
        "flag": "node", "metavar": "N", "help": "Bind memory to this node.",
    })))]
    pub node: Option<u32>,
    /// User to run as; null: the user who asked.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("x-setting" = {
        "flag": "user", "metavar": "NAME", "help": "Run as this user instead of the one asking.",
    })))]
    pub user: Option<String>,
    /// Seconds after which the whole tree is ended; null: never.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("x-setting" = {
        "study": ["study", "workload"],
        "flag": "timeout", "metavar": "SECONDS", "help": "End an execution after this long.",
    })))]
    pub timeout_s: Option<f64>,
    /// Bytes of free memory that are touched and given back before the program starts, so that the host of a virtual
    /// machine backs them; null: none, or in a study as many as the program has needed so far, where the machine returns
    /// free memory to its host.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("x-setting" = {
        "study": ["study", "workload", "policy"],
        "flag": "host-backed", "metavar": "SIZE",
        "help": "Touch this much free memory first, so that a virtual machine's host backs it.",
    })))]
    pub host_backed_bytes: Option<u64>,
    /// `inherit`, `null`, or a path.
    #[serde(default = "null_stream")]
    pub stdin: String,
    /// `inherit`, `null`, or a path (created or truncated).
    #[serde(default = "inherit_stream")]
    pub stdout: String,
    /// Like `stdout`.
    #[serde(default = "inherit_stream")]
    pub stderr: String,
    /// Event sets, roles, raw codes, names.
    #[serde(default)]
    pub events: Vec<String>,
    /// Whether counters are broken down by process.
    #[serde(default = "yes")]
    pub per_process_counters: bool,
    /// Measurements of operations inside the execution.
    #[serde(default)]
    pub measurements: Measurements,
    /// Whether readahead is switched off (system-wide, restored) for a policy with `fetch = "demand"`.
    #[serde(default = "yes")]
    pub control_readahead: bool,
    /// What to drop from the page cache before the run.
    #[serde(default)]
    pub flush: Flush,
    /// Stream socket on which the caller is told of the program's process, and lets it go; null: nobody waits.
    #[serde(default)]
    pub announce_fd: Option<i32>,
    /// Stream socket on which the caller is told of each phase as it begins, and lets it go on; null: nobody waits.
    #[serde(default)]
    pub phase_fd: Option<i32>,
    /// Where run directories are made; null: `/dev/shm`, or `/tmp`.
    #[serde(default)]
    pub run_dir_root: Option<PathBuf>,
    /// Whether limits that leave the program too little room are told on standard error before it starts; they are in the
    /// record in any case.
    #[serde(default)]
    pub tell_limits: bool,
    /// Where the record goes; null: standard output.
    #[serde(default)]
    pub record: Option<PathBuf>,
}

/// Changes to the environment, in this order: clear, unset, set.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct EnvChanges {
    /// Start from an empty environment.
    pub clear: bool,
    /// Variables to set.
    pub set: BTreeMap<String, String>,
    /// Variables to remove.
    pub unset: Vec<String>,
}

/// Whether the library is loaded into the program.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "lowercase")]
pub enum Preload {
    /// Wherever it can be; a program that cannot take it runs without when the policy asks for nothing.
    #[default]
    Auto,
    /// A program that cannot take it is refused.
    Always,
    /// Not loaded; the policy must ask for nothing.
    Never,
}

/// A scheduling policy that can be requested.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// SCHED_FIFO, real time, at the third highest priority.
    Fifo,
}

/// How the program reports measurements.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Measurements {
    /// Descriptor the program finds in `PAGELAB_MEASURE_FD`; null: none.
    pub fd: Option<i32>,
    /// Regular expression over each line of standard output with the named groups `value`, and optionally `name`, `unit`.
    pub regex: Option<String>,
}

/// What to drop from the page cache before the run.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Flush {
    /// How.
    pub mode: FlushMode,
    /// With mode `files`: which.
    pub files: Vec<PathBuf>,
}

/// How the page cache is flushed.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "lowercase")]
pub enum FlushMode {
    /// Not at all.
    #[default]
    None,
    /// The named files.
    Files,
    /// Everything (`drop_caches`; root).
    All,
}

#[cfg(feature = "schema")]
fn own_schema() -> &'static str {
    SCHEMA
}

fn yes() -> bool {
    true
}

fn null_stream() -> String {
    "null".to_owned()
}

fn inherit_stream() -> String {
    "inherit".to_owned()
}
