//! Announces the program's process to the caller before it executes, and waits until the caller is ready for it.
//!
//! A caller that wants to trace or map the program from its first instruction gives the launcher one end of a stream
//! socket (`announce_fd`). When the process waits for its exec, the launcher writes its id there, as decimal digits and
//! a newline. It lets the process go at the first byte that comes back, or when the other end is closed.

use crate::error::{Error, Result};
use crate::sys;
use crate::sys::files;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::RawFd;

/// The caller's socket.
pub struct Caller(Option<File>);

impl Caller {
    /// Takes the socket over, so that no program inherits it; before anything is forked.
    pub fn take(fd: Option<RawFd>) -> Result<Caller> {
        let taken = fd.map(files::take_over).transpose();
        let taken = taken.map_err(|error| {
            let fd = fd.unwrap_or(-1);
            Error::BadInput(format!("announce_fd = {fd} is not an open descriptor: {}", sys::errno_text(&error)))
        })?;
        Ok(Caller(taken))
    }

    /// Nobody is told.
    pub fn none() -> Caller {
        Caller(None)
    }

    /// Announces the process, and waits for the answer. A caller that has ended needs no announcement, and delays
    /// nothing.
    pub fn announce(mut self, pid: i32) {
        self.tell(&pid.to_string());
    }

    /// One line, and the answer to it.
    pub fn tell(&mut self, line: &str) {
        if let Some(socket) = &mut self.0
            && socket.write_all(format!("{line}\n").as_bytes()).is_ok()
        {
            while socket.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::Interrupted) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_process_is_told_and_the_answer_awaited() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let caller = Caller::take(Some(theirs.into_raw_fd())).expect("open");
        let mut ours = ours;
        ours.write_all(b"!").expect("room");
        caller.announce(1234);
        let mut told = String::new();
        ours.read_to_string(&mut told).expect("text");
        assert_eq!(told, "1234\n");
    }

    #[test]
    fn a_caller_that_is_gone_holds_nothing_up() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(ours);
        Caller::take(Some(theirs.into_raw_fd())).expect("open").announce(1234);
        Caller::take(None).expect("nothing").announce(1234);
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_refused() {
        assert!(
            matches!(Caller::take(Some(1 << 20)), Err(Error::BadInput(why)) if why.contains("1048576 is not an open descriptor: Bad file descriptor"))
        );
    }
}
