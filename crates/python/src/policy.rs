//! Policies for Python: text in, JSON out.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use pagelab_policy::compile::compile;
use pagelab_policy::flags::{Document, Flags, apply};
use pagelab_policy::framemap::LARGEST_FILE;
use pagelab_policy::hints::hints;
use pagelab_policy::plan::{self, RunSpec, SectionSpec};
use pagelab_policy::read::{Files, no_files, read_toml};
use pagelab_policy::types::Backend;
use pagelab_policy::validate::validate;
use pagelab_policy::write::to_toml;
use pagelab_policy::{Machine, Place, Policy, PolicyError, parse};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;

pyo3::create_exception!(pagelab._native, PolicyRefused, PyValueError, "A policy is refused; the argument is JSON.");

/// A policy's values for Python.
#[derive(Serialize)]
struct Parsed<'p> {
    policy: &'p Policy,
    toml: String,
    is_kernel: bool,
}

fn refused(error: &PolicyError) -> PyErr {
    match serde_json::to_string(error) {
        Ok(json) => PolicyRefused::new_err(json),
        Err(broken) => PyValueError::new_err(format!("{error} ({broken})")),
    }
}

fn json<T: Serialize>(value: &T) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn parsed(policy: Result<Policy, PolicyError>) -> PyResult<String> {
    let policy = policy.map_err(|error| refused(&error))?;
    json(&Parsed { is_kernel: policy.is_kernel(), toml: to_toml(&policy), policy: &policy })
}

fn machine(text: Option<&str>) -> PyResult<Machine> {
    text.map_or_else(
        || Ok(Machine::generic_x86_64()),
        |text| Machine::from_json(text).map_err(PyValueError::new_err),
    )
}

/// Files that a policy names, relative to the policy's own.
fn loader(path: &str) -> Beside {
    Beside { directory: Path::new(path).parent().unwrap_or(Path::new("")).to_owned() }
}

struct Beside {
    directory: PathBuf,
}

impl Files for Beside {
    fn read(&self, name: &str) -> Result<String, String> {
        let path = self.directory.join(name);
        let refused = |error: std::io::Error| format!("{}: {error}", path.display());
        if std::fs::metadata(&path).map_err(refused)?.len() > LARGEST_FILE {
            return Err(format!("{}: larger than {} MiB", path.display(), LARGEST_FILE >> 20));
        }
        std::fs::read_to_string(&path).map_err(refused)
    }

    fn locate(&self, name: &str) -> String {
        let path = self.directory.join(name);
        std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned()
    }
}

/// Reads and validates TOML. Layouts that it names are read relative to `path`.
#[pyfunction]
#[pyo3(signature = (text, path, machine_json=None))]
pub fn parse_policy(text: &str, path: &str, machine_json: Option<&str>) -> PyResult<String> {
    parsed(parse(text, path, &machine(machine_json)?, &loader(path)))
}

/// Adds flags (JSON of `Flags`) to a policy's TOML, or to nothing; flags override it.
#[pyfunction]
#[pyo3(signature = (flags_json, machine_json=None, base_toml=None, base_path=None))]
pub fn policy_from_flags(
    flags_json: &str,
    machine_json: Option<&str>,
    base_toml: Option<&str>,
    base_path: Option<&str>,
) -> PyResult<String> {
    let flags: Flags =
        serde_json::from_str(flags_json).map_err(|error| PyValueError::new_err(format!("flags: {error}")))?;
    let machine = machine(machine_json)?;
    let path = base_path.unwrap_or("the policy");
    let base = base_toml.map(|text| read_toml(text, path, &loader(path))).transpose();
    parsed(base.and_then(|base| apply(base, &flags, &loader(""))).and_then(|raw| validate(&raw, &machine)))
}

/// Converts a Mosalloc layout into a separate policy, named after the file.
#[pyfunction]
#[pyo3(signature = (text, path, machine_json=None))]
pub fn policy_from_csv(text: &str, path: &str, machine_json: Option<&str>) -> PyResult<String> {
    let stem = Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let layout = Document { path: path.to_owned(), text: text.to_owned() };
    let flags = Flags { layout: Some(layout), name: stem, ..Flags::default() };
    let machine = machine(machine_json)?;
    parsed(apply(None, &flags, &no_files).and_then(|raw| validate(&raw, &machine)))
}

/// The canonical TOML of a policy's JSON, which must be valid.
#[pyfunction]
pub fn policy_to_toml(policy_json: &str) -> PyResult<String> {
    let policy: Policy =
        serde_json::from_str(policy_json).map_err(|error| PyValueError::new_err(format!("policy: {error}")))?;
    let toml = to_toml(&policy);
    let again = parse(&toml, "policy", &Machine::generic_x86_64(), &loader("policy"));
    match again {
        Ok(same) if same == policy => Ok(toml),
        Ok(_) => Err(refused(&PolicyError::new(&Place::whole("policy"), "the policy is not in canonical form"))),
        Err(error) => Err(refused(&error)),
    }
}

/// Refuses a policy that cannot run on the machine: all that `parse_policy` refuses, and policies that do not fit a
/// plan.
#[pyfunction]
#[pyo3(signature = (text, path, machine_json=None))]
pub fn check_policy(text: &str, path: &str, machine_json: Option<&str>) -> PyResult<()> {
    let machine = machine(machine_json)?;
    let policy = parse(text, path, &machine, &loader(path)).map_err(|error| refused(&error))?;
    compile(&policy, &machine).map_err(|error| refused(&error))?;
    if policy.backend == Backend::Kernel {
        hints(&policy, &machine).map_err(|error| refused(&error))?;
    }
    Ok(())
}

/// A policy's plan for a program in a user-mode emulator (its bytes), and the sections with a pool: JSON of `memory`,
/// `at_least`, `base`, `largest_page`. Nothing is measured; guest files go to `run_dir`.
#[pyfunction]
pub fn emulated_plan(text: &str, path: &str, run_dir: PathBuf) -> PyResult<(Vec<u8>, String)> {
    let machine = Machine::generic_x86_64();
    let policy = parse(text, path, &machine, &loader(path)).map_err(|error| refused(&error))?;
    let run_dir = run_dir.into_os_string().into_vec();
    let run = RunSpec { run_dir, flags: plan::Flags::EMULATED, ..RunSpec::default() };
    let plan = compile(&policy, &machine).map_err(|error| refused(&error))?;
    let largest = |section: &SectionSpec| {
        section.intervals.iter().map(|piece| piece.page_bytes).fold(section.otherwise, u64::max)
    };
    let pooled = plan.sections.iter().filter(|section| section.pool_base != 0);
    let pools: Vec<_> = pooled
        .map(|section| {
            serde_json::json!({
                "memory": section.memory.name(),
                "at_least": section.at_least,
                "base": section.pool_base,
                "largest_page": largest(section),
            })
        })
        .collect();
    let bytes = plan.encode(&run).map_err(|error| PyValueError::new_err(format!("the plan: {error}")))?;
    Ok((bytes, json(&pools)?))
}

/// The JSON of a machine that offers everything: for reading policies away from the machine on which they ran.
#[pyfunction]
pub fn generic_machine() -> PyResult<String> {
    json(&Machine::generic_x86_64())
}
