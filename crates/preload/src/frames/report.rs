//! What the engine counts, and what lies where at the end.

pub mod at_exit;
pub mod census;
pub mod tally;
