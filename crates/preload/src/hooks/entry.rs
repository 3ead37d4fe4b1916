//! Replacements of libc's functions, with the same signatures, results and errno.

use core::ffi::{c_int, c_long, c_uint, c_void};

use crate::boundary::arch::{self, PAGE};
use crate::boundary::libc;
use crate::boundary::span::{Span, align_up};
use crate::boundary::sys::{self, Errno, Result, c, task};
use crate::memory::{calls, files, prefault};
use crate::state::{own_locks, own_stack, seccomp as flags};

use super::{exit, namespaces, real_time, seccomp, userfaultfd};

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

fn fail(errno: Errno) {
    // SAFETY: the address of libc's errno of this thread; the function reads the thread pointer and nothing else.
    unsafe { *__errno_location() = errno.0 };
}

fn status(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            fail(errno);
            -1
        }
    }
}

fn pointer(result: Result<usize>) -> *mut c_void {
    match result {
        Ok(address) => address as *mut c_void,
        Err(errno) => {
            fail(errno);
            usize::MAX as *mut c_void
        }
    }
}

/// Runs a detoured call. If the program has installed a seccomp filter, it makes the program's own system call and
/// nothing else; otherwise it runs `ours`, on one of the library's own stacks.
fn either<R>(raw: impl FnOnce() -> Result<R>, ours: impl FnOnce() -> Result<R>) -> Result<R> {
    unless_raw(ours).unwrap_or_else(raw)
}

/// Runs `work` on one of the library's own stacks. `None`: it did not, because the program has installed a seccomp filter.
/// (Another thread may do that at any time, also while this one waits in a call.)
pub(super) fn unless_raw<R>(work: impl FnOnce() -> R) -> Option<R> {
    if flags::is_raw() {
        return None;
    }
    // On the stack, this thread is one that a thread with a filter waits for; so it asks again.
    own_stack::run(|| if flags::is_raw() { None } else { Some(work()) })
}

/// Makes a call on `[addr, addr + len)`. If the kernel refuses it because it would have to split a mapping and there are
/// too many, makes it again, after memory mapped in advance was given up.
pub(super) fn with_room<R>(addr: usize, len: usize, mut call: impl FnMut() -> Result<R>) -> Result<R> {
    let result = call();
    let may_lack_room = match result {
        Err(Errno::EAGAIN) => unless_raw(calls::gives_up_mappings),
        // Usually there is a hole.
        Err(Errno::ENOMEM) => unless_raw(|| calls::is_mapped(addr, len) && calls::gives_up_mappings()),
        _ => None,
    };
    if may_lack_room == Some(true) { call() } else { result }
}

/// mmap; adds the address to which it returns, which says who made the call.
#[unsafe(naked)]
pub(crate) extern "C" fn mmap() {
    // The signals of the calling thread arrive in here, and their handlers may unwind the stack.
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push qword ptr [rsp]",
        ".cfi_adjust_cfa_offset 8",
        "call {answer}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
        answer = sym mmap_for
    )
}

extern "C" fn mmap_for(
    addr: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
    caller: usize,
) -> *mut c_void {
    let is_file = flags & c::MAP_ANONYMOUS == 0;
    let asked = is_file && flags & (c::MAP_POPULATE | c::MAP_NONBLOCK) == c::MAP_POPULATE && !flags::is_raw();
    let later = if asked && prefault::can_populate(prot, flags) { c::MAP_POPULATE } else { 0 };
    let result = either(
        // SAFETY: the program makes this call itself, and answers for its arguments.
        || unsafe { sys::mmap(addr, len, prot, flags, fd, offset) },
        || {
            let by_libc = libc::has_code_at(caller);
            own_locks::apart_from(|| calls::mmap([addr, len], prot, flags & !later, fd, offset, by_libc))
        },
    );
    if let (true, Ok(at)) = (is_file && !flags::is_raw(), result) {
        let span = Span::new(at, at.saturating_add(align_up(len, PAGE).unwrap_or(len)));
        if later != 0 {
            prefault::as_asked(span, prot, flags);
        }
        bring_in(span, prot, fd);
    }
    pointer(result)
}

