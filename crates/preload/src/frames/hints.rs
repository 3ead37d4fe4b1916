//! Hints: what the program itself says about its pages while it runs (the API's half of the engine).
//!
//! Hints are strategies with numbers beyond the plan's, handed to the handler like everything that needs the pool. One
//! desk keeps them: whoever gives or takes a hint holds its lock, so that a number cannot be given away between being
//! chosen and being used. The handler never waits for it.

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use pagelab_abi::guest::{EngineFailure, FramesCounts};
use pagelab_abi::plan::{MAX_STRATEGIES, Strategy as Spec, StrategyKind, Words};
use pagelab_frames::strategy::PageColoring;
use pagelab_frames::{AnyStrategy, Colours};

use crate::arch::PAGE;
use crate::elf;
use crate::fork;
use crate::guest;
use crate::intervals::Span;
use crate::kernel;
use crate::lock::Locked;
use crate::maps;
use crate::record;
use crate::start;
use crate::sys::{self, Errno, Result, c, task};

use super::engine::{Engine, PLACERS};
use super::mail::{self, Kind};
use super::pagemap::Pagemap;
use super::store::SLOTS;
use super::{areas, gate, is_placeable, tally, untiled};

/// Numbers of hints' strategies begin here.
const FIRST: usize = MAX_STRATEGIES;
/// Hints that differ, at a time.
const MOST: usize = PLACERS - FIRST;

/// Numbers of a hint in memory of our own.
#[derive(Debug)]
pub struct Values {
    memory: Span,
    bytes: usize,
}

impl Values {
    /// No numbers.
    pub const fn none() -> Values {
        Values { memory: Span::new(0, 0), bytes: 0 }
    }

    /// Copies the lists, one behind the other.
    pub fn copy(lists: &[&[u64]]) -> Result<Values> {
        let bytes = lists.iter().map(|list| size_of_val(*list)).sum::<usize>();
        let len = bytes.next_multiple_of(PAGE);
        let at = sys::mmap_own(len)?;
        let mut to = at as *mut u64;
        for list in lists {
            // SAFETY: the mapping is fresh and has room for all lists.
            unsafe {
                core::ptr::copy_nonoverlapping(list.as_ptr(), to, list.len());
                to = to.add(list.len());
            }
        }
        Ok(Values { memory: Span::new(at, at + len), bytes })
    }

    /// All of them. Valid until [`Values::release`].
    pub fn bytes(&self) -> &'static [u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: our own mapping, written once; only `release` takes it away.
        unsafe { core::slice::from_raw_parts(self.memory.start as *const u8, self.bytes) }
    }

    /// All of them.
    pub fn words(&self) -> Words<'static> {
        Words::new(self.bytes())
    }

    /// Gives the memory back; nothing refers to it any more.
    fn release(self) {
        if !self.memory.is_empty() {
            // SAFETY: as the caller knows.
            let _ = unsafe { sys::munmap(self.memory.start, self.memory.len()) };
        }
    }
}

/// A hint, read and checked.
pub struct Asked {
    /// As a plan would have it, without lists.
    pub spec: Spec,
    /// The first colour is drawn from the seed.
    pub draws_first: bool,
    /// The colour function.
    pub colours: Colours,
    /// In its first state.
    pub strategy: AnyStrategy<'static>,
    /// Its lists.
    pub values: Values,
}

impl Asked {
    fn equals(&self, other: &Asked) -> bool {
        (self.spec, self.draws_first, self.colours) == (other.spec, other.draws_first, other.colours)
            && self.values.bytes() == other.values.bytes()
    }
}

/// What moving did (`struct pagelab_moved`), pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pages: u64,
    absent: u64,
    in_place: u64,
    elsewhere: u64,
}

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

type Desk = [Option<Asked>; MOST];

static DESK: Locked<Desk> = Locked::new([const { None }; MOST]);

/// What the holder of the desk's lock shows the handler while it waits for the answer.
struct Counter<T>(UnsafeCell<T>);

// SAFETY: written by the holder of the desk's lock before it asks, or by the handler while that one waits.
unsafe impl<T> Sync for Counter<T> {}

