//! The guest file of this process: a shared mapping, written by plain stores, that the launcher reads.

use core::ffi::CStr;
use core::fmt::Write;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use pagelab_abi::guest::{
    Counter, DIRECTORY, DisabledReason, EXE_BYTES, FRAMES_SLOTS, FramesSlot, GuestFile, GuestWarning, MAGIC,
    Started, State, VERSION, WARNING_SLOTS, WarningSlot,
};
use pagelab_abi::plan::Plan;

use crate::boundary::apart::apart;
use crate::boundary::arch::PAGE;
use crate::boundary::own::Published;
use crate::boundary::sys::{self, Advice, Errno, c, task};

use super::child::{self, Home};
use super::{plan, seccomp};

static FILE: Published<GuestFile> = Published::none();

/// The file, once there is one.
pub fn file() -> Option<&'static GuestFile> {
    FILE.get()
}

/// The process for which the file was made; 0: there is none. In a child of fork or vfork it is the parent. (Not read
/// from the file: a child would have to bring in its page, which takes longer than the rest of its work before it
/// ends.)
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Where the file lies; in a forked child that has none yet, its parent's. 0: there was none so far.
static PLACE: AtomicUsize = AtomicUsize::new(0);

/// Whether the file is this process's: a child of vfork shares the parent's memory and must not touch it.
pub fn is_own() -> bool {
    Home::from_word(OWNER.load(Ordering::Relaxed)).is_some_and(Home::is_mine)
}

/// In a forked child: leaves the file to the parent, and makes one for the child.
pub fn adopt_child() {
    FILE.set(None);
    OWNER.store(0, Ordering::Relaxed);
    // A child in another mount namespace or root cannot reach the run directory: it is governed, but records nothing.
    if let Some(plan) = plan::current().filter(|_| !seccomp::is_active()) {
        let start_ns = sys::monotonic_ns();
        let _ = apart(|| create(&plan, Started::Fork, start_ns));
    }
}

/// Records that the guest is ready for the program.
pub fn ready() {
    if let Some(file) = file() {
        set(&file.ready_ns, sys::monotonic_ns());
    }
}

/// Stores into a field.
pub fn set(field: &AtomicU64, value: u64) {
    field.store(value, Ordering::Relaxed);
}

/// Adds `by` to a counter.
pub fn add(counter: Counter, by: u64) {
    if let Some(slot) = file().and_then(|file| file.counters.get(counter as usize)) {
        slot.fetch_add(by, Ordering::Relaxed);
    }
}

/// Adds one to a counter.
pub fn count(counter: Counter) {
    add(counter, 1);
}

/// Records the state of the process.
pub fn state(state: State) {
    if let Some(file) = file() {
        set(&file.state, state.code());
    }
}

/// Records why the process is left alone.
pub fn disabled(reason: DisabledReason, errno: Option<Errno>) {
    if let Some(file) = file() {
        set(&file.disabled_reason, reason.code());
        set(&file.disabled_errno, errno.map_or(0, |errno| errno.0 as u64));
        set(&file.state, State::Disabled.code());
    }
}

fn slot_of(kind: GuestWarning) -> Option<&'static WarningSlot> {
    let code = kind.code() + 1;
    file()?.warnings.iter().find(|slot| {
        let claimed = slot.kind.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
        claimed.is_ok() || claimed == Err(code)
    })
}

/// Adds a warning; details are kept only of the first of its kind.
pub fn warn(kind: GuestWarning, errno: Option<Errno>, address: usize, bytes: usize) {
    const { assert!(GuestWarning::ALL.len() <= WARNING_SLOTS) };
    let Some(slot) = slot_of(kind) else { return };
    if slot.count.fetch_add(1, Ordering::Relaxed) == 0 {
        set(&slot.errno, errno.map_or(0, |errno| errno.0 as u64));
        set(&slot.address, address as u64);
        set(&slot.bytes, bytes as u64);
    }
}

/// Adds a warning that stands for `count` of its kind.
pub fn warn_many(kind: GuestWarning, address: usize, bytes: usize, count: usize) {
    warn(kind, None, address, bytes);
    if let Some(slot) = slot_of(kind) {
        slot.count.fetch_add(count.saturating_sub(1) as u64, Ordering::Relaxed);
    }
}

/// Pages of the file that are written to at its creation, because every process uses them.
const COMMON: [usize; 2] = [0, page_of(offset_of!(GuestFile, residency))];
/// Contents for new pages of the file. A store into a page for which the file system has no room would end the process
/// (SIGBUS), but a write only fails.
static ZEROS: [u8; PAGE] = [0; PAGE];
/// Whether the file is shared with the launcher, so that pages of it may still be missing.
static SHARED: AtomicBool = AtomicBool::new(false);
/// Slots of `frames` in use, the lowest first.
static FRAMES_IN_USE: AtomicUsize = AtomicUsize::new(0);

