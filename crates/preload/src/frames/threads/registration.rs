//! The userfaultfd for the program's threads: a descriptor with a high number, which the program may close or replace
//! at any time. Then it is fetched again from the handler, or the handler does the work.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result, task};
use crate::boundary::{huge_pages, libc};
use crate::frames::areas;
use crate::frames::engine::is_pinned;
use crate::frames::kernel::uffd::Uffd;
use crate::frames::report::tally;
use crate::frames::running::is_running;

use super::handler;
use super::requests::{self, Kind};

static DESCRIPTOR: AtomicI32 = AtomicI32::new(NONE);
/// Inode of the userfaultfd, by which it is distinguished from a file that the program may put in its place.
static INODE: AtomicU64 = AtomicU64::new(0);
const NONE: i32 = -1;
/// How often it was fetched again: not for ever, since a program may repeatedly close unknown descriptors.
static FETCHES: AtomicU32 = AtomicU32::new(0);
const MOST_FETCHES: u32 = 64;

/// Highest number of the descriptor: beyond it, the kernel would have to enlarge the table, which every fork copies.
const HIGHEST: u64 = 1000;
/// Distance from the limit on descriptors, where that is lower.
const BELOW_LIMIT: u64 = 8;

/// Keeps a copy of `uffd` under a high number.
pub fn keep(uffd: Uffd) {
    let limit = task::soft_limit(task::LIMIT_DESCRIPTORS).unwrap_or(1024);
    let lowest = HIGHEST.min(limit.saturating_sub(BELOW_LIMIT)) as i32;
    // Never a number that the program is likely to use: it may need the last one.
    let copy = task::dup_above(uffd.0, lowest).unwrap_or(NONE);
    INODE.store(sys::inode(copy).unwrap_or(0), Ordering::Relaxed);
    DESCRIPTOR.store(copy, Ordering::Release);
}

/// Whether `copy` still is the userfaultfd, and not a file of the program's.
fn is_ours(copy: i32) -> bool {
    copy != NONE && sys::inode(copy) == Ok(INODE.load(Ordering::Relaxed))
}

/// The descriptor. EBADF: the program has closed or replaced it, by a userfaultfd of its own perhaps.
fn uffd() -> Result<Uffd> {
    Some(DESCRIPTOR.load(Ordering::Acquire)).filter(|&copy| is_ours(copy)).map(Uffd).ok_or(Errno::EBADF)
}

/// Closes the descriptor, if it still is the userfaultfd.
pub fn close() {
    let copy = DESCRIPTOR.swap(NONE, Ordering::AcqRel);
    if is_ours(copy) {
        sys::close(copy);
    }
}

/// Gets the descriptor anew from the handler's table.
#[cold]
fn fetch() -> bool {
    // Another thread of the program could close a descriptor that is open for a moment, and put one of its own in its
    // place.
    if !libc::is_alone() || FETCHES.fetch_add(1, Ordering::Relaxed) >= MOST_FETCHES {
        return false;
    }
    tally::engine(|counts| &counts.lost_descriptors, 1);
    let Some((thread, number)) = handler::descriptor() else { return false };
    let Ok(pidfd) = task::pidfd_of_thread(thread) else { return false };
    let copy = task::pidfd_get(pidfd, number);
    sys::close(pidfd);
    let Ok(copy) = copy else { return false };
    keep(Uffd(copy));
    sys::close(copy);
    DESCRIPTOR.load(Ordering::Relaxed) != NONE
}

/// Runs `what` with the descriptor, or has the handler do the work.
fn through(what: impl Fn(Uffd) -> Result<()>, kind: Kind, span: Span) -> Result<()> {
    match uffd().and_then(&what) {
        Err(Errno::EBADF | Errno::ENOTTY) => {}
        result => return result,
    }
    if fetch() {
        match uffd().and_then(&what) {
            Err(Errno::EBADF | Errno::ENOTTY) => {}
            result => return result,
        }
    }
    requests::ask(kind, span).map(drop)
}

/// Registers `span`.
pub fn register(span: Span) -> Result<()> {
    through(|uffd| uffd.register(span), Kind::Register, span)
}

/// Unregisters `span`.
pub fn unregister(span: Span) -> Result<()> {
    through(|uffd| uffd.unregister(span), Kind::Unregister, span)
}

/// Governs memory that was just mapped at `span`: in base pages, and its pages are placed from now on.
pub fn govern(span: Span) -> Result<()> {
    huge_pages::advise_base(span);
    renew(span)
}

/// Registers `span`, locked if its strategy pins.
pub fn renew(span: Span) -> Result<()> {
    if pins(span.start) {
        // Beyond the limit on locked memory, pages are placed but not pinned.
        let _ = task::mlock(span.start, span.len(), true);
    }
    register(span)
}

/// Whether memory at `addr` is locked because its strategy pins.
pub fn pins(addr: usize) -> bool {
    is_running() && areas::strategy_of(addr).is_some_and(is_pinned)
}
