//! The settings journal: what pagelab changed on this machine, so that it can be undone after any crash.
//!
//! Format and rules are described in `docs/doctor.md`, "The settings journal". This crate is the only one that writes
//! the journal: for `pagelab-launch` directly, for `pagelab doctor` through the Python extension.

mod entry;
mod journal;
mod lock;
mod place;
mod rules;
#[cfg(test)]
mod tests;
mod unusable;

pub use entry::{Entry, Snapshot, State, boot_id, is_alive, process_start};
pub use journal::{Journal, default_path, read};
pub use lock::{OnWait, Waiting};
pub use rules::{Kernel, Outcome, Refusal, Settings, Stopped, Trouble, Undone, normalise};
pub use unusable::Unusable;
