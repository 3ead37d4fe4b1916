//! The layouts that the launcher and the preload library share: the [`plan`], the [`guest`] file and its [`windows`],
//! and two interfaces of the kernel's that both use, [`page_hints`] and [`pagemap_scan`].
//!
//! It is a separate crate, without std, because everything that the library links becomes part of the measured program:
//! std would bring libgcc_s, thread-local storage and panic code into every measured program. Only the encoding and
//! decoding sides, which the library does not use, allocate.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod guest;
pub mod page_hints;
pub mod pagemap_scan;
pub mod plan;
pub mod windows;
