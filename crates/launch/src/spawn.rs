//! Starting the program, waiting for its tree, and giving the terminal back.

use crate::error::{Error, Result, cannot_fork, no_descriptor};
use crate::process_tree::reap::{Companion, Story, Watch};
use crate::sys::child::{self, Ends, Go, Group, Report, Setup, Step, Stream};
use crate::sys::{self, files, process, procfs, signals, socket};
use nix::sys::signalfd::SignalFd;
use std::ffi::CStr;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

const OPENING: &str =
    "the program's streams were open: is one a FIFO that nobody has open at its other end? run: ls -l FILE";

/// A child that has set itself up and waits for the go before exec.
pub struct Waiting {
    /// Its process id.
    pub pid: i32,
    group: Group,
    go: OwnedFd,
    report: File,
    signals: SignalFd,
}

/// The result of a started program.
#[derive(Debug)]
pub struct Finished {
    /// When exec was let go (CLOCK_MONOTONIC).
    pub started_ns: u64,
    /// How long the child had waited for a processor until then.
    pub waited_ns: Option<u64>,
    /// What was observed of the tree.
    pub story: Story,
    /// Why the program could not be executed at all.
    pub not_started: Option<(Step, std::io::Error)>,
    /// Further signals to the launcher.
    pub signals: SignalFd,
}

fn internal(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::Internal(format!("cannot {what}: {}", sys::errno_text(&error)))
}

fn high(fd: &impl AsFd) -> Result<OwnedFd> {
    files::high_duplicate(fd).map_err(no_descriptor)
}

/// Forks the child and waits until it is ready, no longer than the program may take.
pub fn prepare(timeout_s: Option<f64>, setup: &Setup) -> Result<Waiting> {
    let signals = signals::watch().map_err(internal("watch signals"))?;
    process::become_subreaper().map_err(internal("become a subreaper"))?;
    let (go_read, go_write) = UnixStream::pair().map_err(internal("make a pair of sockets"))?;
    let (report_read, report_write) = files::pipe().map_err(internal("make a pipe"))?;
    files::never_wait(&report_read).map_err(internal("make a pipe"))?;
    // High numbers, and only one copy of each end in the child: the program's own descriptors (0, 1, 2, the
    // measurement descriptor) are put in place over whatever has their numbers.
    let (ends, go) = (Ends { go: high(&go_read)?, report: high(&report_write)? }, high(&go_write)?);
    drop((go_read, go_write, report_write));
    let pid = child::spawn(setup, &ends).map_err(cannot_fork)?;
    drop(ends);
    let mut waiting = Waiting { pid, group: setup.group, go, report: report_read, signals };
    match waiting.wait_until_ready(timeout_s) {
        Ok(Report::Ready) => Ok(waiting),
        Ok(Report::Failed(step, errno)) => {
            let _ = process::wait_for(pid);
            Err(explain(step, &std::io::Error::from_raw_os_error(errno), setup))
        }
        Err(error) => {
            waiting.abandon();
            Err(error)
        }
    }
}

impl Waiting {
    /// Waits until the child is ready. Opening its streams can take for ever (a FIFO that nobody reads): then a signal
    /// to the launcher ends it, or the time-out.
    fn wait_until_ready(&mut self, timeout_s: Option<f64>) -> Result<Report> {
        let deadline_ns = timeout_s.map(|seconds| sys::monotonic_ns().saturating_add((seconds * 1e9) as u64));
        loop {
            if let Some(report) = self.read_report()? {
                return Ok(report);
            }
            let left = deadline_ns.map(|deadline| deadline.saturating_sub(sys::monotonic_ns()));
            if left == Some(0) {
                return Err(Error::Cannot(format!("the time-out came before {OPENING}")));
            }
            signals::wait_readable(&[self.report.as_raw_fd(), self.signals.as_raw_fd()], left)
                .map_err(internal("wait for the child"))?;
            while let Some(signal) = signals::next(&self.signals) {
                if signal != libc::SIGCHLD {
                    let name = signals::name(signal);
                    return Err(Error::Cannot(format!("ended by {name} before {OPENING}")));
                }
            }
        }
    }

