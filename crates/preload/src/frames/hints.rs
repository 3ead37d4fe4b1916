//! Hints: requests of the program for its own pages while it runs (the API's part of the engine).
//!
//! Hints are strategies with numbers beyond the plan's. Like everything that needs the pool, they are sent to the
//! handler. One table contains them. A thread that sets or removes a hint holds its lock, so that no other thread takes
//! a number between its choice and its use. The handler never waits for it.

mod by_kernel;
mod hint_table;
mod queries;
mod values;

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use crate::boundary::apart::apart;
use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Advice, Errno, Result, task};
use crate::boundary::{libc, maps};
use crate::frames::engine::is_pinned;
use crate::frames::kernel::pagemap::Pagemap;
use crate::frames::pool::chunks::SLOTS;
use crate::frames::registrable::{is_placeable, untiled};
use crate::frames::report::tally;
use crate::frames::running::is_running;
use crate::frames::threads::registration;
use crate::frames::threads::requests::Kind;
use crate::frames::threads::startup::start_now;
use crate::state::forks::Apart;
use crate::state::lock::ForkHold;
use crate::state::{child, guest_file, lock, own_stack, plan, seccomp};

use super::{areas, existing, program_uffd};

pub use by_kernel::{is_asked as are_the_kernels, learn_default};
pub use hint_table::{Asked, SPAN_BYTES, adopt_child, forget_holder};
use hint_table::{TABLE, ask, code, number_of};
pub use queries::{Counters, colour_count, colours_around, counters, frames, strategy_at, usual_colours};
pub use values::Values;

use pagelab_abi::guest::EngineFailure;

/// Result of a move (`struct pagelab_moved`), in pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pages: u64,
    absent: u64,
    in_place: u64,
    elsewhere: u64,
}

/// Whether some range has, or had, a hint.
static GIVEN: AtomicBool = AtomicBool::new(false);

/// Starts every call into the engine: a forked child sets itself up first.
fn meet() {
    if !seccomp::is_raw() {
        child::adopt();
    }
}

/// Forgets hints for memory that is about to be unmapped: memory that is mapped there later begins without hints, and
/// is not registered with the program's userfaultfd.
pub fn forget(addr: usize, len: usize) {
    if GIVEN.load(Relaxed) || program_uffd::has_some() {
        let end = addr.saturating_add(len).checked_next_multiple_of(PAGE).unwrap_or(addr);
        if GIVEN.load(Relaxed) && by_kernel::is_asked() {
            let _ = by_kernel::clear_range(Span::new(addr, end));
        }
        let _guest = lock::hold_memory();
        areas::hint(Span::new(addr, end), None);
        program_uffd::ends(Span::new(addr, end));
    }
}

/// The preparation for the engine's start, if the program's own hints are the first to need the engine.
pub type Prepare = fn() -> Result<()>;

// Of these functions of the API, which are called seldom, one copy each is enough: hence the `inline(never)`.

/// Makes sure that the engine runs.
#[inline(never)]
pub fn start(prepare: Prepare) -> Result<()> {
    if by_kernel::is_asked() {
        return by_kernel::start();
    }
    refuse_under_filter()?;
    meet();
    if is_running() {
        return Ok(());
    }
    // Such a process gets no engine, and may share its memory with one that has none yet.
    if !libc::knows_this_thread() {
        return Err(Errno::EOPNOTSUPP);
    }
    let _apart = Apart::new()?;
    own_stack::with_files(|| {
        let _table = TABLE.lock();
        prepare()?;
        if start_now() { Ok(()) } else { Err(why()) }
    })
}

