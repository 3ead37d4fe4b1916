//! Files: page-cache residency, dropping, descriptors.

use super::{check, check_long};
use memmap2::MmapOptions;
use rustix::fs::{
    Advice, Mode, OFlags, SeekFrom, fadvise, fcntl_getfl, fcntl_setfl, getxattr, open, seek, statvfs,
};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// A pipe, close-on-exec: (read end, write end).
pub fn pipe() -> io::Result<(File, File)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((reader.into(), writer.into()))
}

/// Opens a regular file for reading. Opening anything else could take for ever (a FIFO), or have effects (a device), so
/// it is not opened, whatever the path means a moment later.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let found: File = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?.into();
    if !found.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(open(same, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Makes reading return what is there, without waiting.
pub fn never_wait(file: &impl AsFd) -> io::Result<()> {
    Ok(fcntl_setfl(file, fcntl_getfl(file)? | OFlags::NONBLOCK)?)
}

/// Moves an open file's position to the next byte that was ever written; false: there is none.
pub fn skip_hole(file: &impl AsFd) -> io::Result<bool> {
    let at = seek(file, SeekFrom::Current(0))?;
    match seek(file, SeekFrom::Data(at)) {
        Ok(_) => Ok(true),
        Err(Errno::NXIO) => Ok(false),
        // A file system without holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// A duplicate numbered above 255, out of the way of the program's own descriptors; close-on-exec.
pub fn high_duplicate(file: &impl AsFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(file, 256)?)
}

/// Whether a descriptor has this number.
pub fn is_open(number: RawFd) -> bool {
    // SAFETY: plain integers.
    unsafe { libc::fcntl(number, libc::F_GETFD) != -1 }
}

/// Makes a descriptor that the caller of this process left open our own; close-on-exec.
pub fn take_over(fd: RawFd) -> io::Result<File> {
    if !is_open(fd) {
        return Err(Errno::BADF.into());
    }
    // SAFETY: the descriptor is open, and it was handed to this process to be owned by this one value.
    let file = unsafe { File::from_raw_fd(fd) };
    fcntl_setfd(&file, FdFlags::CLOEXEC)?;
    Ok(file)
}

/// Keeps every open descriptor from this number on from programs that are executed.
pub fn close_all_at_exec(first: RawFd) {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<RawFd> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|&fd| fd >= first).collect();
    for number in numbers {
        // SAFETY: plain integers. The one of the listing is closed by now, which is an error without effect.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Advises the kernel to drop a file's clean pages from the page cache.
pub fn drop_pages(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Bytes that are free for ordinary users on the file system of `path`.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Writes all dirty data of all file systems.
pub fn sync_all() {
    rustix::fs::sync();
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
    rustix::param::page_size() as u64
}

fn mincore(file: &File, length: usize) -> io::Result<u64> {
    if length == 0 {
        return Ok(0);
    }
    // Nothing reads through it.
    let map = MmapOptions::new().len(length).map_raw_read_only(file)?;
    let mut pages = vec![0_u8; length.div_ceil(page_bytes() as usize)];
    // SAFETY: `pages` has one byte for each page of the mapping.
    check(unsafe { libc::mincore(map.as_mut_ptr().cast(), length, pages.as_mut_ptr()) })?;
    Ok(pages.iter().filter(|&&page| page & 1 == 1).count() as u64)
}

/// Whether a file has an extended attribute of this name.
pub fn has_attribute(path: &Path, name: &str) -> bool {
    // An empty buffer asks for the size.
    getxattr(path, name, &mut [0_u8; 0]).is_ok()
}
