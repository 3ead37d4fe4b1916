//! The layouts that the launcher and the preload library share: the [`plan`], the [`guest`] file and its [`windows`],
//! and the kernel's [`page_hints`].
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
pub mod plan;
pub mod windows;
