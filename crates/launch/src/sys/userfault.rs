//! userfaultfd: whether one can be had, and whether it can move pages. Tried in this process, on pages of its own.

use super::{check, check_long};
use memmap2::MmapMut;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

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
    Ok(new(fd as RawFd))
}

/// The same, by the device.
pub fn by_device() -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open(DEVICE)?;
    // SAFETY: this request takes plain flags.
    let fd = check(unsafe { libc::ioctl(device.as_raw_fd(), IOC_NEW, libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
    Ok(new(fd))
}

fn new(fd: RawFd) -> OwnedFd {
    // SAFETY: what the kernel has just made, and nobody else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Moves one page by `uffd`, from one mapping of this process to another.
///
/// # Errors
/// EINVAL from a kernel that has no UFFDIO_MOVE.
pub fn try_move(uffd: &OwnedFd) -> io::Result<()> {
    let mut api = Api { api: API, features: FEATURE_MOVE, ioctls: 0 };
    api.request(uffd)?;
    let mut pages = MmapMut::map_anon(2 * PAGE)?;
    let source = pages.as_mut_ptr() as u64;
    let (target, length) = (source + PAGE as u64, PAGE as u64);
    Register { start: target, length, mode: REGISTER_MODE_MISSING, ioctls: 0 }.request(uffd)?;
    const MARK: u8 = 0x5a;
    pages[0] = MARK;
    let mut moved = Move { target, source, length, mode: 0, moved: 0 };
    moved.request(uffd)?;
    // The second page is there now: the kernel said so, and it does not fault.
    let arrived = moved.moved == PAGE as i64 && black_box(&mut pages)[PAGE] == MARK;
    if arrived { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
}

/// An argument of an ioctl of a userfaultfd.
///
/// # Safety
/// The structure has the kernel's layout for this request, which fills no more than it, and touches no memory but pages
/// of [`try_move`]'s own.
unsafe trait Request: Sized {
    const NUMBER: libc::c_ulong;

    fn request(&mut self, uffd: &OwnedFd) -> io::Result<()> {
        // SAFETY: what the trait promises; the structure is alive.
        check(unsafe { libc::ioctl(uffd.as_raw_fd(), Self::NUMBER, &raw mut *self) }).map(drop)
    }
}

// SAFETY: `struct uffdio_api`; no memory is touched.
unsafe impl Request for Api {
    const NUMBER: libc::c_ulong = IOC_API;
}

// SAFETY: `struct uffdio_register`; the contents of the range stay.
unsafe impl Request for Register {
    const NUMBER: libc::c_ulong = IOC_REGISTER;
}

// SAFETY: `struct uffdio_move`; both pages are `try_move`'s, which holds no reference to them meanwhile.
unsafe impl Request for Move {
    const NUMBER: libc::c_ulong = IOC_MOVE;
}

/// The frame number that pagemap gives for a page of this process; 0 where it keeps them back.
pub fn own_frame_number() -> io::Result<u64> {
    use std::os::unix::fs::FileExt;
    const FRAME: u64 = (1 << 55) - 1;
    let mut page = MmapMut::map_anon(PAGE)?;
    black_box(&mut page)[0] = 1;
    let mut entry = [0; 8];
    let at = page.as_ptr() as u64 / PAGE as u64 * 8;
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, at)?;
    Ok(u64::from_ne_bytes(entry) & FRAME)
}
