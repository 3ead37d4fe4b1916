//! libpagelab.so: governs the memory of the program it is loaded into.
//!
//! Everything here runs inside somebody else's process: no allocation from its malloc, no libc calls but two that only
//! read (`dl_iterate_phdr`, `__errno_location`), no panics; on trouble a call goes to the kernel unchanged, and is
//! counted. `docs/preload.md` says what is governed and how.
#![cfg_attr(not(test), no_std)]

pub mod arch;
#[cfg(not(test))]
mod bare;
mod calls;
pub mod detour;
pub mod elf;
pub mod entry;
mod environment;
mod exit;
mod files;
mod guest;
pub mod heap;
pub mod intervals;
mod kernel;
pub mod layout;
pub mod lock;
pub mod maps;
mod measure;
pub mod msg;
pub mod pool;
mod populate;
pub mod record;
mod start;
pub mod sys;
