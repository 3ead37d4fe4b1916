//! The one boundary to the kernel: system calls as plain functions, with their errno as a value.
//!
//! Addresses and lengths are bytes. Nothing here touches libc, its errno or its malloc.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::boundary::arch::{PAGE, PMD, nr, syscall6};

macro_rules! call {
    ($number:expr $(, $arg:expr)*) => { check(syscall6($number, pad([$($arg as usize),*]))) };
}

pub mod nodes;
pub mod pipes;
pub mod socket;
pub mod task;

/// An errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

#[allow(missing_docs, reason = "the names are the kernel's")]
impl Errno {
    pub const EPERM: Errno = Errno(1);
    pub const ENOENT: Errno = Errno(2);
    pub const ESRCH: Errno = Errno(3);
    pub const EINTR: Errno = Errno(4);
    pub const EBADF: Errno = Errno(9);
    pub const EAGAIN: Errno = Errno(11);
    pub const ENOMEM: Errno = Errno(12);
    pub const EFAULT: Errno = Errno(14);
    pub const EBUSY: Errno = Errno(16);
    pub const EEXIST: Errno = Errno(17);
    pub const EXDEV: Errno = Errno(18);
    pub const EINVAL: Errno = Errno(22);
    pub const EMFILE: Errno = Errno(24);
    pub const ENOTTY: Errno = Errno(25);
    pub const EFBIG: Errno = Errno(27);
    pub const EPIPE: Errno = Errno(32);
    pub const ENOSPC: Errno = Errno(28);
    pub const EOPNOTSUPP: Errno = Errno(95);
}

/// Constants of `<sys/mman.h>` and friends.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod c {
    pub const PROT_NONE: i32 = 0;
    pub const PROT_READ: i32 = 1;
    pub const PROT_WRITE: i32 = 2;
    pub const PROT_EXEC: i32 = 4;
    pub const PROT_RW: i32 = PROT_READ | PROT_WRITE;

    pub const MAP_SHARED: i32 = 1;
    pub const MAP_PRIVATE: i32 = 2;
    pub const MAP_TYPE: i32 = 15;
    pub const MAP_FIXED: i32 = 0x10;
    pub const MAP_ANONYMOUS: i32 = 0x20;
    pub const MAP_NORESERVE: i32 = 0x4000;
    pub const MAP_POPULATE: i32 = 0x8000;
    pub const MAP_NONBLOCK: i32 = 0x1_0000;
    pub const MAP_STACK: i32 = 0x2_0000;
    pub const MAP_HUGETLB: i32 = 0x4_0000;
    pub const MAP_FIXED_NOREPLACE: i32 = 0x10_0000;
    pub const MAP_HUGE_SHIFT: u32 = 26;

    pub const MREMAP_MAYMOVE: i32 = 1;
    pub const MREMAP_FIXED: i32 = 2;
    pub const MREMAP_DONTUNMAP: i32 = 4;

    pub const MADV_NORMAL: i32 = 0;
    pub const MADV_RANDOM: i32 = 1;
    pub const MADV_WILLNEED: i32 = 3;
    pub const MADV_DONTNEED: i32 = 4;
    pub const MADV_FREE: i32 = 8;
    pub const MADV_REMOVE: i32 = 9;
    pub const MADV_DONTFORK: i32 = 10;
    pub const MADV_DOFORK: i32 = 11;
    pub const MADV_HUGEPAGE: i32 = 14;
    pub const MADV_NOHUGEPAGE: i32 = 15;
    pub const MADV_DONTDUMP: i32 = 16;
    pub const MADV_WIPEONFORK: i32 = 18;
    pub const MADV_COLD: i32 = 20;
    pub const MADV_POPULATE_READ: i32 = 22;
    pub const MADV_POPULATE_WRITE: i32 = 23;
    pub const MADV_DONTNEED_LOCKED: i32 = 24;
    pub const MADV_COLLAPSE: i32 = 25;
    pub const MADV_GUARD_INSTALL: i32 = 102;

    pub const O_RDONLY: i32 = 0;
    pub const O_RDWR: i32 = 2;
    pub const O_CREAT: i32 = 0o100;
    pub const O_EXCL: i32 = 0o200;
    pub const O_NOFOLLOW: i32 = 0o40_0000;
    pub const O_CLOEXEC: i32 = 0o200_0000;
    pub const AT_FDCWD: i32 = -100;
}

