//! The settings journal for `pagelab doctor`: the rules are applied here; settings are read and written by a Python
//! object.

use pagelab_settings::{Entry, Journal, Outcome, Refusal, Settings, Stopped, Trouble, Undone};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError};
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;

create_exception!(_native, JournalRefused, PyException);

/// The contents of the journal, as JSON: `entries`, `damaged_lines`; empty without a journal. Raises `JournalRefused`.
#[pyfunction]
pub fn journal_read(path: PathBuf) -> PyResult<String> {
    let snapshot = pagelab_settings::read(&path).map_err(|why| JournalRefused::new_err(why.to_string()))?;
    Ok(json!(snapshot).to_string())
}

/// Whether the process that owns an entry (JSON) still runs.
#[pyfunction]
pub fn journal_owner_lives(entry: &str) -> PyResult<bool> {
    Ok(pagelab_settings::is_alive(&parse(entry)?))
}

/// Identity of this boot; empty if the kernel does not report it.
#[pyfunction]
pub fn boot_id() -> String {
    pagelab_settings::boot_id()
}

/// Changes one setting: JSON with `made` (an entry, or null) or `refused` (`errno`, or `old` and `got`).
///
/// `changer` has `tree` (`text`, `write`), `step(name)`, `alive(entry)`, `boot` and `pid`. Raises `JournalRefused`, and
/// exceptions of `step`.
/// what `step` raises.
#[pyfunction]
pub fn journal_change(
    changer: &Bound<'_, PyAny>,
    journal: PathBuf,
    path: &str,
    value: &str,
    by: &str,
) -> PyResult<String> {
    let pid = changer.getattr("pid")?.extract()?;
    let results = with(changer, journal, |journal, files| journal.change(files, &[(path, value)], pid, by))?;
    let answer = match results.into_iter().next() {
        Some(Ok(made)) => json!({ "made": made }),
        Some(Err(Refusal::Setting(error))) => json!({"refused": {"errno": error.raw_os_error()}}),
        Some(Err(Refusal::Short { old, got })) => json!({"refused": {"old": old, "got": got}}),
        Some(Err(Refusal::Journal(error))) => return Err(unwritten(&error)),
        None => json!({ "made": null }),
    };
    Ok(answer.to_string())
}

/// Undoes one change: a JSON list with its result, empty if the change is not active. Raises as `journal_change`.
#[pyfunction]
pub fn journal_undo(changer: &Bound<'_, PyAny>, journal: PathBuf, entry: String, force: bool) -> PyResult<String> {
    told(&with(changer, journal, |journal, files| journal.undo(files, &[entry], force))?)
}

/// Undoes every change whose owner is dead: a JSON list with the result of each. Raises as `journal_change`.
#[pyfunction]
pub fn journal_restore(changer: &Bound<'_, PyAny>, journal: PathBuf, force: bool) -> PyResult<String> {
    told(&with(changer, journal, |journal, files| journal.restore(files, force))?)
}

fn parse(entry: &str) -> PyResult<Entry> {
    serde_json::from_str(entry).map_err(|error| JournalRefused::new_err(error.to_string()))
}

fn unwritten(error: &io::Error) -> PyErr {
    let reason = match error.kind() {
        io::ErrorKind::StorageFull => "no space left on its file system".to_owned(),
        _ => error.to_string(),
    };
    JournalRefused::new_err(format!("cannot write to the settings journal: {reason}"))
}

fn told(undone: &[Undone]) -> PyResult<String> {
    let one = |undone: &Undone| json!({"entry": undone.entry, "outcome": outcome(&undone.outcome)});
    Ok(Value::from(undone.iter().map(one).collect::<Vec<Value>>()).to_string())
}

fn outcome(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Restored { surplus } => json!({"name": "restored", "surplus": surplus}),
        Outcome::Already => json!({"name": "already"}),
        Outcome::Unrecorded(error) => json!({"name": "unrecorded", "text": error.to_string()}),
        Outcome::HandedOn { by } => json!({"name": "handed-on", "by": by}),
        Outcome::Superseded { by, old } => json!({"name": "superseded", "by": by, "old": old}),
        Outcome::Owned => json!({"name": "owned"}),
        Outcome::Stale => json!({"name": "stale"}),
        Outcome::Changed { present } => json!({"name": "changed", "present": present}),
        Outcome::Short { present } => json!({"name": "failed", "present": present}),
        Outcome::Failed(error) => {
            json!({"name": "failed", "errno": error.raw_os_error(), "text": error.to_string()})
        }
        Outcome::Gone => json!({"name": "gone"}),
        Outcome::Forbidden => json!({"name": "forbidden"}),
    }
}

/// Runs work on the locked journal; the interpreter is free while it waits for the lock.
fn with<T>(
    changer: &Bound<'_, PyAny>,
    journal: PathBuf,
    work: impl FnOnce(&mut Journal, &mut dyn Settings) -> Result<T, Stopped>,
) -> PyResult<T> {
    let boot: String = changer.getattr("boot")?.extract()?;
    let mut files = Tree { changer: changer.clone(), raised: None };
    let waiter = changer.clone().unbind();
    let mut interrupted = None;
    let locked = changer.py().detach(|| {
        Journal::lock_as(&journal, boot, &mut |waiting| {
            let go_on = Python::attach(|py| {
                py.check_signals()?;
                waiter.call_method1(py, "waits", (waiting.waited().as_secs_f64(), waiting.sentence()))
            });
            go_on.map_err(|raised| interrupted = Some(raised)).is_ok()
        })
    });
    if let Some(raised) = interrupted {
        return Err(raised);
    }
    let mut locked = locked.map_err(|why| JournalRefused::new_err(why.to_string()))?;
    let result = work(&mut locked, &mut files);
    match files.raised {
        Some(raised) => Err(raised),
        None => result.map_err(|Stopped| JournalRefused::new_err("stopped")),
    }
}

/// Settings, read and written through a `pagelab.machine.change.Changer`. An exception other than `OSError` ends the
/// work.
struct Tree<'py> {
    changer: Bound<'py, PyAny>,
    raised: Option<PyErr>,
}

impl Tree<'_> {
    fn trouble(&mut self, error: PyErr) -> Trouble {
        let py = self.changer.py();
        let errno = error.value(py).getattr("errno").and_then(|errno| errno.extract::<i32>());
        match errno {
            Ok(errno) if error.is_instance_of::<PyOSError>(py) => {
                Trouble::Refused(io::Error::from_raw_os_error(errno))
            }
            _ => {
                self.raised = Some(error);
                Trouble::Stopped
            }
        }
    }
}

impl Settings for Tree<'_> {
    fn text(&mut self, path: &str) -> Result<String, Trouble> {
        let text = self.changer.getattr("tree").and_then(|tree| tree.call_method1("text", (path,))?.extract());
        text.map_err(|error| self.trouble(error))
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), Trouble> {
        let done = self.changer.getattr("tree").and_then(|tree| tree.call_method1("write", (path, value)));
        done.map(|_| ()).map_err(|error| self.trouble(error))
    }

    fn step(&mut self, name: &str) -> Result<(), Stopped> {
        self.changer.call_method1("step", (name,)).map(|_| ()).map_err(|error| {
            self.raised = Some(error);
            Stopped
        })
    }

    fn is_alive(&mut self, entry: &Entry) -> Result<bool, Stopped> {
        let answer = self.changer.call_method1("owner_lives", (json!(entry).to_string(),));
        answer.and_then(|answer| answer.extract()).map_err(|error| {
            self.raised = Some(error);
            Stopped
        })
    }
}
