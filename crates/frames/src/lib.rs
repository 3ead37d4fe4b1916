//! Frame placement without a machine: strategies for the frame of a page, and the stock of free frames.
//!
//! There are three parts. [`Colours`] maps a frame number to its cache colour. A [`Strategy`] gives the want of each
//! page of the program ([`Want`]): a colour, one frame, anything. The [`Stock`] contains the free pages of pagelab's
//! pool, sorted by colour. It finds runs of neighbouring slots that satisfy the wants of neighbouring pages, because
//! one system call moves a whole run.
//!
//! No system call, no allocation, no panic: this crate is linked into `libpagelab.so` and runs in the measured program,
//! in a thread that must never fault on governed memory. Frame numbers (`pfn`) and virtual page numbers (`vpn`, address
//! / 4096) are `u64`; colours are `u32`.
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

mod colour;
pub mod stock;
pub mod strategy;

pub use colour::{Colours, MOST_MASKS};
pub use pagelab_abi::plan::Words;
pub use stock::{Chunk, Counts, End, List, Run, SlotId, State, Stock};
pub use strategy::{AnyStrategy, Strategy, Want};
