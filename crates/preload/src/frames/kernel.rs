//! The engine's kernel interfaces: userfaultfd, frame numbers, memory nodes, control groups.

pub mod control_groups;
pub mod kpageflags;
pub mod memory_nodes;
pub mod pagemap;
pub mod rights;
pub mod uffd;
