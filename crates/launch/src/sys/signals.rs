//! Signals as file descriptors, waiting with a time-out, the terminal's foreground group.

use super::check;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// Signals the launcher waits for.
pub const WATCHED: [i32; 5] = [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: all-zero bytes are a valid sigset_t, which sigemptyset then initialises.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live sigset_t and the numbers are valid signals.
    unsafe {
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
    }
    set
}

/// Blocks [`WATCHED`] and gives a non-blocking descriptor to read them from.
pub fn watch() -> io::Result<File> {
    let set = set_of(&WATCHED);
    // SAFETY: `set` is initialised; a null old set is allowed.
    check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) })?;
    // SAFETY: `set` is initialised.
    let fd = check(unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The next pending signal of a descriptor from [`watch`].
pub fn next(watched: &mut File) -> Option<i32> {
    let mut info = [0_u8; std::mem::size_of::<libc::signalfd_siginfo>()];
    watched.read_exact(&mut info).ok()?;
    let number = info.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes))?;
    Some(number as i32)
}

/// Undoes for a program about to be started what the launcher did to signals. Async-signal-safe.
pub fn reset_for_program() {
    let none = set_of(&[]);
    // SAFETY: `none` is an initialised set; SIG_DFL is a valid disposition for both signals. std ignores SIGPIPE at
    // start-up, and the launcher ignores SIGTTOU; a program expects neither.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::signal(libc::SIGTTOU, libc::SIG_DFL);
    }
}

/// Waits until a descriptor is readable or the time is up (None: no limit). An interrupted wait counts as over. Gives
/// the descriptors that have hung up: waiting for them again would return at once.
pub fn wait_readable(fds: &[RawFd], timeout_ns: Option<u64>) -> io::Result<Vec<RawFd>> {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let limit = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array and its length belong together; `limit` is null or points to a live timespec.
    let done = unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as u64, limit, std::ptr::null()) };
    match check(done) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        Err(_) => Ok(Vec::new()),
        Ok(_) => {
            let over = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;
            Ok(polled.iter().filter(|one| one.revents & over != 0).map(|one| one.fd).collect())
        }
    }
}

/// Whether a descriptor is a terminal whose foreground group is this process's.
pub fn is_foreground(fd: RawFd) -> bool {
    // SAFETY: plain integers.
    unsafe { libc::isatty(fd) == 1 && libc::tcgetpgrp(fd) == libc::getpgrp() }
}

/// Makes a group the terminal's foreground group. SIGTTOU is ignored from then on: the launcher may by then be in
/// the background itself, and must be able to take the terminal back.
pub fn set_foreground(terminal: &impl AsRawFd, group: i32) -> io::Result<()> {
    // SAFETY: SIG_IGN is a valid disposition; the other arguments are plain integers.
    unsafe {
        libc::signal(libc::SIGTTOU, libc::SIG_IGN);
        check(libc::tcsetpgrp(terminal.as_raw_fd(), group)).map(drop)
    }
}

/// This process's group.
pub fn own_group() -> i32 {
    // SAFETY: getpgrp has no arguments and cannot fail.
    unsafe { libc::getpgrp() }
}

/// The short name of a signal (`SIGKILL`).
pub fn name(signal: i32) -> String {
    const NAMES: [&str; 32] = [
        "0", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM",
        "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match NAMES.get(signal as usize) {
        Some(name) if signal > 0 => format!("SIG{name}"),
        _ => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_has_hung_up_is_told_so_that_nobody_spins_on_it() {
        let (reader, writer) = crate::sys::files::pipe().expect("pipe");
        let (silent, _open) = crate::sys::files::pipe().expect("pipe");
        drop(writer);
        let fds = [reader.as_raw_fd(), silent.as_raw_fd()];
        assert_eq!(wait_readable(&fds, Some(0)).expect("poll"), [reader.as_raw_fd()]);
        assert_eq!(wait_readable(&fds[1..], Some(0)).expect("poll"), [0_i32; 0]);
    }

    #[test]
    fn signals_have_their_usual_names() {
        assert_eq!((name(libc::SIGKILL), name(libc::SIGTERM)), ("SIGKILL".to_owned(), "SIGTERM".to_owned()));
        assert_eq!(name(40), "signal 40");
    }
}
