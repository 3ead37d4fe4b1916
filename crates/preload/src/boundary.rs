//! Access to the kernel, the processor, and the objects that the dynamic linker has loaded; no logic of the library.

pub mod apart;
pub mod arch;
pub mod control_groups;
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
