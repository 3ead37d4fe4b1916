//! A program that is held just before it frees its memory: ptrace with nothing but exit events and signals, so that it
//! runs at full speed.

use super::check_long;
use std::io;

const EVENT_STOP: i32 = 128;

/// A traced process stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Which.
    pub pid: i32,
    status: i32,
}

impl Stopped {
    /// From the status that wait4(2) returned for a stopped process.
    pub fn new(pid: i32, status: i32) -> Stopped {
        Stopped { pid, status }
    }

    /// It is about to free its memory.
    pub fn at_exit(self) -> bool {
        self.event() == libc::PTRACE_EVENT_EXIT
    }

    fn event(self) -> i32 {
        self.status >> 16
    }

    /// Lets it go on, with the signal that it stopped for. Job control keeps it stopped until somebody continues it.
    pub fn resume(self) -> io::Result<()> {
        let signal = libc::WSTOPSIG(self.status);
        let stopping = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
        let (request, data) = match self.event() {
            0 => (libc::PTRACE_CONT, signal),
            EVENT_STOP if stopping => (libc::PTRACE_LISTEN, 0),
            _ => (libc::PTRACE_CONT, 0),
        };
        ptrace(request, self.pid, data)
    }
}

/// Traces a child without stopping it.
pub fn seize(pid: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_SEIZE, pid, libc::PTRACE_O_TRACEEXIT)
}

fn ptrace(request: libc::c_uint, pid: i32, data: i32) -> io::Result<()> {
    let (none, data) = (std::ptr::null_mut::<libc::c_void>(), data as usize as *mut libc::c_void);
    // SAFETY: none of these requests reads or writes memory of this process.
    check_long(unsafe { libc::ptrace(request, pid, none, data) }).map(drop)
}
