//! fork(3).
//!
//! The constructor registers this module, before any other code can register handlers. So it does its work after all of
//! the program's handlers before a fork, and before all of them after it: none of them runs while locks are held or
//! signals are blocked, or sees memory that is not complete.
//!
//! When a child writes to a reserved page, its copy needs another reserved page; if the pool is exhausted, the kernel
//! kills the child with SIGBUS. So fork(3) gives the child copies in normal memory, which are moved into place in the
//! child before anything else of the program runs there. vfork and posix_spawn do not run this code. Nor does a raw clone
//! system call, which has the kernel's own behaviour.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use pagelab_abi::guest::{Counter, GuestWarning};

use crate::backing::{self, hugetlb};
use crate::boundary::elf::Object;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Advice, Errno, c};
use crate::boundary::{arch, libc, maps};
use crate::memory::pool::{copy_of, protection_of};
use crate::memory::tables;
use crate::state::message::say;
use crate::state::{child, forks, guest_file, lock, own_stack, seccomp};

#[derive(Clone, Copy)]
struct Copy {
    tile: Span,
    when: When,
}

#[derive(Clone, Copy)]
enum When {
    /// Made before the fork; it is here.
    Before(usize),
    /// Made in the child.
    InChild {
        /// Whether the page existed before the fork.
        resident: bool,
        /// Whether its protection differed from read and write before the fork.
        shut: bool,
        /// Its protection in the child, once that was looked up.
        protection: Option<i32>,
    },
}

/// The copies of the fork under way.
static COPIES: AtomicPtr<Copy> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
const ROOM: usize = 1 << 16;

type Handler = extern "C" fn();
type Register = unsafe extern "C" fn(Option<Handler>, Option<Handler>, Option<Handler>, *mut c_void) -> i32;

/// Registers this module with libc's fork. Without memory for its handlers, fork works as before.
pub fn watch(libc: &Object) {
    let Some(symbol) = libc.symbol(c"__register_atfork") else { return };
    // SAFETY: glibc's function has this signature since 2.3.2 (LSB 5.0, Core, 14.10.2): three handlers, each of which
    // may be null, the object that they belong to, errno. It stores them in a table of its own.
    unsafe {
        let register = core::mem::transmute::<usize, Register>(symbol.address);
        register(Some(before), Some(in_parent), Some(in_child), core::ptr::null_mut());
    }
}

/// Whether a fork has to care for reserved pages, or for the engine.
static CAREFUL: AtomicBool = AtomicBool::new(false);

/// From now on forks care for reserved pages and for the engine. No other thread has a fork under way (see
/// [`forks::Apart`]). If this thread has, whose signal handler calls this, the child is treated as one that was made past
/// libc's fork.
pub fn be_careful() {
    CAREFUL.store(true, Ordering::SeqCst);
}

/// Signal mask of the thread that forks.
static MASK: AtomicU64 = AtomicU64::new(0);

extern "C" fn before() {
    forks::begin();
    // The program's own seccomp filter may kill it for a system call of the library's.
    if seccomp::is_raw() || !CAREFUL.load(Ordering::SeqCst) {
        return;
    }
    // A child made past these handlers (`_Fork`, clone) may come from a moment when another thread had the turn; its
    // copy still has it.
    child::adopt();
    // A signal handler that forks as well must not wait for its own thread.
    let mask = sys::block_signals();
    lock::FORK.take();
    MASK.store(mask, Ordering::Relaxed);
    lock::FORKER.store(arch::thread_pointer(), Ordering::Relaxed);
    backing::before_fork();
    let here = &raw const mask as usize;
    own_stack::run(|| make_copies(here));
}

/// Bytes around the caller's stack pointer that fork uses before this module's turn in the child.
const FRAMES: usize = 16 << 10;

/// Copies all reserved pages, as far as that can be done now. `stack`: an address on the caller's stack.
fn make_copies(stack: usize) {
    COUNT.store(0, Ordering::Relaxed);
    let Ok(table) = sys::mmap_own(ROOM * size_of::<Copy>()) else { return };
    COPIES.store(table as *mut Copy, Ordering::Relaxed);
    let tables = tables::lock();
    tables.each_hugetlb(&mut |tile, shut| {
        let count = COUNT.load(Ordering::Relaxed);
        // If the program has threads, they change the page after this moment, and so does libc in the child, before this
        // module's turn: it frees the locks of malloc's arenas and of streams. And the stack to which fork returns must
        // be there. So such pages are copied in the child, from its own copy-on-write view of them.
        let in_use = tile.start < stack + FRAMES && stack - FRAMES < tile.end;
        let now = libc::has_one_thread() && !tables.is_arena(tile.start) && !in_use;
        let when = if count == ROOM {
            None
        } else if now {
            copy_before(tile, shut).ok()
        } else {
            Some(When::InChild { resident: hugetlb::is_resident(tile.start), shut, protection: None })
        };
        let Some(copy) = when.map(|when| Copy { tile, when }) else {
            // There is no copy: the child shares the page, and may be killed when it writes.
            guest_file::warn(GuestWarning::Fallback, None, tile.start, tile.len());
            return;
        };
        // SAFETY: the table has room for ROOM entries.
        unsafe { *(table as *mut Copy).add(count) = copy };
        COUNT.store(count + 1, Ordering::Relaxed);
    });
}