/// Brings in pages of a file's mapping, if the policy wants that. They may come from a file system that the program itself
/// serves, or that does not answer, so this waits on the program's stack.
fn bring_in(span: Span, prot: c_int, fd: c_int) {
    if files::brings_in(span.len()) && own_stack::run(|| files::is_to_bring_in(span, prot, fd)) {
        files::bring_in(span);
    }
}

pub(crate) extern "C" fn munmap(addr: usize, len: usize) -> c_int {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    status(either(|| unsafe { sys::munmap(addr, len) }, || calls::munmap(addr, len)))
}

pub(crate) extern "C" fn mremap(
    old: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: usize,
) -> *mut c_void {
    if let Some(grown) = grown_locked(old, old_len, new_len, flags) {
        return grown as *mut c_void;
    }
    pointer(either(
        // SAFETY: the program makes this call itself, and answers for its arguments.
        || unsafe { sys::mremap(old, old_len, new_len, flags, new) },
        || own_locks::apart_from(|| calls::mremap(old, old_len, new_len, flags, new)),
    ))
}

/// Grows locked memory in place, if the program has a userfaultfd of its own. The kernel populates what is locked, and
/// may wait for the program's handler, so this call is made without the library's lock, and not on its stack. `None`:
/// it is another case, or there is no room.
fn grown_locked(old: usize, old_len: usize, new_len: usize, flags: c_int) -> Option<usize> {
    if flags::is_raw() || new_len <= old_len || !calls::has_registered() {
        return None;
    }
    let growth = unless_raw(|| calls::before_growth(old, old_len, new_len, flags)).flatten()?;
    let result = sys::grow_in_place(growth.start - PAGE, PAGE, PAGE + growth.len());
    unless_raw(|| calls::after_growth(old, growth, result.is_ok()));
    result.is_ok().then_some(old)
}

pub(crate) extern "C" fn brk(addr: usize) -> c_int {
    status(either(|| calls::brk_alone(addr), || own_locks::apart_from(|| calls::brk(addr))))
}

pub(crate) extern "C" fn madvise(addr: usize, len: usize, advice: c_int) -> c_int {
    status(advise(addr, len, advice))
}

fn advise(addr: usize, len: usize, advice: c_int) -> Result<()> {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    let raw = || unsafe { sys::madvise(addr, len, advice) };
    if flags::is_raw() || !matches!(advice, c::MADV_POPULATE_READ | c::MADV_POPULATE_WRITE) {
        return either(raw, || calls::madvise(addr, len, advice));
    }
    // Faults may wait for the program itself (its own userfaultfd), so this call is made without the library's lock, and
    // not on its stack.
    let own = own_stack::run(|| calls::before_populating(addr, len, advice));
    // SAFETY: the program makes this call itself, and answers for its arguments.
    unsafe { sys::madvise(addr, own, advice) }?;
    if own == len { Ok(()) } else { Err(Errno::ENOMEM) }
}

/// Returns the error number, as POSIX wants it; POSIX_MADV_DONTNEED discards nothing, as in glibc.
pub(crate) extern "C" fn posix_madvise(addr: usize, len: usize, advice: c_int) -> c_int {
    const POSIX_MADV_DONTNEED: c_int = 4;
    if advice == POSIX_MADV_DONTNEED {
        return 0;
    }
    advise(addr, len, advice).err().map_or(0, |errno| errno.0)
}

pub(crate) extern "C" fn mprotect(addr: usize, len: usize, prot: c_int) -> c_int {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    status(either(|| unsafe { sys::mprotect(addr, len, prot) }, || calls::mprotect(addr, len, prot, -1)))
}

pub(crate) extern "C" fn pkey_mprotect(addr: usize, len: usize, prot: c_int, key: c_int) -> c_int {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    let raw = || unsafe { sys::pkey_mprotect(addr, len, prot, key) };
    // The kernel knows one number for "no key".
    status(either(raw, || if key < -1 { raw() } else { calls::mprotect(addr, len, prot, key) }))
}

