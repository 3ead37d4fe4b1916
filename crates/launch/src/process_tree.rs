//! The processes of a run: watched over and reaped, as /proc shows them, and as the record lists them.

pub mod procfs;
pub mod reap;
pub mod record;
