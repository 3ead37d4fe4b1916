//! The heap's break: brk, and a heap that grows without system calls after a seccomp filter.

use core::sync::atomic::{AtomicUsize, Ordering};

use pagelab_abi::guest::Counter;
use pagelab_abi::plan::{Fetch, Memory};

use crate::boundary::arch::PAGE;
use crate::boundary::libc;
use crate::boundary::span::{Span, align_down, align_up};
use crate::boundary::sys::{self, Errno, Result, c, task};
use crate::memory::heap::Heap;
use crate::memory::{prefault, tables};
use crate::state::guest_file;
use crate::state::plan::{self, HEAP};

/// The heap's break, and the end of its memory, for use without a lock (after a seccomp filter); 0: not governed.
static HEAP_END: AtomicUsize = AtomicUsize::new(0);
static HEAP_ROOM: AtomicUsize = AtomicUsize::new(0);
/// The highest break since locks are no longer taken: memory above it was never the program's.
static HEAP_HIGH: AtomicUsize = AtomicUsize::new(0);

/// Publishes the governed heap's break before the program moves it.
pub fn publish_heap(end: usize, room: usize) {
    HEAP_END.store(end, Ordering::Relaxed);
    HEAP_HIGH.store(end, Ordering::Relaxed);
    HEAP_ROOM.store(room, Ordering::Release);
}

/// Answers brk. Without a governed heap it is the kernel's own.
pub fn brk(addr: usize) -> Result<()> {
    let mut guest = tables::lock();
    let before = guest.heap.as_ref().map_or_else(|| sys::brk(0), Heap::end);
    let moved = guest.or_without_spare(|guest| {
        let end = guest.heap.as_mut().map_or_else(|| sys::brk(addr), |heap| heap.set(addr));
        if end < addr { Err(Errno::ENOMEM) } else { Ok(end) }
    });
    let end = moved.unwrap_or_else(|_| guest.heap.as_ref().map_or_else(|| sys::brk(0), Heap::end));
    if let Some(heap) = &guest.heap {
        publish_heap(end, heap.room());
    }
    drop(guest);
    guest_file::count(Counter::BrkGoverned);
    libc::set_current_break(end);
    if end > before {
        let fetch = plan::section_for(Memory::Heap, 0).map_or(Fetch::Kernel, |section| section.fetch);
        let span = Span::new(align_down(before, PAGE), align_up(end, PAGE).unwrap_or(end));
        prefault::after_mmap(fetch, span, c::PROT_RW, 0);
    }
    // The kernel's own rule, as glibc applies it: only a break below the wanted one is an error.
    if end < addr { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// Maps memory into which the heap can grow without a system call, before the program installs a seccomp filter: the
/// kernel's own brk does not know the heap. The memory is small if address space or data are limited.
pub fn open_heap() -> Span {
    const ROOMS: [usize; 4] = [1 << 30, 128 << 20, 16 << 20, 2 << 20];
    let room = HEAP_ROOM.load(Ordering::Acquire);
    let nothing = Span::new(room, room);
    if room == 0 {
        return nothing;
    }
    let limited = |resource| task::soft_limit(resource).is_ok_and(|limit| limit < UNLIMITED);
    let most = if limited(task::LIMIT_ADDRESSES) || limited(task::LIMIT_DATA) { 16 << 20 } else { 1 << 30 };
    for len in ROOMS.into_iter().filter(|&len| len <= most && room + len <= HEAP.end) {
        if sys::map_unused(room, len, c::PROT_RW, c::MAP_NORESERVE) == Ok(room) {
            HEAP_ROOM.store(room + len, Ordering::Release);
            return Span::new(room, room + len);
        }
    }
    nothing
}

/// Unmaps the memory of [`open_heap`], as far as no other thread has raised the break into it: the program has not
/// installed a filter after all.
pub fn close_heap(opened: Span) {
    let mut guest = tables::lock();
    let Some(heap) = &mut guest.heap else { return };
    let end = HEAP_END.load(Ordering::Relaxed);
    let rest = Span::new(align_up(end, PAGE).unwrap_or(end).clamp(opened.start, opened.end), opened.end);
    if !rest.is_empty() {
        // SAFETY: `open_heap` mapped the memory a moment ago, and it lies above the program's break.
        let _ = unsafe { sys::munmap(rest.start, rest.len()) };
    }
    heap.was_moved(end);
    publish_heap(end, heap.room());
}

/// Limits above this count as none.
const UNLIMITED: u64 = 1 << 46;

/// brk in a program with a seccomp filter. Growth within mapped memory needs no system call. A lower break gives no
/// memory back. The break cannot be raised again over memory that the program has used, because that memory would have
/// to be zero.
pub fn brk_alone(addr: usize) -> Result<()> {
    let room = HEAP_ROOM.load(Ordering::Acquire);
    let end = match room {
        0 => sys::brk(addr),
        _ => {
            let end = HEAP_END.load(Ordering::Relaxed);
            let high = HEAP_HIGH.load(Ordering::Relaxed);
            // The rest of the page that contains the break keeps its contents, as without the library.
            let most = if end < high { align_up(end, PAGE).unwrap_or(end).min(high) } else { room };
            let moved = if (HEAP.start..=most).contains(&addr) { addr } else { end };
            HEAP_END.store(moved, Ordering::Relaxed);
            HEAP_HIGH.fetch_max(moved, Ordering::Relaxed);
            moved
        }
    };
    libc::set_current_break(end);
    if end < addr { Err(Errno::ENOMEM) } else { Ok(()) }
}
