//! Simulators of virtual memory, and an analytical model. The crate is pure: references in, counts out, no files, no
//! clock.
//!
//! `docs/method/paging.md` describes what is computed, with its sources.
#![deny(unsafe_code)]

pub mod allocate;
pub mod analytical_model;
pub mod cache;
mod cpu;
mod pages;
pub mod paging;
mod table;
pub mod tasks;
pub mod tlb;