/// Locks or unlocks `range` (address and length). Locking waits for faults, which may wait for the program itself, so the
/// system calls are made on the program's stack.
fn locking(range: [usize; 2], before: impl FnOnce(), mut lock: impl FnMut() -> Result<()>) -> Result<()> {
    if flags::is_raw() {
        return lock();
    }
    unless_raw(before);
    with_room(range[0], range[1], || own_locks::apart_from(&mut lock))
}

/// As [`locking`], with work `after` the call, if it succeeded.
fn locking_then(
    range: [usize; 2],
    before: impl FnOnce(),
    lock: impl FnMut() -> Result<()>,
    after: impl FnOnce(),
) -> c_int {
    let result = locking(range, before, lock);
    if result.is_ok() {
        unless_raw(after);
    }
    status(result)
}

/// Locks `[addr, addr + len)` by `lock`.
fn lock_range(addr: usize, len: usize, flags: c_uint, lock: impl FnMut() -> Result<()>) -> c_int {
    let prepare = || {
        calls::before_property(addr, len);
        if flags == 0 {
            calls::place_to_lock(addr, len);
        }
    };
    status(locking([addr, len], prepare, lock))
}

pub(crate) extern "C" fn mlock(addr: usize, len: usize) -> c_int {
    lock_range(addr, len, 0, || task::mlock_as_given(addr, len))
}

/// Without flags, libc's function makes mlock(2).
pub(crate) extern "C" fn mlock2(addr: usize, len: usize, flags: c_uint) -> c_int {
    if flags == 0 { mlock(addr, len) } else { generic_mlock2(0, addr, len, flags) as c_int }
}

pub(crate) extern "C" fn munlock(addr: usize, len: usize) -> c_int {
    let after = || calls::unlocked(addr, len);
    locking_then([addr, len], || calls::before_property(addr, len), || task::munlock(addr, len), after)
}

/// libc's `syscall` with the number of mlock(2).
pub(crate) extern "C" fn generic_mlock(_number: usize, addr: usize, len: usize) -> c_long {
    c_long::from(mlock(addr, len))
}

/// libc's `syscall` with the number of mlock2(2). A filter may allow mlock2 and not mlock.
pub(crate) extern "C" fn generic_mlock2(_number: usize, addr: usize, len: usize, flags: c_uint) -> c_long {
    c_long::from(lock_range(addr, len, flags, || task::mlock2_as_given(addr, len, flags)))
}

/// libc's `syscall` with the number of munlock(2).
pub(crate) extern "C" fn generic_munlock(_number: usize, addr: usize, len: usize) -> c_long {
    c_long::from(munlock(addr, len))
}

pub(crate) extern "C" fn munlockall() -> c_int {
    let after = || calls::all_locked_or_unlocked(0);
    locking_then([0; 2], || calls::before_lock_all(0), task::munlock_all, after)
}

/// libc's `syscall` with the number of munlockall(2).
pub(crate) extern "C" fn generic_munlockall(_number: usize) -> c_long {
    c_long::from(munlockall())
}

pub(crate) extern "C" fn mlockall(flags: c_int) -> c_int {
    let flags = flags as u32 as usize;
    let after = || calls::all_locked_or_unlocked(flags);
    let known = calls::locks_all();
    let status = locking_then([0; 2], || calls::before_lock_all(flags), || task::mlock_all(flags), after);
    if status != 0 {
        calls::set_locks_all(known);
    }
    status
}

/// libc's `syscall` with the number of mlockall(2).
pub(crate) extern "C" fn generic_mlockall(_number: usize, flags: c_int) -> c_long {
    c_long::from(mlockall(flags))
}

pub(crate) extern "C" fn mseal(addr: usize, len: usize, flags: usize) -> c_int {
    generic_mseal(0, addr, len, flags) as c_int
}

