//! The one boundary to the kernel: system calls as plain functions, with their errno as a value.
//!
//! Addresses and lengths are bytes. Nothing here touches libc, its errno or its malloc.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use linux_raw_sys::general;

use crate::boundary::arch::{self, PAGE, nr};

pub mod call;
pub mod nodes;
pub mod page_hints;
pub mod pipes;
pub mod real_time;
pub mod socket;
pub mod task;

pub use call::{Errno, Result};
use call::{Plain, calls};

/// Constants of `<sys/mman.h>` and friends.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod c {
    use linux_raw_sys::general;

    macro_rules! of_kernel {
        ($($name:ident)*) => { $(pub const $name: i32 = general::$name as i32;)* };
    }

    of_kernel! { PROT_NONE PROT_READ PROT_WRITE PROT_EXEC }
    pub const PROT_RW: i32 = PROT_READ | PROT_WRITE;

    of_kernel! { MAP_SHARED MAP_PRIVATE MAP_TYPE MAP_FIXED MAP_ANONYMOUS MAP_NORESERVE MAP_POPULATE MAP_NONBLOCK }
    of_kernel! { MAP_STACK MAP_HUGETLB MAP_FIXED_NOREPLACE }
    pub const MAP_HUGE_SHIFT: u32 = general::MAP_HUGE_SHIFT;

    of_kernel! { MREMAP_MAYMOVE MREMAP_FIXED MREMAP_DONTUNMAP }

    of_kernel! { MADV_NORMAL MADV_RANDOM MADV_WILLNEED MADV_DONTNEED MADV_FREE MADV_REMOVE MADV_DONTFORK MADV_DOFORK }
    of_kernel! { MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_DONTDUMP MADV_WIPEONFORK MADV_COLD MADV_POPULATE_READ }
    of_kernel! { MADV_POPULATE_WRITE MADV_DONTNEED_LOCKED MADV_COLLAPSE MADV_GUARD_INSTALL }

    of_kernel! { O_RDONLY O_RDWR O_CREAT O_EXCL O_NOFOLLOW O_CLOEXEC AT_FDCWD }
}

