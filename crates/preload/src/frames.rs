//! Frame placement: which physical frame a page of governed memory gets.
//!
//! Governed memory is registered with a userfaultfd. One thread of the library's own, the *handler*, answers faults on
//! missing pages: it moves in pages whose frames it knows. They come from a pool that the handler and a second thread,
//! the *refiller*, fill. Threads of the program do two things only: they register what they map, and they ask the
//! handler ([`threads::requests`]) for work that needs the pool. They never wait for a lock that the handler holds, and
//! the handler never waits for a lock of theirs: their stacks may be governed memory.
//!
//! A page that the program has used never returns to the pool. The kernel may have invisible references to it (a pipe
//! after vmsplice or tee, a socket's queue under MSG_ZEROCOPY, a transfer in progress), through which it would read or
//! write the next owner's memory. So such pages go to the kernel, which frees them after the last reference, and the
//! pool is filled with fresh pages.
//!
//! A process whose policy leaves frames to the kernel has no handler, no refiller and no pool.

mod areas;
#[cfg(feature = "expensive")]
mod checks;
mod engine;
mod existing;
pub mod hints;
mod kernel;
mod place;
mod pool;
pub mod program_uffd;
mod registrable;
mod report;
mod rest;
mod running;
mod threads;

use pagelab_abi::guest::{EngineFailure, EngineState};
use pagelab_abi::plan::Plan;

use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result, c, task};
use crate::boundary::{libc, maps};
use crate::state::{plan, seccomp};

use place::module;
use pool::{chunks, grip};
use registrable::{each_registrable, is_placeable};
pub use report::at_exit::census;
use report::tally;
use running::{is_running, is_wanted};
pub use threads::priority::follow as follow_priority;
use threads::requests::Kind;
use threads::{handler, handler_affinity, priority, refiller, registration, requests, startup};

/// Forbids placement, where the program's own runtime stops all threads. Called once, before there are threads.
pub fn forbid() {
    startup::forbid();
}

/// Finds the library's own data, which are never placed. Called by the constructor.
pub fn find_own_data() {
    existing::keep_out();
}

/// Reads the parts of the plan that concern frames. Called once, before there are threads.
pub fn learn(plan: &Plan<'_>) {
    if areas::learn(plan) {
        module::learn(plan);
        handler_affinity::learn();
        running::set_state(running::IDLE);
    }
}

/// Lists memory that exists before the library makes any; [`place_existing`] places it later.
pub fn list_existing(plan: &Plan<'_>) {
    existing::list(plan);
}

/// Places memory that existed before the library, where a strategy governs it. There must be one thread.
pub fn place_existing() {
    if is_wanted() {
        existing::place();
    }
}

/// Whether `addr` lies in the pool of free pages.
pub fn is_own(addr: usize) -> bool {
    (chunks::ROOM.start..chunks::ROOM.end).contains(&addr)
}

/// Governs memory that was just mapped at `span`, in base pages or in pages of the kernel's choice: from now on its
/// pages are placed, as far as a strategy governs them. False: (some of) it is left to the kernel.
pub fn enter(span: Span) -> bool {
    if !is_wanted() {
        return false;
    }
    // Only memory in pools can have been the program's before; the callers for it hold the guest's lock.
    if plan::touches_pools(span.start, span.len()) || plan::HEAP.and(span) == span {
        program_uffd::ends(span);
    }
    let mut all = true;
    areas::each(span, &mut |part, number| {
        let governed = number.is_some() && startup::is_ready() && registration::govern(part).is_ok();
        all &= governed;
    });
    all
}

/// Unlocks memory at `addr` if its strategy pins it. False: it does not.
pub fn unpin(addr: usize, len: usize) -> bool {
    registration::pins(addr) && task::munlock(addr, len).is_ok()
}

/// Advice to give in place of `advice`. If the library locked the memory, it is advice that the kernel accepts for
/// locked memory (`None`: no advice).
pub fn advice_for(addr: usize, advice: i32) -> Option<i32> {
    const MADV_PAGEOUT: i32 = 21;
    match advice {
        c::MADV_DONTNEED if registration::pins(addr) => Some(c::MADV_DONTNEED_LOCKED),
        // These kinds of advice may be without effect.
        c::MADV_FREE | c::MADV_COLD | MADV_PAGEOUT if registration::pins(addr) => None,
        _ => Some(advice),
    }
}

/// The program has unlocked `span`: locks again the memory that its strategy pins.
pub fn unlocked(span: Span) {
    areas::each(span, &mut |part, number| {
        if number.is_some_and(engine::is_pinned) && is_running() {
            let _ = task::mlock(part.start, part.len(), true);
        }
    });
}

/// The program is about to install guards in `span`, which the kernel refuses for locked memory: unlocks what
/// strategies pin there.
pub fn before_guards(span: Span) {
    areas::each(span, &mut |part, number| {
        if number.is_some_and(engine::is_pinned) && is_running() {
            let _ = task::munlock(part.start, part.len());
        }
    });
}

/// The program has locked or unlocked all memory: restores the locks of the pool's memory, and of memory that
/// strategies pin.
pub fn all_locked_or_unlocked() {
    if is_running() {
        let _ = requests::ask(Kind::Relock, Span::new(0, 0));
        let _ = each_registrable(&mut |span| unlocked(span));
    }
}

