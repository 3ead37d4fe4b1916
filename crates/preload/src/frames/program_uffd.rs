//! The program's own userfaultfd on governed memory.
//!
//! A mapping belongs to one userfaultfd. So if the program registers a range with its own, the library unregisters the
//! range first. The range is then the program's until its memory is unmapped, and the kernel chooses its pages. If the
//! kernel refuses the program's registration, the library registers the range again. The library notices only requests
//! through libc (`ioctl`, and `syscall`).

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use crate::boundary::apart::apart;
use crate::boundary::arch::PAGE;
use crate::boundary::maps;
use crate::boundary::span::{Span, page_at};
use crate::boundary::sys::{self, Result, task};
use crate::frames::engine::is_pinned;
use crate::frames::kernel::uffd::Uffd;
use crate::frames::place::SHADOW;
use crate::frames::place::seen::Seen;
use crate::frames::pool::{Pools, chunks};
use crate::frames::registrable::{each_registrable, is_placeable};
use crate::frames::running::is_running;
use crate::frames::threads::registration;
use crate::frames::threads::requests::{self, Kind};
use crate::state::lock;

use super::areas::{self, Given};

/// Whether some range is, or was, the program's.
static GIVEN: AtomicBool = AtomicBool::new(false);

/// Prepares for the program's registration of `span`.
pub fn registering(span: Span) {
    if !is_running() {
        return;
    }
    if areas::touches(span) {
        GIVEN.store(true, Relaxed);
        let _guest = lock::hold_memory();
        areas::each(span, &mut |part, number| {
            // A range that grows contains what the program registered before. It keeps its mark, and its registration,
            // which kernels before 6.17 would end through any userfaultfd.
            if areas::is_programs(part.start) {
                return;
            }
            // If there are too many ranges, the mark is missing, but the memory is the program's all the same.
            areas::give_to_program(part, Some(Given::Asked));
            // The library itself locked it.
            if number.is_some_and(is_pinned) {
                let _ = task::munlock(part.start, part.len());
            }
            if number.is_some() && requests::ask(Kind::HandOver, part).is_err() {
                take_back(part);
            }
        });
    }
}

/// The program's registration of `span` has succeeded, or was refused.
pub fn registered(span: Span, succeeded: bool) {
    if !GIVEN.load(Relaxed) {
        return;
    }
    let _guest = lock::hold_memory();
    areas::each_asked(span, &mut |part| {
        if succeeded {
            areas::give_to_program(part, Some(Given::Registered));
        } else {
            take_back(part);
        }
    });
}

/// Governs `span` again, which the program could not register.
fn take_back(span: Span) {
    areas::give_to_program(span, None);
    if is_running() {
        let _ = each_registrable(&mut |part| {
            let part = part.and(span);
            if !part.is_empty() {
                let _ = registration::renew(part);
            }
        });
    }
}

/// Runs `what` while others (threads, or processes that share or access the memory) that would write to `span` wait.
/// Where they cannot be kept waiting (before Linux 5.7, or a range that has a userfaultfd), it runs all the same.
pub fn while_writes_wait(span: Span, what: impl FnOnce()) {
    let mut what = Some(what);
    // Opened in another table, where threads that close unknown descriptors cannot reach it.
    let _ = apart(|| {
        let Some(what) = what.take() else { return };
        let held = Uffd::of_writes();
        if let Ok(uffd) = held {
            let _ = uffd.hold_writes(span);
        }
        what();
        if let Ok(uffd) = held {
            uffd.let_writes(span);
            sys::close(uffd.0);
        }
    });
    if let Some(what) = what {
        what();
    }
}

/// Replaces the mapping at `span`, by `replace`, while others that would write there wait. `None`: they cannot
/// be kept waiting, and nothing was done.
pub fn replace_while_writes_wait<R>(span: Span, replace: impl FnOnce() -> R) -> Option<R> {
    let replaced = apart(|| {
        let uffd = Uffd::of_all_writes().ok()?;
        let held = uffd.hold_writes(span);
        let result = held.is_ok().then(replace);
        uffd.let_writes(span);
        // Closing wakes every thread, whatever is mapped there now.
        sys::close(uffd.0);
        result
    });
    replaced.ok().flatten()
}

/// Whether some range is, or was, the program's.
pub fn has_some() -> bool {
    GIVEN.load(Relaxed)
}

/// Ends the program's registrations in `span`, whose memory goes, or is new. (The guest's lock is held.)
pub fn ends(span: Span) {
    if GIVEN.load(Relaxed) {
        areas::give_to_program(span, None);
    }
}

impl Pools {
    /// Hands `span` over to the program. Pages that were brought in ahead of any touch become missing again; otherwise
    /// the program's handler would never get their faults.
    pub fn hand_over(&mut self, span: Span) -> Result<()> {
        let (pagemap, mut seen) = (self.tools.pagemap, Seen::new());
        // What was placed may have been given back since.
        SHADOW.each_ahead(span, &mut |page| {
            if seen.has(pagemap, page) {
                self.withdraw_page(page);
            }
        });
        let uffd = self.tools.uffd;
        if uffd.unregister(span).is_ok() {
            return Ok(());
        }
        // The kernel refuses a range with any mapping that cannot be registered: of a file, for instance.
        let mut result = Ok(());
        maps::each(&mut |mapping| {
            let part = mapping.span.and(span);
            if !part.is_empty() && is_placeable(mapping) {
                result = result.and(uffd.unregister(part));
            }
            mapping.span.end < span.end
        })?;
        result
    }

    /// Makes the kernel, or the program's userfaultfd, answer the fault on `page`, which is the program's but still
    /// registered here. If it is not, nothing changes.
    pub fn give_up_page(&mut self, page: usize) {
        let uffd = self.tools.uffd;
        // The kernel does not tell whose a page is, but nobody can register another's (EBUSY).
        if uffd.register(page_at(page)).is_ok() && uffd.unregister(page_at(page)).is_err() {
            let _ = uffd.zero(page_at(page));
        }
    }

    /// Removes the page at `page` if it holds nothing but zeros. It is examined while it is moved out, so threads that
    /// would write to it wait.
    fn withdraw_page(&mut self, page: usize) {
        let transit = page_at(self.tools.transit);
        if self.move_out(page, transit) == 0 {
            return;
        }
        // SAFETY: the page lies in the library's transit area, where it was moved just now.
        let words = unsafe { core::slice::from_raw_parts(transit.start as *const u64, PAGE / size_of::<u64>()) };
        if words.iter().all(|word| *word == 0) {
            SHADOW.set(page, 0, false);
        } else {
            self.bring_back(page_at(page), transit.start);
        }
        chunks::discard(transit);
    }
}