calls! { unsafe:
    /// mmap(2).
    ///
    /// # Safety
    /// With `MAP_FIXED` it replaces what is mapped there: the caller must own `[addr, addr + len)`.
    pub fn mmap(addr: usize, len: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> usize {
        nr::MMAP; addr, len, prot, flags, fd, offset
    }

    /// munmap(2).
    ///
    /// # Safety
    /// Nothing may use `[addr, addr + len)` afterwards.
    pub fn munmap(addr: usize, len: usize) -> () { nr::MUNMAP; addr, len }

    /// mprotect(2).
    ///
    /// # Safety
    /// The program must expect the new protection of `[addr, addr + len)`.
    pub fn mprotect(addr: usize, len: usize, prot: i32) -> () { nr::MPROTECT; addr, len, prot }

    /// pkey_mprotect(2).
    ///
    /// # Safety
    /// As [`mprotect`].
    pub fn pkey_mprotect(addr: usize, len: usize, prot: i32, key: i32) -> () {
        nr::PKEY_MPROTECT; addr, len, prot, key
    }

    /// mremap(2).
    ///
    /// # Safety
    /// The program must expect the move; with `MREMAP_FIXED` the target is replaced.
    pub fn mremap(old: usize, old_len: usize, new_len: usize, flags: i32, new: usize) -> usize {
        nr::MREMAP; old, old_len, new_len, flags, new
    }

    /// madvise(2).
    ///
    /// # Safety
    /// Some advice discards contents (`MADV_DONTNEED`, `MADV_FREE`): the program must expect that.
    pub fn madvise(addr: usize, len: usize, advice: i32) -> () { nr::MADVISE; addr, len, advice }

    /// process_madvise(2). Returns the bytes advised.
    ///
    /// # Safety
    /// The arguments are the program's own.
    pub fn process_madvise(process: i32, ranges: usize, count: usize, advice: i32, flags: u32) -> usize {
        nr::PROCESS_MADVISE; process, ranges, count, advice, flags
    }

    /// mseal(2).
    ///
    /// # Safety
    /// The arguments are the program's own.
    pub fn mseal(addr: usize, len: usize, flags: usize) -> () { nr::MSEAL; addr, len, flags }

    /// mbind(2).
    ///
    /// # Safety
    /// The arguments are the program's own.
    pub fn mbind(addr: usize, len: usize, mode: usize, nodes: usize, most: usize, flags: usize) -> () {
        nr::MBIND; addr, len, mode, nodes, most, flags
    }

    /// ioctl(2) with a pointer argument.
    ///
    /// # Safety
    /// `argument` must be what the request wants.
    pub fn ioctl(fd: i32, request: usize, argument: usize) -> usize { nr::IOCTL; fd, request, argument }

    /// unshare(2).
    ///
    /// # Safety
    /// The program itself has requested this.
    pub fn unshare(what: i32) -> () { nr::UNSHARE; what }

    /// setns(2).
    ///
    /// # Safety
    /// The program itself has requested this.
    pub fn setns(fd: i32, kind: i32) -> () { nr::SETNS; fd, kind }

    /// landlock_restrict_self(2).
    ///
    /// # Safety
    /// The arguments are the program's own.
    pub fn landlock_restrict_self(ruleset: i32, flags: u32) -> () { nr::LANDLOCK_RESTRICT_SELF; ruleset, flags }

    /// seccomp(2).
    ///
    /// # Safety
    /// The arguments are the program's own.
    pub fn seccomp(operation: usize, flags: usize, args: usize) -> usize { nr::SECCOMP; operation, flags, args }

    fn futex_of(word: usize, operation: usize, value: usize, timeout: usize, second: usize, third: usize) -> usize {
        nr::FUTEX; word, operation, value, timeout, second, third
    }

    fn prctl_of(a: usize, b: usize, c: usize, d: usize, e: usize) -> usize { nr::PRCTL; a, b, c, d, e }

    fn execve_of(path: usize, argv: usize, envp: usize) -> () { nr::EXECVE; path, argv, envp }

    fn execveat_of(fd: i32, path: usize, argv: usize, envp: usize, flags: i32) -> () {
        nr::EXECVEAT; fd, path, argv, envp, flags
    }

    fn brk_of(addr: usize) -> usize { nr::BRK; addr }

    fn mincore_of(addr: usize, len: usize, out: usize) -> () { nr::MINCORE; addr, len, out }
}

calls! {
    /// personality(2): changes only what is mapped or executed later.
    pub fn personality(persona: usize) -> usize { nr::PERSONALITY; persona }

    fn msync(addr: usize, len: usize, how: u32) -> () { nr::MSYNC; addr, len, how }

    /// openat(2), relative to the working directory.
    pub fn open(path: &CStr, flags: i32, mode: u32) -> i32 { nr::OPENAT; c::AT_FDCWD, path, flags | c::O_CLOEXEC, mode }

    fn close_of(fd: i32) -> () { nr::CLOSE; fd }

    /// read(2).
    pub fn read(fd: i32, into: &mut [u8]) -> usize { nr::READ; fd, into }

    /// write(2).
    pub fn write(fd: i32, from: &[u8]) -> usize { nr::WRITE; fd, from }

    /// pwrite64(2).
    pub fn pwrite(fd: i32, from: &[u8], at: usize) -> usize { nr::PWRITE64; fd, from, at }

    /// pread64(2).
    pub fn pread(fd: i32, into: &mut [u8], at: usize) -> usize { nr::PREAD64; fd, into, at }

    /// pread64(2) of 64-bit words; the bytes read.
    pub fn pread_words(fd: i32, into: &mut [u64], at: usize) -> usize { nr::PREAD64; fd, Plain::bytes_mut(into), at }

    /// ftruncate(2).
    pub fn ftruncate(fd: i32, len: usize) -> () { nr::FTRUNCATE; fd, len }

    /// symlinkat(2): `name` stands for `target`.
    pub fn symlink(target: &CStr, name: &CStr) -> () { nr::SYMLINKAT; target, c::AT_FDCWD, name }

    /// unlinkat(2) of a file.
    pub fn unlink(path: &CStr) -> () { nr::UNLINKAT; c::AT_FDCWD, path, 0 }

    /// readlink(2): the bytes written.
    pub fn readlink(path: &CStr, into: &mut [u8]) -> usize { nr::READLINK; path, into }

    fn fstat(fd: i32, into: &mut general::stat) -> () { nr::FSTAT; fd, into }

    // `struct statfs` has 15 words.
    fn fstatfs(fd: i32, into: &mut [u64; 15]) -> () { nr::FSTATFS; fd, into }

    // `struct sysinfo` has 14 words.
    fn sysinfo(into: &mut [u64; 14]) -> () { nr::SYSINFO; into }

    fn stat(path: &CStr, into: &mut general::stat) -> () { nr::NEWFSTATAT; c::AT_FDCWD, path, into, 0 }

    // A bad path is the kernel's EFAULT.
    fn stat_at(dir: i32, path: usize, into: &mut general::stat, flags: i32) -> () {
        nr::NEWFSTATAT; dir, path, into, flags
    }

    fn access(path: &CStr, how: u32) -> () { nr::FACCESSAT; c::AT_FDCWD, path, how }

    fn getpid_of() -> u32 { nr::GETPID }

    fn gettid_of() -> u32 { nr::GETTID }

    fn getppid_of() -> u32 { nr::GETPPID }

    fn geteuid_of() -> u32 { nr::GETEUID }

    fn clock_gettime(clock: u32, time: &mut [u64; 2]) -> () { nr::CLOCK_GETTIME; clock, time }

    fn getrusage(whose: usize, words: &mut [u64; 18]) -> () { nr::GETRUSAGE; whose, words }

    // The kernel's signal sets have 8 bytes.
    fn sigprocmask(how: u32, mask: &u64, old: &mut u64) -> () { nr::RT_SIGPROCMASK; how, mask, old, 8 }

    fn sigtimedwait(set: &u64, timeout: &[u64; 2]) -> () { nr::RT_SIGTIMEDWAIT; set, 0, timeout, 8 }

    fn futex(word: &AtomicU32, operation: u32, value: u32) -> () { nr::FUTEX; word, operation, value, 0 }

    fn exit_group_of(status: i32) -> () { nr::EXIT_GROUP; status }

    fn exit_of(status: i32) -> () { nr::EXIT; status }
}

/// Maps new private anonymous memory at an address of the kernel's choice, for the guest's own tables.
pub fn mmap_own(len: usize) -> Result<usize> {
    map_anywhere(len, c::PROT_RW, c::MAP_NORESERVE)
}

/// Maps new private anonymous memory at an address of the kernel's choice; `flags` are added to those.
pub fn map_anywhere(len: usize, prot: i32, flags: i32) -> Result<usize> {
    map_file(-1, len, prot, c::MAP_PRIVATE | c::MAP_ANONYMOUS | flags)
}

/// Maps a file's first bytes at an address of the kernel's choice; `flags`: MAP_SHARED or MAP_PRIVATE, and more.
pub fn map_file(fd: i32, len: usize, prot: i32, flags: i32) -> Result<usize> {
    let flags = flags & !(c::MAP_FIXED | c::MAP_FIXED_NOREPLACE);
    // SAFETY: no address is given, so nothing that exists is touched.
    unsafe { mmap(0, len, prot, flags, fd, 0) }
}

/// As [`map_anywhere`], but at `addr`, where nothing may be mapped; before Linux 4.17 the kernel may choose another
/// address.
pub fn map_unused(addr: usize, len: usize, prot: i32, flags: i32) -> Result<usize> {
    let flags = (c::MAP_PRIVATE | c::MAP_ANONYMOUS | c::MAP_FIXED_NOREPLACE | flags) & !c::MAP_FIXED;
    // SAFETY: with NOREPLACE, nothing that exists is touched.
    unsafe { mmap(addr, len, prot, flags, -1, 0) }
}

/// As [`mmap_own`], for a table in which few places are touched: never in huge pages, because one for each place would
/// take memory from the program. That holds for small tables, too: neighbours become one mapping, in which a huge page
/// has room.
pub fn mmap_sparse(len: usize) -> Result<usize> {
    let at = mmap_own(len)?;
    // A kernel without huge pages rightly refuses the advice.
    let _ = advise(at, len, Advice::BasePages);
    Ok(at)
}

/// mremap(2) that grows a mapping into the free addresses behind it; it stays where it is.
pub fn grow_in_place(addr: usize, len: usize, new_len: usize) -> Result<usize> {
    // SAFETY: without MREMAP_MAYMOVE the mapping stays, nothing is replaced, and it does not shrink.
    unsafe { mremap(addr, len, new_len.max(len), 0, 0) }
}

/// Advice that changes no contents in this process or its children, whatever the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// MADV_HUGEPAGE.
    HugePages = c::MADV_HUGEPAGE as isize,
    /// MADV_NOHUGEPAGE.
    BasePages = c::MADV_NOHUGEPAGE as isize,
    /// MADV_COLLAPSE.
    Collapse = c::MADV_COLLAPSE as isize,
    /// MADV_POPULATE_READ.
    PopulateRead = c::MADV_POPULATE_READ as isize,
    /// MADV_POPULATE_WRITE.
    PopulateWrite = c::MADV_POPULATE_WRITE as isize,
    /// MADV_RANDOM.
    Random = c::MADV_RANDOM as isize,
    /// MADV_WILLNEED.
    WillNeed = c::MADV_WILLNEED as isize,
    /// MADV_COLD.
    Cold = c::MADV_COLD as isize,
    /// MADV_DONTDUMP.
    NotInDumps = c::MADV_DONTDUMP as isize,
    /// MADV_DONTFORK.
    NotInChildren = c::MADV_DONTFORK as isize,
    /// MADV_DOFORK.
    InChildren = c::MADV_DOFORK as isize,
}

