//! libpagelab.so: governs the memory of the program that loads it.
//!
//! Everything here runs inside somebody else's process: no allocation from its malloc, no libc calls but two that only
//! read (`dl_iterate_phdr`, `__errno_location`), no panics; on trouble a call goes to the kernel unchanged, and is
//! counted. `docs/preload.md` describes what is governed and how, `docs/architecture/guest.md` where the code is.
#![cfg_attr(not(test), no_std)]

mod backing;
mod boundary;
mod frames;
mod given_back;
mod hooks;
mod memory;
mod start;
mod state;