/// Result of a system call.
pub type Result<T> = core::result::Result<T, Errno>;

fn check(value: isize) -> Result<usize> {
    if (-4095..0).contains(&value) { Err(Errno(-value as i32)) } else { Ok(value as usize) }
}

fn pad<const N: usize>(given: [usize; N]) -> [usize; 6] {
    let mut args = [0; 6];
    for (to, from) in args.iter_mut().zip(given) {
        *to = from;
    }
    args
}

/// mmap(2).
///
/// # Safety
/// With `MAP_FIXED` it replaces what is mapped there: the caller must own `[addr, addr + len)`.
pub unsafe fn mmap(addr: usize, len: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> Result<usize> {
    // SAFETY: the caller answers for the range; without MAP_FIXED nothing that exists is touched.
    unsafe { call!(nr::MMAP, addr, len, prot, flags, fd, offset) }
}

/// New private anonymous memory wherever the kernel likes, for the guest's own tables.
pub fn mmap_own(len: usize) -> Result<usize> {
    // SAFETY: no address is given, so nothing that exists is touched.
    unsafe { mmap(0, len, c::PROT_RW, c::MAP_PRIVATE | c::MAP_ANONYMOUS | c::MAP_NORESERVE, -1, 0) }
}

/// The same for a table that is touched here and there: never in huge pages, one for each place would be memory that the
/// program lacks.
pub fn mmap_sparse(len: usize) -> Result<usize> {
    let at = mmap_own(len)?;
    if len >= PMD {
        // SAFETY: our own memory, whose contents do not change. A kernel without huge pages rightly refuses the advice.
        let _ = unsafe { madvise(at, len, c::MADV_NOHUGEPAGE) };
    }
    Ok(at)
}

/// brk(2), with the kernel's break: the break afterwards, whatever was wanted.
pub fn brk(addr: usize) -> usize {
    // SAFETY: only the program's own request, or 0, is passed here.
    unsafe { syscall6(nr::BRK, pad([addr])) as usize }
}

/// munmap(2).
///
/// # Safety
/// Nothing may use `[addr, addr + len)` afterwards.
pub unsafe fn munmap(addr: usize, len: usize) -> Result<()> {
    // SAFETY: passed on to the caller.
    unsafe { call!(nr::MUNMAP, addr, len) }.map(drop)
}

/// mprotect(2).
///
/// # Safety
/// The program must expect the new protection of `[addr, addr + len)`.
pub unsafe fn mprotect(addr: usize, len: usize, prot: i32) -> Result<()> {
    // SAFETY: passed on to the caller.
    unsafe { call!(nr::MPROTECT, addr, len, prot) }.map(drop)
}

/// pkey_mprotect(2).
///
/// # Safety
/// As [`mprotect`].
pub unsafe fn pkey_mprotect(addr: usize, len: usize, prot: i32, key: i32) -> Result<()> {
    // SAFETY: passed on to the caller.
    unsafe { call!(nr::PKEY_MPROTECT, addr, len, prot, key) }.map(drop)
}

/// mremap(2).
///
/// # Safety
/// The program must expect the move; with `MREMAP_FIXED` the target is replaced.
pub unsafe fn mremap(old: usize, old_len: usize, new_len: usize, flags: i32, new: usize) -> Result<usize> {
    // SAFETY: passed on to the caller.
    unsafe { call!(nr::MREMAP, old, old_len, new_len, flags, new) }
}

/// madvise(2).
///
/// # Safety
/// Some advice discards contents (`MADV_DONTNEED`, `MADV_FREE`): the program must expect that.
pub unsafe fn madvise(addr: usize, len: usize, advice: i32) -> Result<()> {
    // SAFETY: passed on to the caller.
    unsafe { call!(nr::MADVISE, addr, len, advice) }.map(drop)
}

/// Whether each page of `[addr, addr + len)` is resident; `out` has one byte a page.
pub fn mincore(addr: usize, len: usize, out: &mut [u8]) -> Result<()> {
    let len = len.min(out.len() * PAGE);
    // SAFETY: the kernel writes one byte for each page of `len`, for which `out` has room.
    unsafe { call!(nr::MINCORE, addr, len, out.as_mut_ptr()) }.map(drop)
}

/// Whether `[addr, addr + len)` is mapped, with the errors of madvise: msync with MS_ASYNC checks that and does nothing.
pub fn is_mapped(addr: usize, len: usize) -> Result<()> {
    const MS_ASYNC: usize = 1;
    // SAFETY: starts no I/O and changes nothing (since Linux 2.6.19).
    unsafe { call!(nr::MSYNC, addr, len, MS_ASYNC) }.map(drop)
}

/// openat(2), relative to the working directory.
pub fn open(path: &CStr, flags: i32, mode: u32) -> Result<i32> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    unsafe { call!(nr::OPENAT, c::AT_FDCWD as isize, path.as_ptr(), flags | c::O_CLOEXEC, mode) }
        .map(|fd| fd as i32)
}

