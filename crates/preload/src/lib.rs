//! libpagelab.so: governs the memory of the program it is loaded into.
//!
//! Everything here runs inside somebody else's process: no allocation from its malloc, no libc calls but two that only
//! read (`dl_iterate_phdr`, `__errno_location`), no panics; on trouble a call goes to the kernel unchanged, and is
//! counted. `docs/preload.md` says what is governed and how.
#![cfg_attr(not(test), no_std)]

mod apart;
mod api;
mod arch;
#[cfg(not(test))]
mod bare;
mod calls;
mod detour;
mod elf;
mod entry;
mod environment;
mod exit;
mod files;
mod fork;
mod frames;
mod guest;
mod heap;
mod intervals;
mod kernel;
mod layout;
mod lock;
mod maps;
mod measure;
mod msg;
mod pool;
mod populate;
mod record;
mod regions;
mod sandbox;
mod stack;
mod start;
mod sys;
mod windows;
