//! Answers to the program's queries: frames, colours, strategies, counters.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;

use pagelab_abi::guest::FramesCounts;
use pagelab_abi::plan::StrategyKind;
use pagelab_frames::Colours;

use crate::boundary::apart::apart;
use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result};
use crate::frames::areas;
use crate::frames::kernel::pagemap::Pagemap;
use crate::frames::pool::Pools;
use crate::frames::pool::chunks::SLOTS;
use crate::frames::running::is_running;
use crate::frames::threads::requests::Kind;
use crate::state::{guest_file, own_stack, plan};

use super::hint_table::{FIRST, Shown, TABLE, ask};
use super::{by_kernel, mapped, meet, refuse_under_filter};

static FRAMES: Shown<[u64; SLOTS]> = Shown(UnsafeCell::new([0; SLOTS]));

/// `struct pagelab_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    requests: u64,
    placed: u64,
    fallbacks: u64,
    zero_pages: u64,
    faults: u64,
    runs: u64,
    remapped: u64,
    copied: u64,
    refills: u64,
    wait_ns: u64,
    pool_bytes: u64,
}

impl Counters {
    /// Counts of pages that the kernel placed; the kernel counts nothing else.
    pub fn by_kernel(placed: u64, fallbacks: u64) -> Counters {
        Counters { requests: placed + fallbacks, placed, fallbacks, ..Counters::default() }
    }
}

/// Frame numbers of the pages of `span`, at most a chunk's worth; 0: not in memory.
pub fn frames(span: Span, into: &mut [u64]) -> Result<()> {
    refuse_under_filter()?;
    meet();
    mapped(span)?;
    if is_running() {
        let _table = TABLE.lock();
        if ask(Kind::Frames, span).is_ok() {
            // SAFETY: the table's lock is held, and the handler has answered, so nobody writes to it.
            let answer: &[u64; SLOTS] = unsafe { &*FRAMES.0.get() };
            for (to, from) in into.iter_mut().zip(answer) {
                *to = *from;
            }
            return Ok(());
        }
    }
    own_stack::with_files(|| {
        apart(|| {
            let pagemap = Pagemap::open().map_err(|_| Errno::EPERM)?;
            let result = if pagemap.tells() { pagemap.read(span.start, into) } else { Err(Errno::EPERM) };
            sys::close(pagemap.0);
            result
        })
    })?
}

/// The colours as the policy counts them, if it does. EOPNOTSUPP: the kernel counts them by masks.
pub fn usual_colours() -> Result<Option<Colours>> {
    if by_kernel::is_asked() { by_kernel::usual_colours() } else { Ok(colours_of_plan()) }
}

fn colours_of_plan() -> Option<Colours> {
    let plan = plan::current()?;
    Colours::of_plan(&plan, &plan.strategy(0)?)
}

/// How the strategy at `addr`, or otherwise the policy, counts colours, and the addresses around it for which that
/// holds. EOPNOTSUPP as [`usual_colours`].
pub fn colours_around(addr: usize) -> Result<(Option<Colours>, Span)> {
    if by_kernel::is_asked() { by_kernel::colours_around(addr) } else { Ok(colours_by_engine(addr)) }
}

/// The number of colours at `addr`, if its strategy or the policy gives one.
pub fn colour_count(addr: usize) -> Option<u32> {
    if by_kernel::is_asked() {
        return by_kernel::colour_count(addr);
    }
    colours_by_engine(addr).0.map(|colours| colours.count())
}

fn colours_by_engine(addr: usize) -> (Option<Colours>, Span) {
    meet();
    let (number, within) = areas::around(addr);
    let of_plan = |number: u32| plan::current().and_then(|plan| Colours::of_plan(&plan, &plan.strategy(number)?));
    let colours = match number {
        Some(number) if number as usize >= FIRST => {
            TABLE.lock().get(number as usize - FIRST).and_then(Option::as_ref).map(|asked| asked.colours)
        }
        Some(number) => of_plan(number),
        None => None,
    };
    (colours.or_else(colours_of_plan), within)
}

/// The strategy of the page at `addr`.
pub fn strategy_at(addr: usize) -> Option<StrategyKind> {
    if by_kernel::is_asked() {
        return by_kernel::strategy_at(addr);
    }
    meet();
    let number = areas::strategy_of(addr)?;
    match (number as usize).checked_sub(FIRST) {
        Some(at) => TABLE.lock().get(at).and_then(Option::as_ref).map(|asked| asked.spec.kind),
        None => plan::current().and_then(|plan| plan.strategy(number)).map(|spec| spec.kind),
    }
}

/// Counts of the engine so far.
pub fn counters() -> Counters {
    if by_kernel::is_asked() {
        return by_kernel::counters();
    }
    meet();
    let Some(file) = guest_file::file() else { return Counters::default() };
    let mut sums = FramesCounts::default();
    for slot in guest_file::frames_in_use(file) {
        sums.add(&slot.counts.load());
    }
    let engine = &file.engine.counts;
    Counters {
        requests: sums.requests,
        placed: sums.placed,
        fallbacks: sums.fallbacks,
        zero_pages: sums.zero_pages,
        faults: sums.faults,
        runs: sums.runs,
        remapped: sums.remapped_pages,
        copied: sums.copied_pages,
        refills: engine.refills.load(Relaxed),
        wait_ns: engine.wait_ns.load(Relaxed),
        pool_bytes: engine.pool_bytes.load(Relaxed),
    }
}

impl Pools {
    /// Writes the frames of the pages of `span` to the shared data.
    pub fn show_frames(&mut self, span: Span) -> Result<usize> {
        // SAFETY: the requesting thread holds the table's lock and waits.
        let answer: &mut [u64; SLOTS] = unsafe { &mut *FRAMES.0.get() };
        let some = answer.get_mut(..span.len() / PAGE).ok_or(Errno::EINVAL)?;
        self.tools.pagemap.read(span.start, some).map(|()| some.len())
    }
}