/// close(2).
pub fn close(fd: i32) {
    // SAFETY: only descriptors that the guest opened are passed here.
    let _ = unsafe { call!(nr::CLOSE, fd) };
}

/// read(2).
pub fn read(fd: i32, into: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most `into.len()` bytes.
    unsafe { call!(nr::READ, fd, into.as_mut_ptr(), into.len()) }
}

/// write(2).
pub fn write(fd: i32, from: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads at most `from.len()` bytes.
    unsafe { call!(nr::WRITE, fd, from.as_ptr(), from.len()) }
}

/// pwrite64(2).
pub fn pwrite(fd: i32, from: &[u8], at: usize) -> Result<usize> {
    // SAFETY: the kernel reads at most `from.len()` bytes.
    unsafe { call!(nr::PWRITE64, fd, from.as_ptr(), from.len(), at) }
}

/// pread64(2).
pub fn pread(fd: i32, into: &mut [u8], at: usize) -> Result<usize> {
    // SAFETY: the kernel writes at most `into.len()` bytes.
    unsafe { call!(nr::PREAD64, fd, into.as_mut_ptr(), into.len(), at) }
}

/// pread64(2) of 64-bit words; the bytes read.
pub fn pread_words(fd: i32, into: &mut [u64], at: usize) -> Result<usize> {
    // SAFETY: the kernel writes at most the slice's bytes, and any bytes are words.
    unsafe { call!(nr::PREAD64, fd, into.as_mut_ptr(), size_of_val(into), at) }
}

/// ftruncate(2).
pub fn ftruncate(fd: i32, len: usize) -> Result<()> {
    // SAFETY: only descriptors that the guest opened are passed here.
    unsafe { call!(nr::FTRUNCATE, fd, len) }.map(drop)
}

/// symlinkat(2): `name` stands for `target`.
pub fn symlink(target: &CStr, name: &CStr) -> Result<()> {
    // SAFETY: both strings are NUL-terminated.
    unsafe { call!(nr::SYMLINKAT, target.as_ptr(), c::AT_FDCWD, name.as_ptr()) }.map(drop)
}

/// unlinkat(2) of a file.
pub fn unlink(path: &CStr) -> Result<()> {
    // SAFETY: the path is NUL-terminated.
    unsafe { call!(nr::UNLINKAT, c::AT_FDCWD, path.as_ptr(), 0) }.map(drop)
}

/// readlink(2): the bytes written.
pub fn readlink(path: &CStr, into: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most `into.len()` bytes.
    unsafe { call!(nr::READLINK, path.as_ptr(), into.as_mut_ptr(), into.len()) }
}