/// libc's `syscall` with the number of mseal(2).
pub(crate) extern "C" fn generic_mseal(_number: usize, addr: usize, len: usize, flags: usize) -> c_long {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    marking(addr, len, || unsafe { sys::mseal(addr, len, flags) }.map(|()| 0))
}

pub(crate) extern "C" fn process_madvise(
    process: c_int,
    ranges: usize,
    count: usize,
    advice: c_int,
    flags: c_uint,
) -> c_long {
    generic_process_madvise(0, process, ranges, count, advice, flags)
}

/// libc's `syscall` with the number of process_madvise(2). (The process may be another one. Then memory mapped in advance
/// at these addresses is lost for nothing.)
pub(crate) extern "C" fn generic_process_madvise(
    _number: usize,
    process: c_int,
    ranges: usize,
    count: usize,
    advice: c_int,
    flags: c_uint,
) -> c_long {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    let raw = || unsafe { sys::process_madvise(process, ranges, count, advice, flags) };
    before_properties(ranges, count);
    // Of advice that splits no mapping, only MADV_COLLAPSE has the error of too many. The kernel has read the array, so
    // a hole in the ranges is the only reason for ENOMEM.
    long(if advice == c::MADV_COLLAPSE { raw() } else { with_room(0, usize::MAX, raw) })
}

/// Prepares for a call that gives a property to the `count` ranges of the `struct iovec` array at `ranges`. The array is
/// read on the program's stack: it may lie in pages that the program itself provides.
fn before_properties(ranges: usize, count: usize) {
    /// The kernel refuses more.
    const MOST: usize = 1024;
    /// (Little of the program's stack.)
    const AT_ONCE: usize = 8;
    const ENTRY: usize = size_of::<[usize; 2]>();
    if count > MOST {
        return;
    }
    for done in (0..count).step_by(AT_ONCE) {
        let mut words = [[0; 2]; AT_ONCE];
        let some = words.get_mut(..AT_ONCE.min(count - done)).unwrap_or_default();
        if flags::is_raw() || !calls::has_read(ranges.saturating_add(done * ENTRY), some) {
            return;
        }
        unless_raw(|| some.iter().for_each(|&[addr, len]| calls::before_property(addr, len)));
    }
}

/// libc's `syscall` with the number of mbind(2), for which libc has no function.
pub(crate) extern "C" fn generic_mbind(
    _number: usize,
    addr: usize,
    len: usize,
    mode: usize,
    nodes: usize,
    most: usize,
    flags: usize,
) -> c_long {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    let raw = || unsafe { sys::mbind(addr, len, mode, nodes, most, flags) };
    marking(addr, len, || raw().map(|()| 0))
}

/// Makes a call that gives `[addr, addr + len)` a property. It may wait for faults, so it is made on the program's stack.
fn marking(addr: usize, len: usize, mark: impl FnMut() -> Result<usize>) -> c_long {
    unless_raw(|| calls::before_property(addr, len));
    long(with_room(addr, len, mark))
}

/// personality, which decides whether memory that is mapped later can be executed.
pub(crate) extern "C" fn personality(persona: usize) -> c_int {
    generic_personality(0, persona) as c_int
}

/// libc's `syscall` with the number of personality(2).
pub(crate) extern "C" fn generic_personality(_number: usize, persona: usize) -> c_long {
    match either(|| sys::personality(persona), || calls::personality(persona)) {
        Ok(before) => before as c_long,
        Err(errno) => {
            fail(errno);
            -1
        }
    }
}

pub(crate) extern "C" fn prctl(option: usize, a: usize, b: usize, c: usize, d: usize) -> c_int {
    generic_prctl(0, option, a, b, c, d) as c_int
}

/// libc's `syscall` with the number of prctl(2).
pub(crate) extern "C" fn generic_prctl(
    _number: usize,
    option: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
) -> c_long {
    // A name for memory (arguments: 0, address, length, name).
    const SET_VMA: u32 = 0x5356_4d41;
    let call = || seccomp::prctl([option, a, b, c, d]);
    if option as u32 == SET_VMA { marking(b, c, call) } else { long(call()) }
}