    /// The child's report, if there is one that was not read yet.
    fn read_report(&mut self) -> Result<Option<Report>> {
        let mut bytes = [0; Report::BYTES];
        // The child writes it in one piece.
        match self.report.read(&mut bytes) {
            Ok(0) => Err(Error::Internal("the child ended before it was ready".to_owned())),
            Ok(_) => Ok(Report::decode(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(internal("read the child's report")(error)),
        }
    }

    /// Lets exec go and watches the tree to its end. The program gets the descriptors `given`, numbered from the first
    /// number on. A program with a group of its own that reads the terminal (`interactive`) gets it.
    pub fn go(
        mut self,
        given: (RawFd, &[BorrowedFd<'_>]),
        timeout_s: Option<f64>,
        interactive: bool,
        companion: &mut dyn Companion,
    ) -> Result<Finished> {
        let gets_it = interactive && self.group == Group::Own;
        let terminal = gets_it.then(terminal_of_program).flatten();
        if let Some(terminal) = &terminal {
            // A terminal that cannot be handed over leaves the program without a keyboard; the run continues.
            let _ = signals::set_foreground(terminal, self.pid);
        }
        let waited_ns = process::waiting_ns(self.pid);
        let started_ns = sys::monotonic_ns();
        let go: Go = given.0.to_le_bytes();
        socket::send(&self.go, &go, given.1).map_err(internal("let the child go"))?;
        let deadline_ns = timeout_s.map(|seconds| started_ns + (seconds * 1e9) as u64);
        let (program, shares_group) = (self.pid, self.group == Group::Shared);
        let watch = Watch { signals: &mut self.signals, program, shares_group, deadline_ns, companion };
        let story = watch.run().map_err(internal("wait for the program"));
        if let Some(terminal) = &terminal {
            let _ = signals::set_foreground(terminal, signals::own_group());
        }
        // The report's write end closes at exec; a report now is a failed exec. (Waited for, an exec could take for
        // ever: of a file that another process serves, or holds by a lease.)
        let not_started = match self.read_report() {
            Ok(Some(Report::Failed(step, errno))) => Some((step, std::io::Error::from_raw_os_error(errno))),
            _ => None,
        };
        Ok(Finished { started_ns, waited_ns, story: story?, not_started, signals: self.signals })
    }

    /// Gives up: ends the child before it has executed anything. (Closing the pipe would not do: the child has a copy.)
    pub fn abandon(self) {
        let _ = process::kill(self.pid, libc::SIGKILL);
        let _ = process::wait_for(self.pid);
    }
}

/// The group for a program that reads the terminal (`interactive`), or does not.
///
/// The terminal is handed to a group of the program's own where nobody else reads it. In a pipeline or a script the
/// program stays with the others, as it would without pagelab: a pager can read the keyboard, and so can the program. A
/// job in the background stays with its caller, so that `fg` brings it to the terminal.
pub fn group(interactive: bool) -> Group {
    if !interactive || !std::io::stdin().is_terminal() {
        return Group::Own;
    }
    match signals::controlling_terminal() {
        Some(terminal) if !signals::is_foreground(terminal.as_fd()) || procfs::shares_its_group() => Group::Shared,
        _ => Group::Own,
    }
}

/// The terminal that a program is to have for itself: its standard input, with this process's group in the foreground.
/// If its input is something else, the keyboard may be for another program of the pipeline or script (ssh before it, a
/// pager behind it), which would be stopped, and Ctrl-C is for all of them.
fn terminal_of_program() -> Option<File> {
    std::io::stdin().is_terminal().then(signals::own_terminal).flatten()
}

/// A file of the child's set-up that could not be opened or entered, and what to do.
fn unopened(what: &str, path: Option<&CStr>, errno: &str) -> Error {
    let path = path.map(CStr::to_string_lossy).unwrap_or_default();
    let path = crate::words::plain(&path);
    Error::BadInput(format!("cannot {what} {path}: {errno}; run: ls -ld {path}"))
}

/// The path of a standard stream.
fn path_of(setup: &Setup, number: usize) -> Option<&CStr> {
    match setup.streams.get(number)? {
        Stream::Path(path) => Some(path),
        Stream::Inherit | Stream::Fd(_) => None,
    }
}

/// The error for a failed step of the child's set-up, with what to do.
fn explain(step: Step, error: &std::io::Error, setup: &Setup) -> Error {
    let errno = sys::errno_text(error);
    let stream = |name: &str, number| {
        unopened(&format!("open the file for standard {name}"), path_of(setup, number), &errno)
    };
    let sandbox = crate::sandbox::hint(error);
    let cannot = |text: String| Error::Cannot(format!("{text}{sandbox}"));
    match step {
        Step::WorkingDirectory => unopened("enter the working directory", setup.cwd.as_deref(), &errno),
        Step::Stdin => stream("input", 0),
        Step::Stdout => stream("output", 1),
        Step::Stderr => stream("error", 2),
        Step::Cpus => cannot(format!("cannot pin the program to its CPUs: {errno}; run: taskset -p $$")),
        Step::Scheduler => {
            cannot(format!("cannot make the program real-time: {errno}; run without --scheduler fifo and chrt"))
        }
        Step::Personality => cannot(format!("cannot switch ASLR for the program: {errno}; run without --aslr")),
        Step::MemoryPolicy => cannot(format!("cannot bind the program's memory: {errno}; run without --node")),
        Step::User => cannot(format!("cannot become the user who asked: {errno}")),
        Step::ParentGone => Error::Internal("the launcher's parent process ended".to_owned()),
        Step::Group | Step::MeasureDescriptor => {
            Error::Internal(format!("cannot set up the child ({step:?}): {errno}"))
        }
        Step::Exec => Error::BadInput(format!("cannot execute the program: {errno}")),
    }
}