const fn page_of(offset: usize) -> usize {
    offset / PAGE * PAGE
}

/// Whether there is space for `slot` of the file; checked before the first store into it. Data without space are
/// dropped.
pub fn has_room<T>(slot: &T) -> bool {
    let Some(file) = file().filter(|_| SHARED.load(Ordering::Relaxed)) else { return true };
    let base = core::ptr::from_ref(file) as usize;
    let start = page_of((core::ptr::from_ref(slot) as usize).wrapping_sub(base));
    let end = (core::ptr::from_ref(slot) as usize).wrapping_sub(base).wrapping_add(size_of::<T>());
    if COMMON.iter().any(|&page| start == page && end <= page + PAGE) {
        return true;
    }
    sys::advise(base + start, (end - start).next_multiple_of(PAGE), Advice::PopulateWrite).is_ok()
}

/// The slots of `frames` that are in use: reading others could take space that does not exist.
pub fn frames_in_use(file: &GuestFile) -> &[FramesSlot] {
    file.frames.get(..FRAMES_IN_USE.load(Ordering::Acquire)).unwrap_or(&[])
}

/// Takes the next slot of `frames`; returns its number.
pub fn take_frames(file: &GuestFile) -> Option<usize> {
    let next = FRAMES_IN_USE.load(Ordering::Acquire);
    file.frames.get(next).filter(|slot| has_room(*slot))?;
    FRAMES_IN_USE.store(next + 1, Ordering::Release);
    Some(next)
}

/// Makes and maps the file at `path`, with space for the pages that every process writes and for `slots` slots of
/// `frames`.
fn mapped(path: &CStr, slots: usize) -> Result<usize, Errno> {
    let len = size_of::<GuestFile>();
    let frames = offset_of!(GuestFile, frames);
    let used = if slots == 0 { 0..0 } else { page_of(frames)..frames + slots * size_of::<FramesSlot>() };
    shared(path, len, |fd| zero(fd, len, COMMON.into_iter().chain(used.step_by(PAGE))))
}

/// Makes a file at `path`, lets `fill` give it its length and space, and maps it.
fn shared(path: &CStr, len: usize, fill: impl FnOnce(i32) -> Result<(), Errno>) -> Result<usize, Errno> {
    // Checked before anything is created: a file larger than the limit costs a signal (SIGXFSZ), not just an error.
    if task::soft_limit(task::LIMIT_FILE_SIZE)? < len as u64 {
        return Err(Errno::EFBIG);
    }
    let fd = sys::open(path, c::O_RDWR | c::O_CREAT | c::O_EXCL | c::O_NOFOLLOW, 0o600)?;
    let mapped = fill(fd).and_then(|()| sys::map_file(fd, len, c::PROT_RW, c::MAP_SHARED));
    sys::close(fd);
    if mapped.is_err() {
        let _ = sys::unlink(path);
    }
    mapped
}

/// Gives a new file its length, and space for these pages.
fn zero(fd: i32, len: usize, pages: impl Iterator<Item = usize>) -> Result<(), Errno> {
    sys::ftruncate(fd, len)?;
    for page in pages {
        let bytes = ZEROS.get(..PAGE.min(len - page)).unwrap_or(&ZEROS);
        if sys::pwrite(fd, bytes, page)? != bytes.len() {
            return Err(Errno::ENOSPC);
        }
    }
    Ok(())
}

/// Creates this process's file in the plan's run directory; `start_ns` is when the guest began to work.
///
/// If the plan names no directory, nobody will read the file, and the library's own memory takes its place. If no file
/// can be made, a note for the launcher says so, and nothing is recorded.
pub fn create(plan: &Plan<'_>, started: Started, start_ns: u64) -> Result<(), Errno> {
    // A child that shares this process's memory may be the first that calls the library here.
    let home = child::home();
    let pid = home.id();
    let len = size_of::<GuestFile>();
    // A forked child continues with the slots that its parent opened for hints.
    let in_use = FRAMES_IN_USE.load(Ordering::Relaxed).max(plan.strategy_count() as usize).min(FRAMES_SLOTS);
    let pointer = match plan.run_dir() {
        [] => sys::mmap_own(len.next_multiple_of(PAGE))?,
        run_dir => in_directory(run_dir, pid, in_use)?,
    };
    let pointer = in_place_of_parents(pointer, len) as *const GuestFile;
    SHARED.store(!plan.run_dir().is_empty(), Ordering::Relaxed);
    FRAMES_IN_USE.store(in_use, Ordering::Release);
    // SAFETY: a fresh zeroed mapping of the right size and alignment, only ever replaced by another such one, with atomic
    // fields only.
    let file = unsafe { &*pointer };
    set(&file.version, VERSION);
    set(&file.file_bytes, len as u64);
    set(&file.pid, u64::from(pid));
    set(&file.ppid, if pid == sys::getpid() { u64::from(sys::getppid()) } else { 0 });
    set(&file.started, started.code());
    set(&file.state, State::Starting.code());
    set(&file.start_ns, start_ns);
    let mut path = [0u8; EXE_BYTES];
    let used = sys::readlink(c"/proc/self/exe", &mut path).unwrap_or(0);
    for (to, from) in file.exe.iter().zip(path.get(..used).unwrap_or(&[])) {
        to.store(*from, Ordering::Relaxed);
    }
    set(&file.exe_bytes, used as u64);
    file.magic.store(MAGIC, Ordering::Release);
    OWNER.store(home.word(), Ordering::Relaxed);
    FILE.set(Some(file));
    Ok(())
}

