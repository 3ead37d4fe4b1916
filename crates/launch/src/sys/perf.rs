//! perf_event_open(2): opening, reading, ring buffers.

use super::check;
use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as abi;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Read format of every counter here. Deliberately without PERF_FORMAT_GROUP: older kernels refuse it together with
/// `inherit`, and counters are read when the tree has ended, so that reading one by one loses nothing.
const READ_FORMAT: u64 =
    (abi::PERF_FORMAT_TOTAL_TIME_ENABLED | abi::PERF_FORMAT_TOTAL_TIME_RUNNING | abi::PERF_FORMAT_ID) as u64;

/// What to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Code {
    /// perf_event_attr.type.
    pub kind: u32,
    /// perf_event_attr.config.
    pub config: u64,
    /// perf_event_attr.config1.
    pub config1: u64,
    /// perf_event_attr.config2.
    pub config2: u64,
    /// Leave out the kernel.
    pub exclude_kernel: bool,
    /// Leave out user mode.
    pub exclude_user: bool,
}

/// The tasks to count, and options.
#[derive(Clone, Copy, Debug)]
pub struct Open<'g> {
    /// Process; 0: the caller.
    pub pid: i32,
    /// Only while on this CPU; None: wherever it runs.
    pub cpu: Option<usize>,
    /// Leader of the group to join.
    pub leader: Option<&'g OwnedFd>,
    /// The leader must be on the hardware all the time, or fail.
    pub pinned: bool,
    /// Counts children too, from the exec on.
    pub tree: bool,
    /// Every task's counts are written to the ring buffer when it ends.
    pub stat: bool,
}

/// What a counter read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Events.
    pub count: u64,
    /// Time it should have counted.
    pub enabled_ns: u64,
    /// Time it did count.
    pub running_ns: u64,
    /// Its id, as in ring buffers.
    pub id: u64,
}

fn attributes(code: &Code) -> abi::perf_event_attr {
    let mut attr = abi::perf_event_attr::default();
    attr.size = std::mem::size_of::<abi::perf_event_attr>() as u32;
    attr.type_ = code.kind;
    attr.config = code.config;
    attr.__bindgen_anon_3.config1 = code.config1;
    attr.__bindgen_anon_4.config2 = code.config2;
    attr.read_format = READ_FORMAT;
    attr.set_exclude_kernel(code.exclude_kernel.into());
    attr.set_exclude_user(code.exclude_user.into());
    attr.set_exclude_hv(1);
    attr
}

/// Makes times comparable with the launcher's own.
fn use_monotonic_clock(attr: &mut abi::perf_event_attr) {
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
}

/// The buffer's reader is woken when it is a quarter full.
fn wake_in_time(attr: &mut abi::perf_event_attr) {
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = (RING_BYTES / 4) as u32;
}

