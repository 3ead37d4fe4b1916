//! Processes: subreaping, reaping, signals to them, CPU sets.

use super::trace::Stopped;
use super::{Fillable, check};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, getrlimit, pidfd_open, pidfd_send_signal,
};
use std::io;

/// A process that has been reaped.
#[derive(Clone, Copy, Debug)]
pub struct Reaped {
    /// Its id.
    pub pid: i32,
    /// How it ended.
    pub end: End,
    /// What it and the children it waited for used.
    pub usage: Usage,
    /// When the launcher saw that it had ended (CLOCK_MONOTONIC).
    pub at_ns: u64,
    /// How long its first thread waited for a processor while it was ready to run; None if the kernel does not report
    /// it.
    pub waiting_ns: Option<u64>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
}

/// The part of `struct rusage` that Linux fills and pagelab uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub user_ns: u64,
    /// CPU time in the kernel.
    pub system_ns: u64,
    /// Largest resident set of a single process.
    pub peak_rss_bytes: u64,
    /// Faults that needed no I/O.
    pub minor_faults: u64,
    /// Faults that did.
    pub major_faults: u64,
}

impl Usage {
    /// Times and faults add up; the peak is that of the larger.
    pub fn add(&mut self, other: &Usage) {
        let Usage { user_ns, system_ns, peak_rss_bytes, minor_faults, major_faults } = *other;
        self.user_ns += user_ns;
        self.system_ns += system_ns;
        self.peak_rss_bytes = self.peak_rss_bytes.max(peak_rss_bytes);
        self.minor_faults += minor_faults;
        self.major_faults += major_faults;
    }
}

fn ns(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000
}

/// A child that wait(2) reports.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// It has ended, and was reaped.
    Ended(Reaped),
    /// It is traced, and waits to be resumed.
    Stopped(Stopped),
}

/// Reaps one child that has ended, if there is one now, or returns one that is traced and stopped. `Ok(None)`: there
/// are children, and none of them has ended or stopped. Fails with ECHILD when there are no children.
pub fn reap() -> io::Result<Option<Change>> {
    let Some(pid) = changed()? else { return Ok(None) };
    let (at_ns, waiting_ns) = (super::monotonic_ns(), waiting_ns(pid));
    let mut status = 0;
    let mut usage: libc::rusage = Fillable::zeroed();
    // SAFETY: both pointers are to live values of the right types.
    let pid = check(unsafe { libc::wait4(pid, &mut status, libc::WNOHANG | libc::__WALL, &mut usage) })?;
    if pid == 0 {
        return Ok(None);
    }
    if libc::WIFSTOPPED(status) {
        return Ok(Some(Change::Stopped(Stopped::new(pid, status))));
    }
    let end = if libc::WIFSIGNALED(status) {
        End::Signalled(libc::WTERMSIG(status))
    } else {
        End::Exited(libc::WEXITSTATUS(status))
    };
    let usage = Usage {
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        peak_rss_bytes: usage.ru_maxrss as u64 * 1024,
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
    };
    Ok(Some(Change::Ended(Reaped { pid, end, usage, at_ns, waiting_ns })))
}

/// A child that has ended and was not reaped yet, or is traced and stopped: the kernel returns those whatever the flags
/// are.
fn changed() -> io::Result<Option<i32>> {
    let mut found: libc::siginfo_t = Fillable::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: the pointer is to a live value of the right type.
    check(unsafe { libc::waitid(libc::P_ALL, 0, &mut found, flags) })?;
    // SAFETY: waitid fills in the process's id, or leaves the zero that was there.
    Ok(Some(unsafe { found.si_pid() }).filter(|&pid| pid != 0))
}

/// How long a process's first thread has waited for a processor so far (also of one that has ended and was not reaped).
pub fn waiting_ns(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Time that the hypervisor gave to other guests while these processors had work to do, since boot; None if it is not
/// reported.
pub fn steal_ns(cpus: &[usize]) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks = Some(rustix::param::clock_ticks_per_second()).filter(|&ticks| ticks > 0)?;
    let steal_of = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let cpu: usize = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
        cpus.contains(&cpu).then(|| fields.nth(7)?.parse::<u64>().ok()).flatten()
    };
    text.lines().filter_map(steal_of).reduce(|sum, one| sum + one).map(|steal| steal * (1_000_000_000 / ticks))
}

/// Makes this process the parent of every orphan among its descendants.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Asks for a signal when the parent dies.
pub fn signal_on_parent_death(signal: Signal) -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(signal))?)
}

