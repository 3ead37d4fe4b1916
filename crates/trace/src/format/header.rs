//! The header of a trace: contents, exactness, provenance.

use crate::error::TraceError;
use crate::reference::Kinds;
use crate::run::{MAX_ASID, PAGE_BITS};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Kind of a trace's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "content", rename_all = "kebab-case")]
pub enum Content {
    /// Full references.
    References,
    /// Page runs.
    Runs {
        /// Binary logarithm of their page size.
        page_bits: u32,
    },
}

/// The memories and colours for which a reduced trace is exact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reduction {
    /// Exact for memories of at least this many pages in all.
    pub memory_pages: u64,
    /// Exact for these numbers of colours (colour = page number modulo colours).
    pub colours: Vec<u32>,
}

/// Why a trace is a sample, not every reference of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    /// What was sampled, in words: "page faults by perf script".
    pub what: String,
}

/// The header of a trace: the kind of its records, the simulations that they are exact for, and their origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Kind of the records.
    #[serde(flatten)]
    pub content: Content,
    /// Names of the address spaces, by number (a program's name, a process id); may be shorter than their number.
    #[serde(default)]
    pub address_spaces: Vec<String>,
    /// The kinds of references that were kept. Page runs do not tell them apart. Not known of traces of earlier
    /// versions, nor of page runs from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Kinds>,
    /// Set where the trace is a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// Set if references were dropped that have no effect above a stated memory size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction: Option<Reduction>,
    /// Provenance: argv, machine, tool versions, time, parameters, and the headers of the traces this one was made of.
    #[serde(default)]
    pub provenance: Value,
}

impl Header {
    /// The header of a whole trace of unknown origin.
    pub fn new(content: Content) -> Header {
        Header {
            content,
            address_spaces: Vec::new(),
            kinds: None,
            sampling: None,
            reduction: None,
            provenance: Value::Null,
        }
    }

    /// Refuses a sample.
    pub fn require_every_reference(&self) -> Result<(), TraceError> {
        match &self.sampling {
            Some(sampling) => Err(TraceError::Sampled(sampling.what.clone())),
            None => Ok(()),
        }
    }

    /// Refuses values that the format cannot hold.
    pub(super) fn check(&self) -> Result<(), TraceError> {
        if let Content::Runs { page_bits } = self.content
            && !PAGE_BITS.contains(&page_bits)
        {
            return Err(TraceError::Invalid(format!("pages have 2^4 to 2^40 bytes, not 2^{page_bits}")));
        }
        if self.address_spaces.len() > usize::from(MAX_ASID) + 1 {
            return Err(TraceError::Invalid(format!(
                "a trace has at most {} address spaces",
                u32::from(MAX_ASID) + 1
            )));
        }
        Ok(())
    }
}
