//! Starting a program under a policy: request in, record out.
//!
//! ```text
//! request → target, user, CPUs, policy → run directory, plan → child waits → counters → exec → tree → record
//! ```

pub mod announce;
pub mod aslr;
pub mod cgroup;
pub mod counters;
pub mod cpus;
pub mod elf;
pub mod environment;
pub mod error;
pub mod flush;
pub mod frames;
pub mod guard;
pub mod guest_files;
pub mod guests;
pub mod host_backing;
pub mod measurements;
pub mod phase;
pub mod policy;
pub mod prepare;
pub mod process_tree;
pub mod record_build;
pub mod request;
pub mod room;
pub mod run;
pub mod rundir;
pub mod sandbox;
pub mod say;
pub mod scheduler;
pub mod settings;
pub mod spawn;
pub mod streams;
pub mod sys;
pub mod target;
pub mod user;
pub mod warnings;
pub mod windows;
pub mod words;
