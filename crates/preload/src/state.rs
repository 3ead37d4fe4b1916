//! Flags and data that several storeys read: the plan and its layout, the guest file, locks.

pub mod child;
pub mod forks;
pub mod guest_file;
pub mod intervals;
pub mod layout;
pub mod lock;
pub mod message;
pub mod own_locks;
pub mod own_stack;
pub mod plan;
pub mod seccomp;
