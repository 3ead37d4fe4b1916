//! What pages were before they go: looked at just before the program gives them back, and summed up by region.

pub mod regions;
pub mod retire;
pub mod scan;
