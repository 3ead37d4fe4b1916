//! Calls that advise, populate or lock memory. Governed memory is placed before the kernel populates or locks it.

use core::sync::atomic::{AtomicBool, Ordering};

use pagelab_abi::guest::Counter;

use crate::backing;
use crate::boundary::arch::PAGE;
use crate::boundary::span::{Span, align_down, align_up};
use crate::boundary::sys::{self, Advice, Errno, Result, c, task};
use crate::memory::pool::{collapse_nothing, discards};
use crate::memory::{files, tables};
use crate::state::guest_file;

use super::{Owner, concerns_us, each_part, our_span};

/// Answers a madvise call.
pub fn madvise(addr: usize, len: usize, advice: i32) -> Result<()> {
    match advised(addr, len, advice) {
        // There are too many mappings: of advice that splits none, only MADV_COLLAPSE has this error.
        Err(Errno::EAGAIN) if advice != c::MADV_COLLAPSE && gives_up_mappings() => advised(addr, len, advice),
        result => result,
    }
}

fn advised(addr: usize, len: usize, advice: i32) -> Result<()> {
    if advice == c::MADV_GUARD_INSTALL
        && let Some(span) = pages(addr, len)
    {
        backing::before_guards(span);
    }
    let Some(span) = our_span(addr, len) else { return advise_elsewhere(addr, len, advice) };
    // As without the library: mapped parts are advised, and holes cause an error at the end.
    let mut holes = false;
    let heap_end = tables::lock().heap_end();
    each_part(span, heap_end, &mut |owner, part| {
        let mut guest = tables::lock();
        let result = match (owner, &mut guest.heap) {
            (Owner::Heap, Some(heap)) => {
                let own = heap.own(part);
                holes |= own != part;
                match own.is_empty() {
                    true => Ok(()),
                    false if heap.has_hugetlb(own) && discards(advice) => heap.discard(own, advice),
                    // The kernel treats reserved pages as a file, and would return another error than for normal
                    // memory.
                    false if heap.has_hugetlb(own) && advice == c::MADV_REMOVE => Err(Errno::EINVAL),
                    false => match advise_heap(own, advice) {
                        // Advice that the kernel refuses only for reserved pages: normal memory takes their place and
                        // gets the advice.
                        Err(Errno::EINVAL) if heap.has_hugetlb(own) && advice != c::MADV_COLLAPSE => {
                            heap.demote_all(own)?;
                            advise_heap(own, advice)
                        }
                        result => result,
                    },
                }
            }
            (Owner::Pool, _) => match guest.pool(part.start) {
                Some(pool) => {
                    guest_file::count(Counter::MadviseGoverned);
                    pool.advise(part, advice)
                }
                None => advise_elsewhere(part.start, part.len(), advice),
            },
            _ => {
                drop(guest);
                advise_elsewhere(part.start, part.len(), advice)
            }
        };
        holes |= result == Err(Errno::ENOMEM);
        if result == Err(Errno::ENOMEM) { Ok(()) } else { result }
    })?;
    if !holes {
        return Ok(());
    }
    // Unknown advice is refused first. (For no memory, known advice does nothing.)
    // SAFETY: an empty range.
    unsafe { sys::madvise(span.start, 0, advice) }?;
    Err(Errno::ENOMEM)
}

/// The bytes of `[addr, addr + len)` that the kernel can be asked to populate: as without the library, up to the first
/// byte that the program does not have. Pages that a strategy governs are placed first.
pub fn before_populating(addr: usize, len: usize, advice: i32) -> usize {
    let own = our_span(addr, len).map_or(len, |span| first_own(span).min(len));
    if advice == c::MADV_POPULATE_WRITE {
        // The kernel populates the pages that are still missing, and also finds the errors.
        place_ahead(addr, own);
    }
    own
}

/// Whether the program has all of a range.
pub fn has_all(addr: usize, len: usize) -> bool {
    our_span(addr, len).is_none_or(|span| first_own(span) == span.len()) && sys::is_mapped(addr, len).is_ok()
}

