//! The warnings of a run, as they are collected.

pub use pagelab_contract::{RunWarning as Warning, Severity, WarningKind as Kind};

use serde_json::{Map, Value};

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
