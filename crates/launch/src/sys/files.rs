//! Files: page-cache residency, dropping, descriptors.

use super::{check, check_long};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A pipe, close-on-exec: (read end, write end).
pub fn pipe() -> io::Result<(File, File)> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for two descriptors.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both descriptors are new and owned by nobody else.
    Ok(unsafe { (File::from_raw_fd(fds[0]), File::from_raw_fd(fds[1])) })
}

/// A duplicate numbered above 255, out of the way of the program's own descriptors; close-on-exec.
pub fn high_duplicate(file: &impl AsRawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain integers.
    let fd = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 256) })?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether a descriptor has this number.
pub fn is_open(number: RawFd) -> bool {
    // SAFETY: plain integers.
    unsafe { libc::fcntl(number, libc::F_GETFD) != -1 }
}

/// Makes a descriptor that the caller of this process left open our own; close-on-exec.
pub fn take_over(fd: RawFd) -> io::Result<File> {
    // SAFETY: plain integers; fails for a number that is not an open descriptor.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: the descriptor is open, and it was handed to this process to be owned by this one value.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Advises the kernel to drop a file's clean pages from the page cache.
pub fn drop_pages(file: &File) -> io::Result<()> {
    // SAFETY: plain integers. The call returns its error instead of setting errno.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Bytes that are free for ordinary users on the file system of `path`.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all-zero bytes are a valid `statvfs`.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the string is NUL-terminated, the structure alive.
    check(unsafe { libc::statvfs(path.as_ptr(), &mut found) })?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Writes all dirty data of all file systems.
pub fn sync_all() {
    // SAFETY: sync has no arguments and cannot fail.
    unsafe { libc::sync() };
}

#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Linux's number for cachestat(2), the same on every architecture (6.5 and later).
const SYS_CACHESTAT: libc::c_long = 451;

/// How many pages of a file are in the page cache: by cachestat(2), or on older kernels by mincore(2).
pub fn resident_pages(file: &File, length: u64) -> io::Result<u64> {
    let range = CachestatRange { offset: 0, length: 0 };
    let mut stat = Cachestat::default();
    // SAFETY: both structures have the kernel's layout and are alive; the flags are 0.
    let done = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &range, &mut stat, 0) };
    match check_long(done) {
        Ok(_) => Ok(stat.cached),
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => mincore(file, length as usize),
        Err(error) => Err(error),
    }
}

/// Bytes of a base page on this machine.
pub fn page_bytes() -> u64 {
    // SAFETY: sysconf takes a plain integer.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

fn mincore(file: &File, length: usize) -> io::Result<u64> {
    if length == 0 {
        return Ok(0);
    }
    // SAFETY: a fresh shared read-only mapping; nothing reads through it.
    let map =
        unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut pages = vec![0_u8; length.div_ceil(page_bytes() as usize)];
    // SAFETY: `pages` has one byte for each page of the mapping.
    let done = check(unsafe { libc::mincore(map, length, pages.as_mut_ptr()) });
    // SAFETY: unmaps exactly what was mapped above.
    unsafe { libc::munmap(map, length) };
    done.map(|_| pages.iter().filter(|&&page| page & 1 == 1).count() as u64)
}

/// An exclusive advisory lock on an open file, held until the file is closed; waits for others.
pub fn lock(file: &File) -> io::Result<()> {
    loop {
        // SAFETY: plain integers.
        match check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(drop),
        }
    }
}

/// Whether a file has an extended attribute of this name.
pub fn has_attribute(path: &Path, name: &str) -> bool {
    let (Ok(path), Ok(name)) = (CString::new(path.as_os_str().as_bytes()), CString::new(name)) else {
        return false;
    };
    // SAFETY: both strings are NUL-terminated; a null buffer of size 0 asks for the size.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) >= 0 }
}
