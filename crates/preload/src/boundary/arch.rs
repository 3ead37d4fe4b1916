//! Everything that depends on the processor: system calls, the jump written over libc's entries, page-table sizes.
//!
//! Another architecture is one more file here with the same items.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("libpagelab supports x86-64 only: port crates/preload/src/boundary/arch first");
