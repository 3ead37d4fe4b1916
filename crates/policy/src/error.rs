//! The error type of refused policies: place, problem, allowed values.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A place in the input: a file and a line, or a command-line flag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// A path, or the flag as it was typed.
    pub source: Arc<str>,
    /// Line in the file, from 1; `None` for flags and for a file as a whole.
    pub line: Option<u32>,
}

impl Place {
    /// A file or flag as a whole.
    #[must_use]
    pub fn whole(source: &str) -> Place {
        Place { source: Arc::from(source), line: None }
    }

    /// A line of a file, counted from 1.
    #[must_use]
    pub fn line(source: &Arc<str>, line: u32) -> Place {
        Place { source: Arc::clone(source), line: Some(line) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.source),
            None => f.write_str(&self.source),
        }
    }
}

/// A policy that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyError {
    /// Place of the fault.
    pub place: Place,
    /// The fault.
    pub message: String,
    /// The values that would be accepted there, if they can be listed.
    pub allowed: Vec<String>,
    /// The next step: a command to type, if there is one.
    pub next: Option<String>,
}

impl PolicyError {
    /// An error without a list of allowed values.
    pub fn new(place: &Place, message: impl Into<String>) -> PolicyError {
        PolicyError { place: place.clone(), message: message.into(), allowed: Vec::new(), next: None }
    }

    /// Adds the values that would be accepted.
    #[must_use]
    pub fn allowed<S: ToString>(mut self, values: impl IntoIterator<Item = S>) -> PolicyError {
        self.allowed = values.into_iter().map(|value| value.to_string()).collect();
        self
    }

    /// Adds the next command to type.
    #[must_use]
    pub fn next(mut self, command: impl Into<String>) -> PolicyError {
        self.next = Some(command.into());
        self
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        if !self.allowed.is_empty() {
            write!(f, "; allowed: {}", self.allowed.join(", "))?;
        }
        match &self.next {
            Some(next) => write!(f, "; {next}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for PolicyError {}
