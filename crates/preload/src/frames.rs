//! Frame placement: which physical frame a page of governed memory gets.
//!
//! Governed memory is registered with a userfaultfd. A thread of our own, the *handler*, answers faults on missing pages
//! by moving pages in whose frames it knows, out of a pool that it and a second thread, the *refiller*, fill. Threads of
//! the program do two things only: they register what they map, and ask the handler ([`mail`]) for what needs the pool.
//! None of them ever waits for a lock that the handler holds, and the handler waits for none of theirs: their stacks may
//! be governed memory.
//!
//! A page that the program has had never comes back to the pool. The kernel may hold references to it that nobody can
//! see (a pipe after vmsplice or tee, a socket's queue under MSG_ZEROCOPY, a transfer under way): what it reads or writes
//! through them would be the next owner's memory. So such pages go to the kernel, which frees them when the last
//! reference has gone, and the pool is filled with fresh ones.
//!
//! A process whose policy leaves frames to the kernel has none of this.

mod areas;
mod census;
#[cfg(feature = "expensive")]
mod checks;
mod doubts;
mod engine;
mod existing;
mod gate;
mod grip;
mod group;
mod handler;
pub mod hints;
mod homes;
mod hunt;
mod known;
mod later;
mod leaving;
mod mail;
mod module;
mod nodes;
mod pagemap;
mod place;
mod pools;
pub mod program_uffd;
mod ranges;
mod refiller;
mod remap;
mod rights;
mod room;
mod shadow;
mod spot;
mod store;
mod strategies;
mod tally;
mod thread;
mod uffd;
mod window;

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use pagelab_abi::guest::{EngineFailure, EngineState};
use pagelab_abi::plan::Plan;

use crate::boundary::arch::PAGE;
use crate::boundary::huge_pages;
use crate::boundary::maps::{self, Mapping};
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result, c, task};
use crate::state::guest_file;
use crate::state::lock::Turn;
use crate::state::message::say;
use crate::state::plan;
use crate::state::seccomp;

pub use leaving::census;
use mail::Kind;

/// Where the engine stands, for threads of the program.
static STATE: AtomicU8 = AtomicU8::new(NONE);
/// No frame is governed.
const NONE: u8 = 0;
/// Not started yet.
const IDLE: u8 = 1;
const RUNNING: u8 = 2;
/// Cannot be had, or ended.
const GONE: u8 = 3;

/// One start at a time.
static TURN: Turn = Turn::new();
/// This process was forked.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Learns what of the plan concerns frames. Called once, before there are threads.
pub fn learn(plan: &Plan<'_>) {
    if areas::learn(plan) {
        module::learn(plan);
        spot::learn();
        STATE.store(IDLE, Ordering::Release);
    }
}

/// Lists memory that exists before the library makes any: to be placed by [`place_existing`].
pub fn list_existing(plan: &Plan<'_>) {
    existing::list(plan);
}

/// Places memory that was there before the library, where a strategy governs it. There must be one thread.
pub fn place_existing() {
    if is_wanted() {
        existing::place();
    }
}

/// Whether the plan governs frames of this process.
pub fn is_wanted() -> bool {
    STATE.load(Ordering::Relaxed) != NONE
}

/// Starts the engine for the program's own hints, whatever the plan says: whether it runs.
pub fn start_now() -> bool {
    let _ = STATE.compare_exchange(NONE, IDLE, Ordering::AcqRel, Ordering::Acquire);
    is_ready()
}

/// Whether `addr` lies in the pool of free pages.
pub fn is_own(addr: usize) -> bool {
    (store::ROOM.start..store::ROOM.end).contains(&addr)
}

fn is_running() -> bool {
    STATE.load(Ordering::Acquire) == RUNNING
}

/// Starts the engine, if it has not been tried yet: whether it runs.
fn is_ready() -> bool {
    match STATE.load(Ordering::Acquire) {
        RUNNING => true,
        IDLE => {
            let mask = sys::signal_mask(u64::MAX);
            TURN.take();
            if STATE.load(Ordering::Acquire) == IDLE {
                start();
            }
            TURN.give();
            sys::signal_mask(mask);
            is_running()
        }
        _ => false,
    }
}

