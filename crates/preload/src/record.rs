//! The guest file of this process: plain stores into a shared mapping.

use core::ffi::CStr;
use core::fmt::Write;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pagelab_abi::guest::{
    Counter, DisabledReason, GuestFile, MAGIC, NOTE_SLOTS, NoteKind, NoteSlot, Started, State, VERSION,
};

use crate::arch::PAGE;
use crate::sys::{self, Errno, c};

static FILE: AtomicPtr<GuestFile> = AtomicPtr::new(core::ptr::null_mut());

/// The file, once there is one.
pub fn file() -> Option<&'static GuestFile> {
    // SAFETY: points to a mapping that is never taken away again; all fields are atomics.
    unsafe { FILE.load(Ordering::Acquire).as_ref() }
}

/// Forgets the file: after a fork it is the parent's.
pub fn forget() {
    FILE.store(core::ptr::null_mut(), Ordering::Release);
}

/// Stores into a field.
pub fn set(field: &AtomicU64, value: u64) {
    field.store(value, Ordering::Relaxed);
}

/// Counts `by` more.
pub fn add(counter: Counter, by: u64) {
    if let Some(slot) = file().and_then(|file| file.counters.get(counter as usize)) {
        slot.fetch_add(by, Ordering::Relaxed);
    }
}

/// Counts one more.
pub fn count(counter: Counter) {
    add(counter, 1);
}

/// Where the process stands.
pub fn state(state: State) {
    if let Some(file) = file() {
        set(&file.state, state.code());
    }
}

/// Why the process is left alone.
pub fn disabled(reason: DisabledReason, errno: Option<Errno>) {
    if let Some(file) = file() {
        set(&file.disabled_reason, reason.code());
        set(&file.disabled_errno, errno.map_or(0, |errno| errno.0 as u64));
        set(&file.state, State::Disabled.code());
    }
}

fn slot_of(kind: NoteKind) -> Option<&'static NoteSlot> {
    let code = kind.code() + 1;
    file()?.notes.iter().find(|slot| {
        let claimed = slot.kind.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
        claimed.is_ok() || claimed == Err(code)
    })
}

/// Takes a note; details are kept of the first of its kind.
pub fn note(kind: NoteKind, errno: Option<Errno>, address: usize, bytes: usize) {
    const { assert!(NoteKind::ALL.len() <= NOTE_SLOTS) };
    let Some(slot) = slot_of(kind) else { return };
    if slot.count.fetch_add(1, Ordering::Relaxed) == 0 {
        set(&slot.errno, errno.map_or(0, |errno| errno.0 as u64));
        set(&slot.address, address as u64);
        set(&slot.bytes, bytes as u64);
    }
}

/// Takes a note that stands for `count` of its kind.
pub fn note_many(kind: NoteKind, address: usize, bytes: usize, count: usize) {
    note(kind, None, address, bytes);
    if let Some(slot) = slot_of(kind) {
        slot.count.fetch_add(count.saturating_sub(1) as u64, Ordering::Relaxed);
    }
}

/// Maps a new file in `run_dir`; where that is empty, nobody will read it, and memory of our own does.
fn mapped(run_dir: &[u8], pid: u32) -> Result<usize, Errno> {
    let len = size_of::<GuestFile>();
    if run_dir.is_empty() {
        return sys::mmap_own(len.next_multiple_of(PAGE));
    }
    let fd = open_new(run_dir, pid)?;
    let mapped = sys::ftruncate(fd, len).and_then(|()| {
        // SAFETY: no address is given, so nothing that exists is touched.
        unsafe { sys::mmap(0, len, c::PROT_RW, c::MAP_SHARED, fd, 0) }
    });
    sys::close(fd);
    mapped
}

/// Creates this process's file in `run_dir`; `start_ns` is when the guest began to work.
pub fn create(run_dir: &[u8], started: Started, start_ns: u64) -> Result<(), Errno> {
    let pid = sys::getpid();
    let len = size_of::<GuestFile>();
    let pointer = mapped(run_dir, pid)? as *mut GuestFile;
    // SAFETY: a fresh zeroed mapping of the right size and alignment, never unmapped.
    let file = unsafe { &*pointer };
    set(&file.version, VERSION);
    set(&file.file_bytes, len as u64);
    set(&file.pid, u64::from(pid));
    set(&file.ppid, u64::from(sys::getppid()));
    set(&file.started, started.code());
    set(&file.state, State::Starting.code());
    set(&file.start_ns, start_ns);
    let mut path = [0u8; 512];
    let used = sys::readlink(c"/proc/self/exe", &mut path).unwrap_or(0);
    for (to, from) in file.exe.iter().zip(path.get(..used).unwrap_or(&[])) {
        to.store(*from, Ordering::Relaxed);
    }
    set(&file.exe_bytes, used as u64);
    file.magic.store(MAGIC, Ordering::Release);
    FILE.store(pointer, Ordering::Release);
    Ok(())
}

struct Path {
    bytes: [u8; 1024],
    used: usize,
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.used + text.len();
        // The last byte stays 0.
        let room = self.bytes.len() - 1;
        let to = self.bytes.get_mut(self.used..end).filter(|_| end <= room).ok_or(core::fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.used = end;
        Ok(())
    }
}

/// Opens `<run dir>/<pid>-<n>.guest`, the first `n` that is free: one process can run several images.
fn open_new(run_dir: &[u8], pid: u32) -> Result<i32, Errno> {
    let dir = core::str::from_utf8(run_dir).map_err(|_| Errno::EINVAL)?;
    for n in 0..100_000 {
        let mut path = Path { bytes: [0; 1024], used: 0 };
        write!(path, "{dir}/{pid}-{n}.guest").map_err(|_| Errno::EINVAL)?;
        let name = CStr::from_bytes_until_nul(&path.bytes).map_err(|_| Errno::EINVAL)?;
        match sys::open(name, c::O_RDWR | c::O_CREAT | c::O_EXCL, 0o600) {
            Err(Errno::EEXIST) => continue,
            other => return other,
        }
    }
    Err(Errno::EEXIST)
}
