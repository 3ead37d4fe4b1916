//! Files: page-cache residency, dropping, descriptors.

use super::{check, check_long};
use memmap2::MmapOptions;
use rustix::fs::{
    Advice, FallocateFlags, Mode, OFlags, SeekFrom, fadvise, fallocate, fcntl_getfl, fcntl_setfl, fstatvfs,
    getxattr, open, seek, statvfs,
};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{SendFlags, send};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::fs::File;
use std::io::{self, Read, Write};
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

/// A regular file that is read until it ends for the first time. Whoever adds to it meanwhile would otherwise have it
/// read for as long as they like, a byte at a time.
#[derive(Debug)]
pub struct UntilItsEnd {
    file: File,
    has_ended: bool,
}

impl UntilItsEnd {
    /// From where the file is read next.
    pub fn new(file: File) -> UntilItsEnd {
        UntilItsEnd { file, has_ended: false }
    }
}

impl Read for UntilItsEnd {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.has_ended {
            return Ok(0);
        }
        let got = self.file.read(buffer)?;
        self.has_ended = got < buffer.len();
        Ok(got)
    }
}

/// Makes reading return what is there, without waiting.
pub fn never_wait(file: &impl AsFd) -> io::Result<()> {
    Ok(fcntl_setfl(file, fcntl_getfl(file)? | OFlags::NONBLOCK)?)
}

/// Place of the first byte from `at` on that was ever written; `None`: there is none.
pub fn next_data(file: &impl AsFd, at: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NXIO) => Ok(None),
        // A file system without holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(at)),
        Err(error) => Err(error.into()),
    }
}

/// Gives back the space of these bytes of a file, whose length stays.
pub fn make_hole(file: &impl AsFd, start: u64, end: u64) -> io::Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, mode, start, end.saturating_sub(start))?)
}

/// Where output goes. Writing to it never waits.
#[derive(Debug)]
pub struct Sink {
    file: File,
    kind: SinkKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SinkKind {
    /// Takes what it has room for.
    Plain,
    Socket,
    /// It may wait for room, and cannot be told not to without telling its other holders: it gets as much at once as it
    /// has room for whenever it is writable.
    Small(usize),
}

impl Sink {
    /// A sink of an open descriptor, which its other holders may use as before.
    pub fn new(file: File) -> Sink {
        use std::os::unix::fs::FileTypeExt;
        let Ok(data) = file.metadata() else { return Sink { file, kind: SinkKind::Plain } };
        let sort = data.file_type();
        if sort.is_socket() {
            return Sink { file, kind: SinkKind::Socket };
        }
        if !(sort.is_fifo() || sort.is_char_device()) {
            return Sink { file, kind: SinkKind::Plain };
        }
        // Opened once more, a pipe or terminal has flags of its own.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match open(path, flags, Mode::empty()) {
            Ok(own) => Sink { file: own.into(), kind: SinkKind::Plain },
            // PIPE_BUF; a terminal is writable if 256 characters have room.
            Err(_) => Sink { file, kind: SinkKind::Small(if sort.is_fifo() { 4096 } else { 256 }) },
        }
    }

    /// Writes a part; `WouldBlock`: there is no room now.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.kind {
            SinkKind::Plain => (&self.file).write(bytes),
            SinkKind::Socket => Ok(send(&self.file, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?),
            SinkKind::Small(most) => match super::signals::is_writable(&self.file)? {
                true => (&self.file).write(bytes.get(..most).unwrap_or(bytes)),
                false => Err(io::ErrorKind::WouldBlock.into()),
            },
        }
    }

    /// The descriptor that becomes writable.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// A duplicate numbered above 255, out of the way of the program's own descriptors; close-on-exec.
pub fn high_duplicate(file: &impl AsFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(file, 256)?)
}

/// Whether a descriptor has this number.
pub fn is_open(number: RawFd) -> bool {
    std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok()
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

/// The same, of the file system of an open file.
pub fn free_bytes_beside(file: &impl AsFd) -> io::Result<u64> {
    let found = fstatvfs(file)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Makes a pipe hold so many bytes, or as many as it may.
pub fn enlarge_pipe(pipe: &impl AsFd, bytes: usize) {
    // Without the right to it, a pipe has the size that pipes have.
    let _ = fcntl_setpipe_size(pipe, bytes);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_added_to_a_file_that_has_ended_is_not_read() {
        let mut file = tempfile();
        file.write_all(&[b'x'; 10]).expect("written");
        let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("opened");
        let mut reader = UntilItsEnd::new(again);
        let mut buffer = [0; 8];
        assert_eq!(reader.read(&mut buffer).expect("read"), 8);
        assert_eq!(reader.read(&mut buffer).expect("read"), 2);
        file.write_all(b"more").expect("written");
        assert_eq!(reader.read(&mut buffer).expect("read"), 0);
    }

    fn tempfile() -> File {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR).expect("made").into()
    }
}
