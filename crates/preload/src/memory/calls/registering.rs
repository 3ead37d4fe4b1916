//! Registration of governed memory with the program's own userfaultfd, which reports faults on missing pages.
//!
//! Without the library, memory that the program maps is missing until it is touched, and then the program's handler
//! fills it. But a tile comes in as a whole when any page of it is touched, and prefaulting brings in everything. The
//! handler would get no faults for these pages, and the program would read zeros. So pages of zeros that may have come
//! in that way are given back before the registration. (Zeros that the program itself wrote there cannot be
//! distinguished from them.)

use core::sync::atomic::{AtomicBool, Ordering};

use crate::backing;
use crate::boundary::arch::PAGE;
use crate::boundary::maps;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Result, c, task};
use crate::memory::tables;
use crate::state::layout::{Backing, Layout};
use crate::state::plan::{self, POOLS};

use super::{Owner, each_part, our_span};

/// UFFDIO_REGISTER, a request that no other device has.
pub const REGISTER: usize = 0xc020_aa00;
/// UFFDIO_API.
pub const API: usize = 0xc018_aa3f;

fn word(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, usize::from_le_bytes)
}

/// Whether the `struct uffdio_api` at `argument` requests events of memory calls: then each such call waits until the
/// program has read the message.
pub fn wants_events(argument: usize) -> bool {
    const EVENT_REMAP: usize = 1 << 2;
    const EVENT_REMOVE: usize = 1 << 3;
    const EVENT_UNMAP: usize = 1 << 6;
    let mut bytes = [0u8; 16];
    task::read_own(argument, &mut bytes) == Ok(bytes.len())
        && word(&bytes, 8) & (EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP) != 0
}

/// Whether the program has registered memory with a userfaultfd of its own.
static HAS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Whether the program has registered memory with a userfaultfd of its own, in this process or before a fork.
pub fn has_registered() -> bool {
    HAS_REGISTERED.load(Ordering::Relaxed)
}

/// Start, length and mode of the `struct uffdio_register` at `argument`.
pub fn to_register(argument: usize) -> Option<[usize; 3]> {
    let mut bytes = [0u8; 24];
    let has_read = task::read_own(argument, &mut bytes) == Ok(bytes.len());
    has_read.then(|| [word(&bytes, 0), word(&bytes, 8), word(&bytes, 16)])
}

/// Prepares `len` bytes at `start`, which the program is about to register. Returns the range, for [`registered`].
pub fn registering(start: usize, len: usize, mode: usize) -> Option<Span> {
    const MISSING: usize = 1;
    let end = start.checked_add(len).filter(|end| start.is_multiple_of(PAGE) && end % PAGE == 0 && len > 0)?;
    let whole = Span::new(start, end);
    HAS_REGISTERED.store(true, Ordering::Relaxed);
    backing::program_uffd::registering(whole);
    let fills = mode & MISSING != 0;
    if fills && plan::prefaults() {
        give_anonymous_back(whole);
    }
    if let Some(span) = our_span(start, len) {
        let _ = uncover(span, fills);
    }
    Some(whole)
}

/// The program's registration of `span`, as [`registering`] returned it, has succeeded, or was refused.
pub fn registered(span: Span, succeeded: bool) {
    backing::program_uffd::registered(span, succeeded);
}

/// Makes reserved pages normal memory, because no part of them can be registered, and unmaps memory mapped in advance:
/// without the library the range would have holes there. If the program itself `fills` missing pages, zero pages in
/// tiles of `span` become missing again.
fn uncover(span: Span, fills: bool) -> Result<()> {
    let mut guest = tables::lock();
    let heap_end = guest.heap_end();
    each_part(span, heap_end, &mut |owner, part| {
        match (owner, &mut guest.heap) {
            (Owner::Heap, Some(heap)) => {
                heap.demote_all(part)?;
                heap.make_way(part)?;
                if fills {
                    give_tiles_back(heap.layout(), heap.own(part));
                }
            }
            (Owner::Pool, _) => {
                if let Some(pool) = guest.pool(part.start) {
                    pool.before_registering(part)?;
                    if fills {
                        give_tiles_back(pool.layout(), part.and(POOLS));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    })
}

fn give_tiles_back(layout: &Layout, span: Span) {
    layout.each(span, &mut |piece, part| {
        if matches!(piece.backing, Backing::Thp(_) | Backing::Hugetlb(_)) {
            give_zeros_back(part);
        }
    });
}

/// As [`give_zeros_back`], but not for mappings of files: zeros that the program wrote over a private one would be
/// replaced by the file's contents.
fn give_anonymous_back(span: Span) {
    let mut at = span.start;
    while at < span.end {
        let mut found = None;
        let _ = maps::each(&mut |mapping| {
            let part = mapping.span.and(Span::new(at, span.end));
            if !part.is_empty() && !mapping.is_file() {
                found = Some(part);
            }
            found.is_none() && mapping.span.start < span.end
        });
        let Some(part) = found else { return };
        give_zeros_back(part);
        at = part.end;
    }
}

/// Number of pages examined together.
const AT_ONCE: usize = 64;

/// Gives back resident pages of `span` that hold nothing but zeros. Another thread that writes to such a page meanwhile
/// waits: between the check and the removal of the page, its write would be lost.
fn give_zeros_back(span: Span) {
    backing::program_uffd::while_writes_wait(span, || zeros_back(span));
}

fn zeros_back(span: Span) {
    let mut at = span.start;
    while at < span.end {
        let part = Span::new(at, span.end.min(at + AT_ONCE * PAGE));
        let mut resident = [0u8; AT_ONCE];
        if sys::mincore(part.start, part.len(), &mut resident).is_ok() {
            for (page, _) in (part.start..part.end).step_by(PAGE).zip(resident).filter(|(_, there)| there & 1 != 0)
            {
                if is_zero(page) {
                    // SAFETY: the program sees the same contents: zeros, or those that its handler fills in.
                    let _ = unsafe { sys::madvise(page, PAGE, c::MADV_DONTNEED) };
                }
            }
        }
        at = part.end;
    }
}

/// Whether the page at `page`, which the program may have closed to itself, holds nothing but zeros.
fn is_zero(page: usize) -> bool {
    let mut bytes = [0u8; PAGE];
    task::read_own(page, &mut bytes) == Ok(PAGE) && bytes.iter().all(|byte| *byte == 0)
}
