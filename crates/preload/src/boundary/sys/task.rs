//! System calls about threads, descriptors and credentials, for the threads that place frames.

use core::ffi::CStr;
use core::sync::atomic::AtomicU32;

use linux_raw_sys::general::{
    CLONE_CHILD_CLEARTID, CLONE_FILES, CLONE_FS, CLONE_PARENT_SETTID, CLONE_SIGHAND, CLONE_THREAD, CLONE_UNTRACED,
    CLONE_VM, F_DUPFD_CLOEXEC, rlimit64,
};
use linux_raw_sys::{general, prctl};

use crate::boundary::arch::{clone_thread, nr};

use super::c;
use super::call::{Errno, Plain, Result, calls, check};

/// Flags for a thread of this process with its own descriptors. CLONE_SYSVSEM is left out: it would give the program a
/// list of semaphore adjustments, which kcmp(2) distinguishes from none. CLONE_UNTRACED: a tracer that follows new
/// threads would stop it at its system calls, and wait for the pages that it is to bring while it reads the program's
/// memory (`strace -f`).
const THREAD: u32 = CLONE_VM
    | CLONE_FS
    | CLONE_SIGHAND
    | CLONE_THREAD
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID
    | CLONE_UNTRACED;

/// Starts a thread of this process that runs `entry(argument)` on the stack that ends at `stack_top`.
///
/// The thread shares memory, not descriptors: its table is a copy, which it may close, and which the program cannot
/// reach. `*tid` is its id until it ends, then 0; the end wakes those that wait at the word.
///
/// # Safety
/// The stack is its own, `entry` uses no thread-local storage, and `tid` outlives the thread.
pub unsafe fn start_thread(
    stack_top: usize,
    tid: &AtomicU32,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> Result<u32> {
    // SAFETY: the caller promises the stack, the entry and that `tid` outlives the thread.
    let raw = unsafe { clone_thread(THREAD as usize, stack_top & !15, tid.as_ptr(), entry, argument) };
    check(raw)
}

/// Whether the process has children that it has not waited for, whatever signal their end sends.
pub fn has_children() -> bool {
    const ANY: u32 = 0;
    let options = general::WEXITED | general::WNOHANG | general::WNOWAIT | general::__WALL;
    waitid(ANY, 0, 0, options, 0).is_ok()
}

/// As [`start_thread`], with the program's table of descriptors, which the thread must leave at once ([`leave_files`]).
///
/// # Safety
/// As for [`start_thread`].
pub unsafe fn start_thread_with_files(
    stack_top: usize,
    tid: &AtomicU32,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> Result<u32> {
    // SAFETY: the caller promises the stack, the entry and that `tid` outlives the thread.
    let raw =
        unsafe { clone_thread((THREAD | CLONE_FILES) as usize, stack_top & !15, tid.as_ptr(), entry, argument) };
    check(raw)
}

/// Of `<linux/close_range.h>`.
const CLOSE_RANGE_UNSHARE: u32 = 1 << 1;

calls! {
    fn close_range_of(first: u32, last: u32, flags: u32) -> () { nr::CLOSE_RANGE; first, last, flags }

    // The kernel does not return from it, so nothing of this thread's stack is used afterwards.
    fn exit() -> () { nr::EXIT; 0 }

    fn word_cleared(option: usize, word: &mut u64) -> () { nr::PRCTL; option, word, 0, 0, 0 }

    /// set_tid_address(2): the kernel clears the word when the calling thread leaves its memory, by exec too; 0: no word.
    pub fn clear_when_gone(word: usize) -> i32 { nr::SET_TID_ADDRESS; word }

    fn futex_wait_until(word: &AtomicU32, value: u32, time: &[u64; 2]) -> () {
        nr::FUTEX; word, general::FUTEX_WAIT, value, time
    }

    fn futex_wake(word: &AtomicU32, count: i32) -> () { nr::FUTEX; word, general::FUTEX_WAKE, count }

    /// fcntl(2) with F_DUPFD_CLOEXEC: a copy of `fd` with a number of at least `lowest`.
    pub fn dup_above(fd: i32, lowest: i32) -> i32 { nr::FCNTL; fd, F_DUPFD_CLOEXEC, lowest }

    // The kernel writes nothing, because the call requests no result.
    fn waitid(kind: u32, id: u32, result: usize, options: u32, usage: usize) -> () {
        nr::WAITID; kind, id, result, options, usage
    }

    fn prlimit(resource: usize, limit: &mut rlimit64) -> () { nr::PRLIMIT64; 0, resource, 0, limit }

    // The kernel writes at most the mask's bytes.
    fn sched_getaffinity(tid: u32, mask: &mut [u64; MASK_WORDS]) -> usize {
        nr::SCHED_GETAFFINITY; tid, size_of::<[u64; MASK_WORDS]>(), mask
    }

    fn prctl_name(name: &CStr) -> () { nr::PRCTL; prctl::PR_SET_NAME, name }

    fn keep_capabilities(keep: bool) -> () { nr::PRCTL; prctl::PR_SET_KEEPCAPS, keep, 0, 0, 0 }

    fn dumpable() -> u32 { nr::PRCTL; prctl::PR_GET_DUMPABLE, 0, 0, 0, 0 }

    fn become_dumpable() -> () { nr::PRCTL; prctl::PR_SET_DUMPABLE, 1, 0, 0, 0 }

    fn no_new_privileges() -> () { nr::PRCTL; prctl::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0 }

    fn drop_from_bounding_set(capability: u32) -> () { nr::PRCTL; prctl::PR_CAPBSET_DROP, capability, 0, 0, 0 }

    fn get_robust_list(tid: u32, head: &mut usize, len: &mut usize) -> () { nr::GET_ROBUST_LIST; tid, head, len }

    // Timers of the calling thread alone.
    fn timer_slack(ns: usize) -> () { nr::PRCTL; prctl::PR_SET_TIMERSLACK, ns }

    fn getresuid(real: &mut u32, effective: &mut u32, saved: &mut u32) -> () { nr::GETRESUID; real, effective, saved }

    fn getresgid(real: &mut u32, effective: &mut u32, saved: &mut u32) -> () { nr::GETRESGID; real, effective, saved }

    // System calls past libc change the calling thread alone.
    fn no_groups() -> () { nr::SETGROUPS; 0, 0 }

    fn setresgid(id: u32) -> () { nr::SETRESGID; id, id, id }

    fn setresuid(id: u32) -> () { nr::SETRESUID; id, id, id }

    // The kernel writes the word's bytes.
    fn getrandom(word: &mut u32, bytes: usize, flags: u32) -> usize { nr::GETRANDOM; word, bytes, flags }

    // The header has 8 bytes, version 3 has 24: effective, permitted and inheritable, twice.
    fn capget(header: &mut [u32; 2], data: &mut [u32; 6]) -> () { nr::CAPGET; header, data }

    fn capset(header: &[u32; 2], data: &[u32; 6]) -> () { nr::CAPSET; header, data }

    fn uname(names: &mut [u32; NAMES]) -> () { nr::UNAME; names }

    fn pidfd_open(tid: u32, flags: u32) -> i32 { nr::PIDFD_OPEN; tid, flags }

    /// pidfd_getfd(2): a copy of descriptor `fd` of the thread behind `pidfd`.
    pub fn pidfd_get(pidfd: i32, fd: i32) -> i32 { nr::PIDFD_GETFD; pidfd, fd, 0 }

    // Locking changes no contents.
    /// mlock(2).
    pub fn mlock_as_given(addr: usize, len: usize) -> () { nr::MLOCK; addr, len }

    /// mlock2(2).
    pub fn mlock2_as_given(addr: usize, len: usize, flags: u32) -> () { nr::MLOCK2; addr, len, flags }

    /// munlock(2).
    pub fn munlock(addr: usize, len: usize) -> () { nr::MUNLOCK; addr, len }

    /// munlockall(2).
    pub fn munlock_all() -> () { nr::MUNLOCKALL }

    /// mlockall(2).
    pub fn mlock_all(flags: usize) -> () { nr::MLOCKALL; flags }

    /// userfaultfd(2) with these flags and O_CLOEXEC; without flags it also reports faults of the kernel.
    pub fn userfaultfd(flags: u32) -> i32 { nr::USERFAULTFD; c::O_CLOEXEC as u32 | flags }
}

calls! { unsafe:
    fn sched_setaffinity(tid: u32, bytes: usize, mask: usize) -> () { nr::SCHED_SETAFFINITY; tid, bytes, mask }

    fn process_vm_readv(pid: u32, local: &[usize; 2], remote: &[usize; 2]) -> usize {
        nr::PROCESS_VM_READV; pid, local, 1, remote, 1, 0
    }
}

/// Gives the calling thread its own table of descriptors, which is empty (Linux 5.9).
pub fn leave_files() -> Result<()> {
    close_range_of(0, u32::MAX, CLOSE_RANGE_UNSHARE)
}

/// Whether the calling thread has the list of locks that libc gives each of its threads, also the first one after a
/// fork. (The kernel gives the child of vfork or posix_spawn none.)
pub fn has_list_of_locks() -> bool {
    let (mut head, mut len) = (0, 0);
    get_robust_list(0, &mut head, &mut len).is_err() || head != 0
}

/// Ends the calling thread alone.
pub fn exit_thread() -> ! {
    loop {
        let _ = exit();
    }
}

/// Waits while `*word == value`, at most `ns` nanoseconds; also across processes.
pub fn futex_wait_for(word: &AtomicU32, value: u32, ns: u64) {
    let _ = futex_wait_until(word, value, &[ns / 1_000_000_000, ns % 1_000_000_000]);
}

/// Wakes all that wait with [`futex_wait_for`].
pub fn futex_wake_all(word: &AtomicU32) {
    let _ = futex_wake(word, i32::MAX);
}

/// close_range(2): closes `first..=last` in the calling thread's table. Only threads with their own tables call it.
pub fn close_range(first: u32, last: u32) -> Result<()> {
    close_range_of(first, last, 0)
}

/// Where the word is that the kernel clears when the calling thread leaves its memory ([`clear_when_gone`]); 0: there is none.
pub fn word_cleared_when_gone() -> Result<usize> {
    const PR_GET_TID_ADDRESS: usize = 40;
    let mut word = 0;
    word_cleared(PR_GET_TID_ADDRESS, &mut word)?;
    Ok(word as usize)
}

/// Words for six names of 65 bytes (struct new_utsname); the third is the release.
const NAMES: usize = 98;

/// The first two numbers of the kernel's release; zeros if it has none.
pub fn kernel_release() -> (u32, u32) {
    let mut names = [0; NAMES];
    let _ = uname(&mut names);
    let names = Plain::bytes_mut(&mut names);
    let mut numbers = names.get(2 * 65..).unwrap_or(&[]).split(|byte| !byte.is_ascii_digit()).map(|digits| {
        digits.iter().fold(0u32, |value, digit| value.saturating_mul(10).saturating_add(u32::from(digit - b'0')))
    });
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Soft limit of a resource.
pub fn soft_limit(resource: usize) -> Result<u64> {
    let mut limit = rlimit64::zeroed();
    prlimit(resource, &mut limit).map(|()| limit.rlim_cur)
}

/// RLIMIT_FSIZE.
pub const LIMIT_FILE_SIZE: usize = general::RLIMIT_FSIZE as usize;

/// RLIMIT_MEMLOCK.
pub const LIMIT_LOCKED: usize = general::RLIMIT_MEMLOCK as usize;

/// RLIMIT_AS.
pub const LIMIT_ADDRESSES: usize = general::RLIMIT_AS as usize;

/// RLIMIT_DATA.
pub const LIMIT_DATA: usize = general::RLIMIT_DATA as usize;

/// RLIMIT_NOFILE.
pub const LIMIT_DESCRIPTORS: usize = general::RLIMIT_NOFILE as usize;

/// Words of a processor mask (8192 processors).
pub const MASK_WORDS: usize = 128;

/// The processors that thread `tid` (0: the caller) may run on; the bytes of the mask that the kernel uses.
pub fn affinity(tid: u32, mask: &mut [u64; MASK_WORDS]) -> Result<usize> {
    sched_getaffinity(tid, mask)
}

/// Lets the calling thread run on the processors of `mask` only.
pub fn set_affinity(mask: &[u64]) -> Result<()> {
    // SAFETY: the kernel reads the mask's bytes.
    unsafe { sched_setaffinity(0, size_of_val(mask), mask.as_ptr() as usize) }
}

/// Names the calling thread (at most 15 bytes).
pub fn set_name(name: &CStr) {
    let _ = prctl_name(name);
}

const CAPABILITIES_VERSION_3: u32 = general::_LINUX_CAPABILITY_VERSION_3;
const CAP_SETGID: u64 = 1 << general::CAP_SETGID;
const CAP_SETUID: u64 = 1 << general::CAP_SETUID;
const CAP_IPC_LOCK: u64 = 1 << general::CAP_IPC_LOCK;

/// Gives up every right of the calling thread that the program may give up later. These are all capabilities, those that
/// a program could get by exec, and, if the program could become another user, its present user and groups. So an
/// attacker who later takes over the program gains none of them from this thread. `but_locks`: the thread may still lock
/// memory.
///
/// Nor may anybody gain a right by naming this thread. The kernel lets a process signal a thread of its user, and write
/// to its memory if the group is its own, too, and it has all capabilities of the thread. So a thread with fewer
/// capabilities than the program has ids that no other process has ([`take_own_ids`]). EPERM: this is not possible here,
/// and the thread must end.
pub fn give_up_rights(but_locks: bool) -> Result<()> {
    let permitted = permitted_capabilities(0);
    let kept = if but_locks { permitted & CAP_IPC_LOCK } else { 0 };
    let _ = keep_capabilities(but_locks);
    // Some may be permitted but not in effect at the moment (seteuid).
    let _ = set_capabilities(permitted);
    // Up to the first that the kernel does not know.
    let _ = (0..u64::BITS).all(|capability| drop_from_bounding_set(capability).is_ok());
    let _ = no_new_privileges();
    let ids = match ids_to_change(permitted) {
        Some((false, false)) if permitted & !kept == 0 => Ok(()),
        // Ids as the program's, but fewer capabilities; or ids of which the program may give up some.
        None | Some((false, false)) => Err(Errno::EPERM),
        Some((user, group)) => take_own_ids(user, group),
    };
    let _ = keep_capabilities(false);
    let given_up = set_capabilities(kept);
    ids.and(given_up)
}

/// Whether the user and the group must change, because the program may change its own. `None`: they must, but cannot.
fn ids_to_change(permitted: u64) -> Option<(bool, bool)> {
    let (mut users, mut groups) = ([0u32; 3], [0u32; 3]);
    let [user, effective_user, saved_user] = &mut users;
    let [group, effective_group, saved_group] = &mut groups;
    getresuid(user, effective_user, saved_user).ok()?;
    getresgid(group, effective_group, saved_group).ok()?;
    let are_several = |ids: &[u32; 3]| ids.windows(2).any(|pair| pair.first() != pair.last());
    let (user, group) = (permitted & CAP_SETUID != 0, permitted & CAP_SETGID != 0);
    let is_stuck = (are_several(&users) && !user) || (are_several(&groups) && !group);
    (!is_stuck).then_some((user, group))
}

/// Takes a user, a group, or both, that no other process has. They are drawn anew in each process: ids that processes
/// share, or that follow from the numbers of processes, which come back, would be those of a process that has given up
/// its rights. Such a process controls its own thread, and with it that thread's ids.
fn take_own_ids(user: bool, group: bool) -> Result<()> {
    // A change of the user makes the whole process undumpable, but that is the program's decision.
    let was_dumpable = dumpable();
    let take = || {
        if group {
            let _ = no_groups();
            setresgid(unused_id()?)?;
        }
        if user { setresuid(unused_id()?) } else { Ok(()) }
    };
    let taken = take();
    if was_dumpable == Ok(1) {
        let _ = become_dumpable();
    }
    taken
}

/// Draws an id from 2^31 to 2^32 - 3, which are given to nobody: some programs take them for negative numbers. (-1 is no
/// id, and -2 is nobody's in some systems, which several processes may have.)
fn unused_id() -> Result<u32> {
    // The program may start before the machine has gathered randomness.
    const GRND_INSECURE: u32 = 4;
    const FIRST: u32 = 1 << 31;
    let mut drawn = 0u32;
    if getrandom(&mut drawn, size_of::<u32>(), GRND_INSECURE)? != size_of::<u32>() {
        return Err(Errno::EAGAIN);
    }
    Ok(FIRST + drawn % (u32::MAX - 1 - FIRST))
}

/// Whether thread `tid` may lock memory beyond the limit.
pub fn may_lock_beyond_limit(tid: u32) -> bool {
    permitted_capabilities(tid) & CAP_IPC_LOCK != 0
}

/// Gives up the calling thread's remaining capabilities.
pub fn give_up_capabilities() {
    let _ = set_capabilities(0);
}

/// Permitted capabilities of thread `tid`; 0: the caller.
fn permitted_capabilities(tid: u32) -> u64 {
    let (mut header, mut data) = ([CAPABILITIES_VERSION_3, tid], [0u32; 6]);
    let known = capget(&mut header, &mut data);
    let [_, low, _, _, high, _] = data;
    if known.is_ok() { u64::from(high) << 32 | u64::from(low) } else { 0 }
}

/// Effective and permitted capabilities; nothing is inheritable.
fn set_capabilities(kept: u64) -> Result<()> {
    let (low, high) = (kept as u32, (kept >> 32) as u32);
    let (header, data) = ([CAPABILITIES_VERSION_3, 0], [low, low, 0, high, high, 0]);
    capset(&header, &data)
}

/// pidfd_open(2) of a thread (Linux 6.9).
pub fn pidfd_of_thread(tid: u32) -> Result<i32> {
    // PIDFD_THREAD is O_EXCL's bit.
    pidfd_open(tid, general::O_EXCL)
}

/// process_vm_readv(2) of this process, for memory that may be closed or go away at any time. Returns the bytes read.
pub fn read_own(from: usize, into: &mut [u8]) -> Result<usize> {
    let (local, remote) = ([into.as_mut_ptr() as usize, into.len()], [from, into.len()]);
    // SAFETY: the kernel writes `into`'s bytes at most.
    unsafe { process_vm_readv(super::getpid(), &local, &remote) }
}

/// mlock2(2); `on_fault`: pages are locked when they come in.
pub fn mlock(addr: usize, len: usize, on_fault: bool) -> Result<()> {
    mlock2_as_given(addr, len, on_fault.into())
}

/// prctl(2) with PR_SET_TIMERSLACK: timers of the calling thread expire on time, not some 50 µs later.
pub fn without_timer_slack() {
    let _ = timer_slack(1);
}
