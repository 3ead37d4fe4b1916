//! Whole operations on trace files, as data: the interface of command line and Python package.

mod combine;
mod files;
mod info;

use crate::capture::{Outcome, Request, capture};
use crate::error::TraceError;
use crate::format::{Content, Header, Settings};
use crate::reference::Kinds;
use crate::source::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use files::{open_reader, open_runs};
pub use info::Info;

/// The destination of a new trace, and its provenance.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The file.
    pub path: PathBuf,
    /// Replace a file that is there.
    #[serde(default)]
    pub force: bool,
    /// Level of zstd's compression.
    #[serde(default = "default_level")]
    pub level: i32,
    /// argv, machine, tools, time, parameters.
    #[serde(default)]
    pub provenance: Value,
}

fn default_level() -> i32 {
    Settings::default().level
}

impl Output {
    fn settings(&self) -> Settings {
        Settings { level: self.level, ..Settings::default() }
    }
}

/// Records of a new trace.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Records {
    /// The kinds that are kept. If none are given: all, and in page runs that are made of references those that can
    /// fault. Page runs do not tell kinds apart: of those, all are kept, and a choice that would leave some out is
    /// refused.
    #[serde(default)]
    pub kinds: Option<Kinds>,
    /// Set for page runs: the binary logarithm of the page size.
    #[serde(default)]
    pub page_bits: Option<u32>,
}

impl Records {
    /// The kinds that are kept of full references.
    fn kinds(&self) -> Kinds {
        self.kinds.unwrap_or(if self.page_bits.is_some() { Kinds::DEMAND } else { Kinds::ALL })
    }
}

/// An operation.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "work", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Work {
    /// Run a program in the emulator and write its trace.
    Capture {
        /// The emulator with all its arguments.
        command: Vec<String>,
        /// The socket that the plugin connects to.
        socket: PathBuf,
        /// Seconds that processes may outlive the program.
        grace_s: f64,
        /// The same settings as the plugin's.
        records: Records,
        /// The trace.
        output: Output,
    },
    /// Write a trace, foreign or not, as a trace of ours.
    Convert {
        /// The file, or `-` for standard input.
        input: PathBuf,
        /// The foreign format; none for ours.
        #[serde(default)]
        format: Option<String>,
        /// The page size of a foreign trace that has pages, as binary logarithm.
        #[serde(default = "default_page_bits")]
        foreign_page_bits: u32,
        /// Of a damaged trace, keep all chunks that are whole.
        #[serde(default)]
        recover: bool,
        /// Kept records.
        records: Records,
        /// The trace.
        output: Output,
    },
    /// Put traces together.
    Mix {
        /// The traces.
        inputs: Vec<PathBuf>,
        /// References in a turn; 0: one trace after the other.
        quantum: u64,
        /// All parts are one process: address spaces keep their numbers.
        #[serde(default)]
        same_space: bool,
        /// Kept records.
        records: Records,
        /// The trace.
        output: Output,
    },
    /// Drop references that do not matter above a memory size.
    Reduce {
        /// The trace.
        input: PathBuf,
        /// Exact from so many pages on.
        memory_pages: u64,
        /// Exact for these numbers of colours.
        colours: Vec<u32>,
        /// Page size and kinds; page runs always.
        records: Records,
        /// The trace.
        output: Output,
    },
    /// Describe a trace.
    Info {
        /// The trace.
        input: PathBuf,
        /// Read all of it: check every chunk, count kinds, threads and pages.
        #[serde(default)]
        thorough: bool,
    },
}

fn default_page_bits() -> u32 {
    12
}

/// The written trace.
#[derive(Clone, Debug, Serialize)]
pub struct Written {
    /// Records in the new trace.
    pub records: u64,
    /// References in it: of page runs, the sum of their counts.
    pub references: u64,
    /// References that were read, if their number differs.
    pub read: Option<u64>,
    /// Runs that were read, where the trace was reduced.
    pub read_runs: Option<u64>,
    /// Bytes of the new file.
    pub bytes: u64,
    /// Bytes of a damaged trace that belong to no whole chunk.
    pub lost_bytes: Option<u64>,
}

impl Work {
    /// Performs it; the answer is JSON. `go_on` is called at intervals.
    pub fn run(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Value> {
        let answer = match self {
            Work::Capture { command, socket, grace_s, records, output } => {
                serde_json::to_value(captured(command, socket, *grace_s, records, output, go_on)?)
            }
            Work::Convert { input, format, foreign_page_bits, recover, records, output } => {
                let format = format.as_deref().map(files::format).transpose()?;
                let from = combine::From { path: input, format, page_bits: *foreign_page_bits, recover: *recover };
                serde_json::to_value(combine::convert(&from, records, output, go_on)?)
            }
            Work::Mix { inputs, quantum, same_space, records, output } => {
                serde_json::to_value(combine::mix(inputs, *quantum, *same_space, records, output, go_on)?)
            }
            Work::Reduce { input, memory_pages, colours, records, output } => {
                serde_json::to_value(combine::reduce(input, *memory_pages, colours, records, output, go_on)?)
            }
            Work::Info { input, thorough } => serde_json::to_value(info::read(input, *thorough, go_on)?),
        };
        answer.map_err(|error| TraceError::Invalid(error.to_string()))
    }
}

/// Capture into a file.
fn captured(
    command: &[String],
    socket: &Path,
    grace_s: f64,
    records: &Records,
    output: &Output,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Outcome> {
    let content = records.page_bits.map_or(Content::References, |page_bits| Content::Runs { page_bits });
    let mut header = Header::new(content);
    header.kinds = Some(records.kinds());
    header.provenance = output.provenance.clone();
    let grace = Duration::try_from_secs_f64(grace_s)
        .map_err(|_| TraceError::Invalid("the time that processes may outlive the program is not a time".into()))?;
    let request =
        Request { command: command.to_vec(), socket: socket.to_owned(), grace, settings: output.settings() };
    let (file, begun) = files::create_for_capture(output)?;
    capture(&request, &header, file, begun, go_on)
}
