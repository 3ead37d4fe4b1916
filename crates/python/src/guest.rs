//! Guest files for Python: bytes in, JSON out. `pagelab stat` shows a running process from them.

use pagelab_abi::guest::{EngineReport, FramesReport, Report};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Map, Value, json};

/// Decodes a guest file into JSON: the process, the state of its engine, and the counts of each strategy.
///
/// Raises `ValueError` if the bytes are no guest file, or one of another version.
#[pyfunction]
pub fn read_guest(content: &[u8]) -> PyResult<String> {
    let report = Report::decode(content).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let document = json!({
        "pid": report.pid,
        "ppid": report.ppid,
        "executable": report.exe,
        "state": report.state.name(),
        "disabled": report.disabled.map(|(reason, errno)| json!({"reason": reason.name(), "errno": errno})),
        "ended": report.end_ns.is_some(),
        "engine": report.engine.as_ref().map(engine),
        "strategies": report.frames.iter().map(strategy).collect::<Vec<Value>>(),
    });
    Ok(document.to_string())
}

fn engine(report: &EngineReport) -> Value {
    json!({
        "state": report.state.name(),
        "failure": report.failure.name(),
        "errno": report.errno,
        "values": numbers(report.counts.named()),
    })
}

fn strategy(report: &FramesReport) -> Value {
    let column = |pick: fn(&pagelab_abi::guest::ColourCounts) -> u64| -> Vec<u64> {
        report.by_colour.iter().map(pick).collect()
    };
    json!({
        "number": report.number,
        "kind": report.kind.name(),
        "colours": report.colours,
        "values": numbers(report.counts.named()),
        "out_of_reach_bytes": numbers(report.out_of_reach.iter().map(|(reason, bytes)| (reason.name(), *bytes))),
        "by_colour": {
            "requests": column(|colour| colour.requests),
            "placed": column(|colour| colour.placed),
            "fallbacks": column(|colour| colour.fallbacks),
        },
    })
}

fn numbers<'n>(named: impl Iterator<Item = (&'n str, u64)>) -> Value {
    Value::Object(named.map(|(name, value)| (name.to_owned(), Value::from(value))).collect::<Map<String, Value>>())
}
