//! The one boundary to the operating system: every system call that std does not offer is made here, by rustix where it
//! has it, by nix for users, groups and signals, and else by libc.
//!
//! Functions return `io::Error` with the errno; callers add the object and the next command. Nanoseconds are of
//! CLOCK_MONOTONIC unless a name says otherwise. All of it assumes a single-threaded launcher where it says so.

pub mod child;
pub mod directory;
pub mod files;
pub mod memory;
pub mod page_hints;
pub mod pagemap;
pub mod perf;
pub mod process;
pub mod procfs;
pub mod signals;
pub mod socket;
pub mod trace;
pub mod user;
pub mod userfault;

use std::io;

/// Turns a C return value into a result: -1 becomes the errno.
pub(crate) fn check(value: libc::c_int) -> io::Result<libc::c_int> {
    if value == -1 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Like [`check`] for calls that return a long.
pub(crate) fn check_long(value: libc::c_long) -> io::Result<libc::c_long> {
    if value == -1 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// A structure of libc's that a call is to fill.
///
/// # Safety
/// All-zero bytes are a valid value of it.
unsafe trait Fillable: Sized {
    /// With zeros in it, until the call has filled it.
    fn zeroed() -> Self {
        // SAFETY: what the trait promises.
        unsafe { std::mem::zeroed() }
    }
}

// SAFETY: numbers only.
unsafe impl Fillable for libc::rusage {}
// SAFETY: numbers, and pointers that may be null.
unsafe impl Fillable for libc::siginfo_t {}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Now, RFC 3339 in UTC with microseconds.
pub fn utc_now() -> String {
    humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string()
}

/// Random bytes from the kernel.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if got == N { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The name of an error, as it is looked up in manuals (`EPERM`), with its meaning.
pub fn errno_text(error: &io::Error) -> String {
    let name = match error.raw_os_error() {
        Some(libc::EPERM) => "EPERM",
        Some(libc::EACCES) => "EACCES",
        Some(libc::ENOENT) => "ENOENT",
        Some(libc::ENOSYS) => "ENOSYS",
        Some(libc::EINVAL) => "EINVAL",
        Some(libc::EOPNOTSUPP) => "EOPNOTSUPP",
        Some(libc::ENODEV) => "ENODEV",
        Some(libc::ENOEXEC) => "ENOEXEC",
        Some(libc::ENOSPC) => "ENOSPC",
        Some(libc::EMFILE) => "EMFILE",
        Some(libc::EBUSY) => "EBUSY",
        Some(libc::EROFS) => "EROFS",
        Some(libc::E2BIG) => "E2BIG",
        Some(libc::ENOMEM) => "ENOMEM",
        Some(libc::EAGAIN) => "EAGAIN",
        Some(libc::EFBIG) => "EFBIG",
        Some(libc::EDQUOT) => "EDQUOT",
        Some(libc::ENFILE) => "ENFILE",
        Some(libc::ENOTEMPTY) => "ENOTEMPTY",
        _ => return error.to_string(),
    };
    let text = error.to_string();
    let meaning = text.split(" (os error").next().unwrap_or(&text);
    format!("{meaning} ({name})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_named_as_in_manuals() {
        let text = errno_text(&io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(text, "Operation not permitted (EPERM)");
    }

    #[test]
    fn time_is_rfc_3339() {
        let now = utc_now();
        assert_eq!(now.len(), "2026-01-01T00:00:00.000000Z".len());
        assert!(now.starts_with("20") && now.ends_with('Z'), "{now}");
    }
}
