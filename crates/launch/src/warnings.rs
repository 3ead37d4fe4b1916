//! The warnings of a run, as they are collected.

pub use pagelab_contract::{RunWarning as Warning, Severity, WarningKind as Kind};

use serde_json::{Map, Value};

/// Key in a warning's data: the subject of the warning, if it is not this run.
pub const SCOPE: &str = "scope";
/// Value of [`SCOPE`]: the machine. Every run there has the same warning, and a study shows it once.
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