static HINT: Counter<Option<(Spec, Colours, AnyStrategy<'static>)>> = Counter(UnsafeCell::new(None));
static FRAMES: Counter<[u64; SLOTS]> = Counter(UnsafeCell::new([0; SLOTS]));

/// Some range has, or had, a hint.
static GIVEN: AtomicBool = AtomicBool::new(false);

/// Every call into the engine begins with it: a forked child sets itself up first.
fn meet() {
    if guest::is_new_child() {
        guest::adopt_child();
    }
}

/// Memory is about to be unmapped: what is mapped there later begins without hints.
pub fn forget(addr: usize, len: usize) {
    if GIVEN.load(Relaxed) {
        let end = addr.saturating_add(len).checked_next_multiple_of(PAGE).unwrap_or(addr);
        let _guest = guest::lock();
        areas::clear_beyond(Span::new(addr, end), FIRST as u8);
    }
}

fn code(number: usize) -> u8 {
    number as u8 + 1
}

/// Makes sure that the engine runs.
pub fn start() -> Result<()> {
    meet();
    if super::is_running() {
        return Ok(());
    }
    let _desk = DESK.lock();
    if guest::plan().is_none() {
        start::without_plan()?;
    }
    kernel::read_settings();
    if let Some(libc) = elf::glibc() {
        fork::watch(&libc);
    }
    if super::start_now() { Ok(()) } else { Err(why()) }
}

/// Why there is no engine.
fn why() -> Errno {
    let failure = record::file().map_or(0, |file| file.engine.failure.load(Relaxed));
    match EngineFailure::from_code(failure) {
        Some(EngineFailure::Userfaultfd | EngineFailure::FrameNumbers) => Errno::EPERM,
        Some(EngineFailure::NoMemory | EngineFailure::Threads) => Errno::ENOMEM,
        _ => Errno::EOPNOTSUPP,
    }
}

/// The number of a hint's strategy; the handler knows it then.
fn number_of(desk: &mut Desk, asked: Asked) -> Result<usize> {
    let is_used = |at: usize| areas::uses(code(FIRST + at));
    let same = desk.iter().position(|held| held.as_ref().is_some_and(|held| held.equals(&asked)));
    if let Some(at) = same.filter(|at| is_used(*at)) {
        asked.values.release();
        return Ok(FIRST + at);
    }
    let free =
        same.or_else(|| desk.iter().position(Option::is_none)).or_else(|| (0..MOST).find(|at| !is_used(*at)));
    let Some(at) = free else {
        asked.values.release();
        return Err(Errno::ENOSPC);
    };
    let mut result = tell(FIRST + at, Some(&asked));
    if result == Err(Errno::ENOSPC) {
        // There is no pool for another colour function: pools of hints that nobody uses any more can serve.
        drop_unused(desk);
        result = tell(FIRST + at, Some(&asked));
    }
    let unwanted = match result {
        Ok(()) => desk.get_mut(at).and_then(|place| place.replace(asked)),
        Err(_) => Some(asked),
    };
    if let Some(unwanted) = unwanted {
        unwanted.values.release();
    }
    result.map(|()| FIRST + at)
}

/// Tells the handler what strategy `number` is. (The desk's lock is held.)
fn tell(number: usize, asked: Option<&Asked>) -> Result<()> {
    // SAFETY: the desk's lock is held, and nobody has been asked yet.
    unsafe { *HINT.0.get() = asked.map(|asked| (asked.spec, asked.colours, asked.strategy)) };
    ask(Kind::Hint, Span::new(number, number)).map(drop)
}

/// Forgets hints without ranges.
fn drop_unused(desk: &mut Desk) {
    for (number, place) in (FIRST..).zip(desk.iter_mut()) {
        if place.is_some()
            && !areas::uses(code(number))
            && tell(number, None).is_ok()
            && let Some(unused) = place.take()
        {
            unused.values.release();
        }
    }
}

fn ask(kind: Kind, span: Span) -> Result<usize> {
    // ESRCH: the engine has ended (the program locked itself in).
    mail::ask(kind, span).map_err(|errno| if errno == Errno::ESRCH { Errno::EOPNOTSUPP } else { errno })
}

/// Gives `span` a hint; `None`: it is the kernel's.
pub fn set_range(span: Span, asked: Option<Asked>) -> Result<()> {
    let pins = asked.as_ref().is_some_and(|asked| asked.spec.pin);
    // In this order: what starts may be mapped in a hole of the range.
    let begin = || {
        mapped(span)?;
        start()
    };
    if let Err(errno) = begin() {
        if let Some(asked) = asked {
            asked.values.release();
        }
        return Err(errno);
    }
    let mut desk = DESK.lock();
    let number = asked.map(|asked| number_of(&mut desk, asked)).transpose()?;
    GIVEN.store(true, Relaxed);
    let _guest = guest::lock();
    if !areas::set(span, number.map_or(0, code)) {
        return Err(Errno::ENOSPC);
    }
    settle(span, pins);
    Ok(())
}

/// Takes hints for `span` back.
pub fn clear_range(span: Span) -> Result<()> {
    start()?;
    let _desk = DESK.lock();
    let _guest = guest::lock();
    if !areas::clear(span) {
        return Err(Errno::ENOSPC);
    }
    settle(span, false);
    Ok(())
}

/// The hint for what neither a range nor a rule of the policy names (`None`: it is the kernel's).
pub fn set_default(asked: Option<Asked>) -> Result<()> {
    if let Err(errno) = start() {
        if let Some(asked) = asked {
            asked.values.release();
        }
        return Err(errno);
    }
    let mut desk = DESK.lock();
    let number = asked.map(|asked| number_of(&mut desk, asked)).transpose()?;
    change_default(Some(number.map_or(0, code)))
}

/// Takes it back.
pub fn clear_default() -> Result<()> {
    start()?;
    let _desk = DESK.lock();
    change_default(None)
}

fn change_default(code: Option<u8>) -> Result<()> {
    let _guest = guest::lock();
    if !areas::set_default(code) {
        return Err(Errno::EOPNOTSUPP);
    }
    for pool in [guest::HEAP, guest::POOLS] {
        settle(pool, false);
    }
    Ok(())
}

fn mapped(span: Span) -> Result<()> {
    sys::is_mapped(span.start, span.len()).map_err(|_| Errno::EFAULT)
}

/// Registers what is governed of the memory in `span`, and the opposite with the rest.
fn settle(span: Span, pins: bool) {
    let _ = maps::each(&mut |mapping| {
        let part = mapping.span.and(span);
        if !part.is_empty() && is_placeable(mapping) {
            areas::each(part, &mut |part, number| match number {
                Some(_) => untiled(part, &mut |part| {
                    if pins {
                        let _ = task::mlock(part.start, part.len(), true);
                    }
                    kernel::advise_base(part);
                    let _ = gate::register(part);
                }),
                None => drop(gate::unregister(part)),
            });
        }
        mapping.span.end < span.end
    });
}

/// Moves what is in memory of `span` to where it should be.
pub fn remap_range(span: Span) -> Result<Moved> {
    mapped(span)?;
    start()?;
    if !areas::touches(span) {
        return Err(Errno::EINVAL);
    }
    let mut moved = Moved { pages: (span.len() / PAGE) as u64, ..Moved::default() };
    let mut words = [0u64; SLOTS];
    for start in (span.start..span.end).step_by(SLOTS * PAGE) {
        let part = Span::new(start, span.end.min(start + SLOTS * PAGE));
        let Some(some) = words.get_mut(..part.len() / PAGE) else { continue };
        unshare(part, some);
        moved.in_place += {
            // Nobody maps or unmaps while pages are on their way.
            let _guest = guest::lock();
            settle(part, false);
            ask(Kind::Remap, part)? as u64
        };
        frames(part, some)?;
        moved.absent += some.iter().filter(|frame| **frame == 0).count() as u64;
    }
    moved.in_place = moved.in_place.min(moved.pages - moved.absent);
    moved.elsewhere = moved.pages - moved.absent - moved.in_place;
    Ok(moved)
}

/// Pages of `span` that are shared (with a child, or the zero page) become the program's own, by copying.
fn unshare(span: Span, words: &mut [u64]) {
    let Ok(pagemap) = Pagemap::open() else { return };
    if pagemap.read_shared(span.start, words).is_ok() {
        for (page, _) in (span.start..span.end).step_by(PAGE).zip(words.iter()).filter(|(_, shared)| **shared != 0)
        {
            // SAFETY: contents stay as they are. Where the memory is read-only it fails, and the page stays.
            let copied = unsafe { sys::madvise(page, PAGE, c::MADV_POPULATE_WRITE) };
            if let (Ok(()), Some(number)) = (copied, areas::strategy_of(page)) {
                tally::frames(number, |counts| &counts.copied_pages, 1);
            }
        }
    }
    sys::close(pagemap.0);
}

/// Frame numbers of the pages of `span`, at most a chunk's worth; 0: not in memory.
pub fn frames(span: Span, into: &mut [u64]) -> Result<()> {
    meet();
    mapped(span)?;
    if super::is_running() {
        let _desk = DESK.lock();
        if ask(Kind::Frames, span).is_ok() {
            // SAFETY: the desk's lock is held, and the handler has answered.
            let answer: &[u64; SLOTS] = unsafe { &*FRAMES.0.get() };
            for (to, from) in into.iter_mut().zip(answer) {
                *to = *from;
            }
            return Ok(());
        }
    }
    let pagemap = Pagemap::open().map_err(|_| Errno::EPERM)?;
    let result = if pagemap.tells() { pagemap.read(span.start, into) } else { Err(Errno::EPERM) };
    sys::close(pagemap.0);
    result
}

/// Colours as the policy counts them, if it does.
pub fn usual_colours() -> Option<Colours> {
    let plan = guest::plan()?;
    Colours::of_plan(&plan, &plan.strategy(0)?)
}

/// How the strategy at `addr` counts colours, or else the policy; and how far around.
pub fn colours_around(addr: usize) -> (Option<Colours>, Span) {
    meet();
    let (number, within) = areas::around(addr);
    let of_plan = |number: u32| guest::plan().and_then(|plan| Colours::of_plan(&plan, &plan.strategy(number)?));
    let colours = match number {
        Some(number) if number as usize >= FIRST => {
            DESK.lock().get(number as usize - FIRST).and_then(Option::as_ref).map(|asked| asked.colours)
        }
        Some(number) => of_plan(number),
        None => None,
    };
    (colours.or_else(usual_colours), within)
}

/// What places the page at `addr`.
pub fn strategy_at(addr: usize) -> Option<StrategyKind> {
    meet();
    let number = areas::strategy_of(addr)?;
    match (number as usize).checked_sub(FIRST) {
        Some(at) => DESK.lock().get(at).and_then(Option::as_ref).map(|asked| asked.spec.kind),
        None => guest::plan().and_then(|plan| plan.strategy(number)).map(|spec| spec.kind),
    }
}

/// What the engine did so far.
pub fn counters() -> Counters {
    meet();
    let Some(file) = record::file() else { return Counters::default() };
    let mut sums = FramesCounts::default();
    for slot in &file.frames {
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

/// In a forked child with a new engine: its handler learns the hints anew. (The parent's threads may have had the lock;
/// the numbers stay.)
pub fn adopt_child() {
    DESK.reset_after_fork();
    let mut desk = DESK.lock();
    for (number, place) in (FIRST..).zip(desk.iter_mut()) {
        if let Some(asked) = place {
            if asked.spec.pid_hash {
                let own = PageColoring::hashed(asked.colours.count(), sys::getpid());
                asked.strategy = AnyStrategy::PageColoring(own);
            }
            let _ = tell(number, Some(asked));
        }
    }
}

/// The handler's half.
impl Engine {
    /// Takes the hint on the desk's counter as strategy `number`; none: there is no such strategy any more.
    pub fn take_hint(&mut self, number: usize) -> Result<usize> {
        // SAFETY: who asked holds the desk's lock and waits.
        let hint = unsafe { (*HINT.0.get()).take() };
        let Some((spec, colours, strategy)) = hint else {
            if let Some(place) = self.placers.get_mut(number) {
                *place = None;
            }
            return Ok(number);
        };
        tally::assign(number, spec.kind, spec.colours);
        self.admit(number, &spec, colours, strategy)?;
        Ok(number)
    }

    /// Puts the frames of the pages of `span` on the counter.
    pub fn show_frames(&mut self, span: Span) -> Result<usize> {
        // SAFETY: as above.
        let answer: &mut [u64; SLOTS] = unsafe { &mut *FRAMES.0.get() };
        let some = answer.get_mut(..span.len() / PAGE).ok_or(Errno::EINVAL)?;
        self.tools.pagemap.read(span.start, some).map(|()| some.len())
    }
}
