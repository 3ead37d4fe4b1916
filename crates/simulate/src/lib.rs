//! Simulators of virtual memory, and the analytical model beside them; pure: references in, counts out, no files, no clock.
//!
//! What is computed, with its sources, is in `docs/method/paging.md`.
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