fn start() {
    if let Some(file) = guest_file::file() {
        guest_file::set(&file.engine.start_ns, sys::monotonic_ns());
    }
    match handler::begin() {
        Ok(()) => {
            tally::state(EngineState::Running);
            STATE.store(RUNNING, Ordering::Release);
        }
        Err(stop) => {
            tally::failed(EngineState::Failed, stop.failure, stop.errno);
            // The record tells it, and the launcher says it; the stream belongs to the program.
            if guest_file::file().is_none() && !IS_CHILD.load(Ordering::Relaxed) {
                let errno = stop.errno.map_or(0, |errno| errno.0);
                say(format_args!("no frames are placed in this process: {} (errno {errno})", stop.failure.name()));
            }
            STATE.store(GONE, Ordering::Release);
        }
    }
}

/// Memory has just been mapped at `span`, in base pages or as the kernel likes: its pages are placed from now on, where a
/// strategy governs them. False: (some of) it is the kernel's.
pub fn enter(span: Span) -> bool {
    if !is_wanted() {
        return false;
    }
    // Only what lies in pools can have been the program's before; its callers hold the guest's lock.
    if plan::touches_pools(span.start, span.len()) || plan::HEAP.and(span) == span {
        program_uffd::ends(span);
    }
    let mut all = true;
    areas::each(span, &mut |part, number| {
        let governed = number.is_some() && is_ready() && register(part).is_ok();
        all &= governed;
    });
    all
}

fn register(span: Span) -> Result<()> {
    huge_pages::advise_base(span);
    renew(span)
}

/// Registers `span`, locked if its strategy pins.
fn renew(span: Span) -> Result<()> {
    if pins(span.start) {
        // Beyond the limit on locked memory pages are placed, but not pinned.
        let _ = task::mlock(span.start, span.len(), true);
    }
    gate::register(span)
}

/// Whether memory at `addr` is locked because its strategy pins.
fn pins(addr: usize) -> bool {
    is_running() && areas::strategy_of(addr).is_some_and(engine::is_pinned)
}

/// Unlocks memory at `addr` that its strategy pins. False: it does not.
pub fn unpin(addr: usize, len: usize) -> bool {
    pins(addr) && task::munlock(addr, len).is_ok()
}

/// Advice of the program that the kernel refuses for locked memory, where it is us who locked it: what to ask for instead
/// (`None`: nothing).
pub fn advice_for(addr: usize, advice: i32) -> Option<i32> {
    const MADV_PAGEOUT: i32 = 21;
    match advice {
        c::MADV_DONTNEED if pins(addr) => Some(c::MADV_DONTNEED_LOCKED),
        // They may be without effect.
        c::MADV_FREE | c::MADV_COLD | MADV_PAGEOUT if pins(addr) => None,
        _ => Some(advice),
    }
}

/// The program has unlocked `span`: what its strategy pins stays locked.
pub fn unlocked(span: Span) {
    areas::each(span, &mut |part, number| {
        if number.is_some_and(engine::is_pinned) && is_running() {
            let _ = task::mlock(part.start, part.len(), true);
        }
    });
}

/// The program has locked all memory, or unlocked it: the pool's is as it was, and so is what strategies pin.
pub fn all_locked_or_unlocked() {
    if is_running() {
        let _ = mail::ask(Kind::Relock, Span::new(0, 0));
        let _ = each_registrable(&mut |span| unlocked(span));
    }
}

/// Locks `span` as it comes in, if `pinned` and as far as the limit on locked memory allows it, and registers it: our own
/// threads' way.
fn prepare(uffd: uffd::Uffd, span: Span, pinned: bool) -> Result<()> {
    if pinned {
        let _ = task::mlock(span.start, span.len(), true);
    }
    uffd.register(span)
}

/// Pages of governed memory are wanted now: places what is missing of `span`. False: it is not ours to do.
pub fn populate(span: Span) -> bool {
    is_running() && areas::touches(span) && mail::ask(Kind::Eager, span).is_ok()
}

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

/// Does `give`, which unmaps or discards `span`. Where that makes the process smaller, the pool may have to follow.
pub fn giving(span: Span, give: impl FnOnce() -> Result<()>) -> Result<()> {
    let result = give();
    if is_running() && span.len() >= MUCH {
        refiller::nudge();
    }
    result
}

