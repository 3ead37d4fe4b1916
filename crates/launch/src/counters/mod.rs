//! Hardware and software counters of a whole process tree.
//!
//! ```text
//! names → roles (table, raw codes, libpfm4) → self-test, groups → opened before exec → totals, by process → record
//! ```

mod announced;
mod breakdown;
mod chase;
mod codes;
mod counter_warnings;
mod groups;
mod handed;
mod pfm;
mod processor;
mod role;
mod selftest;
mod session;
mod table;
mod table_amd;
mod table_arm;
mod table_intel;
mod verdict;

pub use announced::{Announced, Image, Tree};
pub use chase::run as chase;
pub use handed::{Handed, InWindows};
pub use role::{Role, parse};

use crate::cpus::Cpus;
use crate::warnings::Warnings;
use pagelab_contract::record::Counter;
use processor::Processor;
use serde_json::{Value, json};
use session::Session;
use std::collections::BTreeMap;
use std::os::fd::RawFd;

/// What the counters of a run read.
#[derive(Debug, Default)]
pub struct Counted {
    /// For the record.
    pub counters: Vec<Counter>,
    /// By process id and counter name; empty when processes could not be told apart.
    pub by_process: BTreeMap<i32, BTreeMap<String, u64>>,
    /// Processes as the kernel announced them.
    pub announced: BTreeMap<i32, Announced>,
    /// Whether these are all.
    pub tree: Tree,
}

/// The counters of a run, open.
pub struct Counting {
    roles: Vec<Role>,
    session: Session,
}

impl Counting {
    /// Opens counters on a process that waits for its exec; they start there. Counters that cannot be opened are
    /// reported at the end: a run does not fail for lack of counters. The process tree is watched also if nothing is
    /// counted.
    pub fn open(roles: &[Role], pid: i32, cpus: &Cpus, per_process: bool) -> Counting {
        Counting { roles: roles.to_vec(), session: Session::open(roles, pid, cpus, per_process) }
    }

    /// Descriptors that become readable when a ring buffer fills.
    pub fn fds(&self) -> Vec<RawFd> {
        let counts = self.session.breakdown.iter().flat_map(|breakdown| &breakdown.rings);
        let tree = self.session.watch.iter().flat_map(|watch| &watch.rings);
        tree.chain(counts).map(crate::sys::perf::Ring::fd).collect()
    }

    /// The counters that the program, which waits for its exec, gets; None: it gets none.
    pub fn hand_over(&self, pid: i32, measure: Option<RawFd>) -> Option<Handed> {
        Handed::choose(&self.roles, &self.session, pid, measure)
    }

    /// Empties the ring buffers.
    pub fn drain(&mut self) {
        if let Some(watch) = &mut self.session.watch {
            watch.drain();
        }
        if let Some(breakdown) = &mut self.session.breakdown {
            breakdown.drain();
        }
    }

    /// Reads everything. The tree must have ended.
    pub fn finish(mut self, warnings: &mut Warnings) -> Counted {
        self.drain();
        verdict::judge(&self.roles, &self.session, warnings)
    }
}

/// The counters of this machine, for `pagelab doctor` and for people (`pagelab-launch --counters`): processor,
/// self-test, and the table's rows for this processor.
pub fn report() -> Value {
    let processor = processor::own();
    let known = processor.as_ref().and_then(Processor::microarchitecture);
    let hardware = match selftest::run_here() {
        Ok(verdict) => json!({"advertised": verdict.advertised, "usable": verdict.usable, "problem": null}),
        Err(error) => json!({"advertised": 0, "usable": 0, "problem": crate::sys::errno_text(&error)}),
    };
    let rows = known.map_or(&[][..], |known| known.rows);
    let rows: Vec<Value> = rows.iter().map(row).collect();
    json!({
        "processor": processor.map(|processor| format!("{processor:?}")),
        "microarchitecture": known.map(|known| known.name),
        "hardware": hardware,
        "sets": table::SETS.iter().map(|(name, roles)| json!({"name": name, "roles": roles})).collect::<Vec<_>>(),
        "events": rows,
        "known": table::ALL.into_iter().flatten().map(|known| known.name).collect::<Vec<_>>(),
    })
}

fn row(row: &table::Row) -> Value {
    let event = |event: &table::Event| json!({"config": format!("r{:04X}", event.config), "sign": event.sign, "name": event.name});
    json!({
        "role": row.role,
        "events": row.events.iter().map(event).collect::<Vec<_>>(),
        "source": row.source,
        "verified": row.verified,
        "experimental": row.experimental,
    })
}
