//! The kernel, the processor, and what the dynamic linker has loaded: what the library asks of them, and nothing of its own.

pub mod apart;
pub mod arch;
pub mod elf;
pub mod maps;
pub mod stack;
pub mod sys;
