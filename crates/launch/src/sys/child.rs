//! Between fork and exec: everything a child does there, without allocating.

use super::process::{CpuSet, RealTime};
use super::signals;
use super::socket::{self, DESCRIPTORS};
use super::user::{self, Identity};
use super::{check, check_long};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

/// A step of the child's set-up, for the message when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Step {
    Group = 1,
    Cpus,
    Scheduler,
    Personality,
    MemoryPolicy,
    User,
    WorkingDirectory,
    Stdin,
    Stdout,
    Stderr,
    MeasureDescriptor,
    ParentGone,
    Exec,
}

impl Step {
    const ALL: [Step; 13] = [
        Step::Group,
        Step::Cpus,
        Step::Scheduler,
        Step::Personality,
        Step::MemoryPolicy,
        Step::User,
        Step::WorkingDirectory,
        Step::Stdin,
        Step::Stdout,
        Step::Stderr,
        Step::MeasureDescriptor,
        Step::ParentGone,
        Step::Exec,
    ];
}

/// Where one of the three standard streams of the program goes.
pub enum Stream {
    /// The launcher's own.
    Inherit,
    /// Opened by the child, with the program's rights.
    Path(CString),
    /// An open descriptor.
    Fd(RawFd),
}

/// The process group that a program is started in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// One of its own.
    Own,
    /// One of its own, in a session of its own, which has no controlling terminal.
    Session,
    /// The launcher's.
    Shared,
}

/// A memory policy for set_mempolicy(2).
#[derive(Clone, Copy)]
pub struct MemoryPolicy {
    /// Node to bind to.
    pub node: u32,
}

/// Everything the child needs, prepared before the fork.
pub struct Setup {
    /// Program to execute.
    pub path: CString,
    /// Its arguments.
    pub argv: Vec<CString>,
    /// Its whole environment.
    pub envp: Vec<CString>,
    /// Directory to change to.
    pub cwd: Option<CString>,
    /// Standard input, output and error.
    pub streams: [Stream; 3],
    /// An open descriptor and the number under which the program finds it.
    pub measure: Option<(RawFd, RawFd)>,
    /// CPUs to run on.
    pub cpus: Option<CpuSet>,
    /// Its real-time policy; None: the launcher's.
    pub real_time: Option<RealTime>,
    /// Flags for personality(2).
    pub personality: Option<u32>,
    /// Memory policy.
    pub memory: Option<MemoryPolicy>,
    /// Its process group.
    pub group: Group,
    /// User to become; None: stay.
    pub identity: Option<Identity>,
    /// The launcher's process id.
    pub parent: i32,
}

/// The child's ends of what connects it with the launcher; closed by exec.
pub struct Ends {
    /// Socket whose first message, a [`Go`], lets exec go.
    pub go: OwnedFd,
    /// Write end of the pipe on which it reports.
    pub report: OwnedFd,
}

/// A child's report before exec: ready, or a failed step with its errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Set up and waiting.
    Ready,
    /// This step failed with this errno.
    Failed(Step, i32),
}

impl Report {
    /// Size of an encoded report.
    pub const BYTES: usize = 5;

    fn encode(self) -> [u8; Report::BYTES] {
        let (step, errno) = match self {
            Report::Ready => (0, 0),
            Report::Failed(step, errno) => (step as u8, errno),
        };
        let [a, b, c, d] = errno.to_le_bytes();
        [step, a, b, c, d]
    }

    /// Reads a report as the child wrote it.
    pub fn decode([step, errno @ ..]: [u8; Report::BYTES]) -> Option<Report> {
        if step == 0 {
            return Some(Report::Ready);
        }
        let step = Step::ALL.into_iter().find(|known| *known as u8 == step)?;
        Some(Report::Failed(step, i32::from_le_bytes(errno)))
    }
}

/// Pointers for execve, made before the fork because making them allocates.
struct Vectors {
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
}

