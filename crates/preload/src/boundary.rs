//! The kernel, the processor, and what the dynamic linker has loaded: what the library asks of them, and nothing of its own.

pub mod apart;
pub mod arch;
pub mod elf;
pub mod huge_pages;
pub mod libc;
pub mod mapping;
pub mod maps;
pub mod meminfo;
pub mod own;
pub mod span;
pub mod stack;
pub mod sys;
