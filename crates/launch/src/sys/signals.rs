//! Signals as file descriptors, waiting with a time-out, the terminal's foreground group.

use super::check;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::OnceLock;

/// Signals the launcher waits for.
const WATCHED: [Signal; 5] = [Signal::SIGCHLD, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals that the launcher takes differently than it was started with. One that stops it would stop the run's clock
/// too: a pager that shares its group reads the terminal, and all of the group is stopped.
const TAKEN: [(i32, libc::sighandler_t); 5] = [
    (libc::SIGCHLD, libc::SIG_DFL),
    (libc::SIGXFSZ, libc::SIG_IGN),
    (libc::SIGTSTP, libc::SIG_IGN),
    (libc::SIGTTIN, libc::SIG_IGN),
    (libc::SIGTTOU, libc::SIG_IGN),
];

/// What this process was started with, and its program is to be started with.
struct Inherited {
    mask: SigSet,
    /// Which of [`TAKEN`] were ignored.
    ignored: [bool; TAKEN.len()],
}

static INHERITED: OnceLock<Inherited> = OnceLock::new();

/// Takes the signals as the launcher needs them, first of all: the end of a child is not to be lost, a file beyond the
/// limit on its size is an error like any other, and no terminal stops the launcher.
pub fn take() {
    let _ = INHERITED.set(Inherited {
        mask: SigSet::thread_get_mask().unwrap_or(SigSet::empty()),
        ignored: TAKEN.map(|(signal, _)| is_ignored(signal)),
    });
    TAKEN.into_iter().for_each(|(signal, how)| dispose(signal, how));
}

/// Whether this process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// The watched signals. One that the caller ignores (nohup, a background job of a shell without job control) is not to
/// end the run; SIGTERM always is, since the launcher's processes use it among themselves.
fn watched() -> impl Iterator<Item = Signal> {
    let may_be_ignored = [Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
    WATCHED.into_iter().filter(move |&signal| !(may_be_ignored.contains(&signal) && is_ignored(signal as i32)))
}

/// Blocks the signals that the launcher waits for, and gives a non-blocking descriptor to read them from.
pub fn watch() -> io::Result<SignalFd> {
    let set = SigSet::from_iter(watched());
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// The next pending signal of a descriptor from [`watch`].
pub fn next(watched: &SignalFd) -> Option<i32> {
    next_with_sender(watched).map(|(signal, _)| signal)
}

/// As [`next`], and whether the kernel sent it: to the whole foreground group, for a key at the terminal.
pub fn next_with_sender(watched: &SignalFd) -> Option<(i32, bool)> {
    const SI_KERNEL: i32 = 0x80;
    watched.read_signal().ok()?.map(|info| (info.ssi_signo as i32, info.ssi_code == SI_KERNEL))
}

/// Whether a signal that is watched, and is not about a child, waits to be read.
pub fn is_asked_to_end() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let pending = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    let waiting = pending("SigPnd:") | pending("ShdPnd:");
    watched().any(|signal| signal != Signal::SIGCHLD && waiting >> (signal as i32 - 1) & 1 == 1)
}

/// Gives a program about to be started the signals as they were inherited. Async-signal-safe.
pub fn reset_for_program() {
    let given = INHERITED.get();
    let mask = given.map_or(SigSet::empty(), |given| given.mask);
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None);
    for (number, (signal, _)) in TAKEN.iter().enumerate() {
        let ignored = given.is_some_and(|given| given.ignored.get(number) == Some(&true));
        dispose(*signal, if ignored { libc::SIG_IGN } else { libc::SIG_DFL });
    }
    // std ignores it before main, as Python does: whether the caller did is not known.
    dispose(libc::SIGPIPE, libc::SIG_DFL);
}

/// `how`: SIG_DFL or SIG_IGN.
fn dispose(signal: i32, how: libc::sighandler_t) {
    // SAFETY: no handler is set that could be called.
    unsafe { libc::signal(signal, how) };
}

/// Whether a write would find room, or an error, at once.
pub fn is_writable(file: impl AsFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(&file, PollFlags::OUT)];
    Ok(poll(&mut polled, Some(&Timespec::default()))? > 0)
}

/// Waits until a descriptor is readable or the time is up (None: no limit). An interrupted wait counts as over. Gives
/// the descriptors that have hung up: waiting for them again would return at once.
pub fn wait_readable(fds: &[RawFd], timeout_ns: Option<u64>) -> io::Result<Vec<RawFd>> {
    wait_for(fds, None, timeout_ns)
}

/// As [`wait_readable`], and until `writable` has room (or an error) for who writes to it.
pub fn wait_for(fds: &[RawFd], writable: Option<RawFd>, timeout_ns: Option<u64>) -> io::Result<Vec<RawFd>> {
    let one = |events| move |fd: RawFd| libc::pollfd { fd, events, revents: 0 };
    let mut polled: Vec<libc::pollfd> = fds.iter().copied().map(one(libc::POLLIN)).collect();
    polled.extend(writable.map(one(libc::POLLOUT)));
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
            let read = polled.iter().take(fds.len());
            Ok(read.filter(|one| one.revents & over != 0).map(|one| one.fd).collect())
        }
    }
}

/// Whether a descriptor is a terminal whose foreground group is this process's.
pub fn is_foreground(fd: BorrowedFd<'_>) -> bool {
    isatty(fd) && tcgetpgrp(fd).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// The controlling terminal.
pub fn controlling_terminal() -> Option<File> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Some(rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?.into())
}

/// The controlling terminal, if this process's group is in its foreground.
pub fn own_terminal() -> Option<File> {
    controlling_terminal().filter(|terminal| is_foreground(terminal.as_fd()))
}

/// Takes a terminal back that was handed to a group without a process by now. (A shell that has put another job into
/// the foreground meanwhile keeps it.)
pub fn take_back(terminal: &impl AsFd) {
    let holder = tcgetpgrp(terminal).map_or(0, |group| Pid::as_raw(Some(group)));
    let is_gone = holder > 1 && !super::process::exists(-holder);
    if holder != own_group() && is_gone {
        // Without it the shell takes the terminal when this job has ended.
        let _ = set_foreground(terminal, own_group());
    }
}

/// Makes a group the terminal's foreground group; from the background too, as SIGTTOU is ignored ([`take`]).
pub fn set_foreground(terminal: &impl AsFd, group: i32) -> io::Result<()> {
    let group = Pid::from_raw(group).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(tcsetpgrp(terminal, group)?)
}

/// This process's group.
pub fn own_group() -> i32 {
    Pid::as_raw(Some(rustix::process::getpgrp()))
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
    use std::os::fd::AsRawFd;

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