/// madvise(2) with advice that keeps this process's contents.
pub fn advise(addr: usize, len: usize, advice: Advice) -> Result<()> {
    // SAFETY: advice of this type changes no contents in this process.
    unsafe { madvise(addr, len, advice as i32) }
}

/// brk(2), with the kernel's break: returns the break afterwards, whatever the request.
pub fn brk(addr: usize) -> usize {
    // SAFETY: callers pass only the program's own request, or 0.
    unsafe { brk_of(addr) }.unwrap_or(0)
}

/// Whether each page of `[addr, addr + len)` is resident; `out` has one byte a page.
pub fn mincore(addr: usize, len: usize, out: &mut [u8]) -> Result<()> {
    let len = len.min(out.len() * PAGE);
    // SAFETY: the kernel writes one byte for each page of `len`, for which `out` has room.
    unsafe { mincore_of(addr, len, out.as_mut_ptr() as usize) }
}

/// Checks that `[addr, addr + len)` is mapped; fails with the errors of madvise. msync with MS_ASYNC checks that and
/// does nothing else (since Linux 2.6.19).
pub fn is_mapped(addr: usize, len: usize) -> Result<()> {
    msync(addr, len, general::MS_ASYNC)
}

/// Whether any of `[addr, addr + len)`, which is mapped, is locked: msync refuses to invalidate such memory (and does not
/// invalidate any other).
pub fn is_locked(addr: usize, len: usize) -> bool {
    msync(addr, len, general::MS_ASYNC | general::MS_INVALIDATE) == Err(Errno::EBUSY)
}