/// libc's `syscall` with the number of seccomp(2).
pub(crate) extern "C" fn seccomp(_number: usize, operation: usize, flags: usize, args: usize) -> c_long {
    match seccomp::seccomp(operation, flags, args) {
        Ok(value) => value as c_long,
        Err(errno) => {
            fail(errno);
            -1
        }
    }
}

// SAFETY: as of the handler of forks in the child, beside which this lies.
#[unsafe(link_section = "pagelab_child")]
pub(crate) extern "C" fn exit_now(code: c_int) -> ! {
    exit::leave(code)
}

pub(crate) extern "C" fn execve(path: usize, argv: usize, envp: usize) -> c_int {
    fail(exit::execve(path, argv, envp));
    -1
}

pub(crate) extern "C" fn execveat(fd: c_int, path: usize, argv: usize, envp: usize, flags: c_int) -> c_int {
    status(exit::execveat(fd, path, argv, envp, flags))
}

pub(crate) extern "C" fn fexecve(fd: c_int, argv: usize, envp: usize) -> c_int {
    fail(exit::fexecve(fd, argv, envp));
    -1
}

/// ioctl, which registers memory with userfaultfds.
pub(crate) extern "C" fn ioctl(fd: c_int, request: usize, argument: usize) -> c_int {
    generic_ioctl(0, fd, request, argument) as c_int
}

/// libc's `syscall` with the number of ioctl(2).
pub(crate) extern "C" fn generic_ioctl(_number: usize, fd: c_int, request: usize, argument: usize) -> c_long {
    match userfaultfd::ioctl(fd, request, argument) {
        Ok(value) => value as c_long,
        Err(errno) => {
            fail(errno);
            -1
        }
    }
}

pub(crate) extern "C" fn unshare(what: c_int) -> c_int {
    status(namespaces::unshare(what))
}

/// libc's `syscall` with the number of unshare(2).
pub(crate) extern "C" fn generic_unshare(_number: usize, what: c_int) -> c_long {
    c_long::from(unshare(what))
}

pub(crate) extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    status(namespaces::setns(fd, kind))
}

/// libc's `syscall` with the number of setns(2).
pub(crate) extern "C" fn generic_setns(_number: usize, fd: c_int, kind: c_int) -> c_long {
    c_long::from(setns(fd, kind))
}

fn long(result: Result<usize>) -> c_long {
    match result {
        Ok(value) => value as c_long,
        Err(errno) => {
            fail(errno);
            -1
        }
    }
}

pub(crate) extern "C" fn sched_setscheduler(tid: c_int, policy: c_int, parameters: usize) -> c_int {
    long(real_time::set_scheduler(tid, policy, parameters)) as c_int
}

/// libc's `syscall` with the number of sched_setscheduler(2).
pub(crate) extern "C" fn generic_setscheduler(_number: usize, tid: c_int, policy: c_int, at: usize) -> c_long {
    long(real_time::set_scheduler(tid, policy, at))
}

pub(crate) extern "C" fn sched_setparam(tid: c_int, parameters: usize) -> c_int {
    long(real_time::set_parameters(tid, parameters)) as c_int
}

/// libc's `syscall` with the number of sched_setparam(2).
pub(crate) extern "C" fn generic_setparam(_number: usize, tid: c_int, parameters: usize) -> c_long {
    long(real_time::set_parameters(tid, parameters))
}

pub(crate) extern "C" fn sched_setattr(tid: c_int, attributes: usize, flags: c_uint) -> c_int {
    long(real_time::set_attributes(tid, attributes, flags)) as c_int
}

/// libc's `syscall` with the number of sched_setattr(2).
pub(crate) extern "C" fn generic_setattr(_number: usize, tid: c_int, attributes: usize, flags: c_uint) -> c_long {
    long(real_time::set_attributes(tid, attributes, flags))
}

