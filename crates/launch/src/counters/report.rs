//! What this machine's counters are, for `pagelab doctor` and for people: `pagelab-launch --counters`.

use super::processor::{self, Processor};
use super::selftest;
use super::table::{self, SETS};
use crate::sys;
use serde_json::{Value, json};

/// Processor, self-test, and the table's rows for this processor, as data.
pub fn report() -> Value {
    let processor = processor::own();
    let known = processor.as_ref().and_then(Processor::microarchitecture);
    let hardware = match selftest::run_here() {
        Ok(verdict) => json!({"advertised": verdict.advertised, "usable": verdict.usable, "problem": null}),
        Err(error) => json!({"advertised": 0, "usable": 0, "problem": sys::errno_text(&error)}),
    };
    let rows = known.map_or(&[][..], |known| known.rows);
    let rows: Vec<Value> = rows.iter().map(row).collect();
    json!({
        "processor": processor.map(|processor| format!("{processor:?}")),
        "microarchitecture": known.map(|known| known.name),
        "hardware": hardware,
        "sets": SETS.iter().map(|(name, roles)| json!({"name": name, "roles": roles})).collect::<Vec<_>>(),
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