/// close(2). Only descriptors that the guest opened are passed here.
pub fn close(fd: i32) {
    let _ = close_of(fd);
}

/// Status of an open file.
fn status(fd: i32) -> Result<general::stat> {
    let mut found = general::stat::zeroed();
    fstat(fd, &mut found).map(|()| found)
}

/// Size in bytes of an open file.
pub fn file_size(fd: i32) -> Result<usize> {
    status(fd).map(|found| found.st_size as usize)
}

/// Inode of an open file.
pub fn inode(fd: i32) -> Result<u64> {
    status(fd).map(|found| found.st_ino)
}

/// Page size of an open file on hugetlbfs.
pub fn huge_page_bytes(fd: i32) -> Option<usize> {
    let mut words = [0; 15];
    fstatfs(fd, &mut words).ok()?;
    let [kind, page_bytes, ..] = words;
    (kind == u64::from(general::HUGETLBFS_MAGIC)).then_some(page_bytes as usize)
}

/// What a mapping of an open file shows.
pub struct Contents {
    /// Whether it is a file's or a block device's, which are read into the page cache.
    pub is_cached: bool,
    /// Whether a fault in a hole may give the file another page.
    pub may_grow: bool,
    /// Whether some of it is missing.
    pub has_holes: bool,
    /// Whether it belongs to the process's user.
    pub is_own: bool,
}

/// The contents of an open file.
pub fn contents(fd: i32) -> Result<Contents> {
    const IN_MEMORY: [u32; 4] = [
        general::TMPFS_MAGIC,
        general::RAMFS_MAGIC,
        general::HUGETLBFS_MAGIC,
        // The files below it may be any of these.
        general::OVERLAYFS_SUPER_MAGIC,
    ];
    let found = status(fd)?;
    let mut words = [0; 15];
    fstatfs(fd, &mut words)?;
    let [kind, ..] = words;
    Ok(Contents {
        is_cached: matches!(found.st_mode & general::S_IFMT, general::S_IFREG | general::S_IFBLK),
        may_grow: IN_MEMORY.into_iter().any(|magic| kind == u64::from(magic)),
        has_holes: (found.st_blocks as u64).saturating_mul(512) < found.st_size as u64,
        is_own: found.st_uid == geteuid(),
    })
}