/// So many bytes given up at a time make a process smaller.
const MUCH: usize = 8 << 20;

/// Does `what`; if that ends for lack of memory, gives the pool's back and does it once more.
pub fn frugally<T>(mut what: impl FnMut() -> Result<T>) -> Result<T> {
    match what() {
        Err(Errno::ENOMEM) if is_running() && mail::ask(Kind::Shed, Span::new(0, 0)).is_ok() => what(),
        result => result,
    }
}

/// Whether pages at `addr` are placed.
pub fn governs(addr: usize) -> bool {
    is_running() && areas::strategy_of(addr).is_some()
}

/// Bytes by which memory at `addr` may be moved (and multiples of them) without changing what its strategy wants; at
/// least a page.
pub fn period(addr: usize) -> usize {
    let number = areas::strategy_of(addr).filter(|_| is_running());
    let pages = number.map_or(1, engine::period);
    usize::try_from(pages).unwrap_or(1).clamp(1, MOST_PERIOD) * PAGE
}

/// Longer periods are not kept when memory moves.
const MOST_PERIOD: usize = 1 << 16;

/// Pages were moved from `old` to `new`; `stays`: the old mapping is still there, and empty. They keep their frames, even
/// where the new address wants others: the kernel may hold references to them (see above), which an exchange would
/// leave with the old page, so that they miss what the program writes next.
pub fn moved(old: Span, new: usize, stays: bool) {
    if !is_running() {
        return;
    }
    if areas::strategy_of(new).is_some() {
        place::SHADOW.carry(old, new);
    }
    if stays {
        // The kernel takes the registration away from both.
        enter(old);
    }
}

/// The program is about to fork: pages that are held on to would be copied when they are written to, child or no child.
pub fn before_fork() {
    if is_running() && grip::is_holding() {
        let _ = mail::ask(Kind::LetGo, Span::new(0, 0));
    }
}

/// In a forked child, before it does anything else: an engine of its own, unless the policy is not inherited.
pub fn adopt_child(inherits: bool) {
    if !is_wanted() {
        return;
    }
    IS_CHILD.store(true, Ordering::Relaxed);
    areas::after_fork();
    gate::close();
    mail::reset();
    handler::forget();
    TURN.give();
    STATE.store(if inherits && !seccomp::is_active() { IDLE } else { GONE }, Ordering::Release);
    if !inherits {
        return tally::failed(EngineState::Off, EngineFailure::NotInherited, None);
    }
    if is_ready() {
        hints::adopt_child();
        let _ = each_registrable(&mut |span| {
            let _ = renew(span);
        });
    }
}

/// The program is about to lock itself in: nothing is placed any more.
pub fn stop() {
    match STATE.load(Ordering::Acquire) {
        RUNNING => STATE.store(GONE, Ordering::Release),
        IDLE => return STATE.store(GONE, Ordering::Release),
        _ => return,
    }
    gate::close();
    let _ = mail::ask(Kind::Stop, Span::new(0, 0));
    mail::hang(0);
    let _ = handler::join();
    tally::failed(EngineState::Stopped, EngineFailure::Sandbox, None);
}

/// Calls `visit` with every span that is, or could be, registered.
fn each_registrable(visit: &mut dyn FnMut(Span)) -> Result<()> {
    maps::each(&mut |mapping| {
        if is_placeable(mapping) {
            areas::each(mapping.span, &mut |part, number| {
                if number.is_some() {
                    untiled(part, visit);
                }
            });
        }
        true
    })
}

/// Whether pages of `mapping` can be missing pages of ours.
fn is_placeable(mapping: &Mapping<'_>) -> bool {
    !mapping.shared && !mapping.is_file() && !mapping.name.starts_with(b"[v")
}

/// Calls `visit` with the parts of `span` that are not in tiles of larger pages.
fn untiled(span: Span, visit: &mut dyn FnMut(Span)) {
    match plan::layout_at(span.start) {
        None => visit(span),
        Some(layout) => layout.each(span, &mut |piece, part| {
            if !piece.backing.is_tiled() {
                visit(part);
            }
        }),
    }
}
