//! Pages that the program gives back: examined just before that, and summed up by region.

pub mod regions;
pub mod retire;
pub mod scan;