/// Memory that is free, bytes.
pub fn free_bytes() -> Option<usize> {
    let mut words = [0; 14];
    sysinfo(&mut words).ok()?;
    let [_, _, _, _, _, free, .., unit] = words;
    usize::try_from(free.saturating_mul(unit & 0xffff_ffff)).ok()
}

/// Hard links of a named file; for `/proc/self/task` two more than there are threads.
pub fn link_count(path: &CStr) -> Result<u64> {
    let mut found = general::stat::zeroed();
    stat(path, &mut found).map(|()| found.st_nlink)
}

/// Whether the process may write to the file at `path` (not NUL-terminated).
pub fn may_write(path: &[u8]) -> bool {
    let mut name = [0u8; 4097];
    let Some(room) = name.get_mut(..path.len()).filter(|_| path.len() < 4097) else { return false };
    room.copy_from_slice(path);
    CStr::from_bytes_until_nul(&name).is_ok_and(|path| access(path, general::W_OK).is_ok())
}

/// Whether the process may read the file at `path`.
pub fn may_read(path: &CStr) -> bool {
    access(path, general::R_OK).is_ok()
}

/// The process's id, asked of the kernel (libc's caches could be another process's).
// SAFETY: as of the handler of forks in the child, beside which this lies.
#[unsafe(link_section = "pagelab_child")]
pub fn getpid() -> u32 {
    getpid_of().unwrap_or(0)
}

/// The calling thread's id.
pub fn gettid() -> u32 {
    gettid_of().unwrap_or(0)
}

/// The parent's id.
pub fn getppid() -> u32 {
    getppid_of().unwrap_or(0)
}

type Clock = unsafe extern "C" fn(i32, *mut [u64; 2]) -> i32;

/// The kernel's own function for reading clocks in user mode (vDSO); null: none is known.
static CLOCK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Reads clocks by the vDSO's `__vdso_clock_gettime` at `address` from now on: it is five times as fast as the system
/// call, and a governed call may read the clock twice.
///
/// # Safety
/// `address` is that of this function.
pub unsafe fn read_clocks_by(address: usize) {
    CLOCK.store(address as *mut (), Ordering::Relaxed);
}

