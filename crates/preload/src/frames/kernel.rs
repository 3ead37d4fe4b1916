//! The engine's kernel interfaces: userfaultfd, frame numbers, memory nodes.

pub mod kpageflags;
pub mod memory_nodes;
pub mod pagemap;
pub mod rights;
pub mod uffd;
