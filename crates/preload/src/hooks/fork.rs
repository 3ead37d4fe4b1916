//! fork(3) in a process with reserved huge pages.
//!
//! When a child writes to a reserved page, its copy needs another reserved page; if the pool is exhausted, the kernel
//! kills the child with SIGBUS. So fork(3) gives the child copies in normal memory: they are made before the fork,
//! moved into place in the child before anything else runs there, and thrown away in the parent. vfork and posix_spawn
//! do not run this code. Nor does a raw clone system call, which has the kernel's own behaviour.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use pagelab_abi::guest::{Counter, GuestWarning};

use crate::backing;
use crate::boundary::elf::Object;
use crate::boundary::libc;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, c};
use crate::memory::pool::{copy_of, protection_of};
use crate::memory::tables;
use crate::state::message::say;
use crate::state::{child, guest_file, lock, own_stack, seccomp};

#[derive(Clone, Copy)]
struct Copy {
    tile: Span,
    scratch: usize,
}

/// The copies of the fork under way.
static COPIES: AtomicPtr<Copy> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
static WATCHED: AtomicBool = AtomicBool::new(false);
const ROOM: usize = 1 << 16;

type Handler = extern "C" fn();
type Register = unsafe extern "C" fn(Option<Handler>, Option<Handler>, Handler, *mut c_void) -> i32;

/// Registers this module with libc's fork. Only done when the plan names reserved pages or frames, or the program gives
/// hints.
pub fn watch(libc: &Object) {
    if WATCHED.swap(true, Ordering::AcqRel) {
        return;
    }
    register(libc, Some(before), Some(in_parent), in_child);
}

/// Registers functions that libc's fork calls before, in the parent and in the child. Without memory for them, fork
/// works as before.
pub fn register(libc: &Object, before: Option<Handler>, in_parent: Option<Handler>, in_child: Handler) {
    let Some(symbol) = libc.symbol(c"__register_atfork") else { return };
    // SAFETY: glibc's function has this signature since 2.3.2 (LSB 5.0, Core, 14.10.2): three handlers, each of which
    // may be null, the object that they belong to, errno. It stores them in a table of its own.
    unsafe {
        let register = core::mem::transmute::<usize, Register>(symbol.address);
        register(before, in_parent, in_child, core::ptr::null_mut());
    }
}

/// Signal mask of the thread that forks.
static MASK: AtomicU64 = AtomicU64::new(0);

/// Whether [`before`] did its work; it does none under the program's own seccomp filter.
static UNDER_WAY: AtomicBool = AtomicBool::new(false);

extern "C" fn before() {
    if seccomp::is_raw() {
        return;
    }
    // A child made past libc (`_Fork`, clone) may come from a moment when another thread had the turn; its copy still
    // has it.
    if child::is_new() {
        child::adopt();
    }
    // A signal handler that forks as well must not wait for its own thread.
    let mask = sys::signal_mask(u64::MAX);
    lock::FORK.take();
    MASK.store(mask, Ordering::Relaxed);
    UNDER_WAY.store(true, Ordering::Relaxed);
    backing::before_fork();
    own_stack::run(make_copies);
}

fn make_copies() {
    COUNT.store(0, Ordering::Relaxed);
    let Ok(table) = sys::mmap_own(ROOM * size_of::<Copy>()) else { return };
    COPIES.store(table as *mut Copy, Ordering::Relaxed);
    let tables = tables::lock();
    tables.each_hugetlb(&mut |tile, shut| {
        let count = COUNT.load(Ordering::Relaxed);
        let protection = if count < ROOM { protection_of(tile, shut).ok() } else { None };
        let copy = protection.and_then(|protection| copy_of(tile, protection).ok());
        let Some(scratch) = copy else {
            // There is no copy: the child shares the page, and may be killed when it writes.
            guest_file::warn(GuestWarning::Fallback, None, tile.start, tile.len());
            return;
        };
        // SAFETY: the table has room for ROOM entries; MADV_DONTFORK changes nothing in this process.
        unsafe {
            *(table as *mut Copy).add(count) = Copy { tile, scratch: scratch.keep().start };
            // In the child, libc works before this module does: it frees the locks of malloc's arenas and, if the
            // program has threads, those of streams, and it goes through the threads' descriptors. These pages must not
            // be missing.
            if libc::has_one_thread() && !tables.is_arena(tile.start) {
                let _ = sys::madvise(tile.start, tile.len(), c::MADV_DONTFORK);
            }
        }
        COUNT.store(count + 1, Ordering::Relaxed);
    });
}

fn each_copy(visit: &mut dyn FnMut(&Copy)) {
    let table = COPIES.load(Ordering::Relaxed);
    if table.is_null() {
        return;
    }
    for index in 0..COUNT.load(Ordering::Relaxed) {
        // SAFETY: entries below COUNT were written by `before`.
        visit(unsafe { &*table.add(index) });
    }
    // SAFETY: nothing uses the table any more.
    let _ = unsafe { sys::munmap(table as usize, ROOM * size_of::<Copy>()) };
    COPIES.store(core::ptr::null_mut(), Ordering::Relaxed);
    COUNT.store(0, Ordering::Relaxed);
}

extern "C" fn in_parent() {
    if !UNDER_WAY.swap(false, Ordering::Relaxed) {
        return;
    }
    own_stack::run(drop_copies);
    let mask = MASK.load(Ordering::Relaxed);
    lock::FORK.give();
    sys::signal_mask(mask);
}

fn drop_copies() {
    each_copy(&mut |copy| {
        // SAFETY: nobody else knows the copy; from now on later children share the tile again.
        unsafe {
            let _ = sys::madvise(copy.tile.start, copy.tile.len(), c::MADV_DOFORK);
            let _ = sys::munmap(copy.scratch, copy.tile.len());
        }
    });
}

extern "C" fn in_child() {
    if !UNDER_WAY.swap(false, Ordering::Relaxed) {
        return;
    }
    let mask = MASK.load(Ordering::Relaxed);
    lock::FORK.give();
    child::made_by_libc();
    // This adopts the child: from here on it has its own engine that places frames.
    own_stack::run(put_copies);
    sys::signal_mask(mask);
}

fn put_copies() {
    let mut tables = tables::lock();
    let flags = c::MREMAP_MAYMOVE | c::MREMAP_FIXED;
    each_copy(&mut |copy| {
        // SAFETY: in the child, nothing is mapped at the tile (DONTFORK), or the memory that was copied; the copy
        // replaces it.
        let moved = unsafe { sys::mremap(copy.scratch, copy.tile.len(), copy.tile.len(), flags, copy.tile.start) };
        if let Err(errno) = moved {
            say(format_args!("cannot place a copy of reserved pages in a forked child: errno {}", errno.0));
        }
        guest_file::count(Counter::HugetlbDemoted);
    });
    tables.all_demoted();
}
