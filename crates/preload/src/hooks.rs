//! Entry points: libc's functions, `pagelab.h`, fork, exec, exit and seccomp.

mod api;
pub mod child;
pub mod entry;
pub mod environment;
mod exit;
pub mod fork;
pub mod late_start;
mod namespaces;
mod real_time;
pub mod seccomp;
pub mod userfaultfd;
pub mod windows;
