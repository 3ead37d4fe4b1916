//! The heap's break: brk, and a heap that grows without system calls after a seccomp filter.

use core::sync::atomic::{AtomicUsize, Ordering};

use pagelab_abi::guest::Counter;
use pagelab_abi::plan::{Fetch, Memory};

use crate::backing;
use crate::boundary::arch::PAGE;
use crate::boundary::span::{Span, align_down, align_up};
use crate::boundary::sys::{self, Errno, Result, c, task};
use crate::boundary::{libc, mapping, meminfo};
use crate::memory::heap::{HEAP_ROOM, Heap};
use crate::memory::tables::Tables;
use crate::memory::{prefault, tables};
use crate::state::plan::{self, HEAP};
use crate::state::{child, guest_file, own_stack};

/// The heap's break, for use without a lock (after a seccomp filter), as [`HEAP_ROOM`]; 0: not governed.
static HEAP_END: AtomicUsize = AtomicUsize::new(0);
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
    let set = |guest: &mut Tables| match &mut guest.heap {
        Some(heap) => heap.set(addr),
        None if sys::brk(addr) < addr => Err(Errno::ENOMEM),
        None => Ok(()),
    };
    let (mut moved, more) = (set(&mut guest), addr.saturating_sub(before));
    if moved == Err(Errno::ENOMEM) && guest.gives_up_spare_for(more) {
        moved = set(&mut guest);
    }
    let end = match &guest.heap {
        Some(heap) => {
            // (No heap reaches so far, governed or not.)
            if let Err(errno) = moved
                && errno != Errno::EINVAL
            {
                backing::fallback(errno, more);
            }
            publish_heap(heap.end(), heap.room());
            heap.end()
        }
        None => sys::brk(0),
    };
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

/// The least memory that is mapped for the heap before a filter.
const LEAST_ROOM: usize = 2 << 20;

/// Maps memory into which the heap can grow without a system call, before the program installs a seccomp filter: the
/// kernel's own brk does not know the heap. The memory is small if address space, data or commitments are limited, and
/// never large: the program may set limits later, and malloc goes on with mmap.
pub fn open_heap() -> Span {
    const ROOMS: [usize; 3] = [64 << 20, 16 << 20, LEAST_ROOM];
    let room = HEAP_ROOM.load(Ordering::Acquire);
    let nothing = Span::new(room, room);
    if room == 0 {
        return nothing;
    }
    let limited = |resource| task::soft_limit(resource).is_ok_and(|limit| limit < UNLIMITED);
    // (A child that has not met the guest has one thread: no other can reach the file that is read.)
    let commits = if child::is_new() { meminfo::commits_all() } else { own_stack::run(meminfo::commits_all) };
    let most = match () {
        () if commits => LEAST_ROOM,
        () if limited(task::LIMIT_ADDRESSES) || limited(task::LIMIT_DATA) => 16 << 20,
        () => 64 << 20,
    };
    for len in ROOMS.into_iter().filter(|&len| len <= most && room + len <= HEAP.end) {
        let span = Span::new(room, room + len);
        if map_room(span).is_ok() {
            HEAP_ROOM.store(span.end, Ordering::Release);
            return span;
        }
    }
    nothing
}

/// Maps `span` for [`open_heap`]. If the program has all new memory locked, the kernel would populate it: then it is the
/// least memory, and its pages are locked when they come in.
fn map_room(span: Span) -> Result<()> {
    mapping::map_at(span, c::PROT_NONE, c::MAP_NORESERVE)?;
    let opened = match sys::is_locked(span.start, span.len()) {
        true if span.len() > LEAST_ROOM => Err(Errno::EAGAIN),
        true => task::mlock(span.start, span.len(), true).and_then(|()| mapping::protect(span, c::PROT_RW, -1)),
        false => mapping::protect(span, c::PROT_RW, -1),
    };
    if opened.is_err() {
        // SAFETY: the mapping was made a moment ago, and nobody knows of it.
        let _ = unsafe { sys::munmap(span.start, span.len()) };
    }
    opened
}

/// Unmaps the memory of [`open_heap`], as far as no other thread has raised the break into it: the program has not
/// installed a filter after all.
pub fn close_heap(opened: Span) {
    let mut guest = tables::lock();
    let Some(heap) = &mut guest.heap else { return };
    // From here on no other thread raises the break further: what it was at is the end of the room.
    HEAP_ROOM.store(HEAP_END.load(Ordering::SeqCst), Ordering::SeqCst);
    let end = HEAP_END.load(Ordering::SeqCst);
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