/// Reads clocks by the system call from now on: reading the processor's clock, as the vDSO does, would raise SIGSEGV.
pub fn read_clocks_by_calls() {
    CLOCK.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// Tells the library that the program is about to unmap, move, replace or protect this memory. If the vDSO is in it,
/// clocks are read by the system call from then on.
pub fn part_with(addr: usize, len: usize) {
    /// The vDSO's data lie a few pages below it.
    const AROUND: usize = 16 * PAGE;
    let clock = CLOCK.load(Ordering::Relaxed) as usize;
    if clock != 0 && addr < clock + AROUND && addr.saturating_add(len) > clock.saturating_sub(AROUND) {
        read_clocks_by_calls();
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    const MONOTONIC: u32 = general::CLOCK_MONOTONIC;
    let mut time = [0u64; 2];
    let clock = CLOCK.load(Ordering::Relaxed);
    // SAFETY: null, or the function given to `read_clocks_by`, which is still mapped (`part_with`); it writes one
    // `timespec`.
    let read = !clock.is_null()
        && unsafe { core::mem::transmute::<*mut (), Clock>(clock)(MONOTONIC as i32, &raw mut time) } == 0;
    if !read {
        let _ = clock_gettime(MONOTONIC, &mut time);
    }
    time[0] * 1_000_000_000 + time[1]
}

/// Ticks from an arbitrary start, a billion or more a second: of the processor's clock, if it may be read.
pub fn ticks() -> u64 {
    if CLOCK.load(Ordering::Relaxed).is_null() { monotonic_ns() } else { arch::ticks() }
}

/// RUSAGE_SELF: of the whole process.
pub const OF_PROCESS: usize = general::RUSAGE_SELF as usize;
/// RUSAGE_THREAD: of the calling thread.
pub const OF_THREAD: usize = general::RUSAGE_THREAD as usize;

/// getrusage(2), as the kernel's eighteen words.
pub fn rusage(whose: usize) -> Result<[u64; 18]> {
    let mut words = [0u64; 18];
    getrusage(whose, &mut words).map(|()| words)
}

/// Replaces the calling thread's signal mask; returns the old one.
pub fn signal_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    let _ = sigprocmask(general::SIG_SETMASK, &mask, &mut old);
    old
}

/// In what [`block_signals`] returns: the thread was stepping. (The bit of SIGKILL, which the kernel has in no mask.)
const STEPPING: u64 = 1 << (general::SIGKILL - 1);

/// Blocks all signals of the calling thread, and stops it from single-stepping by the processor's trap flag: the kernel
/// ends a process in which it cannot deliver the trap. So the library's work is one step, as a system call is. Returns
/// the state before, for [`restore_signals`].
pub fn block_signals() -> u64 {
    if !arch::is_stepping() {
        return signal_mask(u64::MAX);
    }
    arch::set_stepping(false);
    // The program's handler, which this has called, may set the flag again each time; so does a tracer. Then the trap
    // stays open.
    match arch::is_stepping() {
        true => signal_mask(!(1 << (general::SIGTRAP - 1))),
        false => signal_mask(u64::MAX) | STEPPING,
    }
}

/// Restores the signal mask, and single-stepping, as they were before [`block_signals`].
pub fn restore_signals(before: u64) {
    signal_mask(before & !STEPPING);
    if before & STEPPING != 0 {
        arch::set_stepping(true);
    }
}

/// Takes one pending signal of a set of blocked ones, if there is one, so that it is never delivered.
pub fn take_signals(set: u64) {
    let _ = sigtimedwait(&set, &[0u64; 2]);
}

/// Waits while `*word == value`.
pub fn futex_wait(word: &AtomicU32, value: u32) {
    let _ = futex(word, general::FUTEX_WAIT_PRIVATE, value);
}

/// Wakes one waiter of `word`.
pub fn futex_wake(word: &AtomicU32) {
    let _ = futex(word, general::FUTEX_WAKE_PRIVATE, 1);
}

/// futex(2).
///
/// # Safety
/// The arguments are the program's own.
pub unsafe fn futex_as_given([word, operation, value, timeout, second, third]: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller answers for the arguments.
    unsafe { futex_of(word, operation, value, timeout, second, third) }
}

/// prctl(2).
///
/// # Safety
/// The arguments are the program's own.
pub unsafe fn prctl([a, b, c, d, e]: [usize; 5]) -> Result<usize> {
    // SAFETY: the caller answers for the arguments.
    unsafe { prctl_of(a, b, c, d, e) }
}

/// The effective user's id.
pub fn geteuid() -> u32 {
    geteuid_of().unwrap_or(u32::MAX)
}

/// Whether the file at `path` may be read, by the process's real user.
pub fn is_readable(path: &CStr) -> Result<()> {
    access(path, general::R_OK)
}

/// Whether the file at `path` can be executed at all: it exists, is a regular file, and somebody may execute it. A
/// relative path starts from `dir`.
pub fn may_be_executed(dir: i32, path: usize, flags: i32) -> bool {
    const EXECUTE: u32 = general::S_IXUSR | general::S_IXGRP | general::S_IXOTH;
    let mut found = general::stat::zeroed();
    stat_at(dir, path, &mut found, flags).is_ok()
        && found.st_mode & general::S_IFMT == general::S_IFREG
        && found.st_mode & EXECUTE != 0
}

/// Ends the process.
pub fn exit_group(status: i32) -> ! {
    loop {
        let _ = exit_group_of(status);
        // If a filter refuses that, the plain exit of this thread comes next.
        let _ = exit_of(status);
    }
}

/// execve(2).
///
/// # Safety
/// The arguments are the program's own, NUL-terminated as the kernel wants them.
pub unsafe fn execve(path: usize, argv: usize, envp: usize) -> Errno {
    // SAFETY: the caller answers for the arguments.
    unsafe { execve_of(path, argv, envp) }.err().unwrap_or(Errno(0))
}

/// execveat(2).
///
/// # Safety
/// As [`execve`].
pub unsafe fn execveat(fd: i32, path: usize, argv: usize, envp: usize, flags: i32) -> Result<()> {
    // SAFETY: the caller answers for the arguments.
    unsafe { execveat_of(fd, path, argv, envp, flags) }
}
