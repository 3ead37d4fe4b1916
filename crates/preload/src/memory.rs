//! The memory that the library governs: pools, heap, file mappings, and the calls that change them.

pub mod calls;
pub mod files;
pub mod heap;
pub mod measure;
pub mod pool;
pub mod prefault;
pub mod tables;