/// Moves a new file to where the parent's is mapped, which nobody reads here any more: a child of many generations would
/// have the files of all its forebears. Returns where the new file lies then. (The place stays mapped for a handler of
/// signals that forks: the code that it interrupted may be about to store into the parent's file.)
fn in_place_of_parents(new: usize, len: usize) -> usize {
    let at = match PLACE.load(Ordering::Relaxed) {
        0 => new,
        // SAFETY: nobody knows the new file yet, and the old one, of the same length, has atomic fields only, for which
        // zeros are as good.
        old => unsafe { sys::mremap(new, len, len, c::MREMAP_MAYMOVE | c::MREMAP_FIXED, old) }.unwrap_or(new),
    };
    PLACE.store(at, Ordering::Relaxed);
    at
}

/// Makes and maps another file of this image, `<its guest file's name>.<suffix>`, of `len` bytes, the first `filled` of
/// which have space. Returns its address, and the process's id.
pub fn beside(plan: &Plan<'_>, suffix: &str, len: usize, filled: usize) -> Result<(usize, u32), Errno> {
    let file = file().filter(|_| SHARED.load(Ordering::Relaxed)).ok_or(Errno::EOPNOTSUPP)?;
    let pid = file.pid.load(Ordering::Relaxed) as u32;
    let path = path(plan.run_dir(), pid, NUMBER.load(Ordering::Relaxed), suffix)?;
    let pages = (0..filled).step_by(PAGE);
    Ok((shared(text(&path)?, len, |fd| zero(fd, len, pages))?, pid))
}

/// Whether the parent of this process has a guest file in the same run.
pub fn has_governed_parent(plan: &Plan<'_>) -> bool {
    let parent = path(plan.run_dir(), sys::getppid(), 0, "guest");
    !plan.run_dir().is_empty() && parent.is_ok_and(|path| text(&path).is_ok_and(sys::may_read))
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

/// `<run dir>/guests/<pid>-<n>.<suffix>`.
fn path(run_dir: &[u8], pid: u32, n: u32, suffix: &str) -> Result<Path, Errno> {
    let dir = core::str::from_utf8(run_dir).map_err(|_| Errno::EINVAL)?;
    let mut path = Path { bytes: [0; 1024], used: 0 };
    write!(path, "{dir}/{DIRECTORY}/{pid}-{n}.{suffix}").map_err(|_| Errno::EINVAL)?;
    Ok(path)
}

fn text(path: &Path) -> Result<&CStr, Errno> {
    CStr::from_bytes_until_nul(&path.bytes).map_err(|_| Errno::EINVAL)
}

/// Most images that one process may run one after the other.
const IMAGES: u32 = 100_000;

/// Number of this image's file.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Maps a new file of this process, with the first free number: one process can run several images.
fn in_directory(run_dir: &[u8], pid: u32, slots: usize) -> Result<usize, Errno> {
    for n in 0..IMAGES {
        let path = path(run_dir, pid, n, "guest")?;
        NUMBER.store(n, Ordering::Relaxed);
        match mapped(text(&path)?, slots) {
            Err(Errno::EEXIST) => continue,
            Err(errno) => {
                say_lost(run_dir, pid, errno);
                return Err(errno);
            }
            done => return done,
        }
    }
    Err(Errno::EEXIST)
}

/// Whether the launcher has a note that there is no file.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Whether the launcher has a note that there is no file: then the program's standard error needs no message.
pub fn is_told() -> bool {
    TOLD.load(Ordering::Relaxed)
}

/// Leaves a note for the launcher that there is no file, and why. If the directory is out of reach, it can leave none.
fn say_lost(run_dir: &[u8], pid: u32, errno: Errno) {
    let mut reason = Path { bytes: [0; 1024], used: 0 };
    let _ = write!(reason, "{}", errno.0);
    for n in 0..IMAGES {
        let Ok(path) = path(run_dir, pid, n, "lost") else { return };
        let (Ok(reason), Ok(name)) = (text(&reason), text(&path)) else { return };
        match sys::symlink(reason, name) {
            Err(Errno::EEXIST) => {}
            done => {
                TOLD.store(done.is_ok(), Ordering::Relaxed);
                return;
            }
        }
    }
}