fn vector(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Forks a child that sets itself up, reports, waits for the go, and executes the program.
pub fn spawn(setup: &Setup, ends: &Ends) -> io::Result<i32> {
    let vectors = Vectors { argv: vector(&setup.argv), envp: vector(&setup.envp) };
    match super::process::fork()? {
        0 => run(setup, ends, &vectors),
        pid => Ok(pid),
    }
}

fn run(setup: &Setup, ends: &Ends, vectors: &Vectors) -> ! {
    let failed = |(step, error): (Step, io::Error)| -> ! {
        send(&ends.report, Report::Failed(step, error.raw_os_error().unwrap_or(0)));
        super::process::exit_now(127)
    };
    if let Err(problem) = prepare(setup) {
        failed(problem);
    }
    send(&ends.report, Report::Ready);
    take_over(wait_for_go(&ends.go));
    // SAFETY: the path and all strings are NUL-terminated and alive, the vectors end with a null pointer.
    unsafe { libc::execve(setup.path.as_ptr(), vectors.argv.as_ptr(), vectors.envp.as_ptr()) };
    failed((Step::Exec, io::Error::last_os_error()))
}

fn send(fd: &OwnedFd, report: Report) {
    // A launcher that has ended needs no report.
    let _ = rustix::io::write(fd, &report.encode());
}

/// The message that lets exec go: the number of the first of the descriptors that come with it; the others follow.
pub type Go = [u8; 4];

/// Descriptors that the program gets beside its own, and the first one's number.
struct Given {
    first: RawFd,
    fds: [RawFd; DESCRIPTORS],
    count: usize,
}

fn wait_for_go(fd: &OwnedFd) -> Given {
    let (mut first, mut fds): (Go, _) = (Go::default(), [-1; DESCRIPTORS]);
    loop {
        match socket::receive(fd, &mut first, &mut fds) {
            Ok((got, count)) if got == first.len() => {
                return Given { first: RawFd::from_le_bytes(first), fds, count };
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // End of file: the launcher died or gave up.
            _ => super::process::exit_now(127),
        }
    }
}

/// Gives descriptors their numbers. A descriptor that cannot have its number is missing in the program, which notices
/// this.
fn take_over(given: Given) {
    for (number, fd) in given.fds.iter().enumerate().take(given.count) {
        let _ = duplicate(*fd, given.first + number as RawFd);
    }
}

fn prepare(setup: &Setup) -> Result<(), (Step, io::Error)> {
    let at = |step| move |error| (step, error);
    signals::reset_for_program();
    let group = match setup.group {
        Group::Session => rustix::process::setsid().map(drop),
        Group::Own => rustix::process::setpgid(None, None),
        Group::Shared => Ok(()),
    };
    group.map_err(|error| (Step::Group, error.into()))?;
    if let Some(cpus) = &setup.cpus {
        cpus.apply().map_err(at(Step::Cpus))?;
    }
    if let Some(what) = setup.real_time {
        super::process::become_real_time(what, false).map_err(at(Step::Scheduler))?;
    }
    if let Some(flags) = setup.personality {
        super::process::set_personality(flags).map_err(at(Step::Personality))?;
    }
    if let Some(memory) = setup.memory {
        bind_memory(memory).map_err(at(Step::MemoryPolicy))?;
    }
    // From here on with the program's rights: pagelab opens or enters nothing that the program itself may not.
    match &setup.identity {
        Some(identity) => user::become_user(identity).map_err(at(Step::User))?,
        None => clear_ambient(),
    }
    // After the change of user, which would clear it.
    super::process::signal_on_parent_death(Signal::KILL).map_err(at(Step::ParentGone))?;
    if super::process::parent_pid() != setup.parent {
        return Err((Step::ParentGone, io::Error::from_raw_os_error(libc::ESRCH)));
    }
    if let Some(cwd) = &setup.cwd {
        rustix::process::chdir(&**cwd).map_err(|error| (Step::WorkingDirectory, error.into()))?;
    }
    for (number, (stream, step)) in setup.streams.iter().zip([Step::Stdin, Step::Stdout, Step::Stderr]).enumerate()
    {
        connect(stream, number as RawFd).map_err(at(step))?;
    }
    if let Some((open, number)) = setup.measure {
        duplicate(open, number).map_err(at(Step::MeasureDescriptor))?;
    }
    Ok(())
}

/// A launcher with ambient capabilities must not pass them on through exec.
fn clear_ambient() {
    if user::own_uids().0 != 0 {
        // Failing means there is nothing to drop: an unprivileged process may always drop what it has.
        let _ = user::drop_capabilities();
    }
}

fn connect(stream: &Stream, number: RawFd) -> io::Result<()> {
    match stream {
        Stream::Inherit => Ok(()),
        Stream::Fd(fd) => duplicate(*fd, number),
        Stream::Path(path) => {
            let opened = open(path, number == 0)?;
            if opened.as_raw_fd() == number {
                // It belongs to the program from now on.
                let _ = opened.into_raw_fd();
                return Ok(());
            }
            duplicate(opened.as_raw_fd(), number)
        }
    }
}

fn open(path: &CStr, for_reading: bool) -> io::Result<OwnedFd> {
    let access = if for_reading { OFlags::RDONLY } else { OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC };
    Ok(rustix::fs::open(path, access | OFlags::NOCTTY, Mode::from_raw_mode(0o666))?)
}

fn duplicate(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::dup2(from, to) }).map(drop)
}

fn bind_memory(policy: MemoryPolicy) -> io::Result<()> {
    const WORDS: usize = 1024 / 64;
    let mut mask = [0_u64; WORDS];
    if let Some(word) = mask.get_mut(policy.node as usize / 64) {
        *word |= 1 << (policy.node % 64);
    }
    // SAFETY: the mask has the given number of bits (plus one, as the call counts) and is alive.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, mask.as_ptr(), WORDS * 64 + 1) };
    check_long(done).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_pipe() {
        for step in Step::ALL {
            let report = Report::Failed(step, libc::EACCES);
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        assert_eq!(Report::decode(Report::Ready.encode()), Some(Report::Ready));
        assert_eq!(Report::decode([99, 0, 0, 0, 0]), None);
    }
}