/// libc's `syscall` with the number of landlock_restrict_self(2), for which libc has no function.
pub(crate) extern "C" fn restrict_files(_number: usize, ruleset: c_int, flags: c_uint) -> c_long {
    c_long::from(status(namespaces::restrict_files(ruleset, flags)))
}

/// libc's `syscall` with the number of futex(2) and an operation that changes a futex.
pub(crate) extern "C" fn generic_futex(
    _number: usize,
    word: usize,
    operation: usize,
    value: usize,
    timeout: usize,
    second: usize,
    third: usize,
) -> c_long {
    if !flags::is_raw() {
        // Faults may wait for the program itself, so this is not work for the library's stack.
        calls::before_futex(operation, [word, second]);
    }
    // SAFETY: the program makes this call itself, and answers for its arguments.
    match unsafe { sys::futex_as_given([word, operation, value, timeout, second, third]) } {
        Ok(value) => value as c_long,
        Err(errno) => {
            fail(errno);
            -1
        }
    }
}

/// libc's `syscall`, which singles out nineteen calls: those of the functions named `generic_…` here,
/// [`seccomp`](fn@seccomp) and [`restrict_files`]. Of futex(2) it singles out FUTEX_WAKE_OP and the operations on locks
/// with priority inheritance (bits 5 to 8 and 11 to 13). For all others it runs the instructions that the detour has
/// overwritten, then the rest of libc's function. It is in assembly, because it preserves all registers.
#[unsafe(naked)]
pub(crate) extern "C" fn generic_syscall() {
    core::arch::naked_asm!(
        "cmp rdi, 202",
        "jne 2f",
        "mov eax, edx",
        "and eax, 127",
        "cmp eax, 31",
        "ja 2f",
        "mov r11d, 0x39e0",
        "bt r11d, eax",
        "jc {futex}",
        "2:",
        "cmp rdi, 317",
        "je {seccomp}",
        "cmp rdi, 16",
        "je {ioctl}",
        "cmp rdi, 157",
        "je {prctl}",
        "cmp rdi, 135",
        "je {personality}",
        "cmp rdi, 446",
        "je {landlock}",
        "cmp rdi, 272",
        "je {unshare}",
        "cmp rdi, 308",
        "je {setns}",
        "cmp rdi, 149",
        "je {mlock}",
        "cmp rdi, 150",
        "je {munlock}",
        "cmp rdi, 151",
        "je {mlockall}",
        "cmp rdi, 152",
        "je {munlockall}",
        "cmp rdi, 325",
        "je {mlock2}",
        "cmp rdi, 237",
        "je {mbind}",
        "cmp rdi, 440",
        "je {process_madvise}",
        "cmp rdi, 462",
        "je {mseal}",
        "cmp rdi, 144",
        "je {setscheduler}",
        "cmp rdi, 142",
        "je {setparam}",
        "cmp rdi, 314",
        "je {setattr}",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "jmp qword ptr [rip + {libc}]",
        futex = sym generic_futex,
        ioctl = sym generic_ioctl,
        landlock = sym restrict_files,
        mbind = sym generic_mbind,
        mlock = sym generic_mlock,
        mlock2 = sym generic_mlock2,
        mlockall = sym generic_mlockall,
        mseal = sym generic_mseal,
        munlock = sym generic_munlock,
        munlockall = sym generic_munlockall,
        personality = sym generic_personality,
        prctl = sym generic_prctl,
        process_madvise = sym generic_process_madvise,
        seccomp = sym seccomp,
        setattr = sym generic_setattr,
        setns = sym generic_setns,
        setparam = sym generic_setparam,
        setscheduler = sym generic_setscheduler,
        unshare = sym generic_unshare,
        libc = sym arch::LIBC_SYSCALL,
    );
}

/// ld.so calls this function, a place for debuggers to stop at, when its list of objects has changed.
pub(crate) extern "C" fn objects_changed() {
    if !flags::is_raw() {
        own_stack::run(crate::memory::files::rescan);
    }
}