/// EOPNOTSUPP under the program's own seccomp filter, which may kill it for any system call of the library's.
pub fn refuse_under_filter() -> Result<()> {
    if seccomp::is_raw() { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
}

/// The reason why there is no engine.
fn why() -> Errno {
    let failure = guest_file::file().map_or(0, |file| file.engine.failure.load(Relaxed));
    match EngineFailure::from_code(failure) {
        Some(EngineFailure::Userfaultfd | EngineFailure::FrameNumbers) => Errno::EPERM,
        Some(EngineFailure::NoMemory | EngineFailure::Threads) => Errno::ENOMEM,
        _ => Errno::EOPNOTSUPP,
    }
}

/// Gives `span` a hint; `None`: the kernel places it.
#[inline(never)]
pub fn set_range(span: Span, asked: Option<Asked>, prepare: Prepare) -> Result<()> {
    if by_kernel::is_asked() {
        GIVEN.store(true, Relaxed);
        return by_kernel::set_range(span, asked);
    }
    // In this order, because the engine's start may map memory in a hole of the range.
    let begin = || {
        refuse_under_filter()?;
        mapped(span)?;
        start(prepare)
    };
    if let Err(errno) = begin() {
        if let Some(asked) = asked {
            asked.values.release();
        }
        return Err(errno);
    }
    own_stack::with_files(|| {
        let mut table = TABLE.lock();
        let number = asked.map(|asked| number_of(&mut table, asked)).transpose()?;
        GIVEN.store(true, Relaxed);
        let _guest = lock::hold_memory();
        change(span, Some(number.map_or(0, code)))
    })
}

/// Withdraws the hints for `span`.
#[inline(never)]
pub fn clear_range(span: Span, prepare: Prepare) -> Result<()> {
    if by_kernel::is_asked() {
        return by_kernel::clear_range(span);
    }
    start(prepare)?;
    own_stack::with_files(|| {
        let _table = TABLE.lock();
        let _guest = lock::hold_memory();
        change(span, None)
    })
}

fn change(span: Span, code: Option<u8>) -> Result<()> {
    let mut has_room = true;
    existing::each_outside(span, &mut |part| {
        unpin(part);
        has_room &= areas::hint(part, code);
        if has_room {
            settle(part);
        }
    });
    if has_room { Ok(()) } else { Err(Errno::ENOSPC) }
}

/// Unlocks memory that was locked because its strategy pins: the next strategy perhaps does not pin, and pages can be
/// moved from locked memory only to locked memory.
fn unpin(span: Span) {
    areas::each(span, &mut |part, number| {
        if number.is_some_and(is_pinned) {
            let _ = task::munlock(part.start, part.len());
        }
    });
}

/// Sets the hint for memory that neither a range nor a rule of the policy names (`None`: the kernel places it).
#[inline(never)]
pub fn set_default(asked: Option<Asked>, prepare: Prepare) -> Result<()> {
    if by_kernel::is_asked() {
        return by_kernel::set_default(asked);
    }
    if let Err(errno) = start(prepare) {
        if let Some(asked) = asked {
            asked.values.release();
        }
        return Err(errno);
    }
    own_stack::with_files(|| {
        let mut table = TABLE.lock();
        let number = asked.map(|asked| number_of(&mut table, asked)).transpose()?;
        change_default(Some(number.map_or(0, code)))
    })
}

/// Withdraws that hint.
pub fn clear_default(prepare: Prepare) -> Result<()> {
    if by_kernel::is_asked() {
        return by_kernel::clear_default();
    }
    start(prepare)?;
    own_stack::with_files(|| {
        let _table = TABLE.lock();
        change_default(None)
    })
}

fn change_default(code: Option<u8>) -> Result<()> {
    let _guest = lock::hold_memory();
    if !areas::set_default(code) {
        return Err(Errno::EOPNOTSUPP);
    }
    for pool in [plan::HEAP, plan::POOLS] {
        settle(pool);
    }
    Ok(())
}

fn mapped(span: Span) -> Result<()> {
    sys::is_mapped(span.start, span.len()).map_err(|_| Errno::EFAULT)
}

/// Registers the governed parts of the memory in `span`, and unregisters the rest.
fn settle(span: Span) {
    let _ = maps::each(&mut |mapping| {
        let part = mapping.span.and(span);
        if !part.is_empty() && is_placeable(mapping) {
            areas::each(part, &mut |part, number| match number {
                Some(_) => untiled(part, &mut |part| {
                    let _ = registration::govern(part);
                }),
                None => {
                    let _ = registration::unregister(part);
                }
            });
        }
        mapping.span.end < span.end
    });
}

/// Moves the resident pages of `span` to their wanted frames.
#[inline(never)]
pub fn remap_range(span: Span, prepare: Prepare) -> Result<Moved> {
    if by_kernel::is_asked() {
        return by_kernel::remap_range(span);
    }
    refuse_under_filter()?;
    mapped(span)?;
    start(prepare)?;
    if !areas::touches(span) {
        return Err(Errno::EINVAL);
    }
    let mut moved = Moved { pages: (span.len() / PAGE) as u64, ..Moved::default() };
    let mut words = [0u64; SLOTS];
    for start in (span.start..span.end).step_by(SLOTS * PAGE) {
        let part = Span::new(start, span.end.min(start + SLOTS * PAGE));
        unshare(part, &mut words);
        let Some(some) = words.get_mut(..part.len() / PAGE) else { continue };
        moved.in_place += {
            // No thread forks, maps or unmaps while pages are being moved. The hold comes first: a thread that forks
            // takes one of the library's stacks.
            let _hold = ForkHold::new()?;
            own_stack::with_files(|| {
                let _guest = lock::hold_memory();
                settle(part);
                ask(Kind::Remap, part)
            })? as u64
        };
        frames(part, some)?;
        moved.absent += some.iter().filter(|frame| **frame == 0).count() as u64;
    }
    moved.in_place = moved.in_place.min(moved.pages - moved.absent);
    moved.elsewhere = moved.pages - moved.absent - moved.in_place;
    Ok(moved)
}

/// Makes pages of `span` that are shared (with a child, or the zero page) the program's own, by copying.
pub fn unshare(span: Span, words: &mut [u64; SLOTS]) {
    for start in (span.start..span.end).step_by(SLOTS * PAGE) {
        let pages = start..span.end.min(start + SLOTS * PAGE);
        let Some(words) = words.get_mut(..pages.len() / PAGE) else { continue };
        let read = own_stack::with_files(|| apart(|| read_shared(start, words)));
        if !matches!(read, Ok(Ok(()))) {
            continue;
        }
        // On the caller's stack: a page may wait for the program's own userfaultfd.
        for (page, _) in pages.step_by(PAGE).zip(words.iter()).filter(|(_, shared)| **shared != 0) {
            // Where the memory is read-only this fails, and the page stays.
            let copied = sys::advise(page, PAGE, Advice::PopulateWrite);
            if let (Ok(()), Some(number)) = (copied, areas::strategy_of(page)) {
                tally::frames(number, |counts| &counts.copied_pages, 1);
            }
        }
    }
}

fn read_shared(start: usize, words: &mut [u64]) -> Result<()> {
    let pagemap = Pagemap::open()?;
    let read = pagemap.read_shared(start, words);
    sys::close(pagemap.0);
    read
}