/// Copies a page that the child gets in no other way.
fn copy_before(tile: Span, shut: bool) -> Result<When, Errno> {
    let scratch = copy_of(tile, protection_of(tile, shut)?)?.keep().start;
    let _ = sys::advise(tile.start, tile.len(), Advice::NotInChildren);
    Ok(When::Before(scratch))
}

/// Calls `visit` with the copies, and forgets them.
fn with_copies(visit: &mut dyn FnMut(&mut [Copy])) {
    let table = COPIES.load(Ordering::Relaxed);
    if table.is_null() {
        return;
    }
    // SAFETY: entries below COUNT were written by `make_copies`.
    visit(unsafe { core::slice::from_raw_parts_mut(table, COUNT.load(Ordering::Relaxed)) });
    // SAFETY: nothing uses the table any more.
    let _ = unsafe { sys::munmap(table as usize, ROOM * size_of::<Copy>()) };
    COPIES.store(core::ptr::null_mut(), Ordering::Relaxed);
    COUNT.store(0, Ordering::Relaxed);
}

extern "C" fn in_parent() {
    if lock::is_forking() {
        lock::FORKER.store(0, Ordering::Relaxed);
        own_stack::run(drop_copies);
        let mask = MASK.load(Ordering::Relaxed);
        lock::FORK.give();
        sys::restore_signals(mask);
    }
    forks::end();
}

fn drop_copies() {
    with_copies(&mut |copies| {
        for copy in copies {
            let When::Before(scratch) = copy.when else { continue };
            // From now on later children share the tile again.
            let _ = sys::advise(copy.tile.start, copy.tile.len(), Advice::InChildren);
            // SAFETY: nobody else knows the copy.
            let _ = unsafe { sys::munmap(scratch, copy.tile.len()) };
        }
    });
}

// What a child that only ends runs lies together in the library: each other place costs it a page fault.
// SAFETY: the section has code only, as the linker's own.
#[unsafe(link_section = "pagelab_child")]
extern "C" fn in_child() {
    child::came_by_fork();
    if !lock::is_forking() {
        return;
    }
    lock::FORKER.store(0, Ordering::Relaxed);
    let mask = MASK.load(Ordering::Relaxed);
    lock::FORK.give();
    // This adopts the child: from here on it has its own engine that places frames.
    own_stack::run(put_copies);
    sys::restore_signals(mask);
}

fn put_copies() {
    let mut tables = tables::lock();
    with_copies(&mut |copies| {
        // As the kernel has them: other threads of the parent may have changed protections after they were listed, and
        // what the tables say about them.
        let looked_up = maps::each(&mut |mapping| {
            for copy in copies.iter_mut().filter(|copy| mapping.span.and(copy.tile) == copy.tile) {
                if let When::InChild { protection, .. } = &mut copy.when {
                    *protection = Some(mapping.protection());
                }
            }
            true
        });
        // Without the file (a program in a chroot, or without a free descriptor), the tables and the kernel tell.
        for copy in copies.iter_mut().filter(|_| looked_up.is_err()) {
            if let When::InChild { shut: false, protection, .. } = &mut copy.when {
                *protection = sys::is_mapped(copy.tile.start, copy.tile.len()).ok().map(|_| c::PROT_RW);
            }
        }
        copies.iter().for_each(put);
    });
    tables.all_demoted();
}

/// Puts the copy of a page into its place.
fn put(copy: &Copy) {
    let tile = copy.tile;
    let made = match copy.when {
        When::Before(scratch) => Ok(scratch),
        // Other threads of the parent have unmapped it.
        When::InChild { protection: None, .. } => return,
        // The pool was exhausted, and the kernel has taken the page from the child: it kills the child if that uses it.
        When::InChild { resident: true, .. } if !hugetlb::is_resident(tile.start) => return,
        When::InChild { protection: Some(protection), .. } => {
            copy_of(tile, protection).map(|copy| copy.keep().start)
        }
    };
    let flags = c::MREMAP_MAYMOVE | c::MREMAP_FIXED;
    // SAFETY: in the child, nothing is mapped at the tile (DONTFORK), or the memory that was copied; the copy replaces
    // it. Nobody else runs here.
    let moved = made.and_then(|from| unsafe { sys::mremap(from, tile.len(), tile.len(), flags, tile.start) });
    if let Err(errno) = moved {
        say(format_args!("cannot place a copy of reserved pages in a forked child: errno {}", errno.0));
    }
    guest_file::count(Counter::HugetlbDemoted);
}