/// ioctl(2) with a pointer argument.
///
/// # Safety
/// `argument` must be what the request wants.
pub unsafe fn ioctl(fd: i32, request: usize, argument: usize) -> Result<usize> {
    // SAFETY: passed on to the caller.
    unsafe { call!(nr::IOCTL, fd, request, argument) }
}

/// Size in bytes of an open file.
pub fn file_size(fd: i32) -> Result<usize> {
    let mut words = [0u64; 18];
    // SAFETY: `struct stat` of x86-64 has 144 bytes, for which `words` has room.
    unsafe { call!(nr::FSTAT, fd, words.as_mut_ptr()) }?;
    Ok(words[6] as usize)
}

/// Inode of an open file.
pub fn inode(fd: i32) -> Result<u64> {
    let mut words = [0u64; 18];
    // SAFETY: as above.
    unsafe { call!(nr::FSTAT, fd, words.as_mut_ptr()) }?;
    Ok(words[1])
}

/// Hard links of a named file; for `/proc/self/task` two more than there are threads.
pub fn link_count(path: &CStr) -> Result<u64> {
    let mut words = [0u64; 18];
    // SAFETY: as above, and `path` is NUL-terminated.
    unsafe { call!(nr::NEWFSTATAT, c::AT_FDCWD as isize, path.as_ptr(), words.as_mut_ptr(), 0) }?;
    Ok(words[2])
}

/// Whether the process may write to the file at `path` (not NUL-terminated).
pub fn may_write(path: &[u8]) -> bool {
    let mut name = [0u8; 4097];
    let Some(room) = name.get_mut(..path.len()).filter(|_| path.len() < 4097) else { return false };
    room.copy_from_slice(path);
    const W_OK: usize = 2;
    // SAFETY: `name` is NUL-terminated.
    unsafe { call!(nr::FACCESSAT, c::AT_FDCWD as isize, name.as_ptr(), W_OK) }.is_ok()
}

/// Whether the process may read the file at `path`.
pub fn may_read(path: &CStr) -> bool {
    const R_OK: usize = 4;
    // SAFETY: `path` is NUL-terminated.
    unsafe { call!(nr::FACCESSAT, c::AT_FDCWD as isize, path.as_ptr(), R_OK) }.is_ok()
}

/// The process's id, asked of the kernel (libc's caches could be another process's).
pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call!(nr::GETPID) }.map_or(0, |pid| pid as u32)
}

/// The parent's id.
pub fn getppid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call!(nr::GETPPID) }.map_or(0, |pid| pid as u32)
}

type Clock = unsafe extern "C" fn(i32, *mut [u64; 2]) -> i32;

/// The kernel's own function for reading clocks in user mode (vDSO); null: none is known.
static CLOCK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Reads clocks by the vDSO's `__vdso_clock_gettime` at `address`: five times as fast as the system call, and a governed
/// call may ask twice.
///
/// # Safety
/// That is what lies there.
pub unsafe fn read_clocks_by(address: usize) {
    CLOCK.store(address as *mut (), Ordering::Relaxed);
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    const MONOTONIC: i32 = 1;
    let mut time = [0u64; 2];
    let clock = CLOCK.load(Ordering::Relaxed);
    // SAFETY: null, or what `read_clocks_by` was told, which is never unmapped; it writes one `timespec`.
    let read =
        !clock.is_null() && unsafe { core::mem::transmute::<*mut (), Clock>(clock)(MONOTONIC, &raw mut time) } == 0;
    if !read {
        // SAFETY: the kernel writes one `timespec`, 16 bytes.
        let _ = unsafe { call!(nr::CLOCK_GETTIME, MONOTONIC, time.as_mut_ptr()) };
    }
    time[0] * 1_000_000_000 + time[1]
}

/// RUSAGE_SELF: of the whole process.
pub const OF_PROCESS: usize = 0;
/// RUSAGE_THREAD: of the calling thread.
pub const OF_THREAD: usize = 1;

/// getrusage(2), as the kernel's eighteen words.
pub fn rusage(whose: usize) -> Result<[u64; 18]> {
    let mut words = [0u64; 18];
    // SAFETY: `struct rusage` has 144 bytes.
    unsafe { call!(nr::GETRUSAGE, whose, words.as_mut_ptr()) }.map(|_| words)
}

