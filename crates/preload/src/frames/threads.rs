//! The engine's own threads, and requests of the program's threads to them.

pub mod handler;
pub mod handler_affinity;
pub mod own_pages;
pub mod priority;
pub mod refiller;
pub mod registration;
pub mod requests;
pub mod startup;
pub mod thread;
