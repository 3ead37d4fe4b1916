//! Which capabilities the launcher's processes keep, phase by phase (docs/security.md has the table, and a test reads
//! it from /proc). A capability that a phase gives up is lost for the rest of the run, except in the first phase. There
//! the program is forked, and the kernel treats a process that gains capabilities by its exec as a set-user-ID one (no
//! core dumps, `/proc/PID` belongs to root). So until the program has started, the permitted set stays what the
//! launcher was given, and only the effective set is small.

use crate::announce::Caller;
use crate::sys::user::keep_capabilities;

const CHOWN: u64 = 1 << 0;
const DAC_OVERRIDE: u64 = 1 << 1;
const KILL: u64 = 1 << 5;
const SETGID: u64 = 1 << 6;
const SETUID: u64 = 1 << 7;
const IPC_LOCK: u64 = 1 << 14;
const SYS_PTRACE: u64 = 1 << 19;
const SYS_ADMIN: u64 = 1 << 21;
const SYS_NICE: u64 = 1 << 23;
const SYS_RESOURCE: u64 = 1 << 24;
const PERFMON: u64 = 1 << 38;

/// What all later phases need: the run directory, processes of other users, output that the program has written.
pub const TO_THE_END: u64 = CHOWN | DAC_OVERRIDE | KILL | SETGID | SETUID;

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The called process watches over the other.
    Guard,
    /// From the request to the moment in which the program may execute.
    Prepare,
    /// The program runs. `hands_on`: its processes are given frame numbers and a userfaultfd.
    Run {
        /// A broker listens.
        hands_on: bool,
    },
    /// The program has ended: what it left is read and removed, the record is written.
    Collect,
}

impl Phase {
    /// Its capabilities, as far as the launcher was given them.
    pub fn capabilities(self) -> u64 {
        match self {
            Phase::Guard => CHOWN | DAC_OVERRIDE | KILL | SYS_PTRACE,
            Phase::Prepare => TO_THE_END | IPC_LOCK | SYS_PTRACE | SYS_ADMIN | SYS_NICE | SYS_RESOURCE | PERFMON,
            Phase::Run { hands_on: true } => TO_THE_END | SYS_PTRACE | SYS_ADMIN,
            Phase::Run { hands_on: false } => TO_THE_END | SYS_PTRACE,
            Phase::Collect => TO_THE_END,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Phase::Guard => "guard",
            Phase::Prepare => "prepare",
            Phase::Run { .. } => "run",
            Phase::Collect => "collect",
        }
    }

    /// Begins it, and reports it to the watcher (`phase_fd` of the request).
    pub fn begin(self, watcher: &mut Caller) {
        // Giving up needs no right; a kernel that refuses it leaves the launcher as it was.
        let _ = keep_capabilities(self.capabilities(), self != Phase::Prepare);
        watcher.tell(self.name());
    }
}
