//! userfaultfd: whether one can be had, and whether it can move pages. Tried in this process, on pages of its own.

use super::{check, check_long};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Opens userfaultfds for whoever may open it.
pub const DEVICE: &str = "/dev/userfaultfd";

/// `_IO(0xAA, 0x00)`: makes a userfaultfd of the calling process out of [`DEVICE`].
const IOC_NEW: libc::c_ulong = 0xAA00;
/// `_IOWR(0xAA, 0x3F, struct uffdio_api)`.
const IOC_API: libc::c_ulong = 0xC018_AA3F;
/// `_IOWR(0xAA, 0x00, struct uffdio_register)`.
const IOC_REGISTER: libc::c_ulong = 0xC020_AA00;
/// `_IOWR(0xAA, 0x05, struct uffdio_move)`.
const IOC_MOVE: libc::c_ulong = 0xC028_AA05;
const API: u64 = 0xAA;
/// UFFD_FEATURE_MOVE, Linux 6.8.
const FEATURE_MOVE: u64 = 1 << 16;
const REGISTER_MODE_MISSING: u64 = 1;
const PAGE: usize = 4096;

#[repr(C)]
#[derive(Default)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Move {
    target: u64,
    source: u64,
    length: u64,
    mode: u64,
    moved: i64,
}

/// A userfaultfd that also sees the kernel's own accesses, by the system call.
pub fn by_call() -> io::Result<OwnedFd> {
    // SAFETY: plain integers.
    let fd = check_long(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The same, by the device.
pub fn by_device() -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open(DEVICE)?;
    // SAFETY: this request takes plain flags.
    let fd = check(unsafe { libc::ioctl(device.as_raw_fd(), IOC_NEW, libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Moves one page by `uffd`, from one mapping of this process to another.
///
/// # Errors
/// EINVAL from a kernel that has no UFFDIO_MOVE.
pub fn try_move(uffd: &OwnedFd) -> io::Result<()> {
    let mut api = Api { api: API, features: FEATURE_MOVE, ioctls: 0 };
    // SAFETY: the structure has the kernel's layout and is alive.
    check(unsafe { libc::ioctl(uffd.as_raw_fd(), IOC_API, &mut api) })?;
    let pages = Pages::map(2)?;
    let (source, target) = (pages.at(0), pages.at(1));
    let mut register =
        Register { start: target as u64, length: PAGE as u64, mode: REGISTER_MODE_MISSING, ioctls: 0 };
    // SAFETY: the structure has the kernel's layout; the range lies in the mapping made above.
    check(unsafe { libc::ioctl(uffd.as_raw_fd(), IOC_REGISTER, &mut register) })?;
    const MARK: u8 = 0x5a;
    // SAFETY: the first page of the mapping is writable and not registered.
    unsafe { source.write_volatile(MARK) };
    let mut moved = Move { target: target as u64, source: source as u64, length: PAGE as u64, mode: 0, moved: 0 };
    // SAFETY: the structure has the kernel's layout; both pages lie in the mapping, and nothing holds references there.
    check(unsafe { libc::ioctl(uffd.as_raw_fd(), IOC_MOVE, &mut moved) })?;
    // SAFETY: the second page is there now: the kernel said so, and it does not fault.
    let arrived = moved.moved == PAGE as i64 && unsafe { target.read_volatile() } == MARK;
    if arrived { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
}

/// The frame number that pagemap gives for a page of this process; 0 where it keeps them back.
pub fn own_frame_number() -> io::Result<u64> {
    use std::os::unix::fs::FileExt;
    const FRAME: u64 = (1 << 55) - 1;
    let pages = Pages::map(1)?;
    // SAFETY: the page is mapped and writable.
    unsafe { pages.at(0).write_volatile(1) };
    let mut entry = [0; 8];
    let at = pages.at(0) as u64 / PAGE as u64 * 8;
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, at)?;
    Ok(u64::from_ne_bytes(entry) & FRAME)
}

/// Untouched anonymous pages.
struct Pages {
    base: *mut u8,
    bytes: usize,
}

impl Pages {
    fn map(count: usize) -> io::Result<Pages> {
        let bytes = count * PAGE;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh private mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Pages { base: base.cast(), bytes })
    }

    fn at(&self, page: usize) -> *mut u8 {
        self.base.wrapping_add(page * PAGE)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` mapped.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}
