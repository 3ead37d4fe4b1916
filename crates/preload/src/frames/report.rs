//! Reports of the engine: its counts, and the placement at the end.

pub mod at_exit;
pub mod census;
pub mod tally;
