//! Starting a program under a policy: request in, record out.
//!
//! ```text
//! request → target, user, CPUs, policy → run directory, plan → child waits → counters → exec → tree → record
//! ```

pub mod aslr;
pub mod cgroup;
pub mod cpus;
pub mod elf;
pub mod environment;
pub mod error;
pub mod guests;
pub mod launch;
pub mod policy;
pub mod processes;
pub mod proctree;
pub mod record;
pub mod request;
pub mod run;
pub mod rundir;
pub mod sandbox;
pub mod streams;
pub mod sys;
pub mod target;
pub mod tree;
pub mod user;
