//! The request (`pagelab.request/1`): what to run, how, and what to measure.

use crate::error::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The request's schema name.
pub const SCHEMA: &str = "pagelab.request/1";

/// A request as read; [`Request::parse`] has checked what can be checked without touching the machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Always [`SCHEMA`].
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
    pub preload: Preload,
    /// Path of `libpagelab.so`; needed unless `preload` is `never`.
    #[serde(default)]
    pub library: Option<PathBuf>,
    /// CPUs the program may run on; empty: all it may use now.
    #[serde(default)]
    pub cpus: Vec<usize>,
    /// Address-space randomisation; null: as it is.
    #[serde(default)]
    pub aslr: Option<bool>,
    /// Scheduling policy; null: as it is.
    #[serde(default)]
    pub scheduler: Option<Scheduler>,
    /// Memory node to bind to; null: no binding.
    #[serde(default)]
    pub node: Option<u32>,
    /// User to run as; null: the user who asked.
    #[serde(default)]
    pub user: Option<String>,
    /// Seconds after which the whole tree is ended; null: never.
    #[serde(default)]
    pub timeout_s: Option<f64>,
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
#[derive(Debug, Default, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
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

/// A scheduling policy that can be asked for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// SCHED_FIFO, real time, at the highest priority there is but one.
    Fifo,
}

/// How the program reports measurements.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measurements {
    /// Descriptor the program finds in `PAGELAB_MEASURE_FD`; null: none.
    pub fd: Option<i32>,
    /// Regular expression over each line of standard output with the named groups `value`, and optionally `name`, `unit`.
    pub regex: Option<String>,
}

/// What to drop from the page cache before the run.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Flush {
    /// How.
    pub mode: FlushMode,
    /// For [`FlushMode::Files`]: which.
    pub files: Vec<PathBuf>,
}

/// How the page cache is flushed.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, serde::Serialize)]
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

fn yes() -> bool {
    true
}

fn null_stream() -> String {
    "null".to_owned()
}

fn inherit_stream() -> String {
    "inherit".to_owned()
}

impl Request {
    /// Parses and checks a request.
    pub fn parse(text: &[u8]) -> Result<Request> {
        let request: Request = serde_json::from_slice(text)
            .map_err(|error| Error::BadInput(format!("the request is not a {SCHEMA} document: {error}")))?;
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<()> {
        let bad = |message: String| Err(Error::BadInput(message));
        if self.schema != SCHEMA {
            return bad(format!("the request's schema is {:?}; this launcher reads {SCHEMA:?}", self.schema));
        }
        if self.argv.first().is_none_or(String::is_empty) {
            return bad("the request names no program (argv is empty)".to_owned());
        }
        let strings = self.argv.iter().chain(self.env.set.keys()).chain(self.env.set.values());
        if let Some(string) = strings.chain(&self.env.unset).find(|string| string.contains('\0')) {
            return bad(format!("{string:?} contains a NUL byte"));
        }
        if let Some(name) = self.env.set.keys().find(|name| name.is_empty() || name.contains('=')) {
            return bad(format!("{name:?} is not a name for an environment variable"));
        }
        if let Some(timeout) = self.timeout_s
            && !(timeout > 0.0 && timeout < 1e9)
        {
            return bad(format!("a timeout of {timeout} s is not a positive number of seconds below 1e9"));
        }
        if let Some(fd) = self.measurements.fd
            && !(3..=255).contains(&fd)
        {
            return bad(format!("measurement descriptor {fd} is not between 3 and 255"));
        }
        if let Some(fd) = self.announce_fd
            && fd < 3
        {
            return bad(format!("announce_fd = {fd} is a standard stream"));
        }
        if (self.flush.mode == FlushMode::Files) == self.flush.files.is_empty() {
            return bad("flush.files must name files exactly when flush.mode is \"files\"".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(extra: &str) -> Result<Request> {
        Request::parse(format!(r#"{{"schema":"pagelab.request/1","argv":["true"]{extra}}}"#).as_bytes())
    }

    #[test]
    fn the_shortest_request_has_the_documented_defaults() {
        let request = parse("").expect("valid");
        assert_eq!(request.preload, Preload::Auto);
        assert_eq!((request.stdin.as_str(), request.stdout.as_str()), ("null", "inherit"));
        assert_eq!(request.flush.mode, FlushMode::None);
        assert!(request.control_readahead && request.per_process_counters);
    }

    #[test]
    fn bad_requests_are_refused_with_the_offending_value() {
        for (extra, expected) in [
            (r#","timeout_s":0"#, "timeout of 0"),
            (r#","timeout_s":-1"#, "timeout of -1"),
            (r#","measurements":{"fd":1}"#, "descriptor 1"),
            (r#","announce_fd":2"#, "announce_fd = 2"),
            (r#","flush":{"mode":"files"}"#, "flush.files"),
            (r#","env":{"set":{"A=B":"c"}}"#, "A=B"),
            (r#","nonsense":1"#, "nonsense"),
            (r#","preload":"maybe""#, "maybe"),
            (r#","scheduler":"rr""#, "rr"),
        ] {
            let message = parse(extra).expect_err(extra).to_string();
            assert!(message.contains(expected), "{extra}: {message}");
        }
        assert!(Request::parse(br#"{"schema":"pagelab.request/2","argv":["x"]}"#).is_err());
        assert!(Request::parse(br#"{"schema":"pagelab.request/1","argv":[]}"#).is_err());
        assert!(Request::parse(b"").is_err());
    }
}
