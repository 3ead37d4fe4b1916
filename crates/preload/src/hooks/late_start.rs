//! Late start of the engine, for a program that gives hints in a process without one.

use pagelab_abi::guest::Started;
use pagelab_abi::plan::{Flags, HEADER_BYTES, MAGIC, Plan, VERSION};

use crate::backing::thp;
use crate::boundary::apart::apart;
use crate::boundary::elf;
use crate::boundary::sys::{self, Errno};
use crate::memory::tables;
use crate::state::{guest_file, plan};

use super::{child, fork};

/// Prepares what the engine needs before it starts. Callers take turns, and no other thread's fork is under way.
pub fn prepare() -> Result<(), Errno> {
    if plan::current().is_none() {
        without_plan()?;
    }
    let _ = apart(thp::read_settings);
    fork::be_careful();
    Ok(())
}

/// The plan of a process that was started without one and uses the API: nothing is governed.
static NO_PLAN: [u8; HEADER_BYTES + 1] = {
    let mut bytes = [0; HEADER_BYTES + 1];
    let fields = [(0, MAGIC), (8, spread(VERSION as u64)), (16, spread(HEADER_BYTES as u64 + 1))];
    let mut field = 0;
    while field < fields.len() {
        let mut byte = 0;
        while byte < 8 {
            bytes[fields[field].0 + byte] = fields[field].1[byte];
            byte += 1;
        }
        field += 1;
    }
    bytes[12] = (Flags::INHERIT_FORK.0 | Flags::INHERIT_EXEC.0) as u8;
    bytes
};

const fn spread(value: u64) -> [u8; 8] {
    value.to_le_bytes()
}

/// Sets the guest up in a process that has none and asks for its services; threads may be running. Nothing is detoured.
/// Callers take turns.
fn without_plan() -> Result<(), Errno> {
    // A library that was refused, and has reported why, is not set up.
    if guest_file::file().is_some() || elf::glibc().is_none() {
        return Err(Errno::EOPNOTSUPP);
    }
    let plan = Plan::parse(&NO_PLAN).map_err(|_| Errno::EINVAL)?;
    guest_file::create(&plan, Started::Exec, sys::monotonic_ns())?;
    tables::install(plan, true, &child::RESETS)
}
