//! The processes of a run: watched over and reaped, and as the record lists them.

pub mod reap;
pub mod record;
