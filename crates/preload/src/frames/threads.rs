//! Threads of the engine's own, and how threads of the program reach them.

pub mod handler;
pub mod handler_affinity;
pub mod own_pages;
pub mod refiller;
pub mod registration;
pub mod requests;
pub mod startup;
pub mod thread;
