//! Why a run could not be made, and the exit code that says so.

use std::fmt;

/// A run that did not happen. The message names the operation, the object, the errno and the next command to type.
#[derive(Debug)]
pub enum Error {
    /// The request is wrong: a file that does not exist, a malformed value (exit code 2).
    BadInput(String),
    /// The request is right, but this machine cannot do it, or not with these rights (exit code 3).
    Cannot(String),
    /// The launcher itself failed (exit code 4).
    Internal(String),
}

impl Error {
    /// The process's exit code for this error (docs/architecture/contracts.md, "Errors and exit codes").
    pub fn exit_code(&self) -> i32 {
        match self {
            Error::BadInput(_) => 2,
            Error::Cannot(_) => 3,
            Error::Internal(_) => 4,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BadInput(message) | Error::Cannot(message) | Error::Internal(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

/// No process can be made.
pub fn cannot_fork(error: std::io::Error) -> Error {
    Error::Cannot(format!(
        "cannot fork: {}; run: ulimit -u; cat /sys/fs/cgroup/pids.max",
        crate::sys::errno_text(&error)
    ))
}

/// No descriptor with a high number, away from the program's own descriptors, is available.
pub fn no_descriptor(error: std::io::Error) -> Error {
    Error::Cannot(format!(
        "cannot make a file descriptor with a number above 255: {}; run: ulimit -n 1024",
        crate::sys::errno_text(&error)
    ))
}

/// What most functions here return.
pub type Result<T> = std::result::Result<T, Error>;