/// Bytes at the beginning of `span` without memory mapped in advance, or given back.
fn first_own(span: Span) -> usize {
    let mut guest = tables::lock();
    let heap_end = guest.heap_end();
    let mut end = span.start;
    let _ = each_part(span, heap_end, &mut |owner, part| {
        end = match (owner, &guest.heap) {
            (Owner::Heap, Some(heap)) => heap.own(part).end,
            (Owner::Pool, _) => guest.pool(part.start).map_or(part.end, |pool| pool.first_had(part).end),
            _ => part.end,
        };
        if end < part.end { Err(Errno::ENOMEM) } else { Ok(()) }
    });
    end - span.start
}

fn advise_elsewhere(addr: usize, len: usize, advice: i32) -> Result<()> {
    // (Of a range that is none the kernel finds the error.)
    if files::overrules(len, advice) && pages(addr, len).is_some() {
        return sys::is_mapped(addr, len);
    }
    match backing::advice_for(addr, advice) {
        // SAFETY: the program makes this call itself, and answers for its arguments.
        Some(advised) => unsafe { sys::madvise(addr, len, advised) },
        None => Ok(()),
    }
}

/// Gives advice for the program's part of the heap.
fn advise_heap(own: Span, advice: i32) -> Result<()> {
    let Some(advised) = backing::advice_for(own.start, advice) else { return Ok(()) };
    // SAFETY: the program makes this call itself, and answers for its arguments.
    let raw = || unsafe { sys::madvise(own.start, own.len(), advised) };
    match advice {
        c::MADV_DONTNEED if backing::governs(own.start) => backing::give_back(own, raw),
        // The kernel refuses to collapse less than a tile.
        c::MADV_COLLAPSE if !own.holds_tile() => collapse_nothing(own),
        // The policy has decided on page sizes.
        c::MADV_HUGEPAGE | c::MADV_NOHUGEPAGE | c::MADV_COLLAPSE if backing::governs(own.start) => {
            sys::is_mapped(own.start, own.len())
        }
        _ => raw(),
    }
}

fn pages(addr: usize, len: usize) -> Option<Span> {
    Some(Span::new(align_down(addr, PAGE), align_up(addr.checked_add(len)?, PAGE)?))
}

/// Places the governed pages of `[addr, addr + len)`, which the program wants now. (Also before the program locks them:
/// nothing can be moved into locked memory.)
fn place_ahead(addr: usize, len: usize) {
    if let Some(span) = pages(addr, len) {
        backing::populate(span);
    }
}

/// Prepares for a call that gives `[addr, addr + len)` a property: a lock, a memory policy, a seal, guards. Memory mapped
/// in advance would get it, too, and the program's next block there would have it from the beginning; without the
/// library the range has a hole there, which the kernel finds.
pub fn before_property(addr: usize, len: usize) {
    if let Some(span) = pages(addr, len).filter(|span| concerns_us(span.start, span.len())) {
        tables::lock().drop_spare_in(span);
    }
}

/// Reads `entries` from the `struct iovec` array at `from`; returns whether all could be read.
pub fn has_read(from: usize, entries: &mut [[usize; 2]]) -> bool {
    let bytes = size_of_val(entries);
    // SAFETY: any bytes are valid words, and the slice is that of the entries.
    let raw = unsafe { core::slice::from_raw_parts_mut(entries.as_mut_ptr().cast::<u8>(), bytes) };
    task::read_own(from, raw) == Ok(bytes)
}

/// Whether all pages of `[addr, addr + len)` are mapped.
pub fn is_mapped(addr: usize, len: usize) -> bool {
    pages(addr, len).is_some_and(|span| sys::is_mapped(span.start, span.len()).is_ok())
}

/// After the kernel has refused to split a mapping, because there are too many: gives up memory mapped in advance that is
/// a mapping of its own. Returns whether there was any.
pub fn gives_up_mappings() -> bool {
    tables::lock().gives_up_mappings()
}

