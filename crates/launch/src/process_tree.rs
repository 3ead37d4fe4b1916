//! The processes of a run: watching and reaping them, and their list in the record.

pub mod pid_namespaces;
pub mod reap;
pub mod record;
