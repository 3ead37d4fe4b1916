//! System calls that the standard library lacks: children that do not outlive this process, one processor, mappings,
//! counts of switches and faults.

use std::ffi::CString;
use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::ptr;

/// The error of a call that returned -1 (or what that is as another type), with its name.
pub fn failed(call: &str) -> String {
    format!("{call}: {}", Error::last_os_error())
}

/// Keeps this thread, and what it starts, on the last processor that it may use.
pub fn stay_on_one_processor() -> Result<(), String> {
    // SAFETY: a set of bits, for which zeros are a value; both calls get its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &mut set) != 0 {
            return Err(failed("sched_getaffinity"));
        }
        let last = (0..libc::CPU_SETSIZE as usize).rev().find(|&cpu| libc::CPU_ISSET(cpu, &set)).unwrap_or(0);
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(last, &mut set);
        if libc::sched_setaffinity(0, size_of_val(&set), &set) != 0 {
            return Err(failed("sched_setaffinity"));
        }
    }
    Ok(())
}

/// Bytes of a page.
pub fn page_bytes() -> usize {
    // SAFETY: asks for a number, which every Linux has.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// A child process; dropping it kills it, and so does the end of this process.
pub struct Child {
    id: libc::pid_t,
}

impl Child {
    /// Forks; the child exits with what `work` returns.
    pub fn fork(work: impl FnOnce() -> i32) -> Result<Child, String> {
        // SAFETY: asks for a number.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child runs `work`, which leaves other threads and their locks alone, and does not return.
        match unsafe { libc::fork() } {
            -1 => Err(failed("fork")),
            0 => {
                // SAFETY: signals of this process, and its end.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    if libc::getppid() != parent {
                        libc::_exit(0);
                    }
                    libc::_exit(work())
                }
            }
            id => Ok(Child { id }),
        }
    }

    /// Forks a child that executes a program, with the words from its name on.
    pub fn execute(program: &CString, words: &[CString]) -> Result<Child, String> {
        let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
        pointers.push(ptr::null());
        Child::fork(|| {
            // SAFETY: strings that end with a zero byte, and a list that ends with a null pointer.
            unsafe { libc::execv(program.as_ptr(), pointers.as_ptr()) };
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
            // SAFETY: a child that nobody has waited for: the number is still its own.
            unsafe { libc::kill(self.id, libc::SIGKILL) };
            let _ = wait_for(self.id);
        }
    }
}

fn wait_for(id: libc::pid_t) -> Result<i32, String> {
    let mut status = 0;
    loop {
        // SAFETY: a place for the status.
        if unsafe { libc::waitpid(id, &mut status, 0) } == id {
            break;
        }
        if Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Err(failed("waitpid"));
        }
    }
    Ok(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) })
}

/// What this process has done since its start.
pub struct Usage {
    /// Switches to another process, wanted or not.
    pub switches: u64,
    /// Faults served without a device.
    pub faults: u64,
}

/// Counts of this process.
pub fn usage() -> Usage {
    // SAFETY: a place for the counts, for which zeros are a value.
    let counts = unsafe {
        let mut counts: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut counts);
        counts
    };
    Usage { switches: (counts.ru_nvcsw + counts.ru_nivcsw) as u64, faults: counts.ru_minflt as u64 }
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
