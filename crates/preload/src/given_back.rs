//! Pages that the program gives back: examined just before, and summed up by region.

pub mod regions;
pub mod retire;
pub mod scan;