fn open_raw(attr: &mut abi::perf_event_attr, pid: i32, cpu: Option<usize>, leader: i32) -> io::Result<OwnedFd> {
    let cpu = cpu.map_or(-1, |cpu| cpu as libc::c_int);
    // SAFETY: `attr` is a live structure whose size field is right; the rest are plain integers. The descriptor is new
    // and owned by nobody else.
    unsafe {
        let fd = check(perf::perf_event_open(attr, pid, cpu, leader, abi::PERF_FLAG_FD_CLOEXEC.into()))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Opens a counter. It starts at the target's exec (`tree`), or with [`enable`]; group members follow their leader.
pub fn open(code: &Code, how: &Open<'_>) -> io::Result<OwnedFd> {
    let mut attr = attributes(code);
    let leads = how.leader.is_none();
    attr.set_disabled(leads.into());
    attr.set_enable_on_exec((leads && how.tree).into());
    attr.set_pinned((leads && how.pinned).into());
    attr.set_inherit(how.tree.into());
    attr.set_inherit_stat(how.stat.into());
    if how.stat {
        wake_in_time(&mut attr);
    }
    open_raw(&mut attr, how.pid, how.cpu, how.leader.map_or(-1, AsRawFd::as_raw_fd))
}

/// Opens an event that counts nothing and reports forks, execs, exits and names of the tree on one CPU, with times of
/// CLOCK_MONOTONIC. Unlike a counter it is on at once, so that the first exec is reported like every other.
pub fn open_side_band(pid: i32, cpu: usize) -> io::Result<OwnedFd> {
    let dummy = Code { kind: abi::PERF_TYPE_SOFTWARE, config: abi::PERF_COUNT_SW_DUMMY.into(), ..Code::default() };
    let mut attr = attributes(&Code { exclude_kernel: true, ..dummy });
    attr.set_inherit(1);
    attr.set_task(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    wake_in_time(&mut attr);
    use_monotonic_clock(&mut attr);
    attr.sample_type = abi::PERF_SAMPLE_TIME.into();
    attr.set_sample_id_all(1);
    open_raw(&mut attr, pid, Some(cpu), -1)
}

/// Starts a counter opened without `tree`, and its group.
pub fn enable(counter: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is a counter's; the argument is a flag.
    check(unsafe { perf::ioctls::ENABLE(counter.as_raw_fd(), abi::PERF_IOC_FLAG_GROUP) }).map(drop)
}

/// Stops a counter and its group.
pub fn disable(counter: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is a counter's; the argument is a flag.
    check(unsafe { perf::ioctls::DISABLE(counter.as_raw_fd(), abi::PERF_IOC_FLAG_GROUP) }).map(drop)
}

/// Reads a counter. `Ok(None)`: a pinned counter that the hardware could not keep.
pub fn read(counter: &OwnedFd) -> io::Result<Option<Reading>> {
    let mut bytes = [0; 4 * size_of::<u64>()];
    let got = rustix::io::read(counter, &mut bytes)?;
    let mut words = bytes.chunks_exact(size_of::<u64>()).map(|word| u64_of(word, 0));
    let mut next = || words.next().unwrap_or(0);
    match got {
        0 => Ok(None),
        32 => Ok(Some(Reading { count: next(), enabled_ns: next(), running_ns: next(), id: next() })),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Data bytes of a ring buffer: two of them fit into what perf_event_mlock_kb (516) lets every user have on each CPU.
pub const RING_BYTES: usize = 128 * 1024;

/// What a record in a ring buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordKind {
    /// PERF_RECORD_*.
    pub number: u32,
    /// PERF_RECORD_MISC_*.
    pub misc: u16,
}

impl RecordKind {
    /// Whether a PERF_RECORD_COMM comes from an exec (and not from a process that renames itself).
    pub fn is_exec(self) -> bool {
        self.number == abi::PERF_RECORD_COMM && u32::from(self.misc) & abi::PERF_RECORD_MISC_COMM_EXEC != 0
    }
}

/// A ring buffer of one CPU.
pub struct Ring {
    owner: OwnedFd,
    map: MmapRaw,
}

impl Ring {
    /// Maps the ring buffer of an event; smaller than [`RING_BYTES`] where the limit on locked memory demands it.
    pub fn new(owner: OwnedFd) -> io::Result<Ring> {
        let page = super::files::page_bytes() as usize;
        let mut data = RING_BYTES;
        loop {
            let error = match MmapOptions::new().len(data + page).map_raw(&owner) {
                Ok(map) => return Ok(Ring { owner, map }),
                Err(error) => error,
            };
            if error.raw_os_error() != Some(libc::EPERM) || data <= 4 * page {
                return Err(error);
            }
            data /= 2;
        }
    }

    /// Its descriptor, for poll.
    pub fn fd(&self) -> i32 {
        self.owner.as_raw_fd()
    }

    /// Sends another event's records here too; both must be of one CPU.
    pub fn attach(&self, event: &OwnedFd) -> io::Result<()> {
        // SAFETY: both descriptors are events.
        check(unsafe { perf::ioctls::SET_OUTPUT(event.as_raw_fd(), self.owner.as_raw_fd()) }).map(drop)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offsets used are of 8-aligned u64 fields in the control page, which lives as long as `self`. The
        // kernel changes them concurrently, hence the atomic.
        unsafe { &*self.map.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Takes out all records and hands over each one's kind and body (without its header). Fails when a record is torn
    /// (two CPUs wrote at once); then all that was in the buffer after it is gone.
    pub fn drain(&mut self, mut visit: impl FnMut(RecordKind, &[u8])) -> io::Result<()> {
        let head_at = std::mem::offset_of!(abi::perf_event_mmap_page, data_head);
        let tail_at = std::mem::offset_of!(abi::perf_event_mmap_page, data_tail);
        let head = self.word(head_at).load(Ordering::Acquire);
        let mut tail = self.word(tail_at).load(Ordering::Relaxed);
        let mut record = Vec::new();
        let mut done = Ok(());
        while tail < head {
            let header = self.copy(tail, 8, &mut record);
            let kind = RecordKind { number: u32_of(header, 0), misc: u16_of(header, 4) };
            let size = u16_of(header, 6);
            if size < 8 || tail + u64::from(size) > head {
                tail = head;
                done = Err(io::ErrorKind::InvalidData.into());
                break;
            }
            let body = self.copy(tail, size.into(), &mut record);
            visit(kind, body.get(8..).unwrap_or(&[]));
            tail += u64::from(size);
        }
        fence(Ordering::Release);
        self.word(tail_at).store(tail, Ordering::Release);
        done
    }

    fn copy<'b>(&self, from: u64, length: usize, into: &'b mut Vec<u8>) -> &'b [u8] {
        let page = super::files::page_bytes() as usize;
        let size = self.map.len() - page;
        into.clear();
        for at in from as usize..from as usize + length {
            // SAFETY: `page + at % size` lies inside the mapping; the kernel does not write before data_tail passes.
            into.push(unsafe { self.map.as_ptr().add(page + at % size).read_volatile() });
        }
        into
    }
}

fn u64_of(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|raw| raw.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn u32_of(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|raw| raw.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u16_of(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|raw| raw.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

/// Raises the limit on open descriptors as far as allowed: one counter for each event and CPU.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Failing leaves the limit as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