/// Replaces the calling thread's signal mask; returns the old one.
pub fn signal_mask(mask: u64) -> u64 {
    const SIG_SETMASK: usize = 2;
    let mut old = 0u64;
    // SAFETY: the kernel's signal sets have 8 bytes on x86-64.
    let _ = unsafe { call!(nr::RT_SIGPROCMASK, SIG_SETMASK, &raw const mask, &raw mut old, 8) };
    old
}

/// Takes one pending signal of a set of blocked ones, if there is one, so that it is never delivered.
pub fn take_signals(set: u64) {
    let at_once = [0u64; 2];
    // SAFETY: the kernel reads a signal set of 8 bytes and a timespec, and is asked for no information.
    let _ = unsafe { call!(nr::RT_SIGTIMEDWAIT, &raw const set, 0, at_once.as_ptr(), 8) };
}

/// Waits while `*word == value`.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    const WAIT_PRIVATE: usize = 128;
    // SAFETY: `word` is a live 4-byte integer.
    let _ = unsafe { call!(nr::FUTEX, word.as_ptr(), WAIT_PRIVATE, value, 0) };
}

/// Wakes one waiter of `word`.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    const WAKE_PRIVATE: usize = 129;
    // SAFETY: `word` is a live 4-byte integer.
    let _ = unsafe { call!(nr::FUTEX, word.as_ptr(), WAKE_PRIVATE, 1) };
}

/// prctl(2).
///
/// # Safety
/// The arguments are the program's own.
pub unsafe fn prctl(args: [usize; 5]) -> Result<usize> {
    // SAFETY: passed on to the caller.
    check(unsafe { syscall6(nr::PRCTL, pad(args)) })
}

/// seccomp(2).
///
/// # Safety
/// The arguments are the program's own.
pub unsafe fn seccomp(operation: usize, flags: usize, args: usize) -> Result<usize> {
    // SAFETY: passed on to the caller.
    unsafe { call!(nr::SECCOMP, operation, flags, args) }
}

/// The effective user's id.
pub fn geteuid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call!(nr::GETEUID) }.map_or(u32::MAX, |uid| uid as u32)
}

/// Whether a file at `path` can be executed at all: it is there, is a regular file, and somebody may execute it. `dir` is
/// what a relative path starts from.
pub fn may_be_executed(dir: i32, path: usize, flags: i32) -> bool {
    const FILE_TYPE: u64 = 0o170_000;
    const REGULAR: u64 = 0o100_000;
    const EXECUTE: u64 = 0o111;
    let mut words = [0u64; 18];
    // SAFETY: `struct stat` of x86-64 has 144 bytes, for which `words` has room; a bad path is the kernel's EFAULT.
    let found = unsafe { call!(nr::NEWFSTATAT, dir as isize, path, words.as_mut_ptr(), flags) };
    found.is_ok() && words[3] & FILE_TYPE == REGULAR && words[3] & EXECUTE != 0
}

/// Ends the process.
pub fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: ends the process; where a filter refuses it, the plain exit of this thread is next.
        unsafe {
            let _ = call!(nr::EXIT_GROUP, status);
            let _ = call!(nr::EXIT, status);
        }
    }
}

/// execve(2).
///
/// # Safety
/// The arguments are the program's own, NUL-terminated as the kernel wants them.
pub unsafe fn execve(path: usize, argv: usize, envp: usize) -> Errno {
    // SAFETY: passed on to the caller.
    unsafe { call!(nr::EXECVE, path, argv, envp) }.err().unwrap_or(Errno(0))
}

/// execveat(2).
///
/// # Safety
/// As [`execve`].
pub unsafe fn execveat(fd: i32, path: usize, argv: usize, envp: usize, flags: i32) -> Errno {
    // SAFETY: passed on to the caller.
    unsafe { call!(nr::EXECVEAT, fd as isize, path, argv, envp, flags) }.err().unwrap_or(Errno(0))
}
