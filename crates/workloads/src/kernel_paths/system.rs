//! System calls that the standard library lacks: children that do not outlive this process, one processor, mappings,
//! counts of switches and faults.

use std::ffi::CString;
use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::ptr;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, SysconfVar, execv, sysconf};

/// The error of a call of libc that returned -1 (or what that is as another type), with its name.
pub fn failed(call: &str) -> String {
    format!("{call}: {}", Error::last_os_error())
}

/// The same of a call of the crate nix, which returned the error.
pub fn refused(call: &'static str) -> impl FnOnce(Errno) -> String {
    move |errno| format!("{call}: {}", Error::from(errno))
}

/// Sets the action for a signal; returns the one before it.
///
/// # Safety
/// The address is that of a handler as the flags ask for, and what it does may be done at any time.
pub unsafe fn handle_by(
    signal: libc::c_int,
    handler: libc::sighandler_t,
    flags: libc::c_int,
) -> Result<libc::sigaction, String> {
    // SAFETY: zeros are a value of the actions, and the handler is as the caller says.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        match libc::sigaction(signal, &action, &mut before) {
            0 => Ok(before),
            _ => Err(failed("sigaction")),
        }
    }
}

/// Keeps this thread, and what it starts, on the last processor that it may use.
pub fn stay_on_one_processor() -> Result<(), String> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(refused("sched_getaffinity"))?;
    let last = (0..CpuSet::count()).rev().find(|&cpu| allowed.is_set(cpu) == Ok(true)).unwrap_or(0);
    let mut one = CpuSet::new();
    one.set(last).and_then(|()| sched_setaffinity(Pid::from_raw(0), &one)).map_err(refused("sched_setaffinity"))
}

/// Bytes of a page.
pub fn page_bytes() -> usize {
    sysconf(SysconfVar::PAGE_SIZE).ok().flatten().map_or(4096, |bytes| bytes as usize)
}

/// A child process; dropping it kills it, and so does the end of this process.
pub struct Child {
    id: libc::pid_t,
}

impl Child {
    /// Forks; the child exits with what `work` returns.
    pub fn fork(work: impl FnOnce() -> i32) -> Result<Child, String> {
        let parent = Pid::this();
        // SAFETY: the child runs `work`, which leaves other threads and their locks alone, and does not return.
        match unsafe { libc::fork() } {
            -1 => Err(failed("fork")),
            0 => {
                let bound = set_pdeathsig(Signal::SIGKILL);
                let status = if bound.is_ok() && Pid::parent() == parent { work() } else { 0 };
                // SAFETY: the end of this process.
                unsafe { libc::_exit(status) }
            }
            id => Ok(Child { id }),
        }
    }

    /// Forks a child that executes a program, with the words from its name on.
    pub fn execute(program: &CString, words: &[CString]) -> Result<Child, String> {
        Child::fork(|| {
            let Err(_) = execv(program, words);
            127
        })
    }

    /// Waits for its end: the exit status, or 128 and the signal.
    pub fn wait(mut self) -> Result<i32, String> {
        let status = wait_for(self.id);
        self.id = 0;
        status
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.id > 0 {
            // No thread has waited for the child, so the number is still its own.
            let _ = kill(Pid::from_raw(self.id), Signal::SIGKILL);
            let _ = wait_for(self.id);
        }
    }
}

fn wait_for(id: libc::pid_t) -> Result<i32, String> {
    loop {
        match waitpid(Pid::from_raw(id), None) {
            Ok(WaitStatus::Exited(_, status)) => return Ok(status),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(128 + signal as i32),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(refused("waitpid")(errno)),
        }
    }
}

/// Counts of this process since its start.
pub struct Usage {
    /// Switches to another process, wanted or not.
    pub switches: u64,
    /// Faults served without a device.
    pub faults: u64,
}

/// Counts of this process.
pub fn usage() -> Result<Usage, String> {
    let counts = getrusage(UsageWho::RUSAGE_SELF).map_err(refused("getrusage"))?;
    let switches = counts.voluntary_context_switches() + counts.involuntary_context_switches();
    Ok(Usage { switches: switches as u64, faults: counts.minor_page_faults() as u64 })
}

/// A shared mapping of a file, or private memory; dropping it unmaps.
pub struct Mapping {
    start: *mut u8,
    bytes: usize,
}

impl Mapping {
    /// A file's first `bytes`, to be read.
    pub fn of_file(file: &File, bytes: usize) -> Result<Mapping, String> {
        Mapping::new(libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), ptr::null_mut(), bytes)
    }

    /// The same, to be written: what is written stays in this process.
    pub fn to_copy(file: &File, bytes: usize) -> Result<Mapping, String> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        Mapping::new(protection, libc::MAP_PRIVATE, file.as_raw_fd(), ptr::null_mut(), bytes)
    }

    /// A new page that can only be read.
    pub fn read_only_page() -> Result<Mapping, String> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Mapping::new(libc::PROT_READ, flags, -1, ptr::null_mut(), page_bytes())
    }

    fn new(protection: i32, flags: i32, file: i32, at: *mut libc::c_void, bytes: usize) -> Result<Mapping, String> {
        // SAFETY: a new mapping, which replaces none: no flag asks for a fixed place but MAP_FIXED_NOREPLACE.
        let start = unsafe { libc::mmap(at, bytes, protection, flags, file, 0) };
        if start == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        Ok(Mapping { start: start.cast(), bytes })
    }

    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Writes a byte at each multiple of `step`; the mapping is one that may be written.
    pub fn write_each(&mut self, step: usize, value: u8) {
        for at in (0..self.bytes).step_by(step) {
            // SAFETY: inside the mapping, which nothing else refers to.
            unsafe { self.start.add(at).write_volatile(value) };
        }
    }

    /// Its bytes, of a file that nobody changes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped to be read for as long as `self` is there; the file has no name, and only this process has it.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's alone.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// The page whose stores QEMU's plugin waits for: `MARKER` of crates/qemu/src/system.rs.
pub struct Marks(Mapping);

impl Marks {
    const ADDRESS: usize = 0x7a6e_0000_0000;

    pub fn map() -> Result<Marks, String> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let at = ptr::without_provenance_mut(Marks::ADDRESS);
        let page = Mapping::new(libc::PROT_READ | libc::PROT_WRITE, flags, -1, at, 4096)?;
        // SAFETY: its own page, touched here so that no store takes a fault; the last word is no mark.
        unsafe { page.start.add(4088).write_volatile(1) };
        Ok(Marks(page))
    }

    /// Caches are empty, and are fed from now on.
    pub fn begin(&self) {
        self.store(0);
    }

    pub fn open(&self) {
        self.store(8);
    }

    pub fn close(&self) {
        self.store(16);
    }

    fn store(&self, at: usize) {
        // SAFETY: inside the page that `self` has.
        unsafe { self.0.start.add(at).write_volatile(1) };
    }
}
