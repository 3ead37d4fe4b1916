//! System calls about threads, descriptors and credentials, for the threads that place frames.

use core::ffi::CStr;
use core::sync::atomic::AtomicU32;

use crate::boundary::arch::{clone_thread, nr, syscall6};

use super::{Result, c, check, pad};

const CLONE_VM: usize = 0x100;
const CLONE_FS: usize = 0x200;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_SYSVSEM: usize = 0x4_0000;
const CLONE_PARENT_SETTID: usize = 0x10_0000;
const CLONE_CHILD_CLEARTID: usize = 0x20_0000;
const CLONE_FILES: usize = 0x400;
/// A thread of this process with descriptors of its own.
const THREAD: usize =
    CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;

/// Starts a thread of this process that runs `entry(argument)` on the stack that ends at `stack_top`.
///
/// It shares memory, not descriptors: its table is a copy, which it may close and which the program cannot reach. `*tid`
/// has its id until it ends, then 0, with a wake-up of the word.
///
/// # Safety
/// The stack is its own, `entry` uses no thread-local storage, and `tid` outlives the thread.
pub unsafe fn start_thread(
    stack_top: usize,
    tid: &AtomicU32,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> Result<u32> {
    // SAFETY: as the caller promises.
    let raw = unsafe { clone_thread(THREAD, stack_top & !15, tid.as_ptr(), entry, argument) };
    check(raw).map(|tid| tid as u32)
}

/// As [`start_thread`], with the program's table of descriptors: to be left at once ([`leave_files`]).
///
/// # Safety
/// As for [`start_thread`].
pub unsafe fn start_thread_with_files(
    stack_top: usize,
    tid: &AtomicU32,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> Result<u32> {
    // SAFETY: as the caller promises.
    let raw = unsafe { clone_thread(THREAD | CLONE_FILES, stack_top & !15, tid.as_ptr(), entry, argument) };
    check(raw).map(|tid| tid as u32)
}

/// The calling thread has a table of descriptors of its own from now on, in which there are none (Linux 5.9).
pub fn leave_files() -> Result<()> {
    const CLOSE_RANGE_UNSHARE: usize = 1 << 1;
    // SAFETY: closes nothing of anybody else's.
    unsafe { call!(nr::CLOSE_RANGE, 0, u32::MAX, CLOSE_RANGE_UNSHARE) }.map(drop)
}

/// Ends the calling thread alone.
pub fn exit_thread() -> ! {
    loop {
        // SAFETY: nothing of this thread's stack is used afterwards.
        let _ = unsafe { call!(nr::EXIT, 0) };
    }
}

/// Waits while `*word == value`, at most `ns` nanoseconds; also across processes.
pub fn futex_wait_for(word: &AtomicU32, value: u32, ns: u64) {
    let time = [ns / 1_000_000_000, ns % 1_000_000_000];
    // SAFETY: `word` is a live 4-byte integer, `time` a timespec.
    let _ = unsafe { call!(nr::FUTEX, word.as_ptr(), 0, value, time.as_ptr()) };
}

/// Wakes all that wait with [`futex_wait_for`].
pub fn futex_wake_all(word: &AtomicU32) {
    // SAFETY: `word` is a live 4-byte integer.
    let _ = unsafe { call!(nr::FUTEX, word.as_ptr(), 1, i32::MAX) };
}

/// close_range(2): closes `first..=last` in the calling thread's table.
pub fn close_range(first: u32, last: u32) -> Result<()> {
    // SAFETY: only called by threads with tables of their own.
    unsafe { call!(nr::CLOSE_RANGE, first, last, 0) }.map(drop)
}

/// fcntl(2) with F_DUPFD_CLOEXEC: a copy of `fd` with a number of at least `lowest`.
pub fn dup_above(fd: i32, lowest: i32) -> Result<i32> {
    const F_DUPFD_CLOEXEC: usize = 1030;
    // SAFETY: makes a new descriptor only.
    unsafe { call!(nr::FCNTL, fd, F_DUPFD_CLOEXEC, lowest) }.map(|fd| fd as i32)
}

/// Soft limit of a resource.
pub fn soft_limit(resource: usize) -> Result<u64> {
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes one `struct rlimit64`, 16 bytes.
    unsafe { call!(nr::PRLIMIT64, 0, resource, 0, limit.as_mut_ptr()) }?;
    Ok(limit[0])
}

/// RLIMIT_FSIZE.
pub const LIMIT_FILE_SIZE: usize = 1;

/// RLIMIT_AS.
pub const LIMIT_ADDRESSES: usize = 9;

/// RLIMIT_DATA.
pub const LIMIT_DATA: usize = 2;

/// RLIMIT_NOFILE.
pub const LIMIT_DESCRIPTORS: usize = 7;

/// Words of a processor mask (8192 processors).
pub const MASK_WORDS: usize = 128;

/// The processors that thread `tid` (0: the caller) may run on; the bytes of the mask that the kernel uses.
pub fn affinity(tid: u32, mask: &mut [u64; MASK_WORDS]) -> Result<usize> {
    // SAFETY: the kernel writes at most the mask's bytes.
    unsafe { call!(nr::SCHED_GETAFFINITY, tid, size_of_val(mask), mask.as_mut_ptr()) }
}

/// Lets the calling thread run on the processors of `mask` only.
pub fn set_affinity(mask: &[u64]) -> Result<()> {
    // SAFETY: the kernel reads the mask's bytes.
    unsafe { call!(nr::SCHED_SETAFFINITY, 0, size_of_val(mask), mask.as_ptr()) }.map(drop)
}

/// Names the calling thread (at most 15 bytes).
pub fn set_name(name: &CStr) {
    const PR_SET_NAME: usize = 15;
    // SAFETY: `name` is NUL-terminated.
    let _ = unsafe { call!(nr::PRCTL, PR_SET_NAME, name.as_ptr()) };
}

/// A user and a group that nobody is: -2. And the overflow ids, where a namespace does not know those.
const NOBODY: [u32; 2] = [u32::MAX - 1, 65534];
const CAPABILITIES_VERSION_3: u32 = 0x2008_0522;
const CAP_SETGID: u64 = 1 << 6;
const CAP_SETUID: u64 = 1 << 7;
const CAP_IPC_LOCK: u64 = 1 << 14;

/// Gives up every right of the calling thread that the program may give up one day: all capabilities, and, where the
/// program could become somebody else, the user and the groups that it is now. A thread without rights that belongs to
/// nobody is worth nothing to whoever takes the program over later. `but_locks`: it may go on to lock memory.
pub fn give_up_rights(but_locks: bool) {
    let permitted = permitted_capabilities(0);
    keep_capabilities_over_users(but_locks);
    // They may be out of effect for the moment (seteuid).
    let _ = set_capabilities(permitted);
    let (mut users, mut groups) = ([0u32; 3], [0u32; 3]);
    let [user, effective_user, saved_user] = &mut users;
    let [group, effective_group, saved_group] = &mut groups;
    // SAFETY: the kernel writes the six numbers.
    unsafe {
        let _ = call!(nr::GETRESUID, user as *mut u32, effective_user as *mut u32, saved_user as *mut u32);
        let _ = call!(nr::GETRESGID, group as *mut u32, effective_group as *mut u32, saved_group as *mut u32);
    }
    let are_several = |ids: &[u32; 3]| ids.windows(2).any(|pair| pair.first() != pair.last());
    if permitted & (CAP_SETUID | CAP_SETGID) != 0 || are_several(&users) || are_several(&groups) {
        become_nobody(users[0], groups[0]);
    }
    keep_capabilities_over_users(false);
    let _ = set_capabilities(if but_locks { permitted & CAP_IPC_LOCK } else { 0 });
}

fn keep_capabilities_over_users(keep: bool) {
    const PR_SET_KEEPCAPS: usize = 8;
    // SAFETY: a number by value.
    let _ = unsafe { call!(nr::PRCTL, PR_SET_KEEPCAPS, keep, 0, 0, 0) };
}

/// Whether thread `tid` may lock memory beyond the limit.
pub fn may_lock_beyond_limit(tid: u32) -> bool {
    permitted_capabilities(tid) & CAP_IPC_LOCK != 0
}

/// Gives up the calling thread's capabilities that are left.
pub fn give_up_capabilities() {
    let _ = set_capabilities(0);
}

/// Takes ids that are nobody's; where that is not permitted, the real ones alone.
fn become_nobody(user: u32, group: u32) {
    const PR_GET_DUMPABLE: usize = 3;
    const PR_SET_DUMPABLE: usize = 4;
    // Another user makes the whole process undumpable, which is the program's to decide.
    // SAFETY: reads one number.
    let dumpable = unsafe { call!(nr::PRCTL, PR_GET_DUMPABLE, 0, 0, 0, 0) };
    // SAFETY: system calls past libc change the calling thread alone.
    unsafe {
        let _ = call!(nr::SETGROUPS, 0, 0);
        let _ = NOBODY.into_iter().chain([group]).any(|id| call!(nr::SETRESGID, id, id, id).is_ok());
        let _ = NOBODY.into_iter().chain([user]).any(|id| call!(nr::SETRESUID, id, id, id).is_ok());
        if dumpable == Ok(1) {
            let _ = call!(nr::PRCTL, PR_SET_DUMPABLE, 1, 0, 0, 0);
        }
    }
}

/// Of thread `tid`; 0: the caller.
fn permitted_capabilities(tid: u32) -> u64 {
    let (header, mut data) = ([CAPABILITIES_VERSION_3, tid], [0u32; 6]);
    // SAFETY: the header has 8 bytes, version 3 writes 24: effective, permitted and inheritable, twice.
    let known = unsafe { call!(nr::CAPGET, header.as_ptr(), data.as_mut_ptr()) };
    let [_, low, _, _, high, _] = data;
    if known.is_ok() { u64::from(high) << 32 | u64::from(low) } else { 0 }
}

/// Effective and permitted capabilities; nothing is inheritable.
fn set_capabilities(kept: u64) -> Result<()> {
    let (low, high) = (kept as u32, (kept >> 32) as u32);
    let (header, data) = ([CAPABILITIES_VERSION_3, 0], [low, low, 0, high, high, 0]);
    // SAFETY: the header has 8 bytes, version 3 reads 24 bytes of data.
    unsafe { call!(nr::CAPSET, header.as_ptr(), data.as_ptr()) }.map(drop)
}

/// pidfd_open(2) of a thread (Linux 6.9).
pub fn pidfd_of_thread(tid: u32) -> Result<i32> {
    const PIDFD_THREAD: i32 = 0o200;
    // SAFETY: makes a new descriptor only.
    unsafe { call!(nr::PIDFD_OPEN, tid, PIDFD_THREAD) }.map(|fd| fd as i32)
}

/// pidfd_getfd(2): a copy of descriptor `fd` of the thread behind `pidfd`.
pub fn pidfd_get(pidfd: i32, fd: i32) -> Result<i32> {
    // SAFETY: makes a new descriptor only.
    unsafe { call!(nr::PIDFD_GETFD, pidfd, fd, 0) }.map(|fd| fd as i32)
}

/// process_vm_readv(2) of this process: memory that may be closed or go away at any time. Bytes read.
pub fn read_own(from: usize, into: &mut [u8]) -> Result<usize> {
    let (local, remote) = ([into.as_mut_ptr() as usize, into.len()], [from, into.len()]);
    let pid = super::getpid();
    // SAFETY: the kernel writes `into`'s bytes at most.
    unsafe { call!(nr::PROCESS_VM_READV, pid, local.as_ptr(), 1, remote.as_ptr(), 1, 0) }
}

/// mlock2(2) as the program wants it (flags 0: mlock).
pub fn mlock_with(addr: usize, len: usize, flags: usize) -> Result<()> {
    // SAFETY: locks pages, changes no contents.
    unsafe { if flags == 0 { call!(nr::MLOCK, addr, len) } else { call!(nr::MLOCK2, addr, len, flags) } }.map(drop)
}

/// munlock(2).
pub fn munlock(addr: usize, len: usize) -> Result<()> {
    // SAFETY: unlocks pages, changes no contents.
    unsafe { call!(nr::MUNLOCK, addr, len) }.map(drop)
}

/// munlockall(2).
pub fn munlock_all() -> Result<()> {
    // SAFETY: unlocks pages, changes no contents.
    unsafe { call!(nr::MUNLOCKALL) }.map(drop)
}

/// mlockall(2).
pub fn mlock_all(flags: usize) -> Result<()> {
    // SAFETY: locks pages, changes no contents.
    unsafe { call!(nr::MLOCKALL, flags) }.map(drop)
}

/// mlock2(2); `on_fault`: pages are locked when they come in.
pub fn mlock(addr: usize, len: usize, on_fault: bool) -> Result<()> {
    // SAFETY: locks pages, changes no contents.
    unsafe { call!(nr::MLOCK2, addr, len, on_fault) }.map(drop)
}

/// userfaultfd(2), for faults of the kernel's as well.
pub fn userfaultfd() -> Result<i32> {
    // SAFETY: makes a new descriptor only.
    unsafe { call!(nr::USERFAULTFD, c::O_CLOEXEC) }.map(|fd| fd as i32)
}

/// prctl(2) with PR_SET_TIMERSLACK: timers of the calling thread expire when they are to, not some 50 µs later.
pub fn without_timer_slack() {
    const PR_SET_TIMERSLACK: usize = 29;
    // SAFETY: changes when timers of this thread expire.
    let _ = unsafe { call!(nr::PRCTL, PR_SET_TIMERSLACK, 1) };
}