/// As [`place_ahead`], before the program locks `[addr, addr + len)`, unless the kernel will refuse that at once.
pub fn place_to_lock(addr: usize, len: usize) {
    // (Where there is a hole, the kernel brings nothing in.)
    let is_placed = pages(addr, len).is_some_and(backing::governs_any);
    if !is_placed || !is_mapped(addr, len) {
        return;
    }
    let limit = task::soft_limit(task::LIMIT_LOCKED).unwrap_or(u64::MAX);
    if len as u64 <= limit || task::may_lock_beyond_limit(0) {
        place_ahead(addr, len);
    }
}

/// Brings in the pages of futexes that the kernel is about to change, if they are placed: its fault there does not wait
/// for a userfaultfd, and the call would fail (EFAULT).
pub fn before_futex(operation: usize, [first, second]: [usize; 2]) {
    const WAKE_OP: usize = 5;
    const WAIT_REQUEUE_PI: usize = 11;
    const CMP_REQUEUE_PI: usize = 12;
    // The operations on one lock do not read the second address.
    let words = match operation & 127 {
        WAKE_OP => [None, Some(second)],
        WAIT_REQUEUE_PI | CMP_REQUEUE_PI => [Some(first), Some(second)],
        _ => [Some(first), None],
    };
    for word in words.into_iter().flatten().filter(|&word| backing::governs(word)) {
        let _ = sys::advise(align_down(word, PAGE), PAGE, Advice::PopulateWrite);
    }
}

/// Reacts to the program's unlocking of `[addr, addr + len)`.
pub fn unlocked(addr: usize, len: usize) {
    if let Some(span) = pages(addr, len) {
        backing::unlocked(span);
    }
}

/// Flag of mlockall: what is mapped later is locked as well.
const MCL_FUTURE: usize = 2;
/// Whether the program locks all memory that is mapped from now on.
static LOCKS_ALL: AtomicBool = AtomicBool::new(false);

/// Whether the kernel locks, and so populates, what is mapped now.
pub fn locks_all() -> bool {
    LOCKS_ALL.load(Ordering::Relaxed)
}

/// Sets that again, after a call that failed.
pub fn set_locks_all(is: bool) {
    LOCKS_ALL.store(is, Ordering::Relaxed);
}

/// Prepares for mlockall, or with no flags for munlockall.
pub fn before_lock_all(flags: usize) {
    const MCL_CURRENT: usize = 1;
    const MCL_ONFAULT: usize = 4;
    // Until it is known whether the kernel does so.
    LOCKS_ALL.fetch_or(flags & MCL_FUTURE != 0, Ordering::Relaxed);
    if flags != 0 {
        // Later blocks lie in memory mapped in advance. With MCL_CURRENT alone they would be locked, because that memory
        // is; with MCL_FUTURE they would not be.
        tables::lock().drop_spare();
    }
    if flags & (MCL_CURRENT | MCL_ONFAULT) == MCL_CURRENT {
        backing::populate_all();
    }
}

/// Answers personality.
pub fn personality(persona: usize) -> Result<usize> {
    const READ_IMPLIES_EXEC: usize = 0x40_0000;
    const ASKS_ONLY: u32 = u32::MAX;
    let before = sys::personality(persona)?;
    if persona as u32 != ASKS_ONLY && (before ^ persona) & READ_IMPLIES_EXEC != 0 {
        // Memory that was mapped in advance has the old executability, so it must go. Parts of reserved pages go only
        // with the whole page.
        let mut guest = tables::lock();
        let _ = guest.demote_all();
        guest.drop_spare();
    }
    Ok(before)
}

/// Reacts to mlockall, or with no flags to munlockall, which has succeeded.
pub fn all_locked_or_unlocked(flags: usize) {
    LOCKS_ALL.store(flags & MCL_FUTURE != 0, Ordering::Relaxed);
    if flags != 0 {
        // Another thread may have mapped some in advance between the first look and the call.
        tables::lock().drop_spare();
    }
    backing::all_locked_or_unlocked();
}