/// Sends a signal to a process (positive id) or a group (negative).
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes plain integers.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Sends signals to a process if `is_meant` returns true; it is called while the number cannot mean another process.
/// Fails with ESRCH if there is no such process, or another one.
pub fn signal_if(pid: i32, signals: &[Signal], is_meant: impl FnOnce() -> bool) -> io::Result<()> {
    let held = Pid::from_raw(pid).ok_or(Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let held = match held {
        Ok(held) => Some(held),
        // Before Linux 5.3, in a sandbox that does not know it, or without a free descriptor.
        Err(Errno::NOSYS | Errno::PERM | Errno::MFILE | Errno::NFILE) => None,
        Err(error) => return Err(error.into()),
    };
    if !is_meant() {
        return Err(Errno::SRCH.into());
    }
    for &signal in signals {
        match &held {
            Some(held) => pidfd_send_signal(held, signal)?,
            None => kill(pid, signal.as_raw())?,
        }
    }
    Ok(())
}

/// How many descriptors a process may have (the soft limit); None: it is gone, or out of reach.
pub fn descriptor_limit(pid: i32) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: no new limit is given, and `limit` is alive.
    let done = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &mut limit) };
    (done == 0).then_some(limit.rlim_cur)
}

/// Whether a process with this id exists (also one that has ended and was not reaped).
pub fn exists(pid: i32) -> bool {
    !kill(pid, 0).is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
}

/// This process's id.
pub fn own_pid() -> i32 {
    std::process::id() as i32
}

/// The parent's id (0 when it is in another pid namespace).
pub fn parent_pid() -> i32 {
    Pid::as_raw(rustix::process::getppid())
}

/// Ends this process at once, without running destructors or flushing.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit does not return.
    unsafe { libc::_exit(code) }
}

/// Forks. The caller must be single-threaded, so that the child may go on using ordinary Rust.
pub fn fork() -> io::Result<i32> {
    // SAFETY: the launcher has no other thread, so the child inherits no lock that somebody else held.
    check(unsafe { libc::fork() })
}

/// Waits for one particular child to end.
pub fn wait_for(pid: i32) -> io::Result<End> {
    let options = WaitOptions::from_bits_retain(libc::__WALL as u32);
    loop {
        match rustix::process::waitpid(Pid::from_raw(pid), options) {
            Ok(Some((_, status))) => {
                let signalled = status.terminating_signal().map(End::Signalled);
                return Ok(signalled.unwrap_or(End::Exited(status.exit_status().unwrap_or(0))));
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// CPUs as a kernel bit set, large enough for 8,192 of them.
#[derive(Clone)]
pub struct CpuSet([libc::c_ulong; CpuSet::WORDS]);

impl CpuSet {
    const BITS: usize = libc::c_ulong::BITS as usize;
    const WORDS: usize = 8192 / CpuSet::BITS;

    /// The set of these CPUs; those above 8,191 are left out.
    pub fn new(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet([0; CpuSet::WORDS]);
        for &cpu in cpus {
            if let Some(word) = set.0.get_mut(cpu / CpuSet::BITS) {
                *word |= 1 << (cpu % CpuSet::BITS);
            }
        }
        set
    }

    fn list(&self) -> Vec<usize> {
        let has = |&cpu: &usize| self.0[cpu / CpuSet::BITS] >> (cpu % CpuSet::BITS) & 1 == 1;
        (0..CpuSet::WORDS * CpuSet::BITS).filter(has).collect()
    }

    /// Restricts the calling thread to the set. Async-signal-safe.
    pub fn apply(&self) -> io::Result<()> {
        let bytes = std::mem::size_of_val(&self.0);
        // SAFETY: the pointer and the size describe the live array; the kernel only reads it.
        check(unsafe { libc::sched_setaffinity(0, bytes, self.0.as_ptr().cast()) }).map(drop)
    }
}

/// CPUs the calling thread may run on (its affinity within its cpuset).
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let mut set = CpuSet::new(&[]);
    let bytes = std::mem::size_of_val(&set.0);
    // SAFETY: the pointer and the size describe the live array, which the kernel fills.
    check(unsafe { libc::sched_getaffinity(0, bytes, set.0.as_mut_ptr().cast()) })?;
    Ok(set.list())
}

/// The scheduling policy of this process and its nice value, as text (`SCHED_OTHER nice 0`).
pub fn scheduler() -> String {
    let nice = rustix::process::getpriority_process(None).unwrap_or(0);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Field 41; the third is the first behind the name, which may contain anything.
    let policy = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(38)?.parse().ok());
    let name = match policy {
        Some(libc::SCHED_OTHER) => "SCHED_OTHER",
        Some(libc::SCHED_BATCH) => "SCHED_BATCH",
        Some(libc::SCHED_IDLE) => "SCHED_IDLE",
        Some(libc::SCHED_FIFO) => "SCHED_FIFO",
        Some(libc::SCHED_RR) => "SCHED_RR",
        Some(libc::SCHED_DEADLINE) => "SCHED_DEADLINE",
        _ => "unknown",
    };
    format!("{name} nice {nice}")
}

/// The highest priority of SCHED_FIFO (MAX_RT_PRIO - 1 in Linux's `include/linux/sched/prio.h`).
pub const HIGHEST_FIFO: i32 = 99;

/// A real-time policy and its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTime {
    /// Whether it is SCHED_RR; otherwise SCHED_FIFO.
    pub round_robin: bool,
    /// Its priority, from 1 on.
    pub priority: i32,
}

impl RealTime {
    /// SCHED_FIFO at this priority.
    pub fn fifo(priority: i32) -> RealTime {
        RealTime { round_robin: false, priority }
    }

    /// That of the calling thread; None: it has none.
    pub fn own() -> Option<RealTime> {
        let mut parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the structure is alive; 0 is the calling thread.
        let (policy, read) = unsafe { (libc::sched_getscheduler(0), libc::sched_getparam(0, &raw mut parameters)) };
        let round_robin = match policy & !libc::SCHED_RESET_ON_FORK {
            libc::SCHED_FIFO => false,
            libc::SCHED_RR => true,
            _ => return None,
        };
        (policy >= 0 && read == 0).then_some(RealTime { round_robin, priority: parameters.sched_priority })
    }
}

impl std::fmt::Display for RealTime {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} priority {}", if self.round_robin { "SCHED_RR" } else { "SCHED_FIFO" }, self.priority)
    }
}

