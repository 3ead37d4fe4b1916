//! The `pagelab._native` extension module: glue between Python and the Rust crates, nothing else.
//!
//! Values cross as JSON text; `pagelab.policy` gives them Python types. A refused policy raises `PolicyRefused`, whose
//! only argument is the JSON of a `PolicyError`.

mod caches;
mod guest;
mod policy;
mod settings;
mod simulate;
mod stats;
mod trace;

use pyo3::prelude::*;

/// The native half of the pagelab package.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("PolicyRefused", module.py().get_type::<policy::PolicyRefused>())?;
    module.add_function(wrap_pyfunction!(policy::parse_policy, module)?)?;
    module.add_function(wrap_pyfunction!(policy::policy_from_flags, module)?)?;
    module.add_function(wrap_pyfunction!(policy::policy_from_csv, module)?)?;
    module.add_function(wrap_pyfunction!(policy::policy_to_toml, module)?)?;
    module.add_function(wrap_pyfunction!(policy::check_policy, module)?)?;
    module.add_function(wrap_pyfunction!(policy::generic_machine, module)?)?;
    module.add_function(wrap_pyfunction!(policy::emulated_plan, module)?)?;
    module.add_function(wrap_pyfunction!(guest::read_guest, module)?)?;
    module.add("JournalRefused", module.py().get_type::<settings::JournalRefused>())?;
    module.add_function(wrap_pyfunction!(settings::boot_id, module)?)?;
    module.add_function(wrap_pyfunction!(settings::journal_read, module)?)?;
    module.add_function(wrap_pyfunction!(settings::journal_owner_lives, module)?)?;
    module.add_function(wrap_pyfunction!(settings::journal_change, module)?)?;
    module.add_function(wrap_pyfunction!(settings::journal_undo, module)?)?;
    module.add_function(wrap_pyfunction!(settings::journal_restore, module)?)?;
    module.add_class::<caches::PlacedSimulation>()?;
    module.add_function(wrap_pyfunction!(caches::aged_memory, module)?)?;
    module.add_function(wrap_pyfunction!(stats::stats_columns, module)?)?;
    module.add_function(wrap_pyfunction!(stats::stats_reports, module)?)?;
    module.add_function(wrap_pyfunction!(simulate::model_expected_requests, module)?)?;
    module.add_function(wrap_pyfunction!(simulate::model_fill, module)?)?;
    module.add_class::<simulate::Paging>()?;
    module.add_class::<simulate::PageRuns>()?;
    module.add("TraceRefused", module.py().get_type::<trace::TraceRefused>())?;
    module.add_function(wrap_pyfunction!(trace::trace_work, module)?)?;
    module.add("TRACE_SIZES", pagelab_trace::SIZES.to_vec())?;
    module.add_class::<trace::TraceBatches>()?;
    module.add_class::<trace::TraceFile>()?;
    Ok(())
}