/// Places the missing pages of `span`, which the program wants now, to its first hole: there the kernel stops, too.
/// False: the memory is not governed.
pub fn populate(span: Span) -> bool {
    if !is_running() || !areas::touches(span) {
        return false;
    }
    // Faults of other threads, and this thread's signals, have their turn between the parts.
    let mut at = span.start;
    while at < span.end {
        let part = Span::new(at, span.end.min(at.saturating_add(AT_ONCE)));
        if requests::ask(Kind::Eager, part).is_err() {
            return false;
        }
        if sys::is_mapped(part.start, part.len()).is_err() {
            break;
        }
        at = part.end;
    }
    true
}

/// Bytes that are placed by one request.
const AT_ONCE: usize = 64 << 20;

/// As [`populate`], for all governed memory that can be written to.
pub fn populate_all() {
    if !is_running() {
        return;
    }
    let _ = maps::each(&mut |mapping| {
        if mapping.write && is_placeable(mapping) {
            populate(mapping.span);
        }
        true
    });
}

/// Runs `give`, which unmaps or discards `span`. If that makes the process smaller, the pool's budget may shrink, too.
pub fn give_back(span: Span, give: impl FnOnce() -> Result<()>) -> Result<()> {
    let result = give();
    if is_running() && span.len() >= MUCH {
        refiller::nudge();
    }
    result
}

/// A process counts as smaller when it gives up this many bytes at a time.
const MUCH: usize = 8 << 20;

/// Runs `what`; if it fails for lack of memory, gives the pool's memory back and repeats it once.
pub fn retry_when_short<T>(mut what: impl FnMut() -> Result<T>) -> Result<T> {
    match what() {
        Err(Errno::ENOMEM) if is_running() && requests::ask(Kind::Shed, Span::new(0, 0)).is_ok() => what(),
        result => result,
    }
}

/// Whether pages at `addr` are placed.
pub fn governs(addr: usize) -> bool {
    is_running() && areas::strategy_of(addr).is_some()
}

/// Whether any page of `span` is placed.
pub fn governs_any(span: Span) -> bool {
    is_running() && areas::touches(span)
}

/// Distance in bytes, at least a page: if memory at `addr` is moved by a multiple of it, its strategy wants the same
/// frames for it.
pub fn period(addr: usize) -> usize {
    let number = areas::strategy_of(addr).filter(|_| is_running());
    let pages = number.map_or(1, engine::period);
    usize::try_from(pages).unwrap_or(1).clamp(1, MOST_PERIOD) * PAGE
}

/// Longer periods are not preserved when memory moves.
const MOST_PERIOD: usize = 1 << 16;

/// Pages were moved from `old` to `new`; `stays`: the old mapping still exists, and is empty. The pages keep their
/// frames, even where the new address wants others. The kernel may hold references to them (see above); an exchange
/// would leave these with the old page, so that they miss what the program writes next.
pub fn after_move(old: Span, new: usize, stays: bool) {
    if !is_running() {
        return;
    }
    if areas::strategy_of(new).is_some() {
        place::SHADOW.carry(old, new);
    }
    if stays {
        // The kernel takes the registration away from both spans.
        enter(old);
    }
}

/// The program is about to fork: releases held pages. Otherwise each write to one would copy it, even if the child has
/// ended.
pub fn before_fork() {
    if is_running() && grip::is_holding() {
        let _ = requests::ask(Kind::LetGo, Span::new(0, 0));
    }
}

/// Resets of the engine in a forked child, in this order.
const RESETS: [fn(); 6] =
    [areas::after_fork, registration::close, requests::reset, handler::forget, refiller::forget, startup::forget];

/// In a forked child, before anything else: gives it its own engine, unless the policy is not inherited.
///
/// Nor does a child that was made past libc get one. It may end by the system call that ends its only thread, as the
/// children of glibc's `clone` do, and threads of the library would then keep the process alive.
pub fn adopt_child(inherits: bool) {
    // Priorities are followed also where no frames are placed yet.
    priority::forget();
    if !is_wanted() {
        return;
    }
    for reset in RESETS {
        reset();
    }
    let by_libc = libc::knows_this_thread();
    running::set_state(if inherits && by_libc && !seccomp::is_active() { running::IDLE } else { running::GONE });
    if !inherits {
        return tally::failed(EngineState::Off, EngineFailure::NotInherited, None);
    }
    if !by_libc {
        return tally::failed(EngineState::Off, EngineFailure::PastLibc, None);
    }
    if startup::is_ready() {
        hints::adopt_child();
        let _ = each_registrable(&mut |span| {
            let _ = registration::renew(span);
        });
    }
}

/// Whether threads of the library's own run in this process.
pub fn has_threads() -> bool {
    is_running()
}

/// Ends placement for good: the program is about to install a seccomp filter, or to make a call that needs a single
/// thread.
pub fn stop(why: EngineFailure) {
    match running::state() {
        running::RUNNING => running::set_state(running::GONE),
        running::IDLE => return running::set_state(running::GONE),
        _ => return,
    }
    registration::close();
    let _ = requests::ask(Kind::Stop, Span::new(0, 0));
    requests::set_page(0);
    let _ = handler::join();
    tally::failed(EngineState::Stopped, why, None);
}