/// Makes the calling thread real-time; `alone`: what it forks starts under SCHED_OTHER. Async-signal-safe.
pub fn become_real_time(what: RealTime, alone: bool) -> io::Result<()> {
    let policy = if what.round_robin { libc::SCHED_RR } else { libc::SCHED_FIFO };
    let policy = policy | if alone { libc::SCHED_RESET_ON_FORK } else { 0 };
    let parameters = libc::sched_param { sched_priority: what.priority };
    // SAFETY: the structure is alive; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &parameters) }).map(drop)
}

/// The limit on real-time priorities in force (RLIMIT_RTPRIO); 0: none for an ordinary user.
pub fn real_time_limit() -> u64 {
    limit(Resource::Rtprio).0
}

/// Lifts the limit on locked memory, for this process and those it starts.
pub fn unlimit_locked_memory() -> io::Result<()> {
    Ok(rustix::process::setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None })?)
}

/// Lets this process, and those it starts, have real-time priorities up to this one, also without rights.
pub fn allow_priority(priority: i32) -> io::Result<()> {
    let wanted = u64::try_from(priority.min(HIGHEST_FIFO)).unwrap_or(0);
    let (soft, hard) = limit(Resource::Rtprio);
    if soft >= wanted {
        return Ok(());
    }
    let lifted = Rlimit { current: Some(wanted), maximum: Some(hard.max(wanted)) };
    Ok(rustix::process::setrlimit(Resource::Rtprio, lifted)?)
}

/// A limit in force: the soft one, and how far the process may raise it; `RLIM_INFINITY` where there is none.
pub fn limit(resource: Resource) -> (u64, u64) {
    let Rlimit { current, maximum } = getrlimit(resource);
    (current.unwrap_or(libc::RLIM_INFINITY), maximum.unwrap_or(libc::RLIM_INFINITY))
}

/// The limit on locked memory in force, in bytes.
pub fn locked_memory_limit() -> u64 {
    limit(Resource::Memlock).0
}

/// Whether this process may lock so much memory; tried on memory that is never touched.
pub fn may_lock(bytes: u64) -> bool {
    let Ok(bytes) = usize::try_from(bytes) else { return false };
    let (access, kind) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a fresh mapping at an address of the kernel's choice, locked as its pages come in, of which there are
    // none, and unmapped again; nothing else refers to it.
    unsafe {
        let base = libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0);
        if base == libc::MAP_FAILED {
            return false;
        }
        let locked = libc::syscall(libc::SYS_mlock2, base, bytes, libc::MLOCK_ONFAULT) == 0;
        libc::munmap(base, bytes);
        locked
    }
}

/// The personality's flags, unchanged.
pub fn personality() -> io::Result<u32> {
    // This value asks without changing.
    set_personality(0xffff_ffff)
}

/// Sets the personality's flags; returns the previous ones. Async-signal-safe.
pub fn set_personality(flags: u32) -> io::Result<u32> {
    // SAFETY: plain integers.
    check(unsafe { libc::personality(flags.into()) }).map(|flags| flags as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_sets_give_back_what_was_put_in() {
        assert_eq!(CpuSet::new(&[0, 63, 64, 8191]).list(), [0, 63, 64, 8191]);
        assert_eq!(CpuSet::new(&[8192]).list(), [0_usize; 0]);
    }

    #[test]
    fn who_is_not_meant_gets_no_signal() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id() as i32;
        let refused = signal_if(pid, &[Signal::KILL], || false).expect_err("it is another by now");
        assert_eq!(refused.raw_os_error(), Some(libc::ESRCH));
        assert!(child.try_wait().expect("a child").is_none());
        signal_if(pid, &[Signal::TERM, Signal::CONT], || true).expect("it is the one");
        assert!(!child.wait().expect("a child").success());
        assert!(signal_if(pid, &[Signal::KILL], || true).is_err());
    }

    #[test]
    fn own_cpus_are_some() {
        assert!(!allowed_cpus().expect("affinity").is_empty());
    }
}
