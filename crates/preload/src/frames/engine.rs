//! The engine: pools and strategies behind one lock, which only the library's own threads take.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use pagelab_abi::plan::{MAX_STRATEGIES, Plan, StrategyKind};
use pagelab_frames::{AnyStrategy, Colours, Strategy, Want};

use crate::boundary::meminfo;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result};
use crate::frames::areas::PLACERS;
use crate::frames::kernel::kpageflags::Flags;
use crate::frames::place::module;
use crate::frames::place::stale_faults::StaleFaults;
use crate::frames::place::window::Windows;
use crate::frames::pool::Pools;
use crate::frames::pool::chunks::{self, SLOTS, Tools};
use crate::frames::pool::grip::Grip;
use crate::frames::pool::pools::Pool;
use crate::frames::report::tally;
use crate::state::lock::Owned;

/// One strategy at work.
pub struct Placer {
    /// Its rule.
    pub strategy: AnyStrategy<'static>,
    /// Its pool.
    pub pool: usize,
    /// Number of pages that each fault brings in.
    pub windows: Windows,
    /// Its memory is locked.
    pub pinned: bool,
}

/// The engine's state that changes.
pub struct Engine {
    /// Free pages, and the tools to fetch and move them.
    pub pools: Pools,
    /// The strategies at work, by number.
    pub placers: [Option<Placer>; PLACERS],
    /// Checks before a page is used or released.
    pub checks: Checks,
    /// Intermediate results.
    pub scratch: Scratch,
}

/// Checks before a page is used or released.
pub struct Checks {
    /// Faults that the first attempt could not resolve.
    pub stale_faults: StaleFaults,
    /// Free pages that the kernel must leave where they are.
    pub grip: Grip,
    /// The kernel's flags of frames.
    pub flags: Flags,
}

/// Intermediate results.
pub struct Scratch {
    /// Wants of the strategy for the current pages.
    pub wants: [Want; SLOTS],
    /// Frame numbers from the last look-up.
    pub frames: [u64; SLOTS],
    /// The page that the fault touched; all other pages that it brings in are placed ahead.
    pub touched: Option<usize>,
    /// Set while several threads wait: the span of placed pages whose threads are woken together.
    pub later: Option<Later>,
}

/// The process's only engine.
pub static ENGINE: Owned<Engine> = Owned::new(Engine::off());

/// Span of pages that are present, but whose threads still wait.
#[derive(Clone, Copy)]
pub struct Later(pub Option<Span>);

impl Later {
    /// No thread waits.
    pub const fn none() -> Later {
        Later(None)
    }

    /// Adds the threads that wait in `span`.
    pub fn add(&mut self, span: Span) {
        self.0 = Some(match self.0 {
            None => span,
            Some(all) => Span::new(all.start.min(span.start), all.end.max(span.end)),
        });
    }
}

impl Engine {
    /// The engine before its start.
    pub const fn off() -> Engine {
        Engine {
            pools: Pools::none(),
            placers: [const { None }; PLACERS],
            checks: Checks { stale_faults: StaleFaults::none(), grip: Grip::none(), flags: Flags(-1) },
            scratch: Scratch { wants: [Want::Any; SLOTS], frames: [0; SLOTS], touched: None, later: None },
        }
    }

    /// Sets up all parts for `plan`. False: a module cannot be used (the other strategies work).
    pub fn set_up(&mut self, plan: &Plan<'static>, tools: Tools) -> bool {
        self.pools.tools = tools;
        let (mut complete, pid) = (true, sys::getpid());
        for number in 0..plan.strategy_count() {
            let Some(spec) = plan.strategy(number) else { continue };
            let Some(colours) = Colours::of_plan(plan, &spec) else { continue };
            let strategy = match spec.kind {
                StrategyKind::Module => module::start(plan, number, &spec, pid).map(AnyStrategy::Module),
                _ => AnyStrategy::of_plan(plan, &spec, pid),
            };
            complete &= strategy.is_some();
            let Some(strategy) = strategy else { continue };
            if let Some(slot) = tally::slot(number) {
                slot.kind.store(spec.kind as u64 + 1, Relaxed);
                slot.colours.store(u64::from(spec.colours), Relaxed);
            }
            if self.admit(number as usize, &spec, colours, strategy).is_ok() && spec.kind == StrategyKind::Exact {
                self.will_search(number as usize, plan.words(spec.values));
            }
        }
        complete
    }

    /// The kernel's flags of frames; opens their file at the first call.
    pub fn opened_flags(&mut self) -> Flags {
        if self.checks.flags.0 < 0 {
            self.checks.flags = Flags::open();
        }
        self.checks.flags
    }

    /// Adds a strategy under `number`, in place of the one that had it.
    pub fn admit(
        &mut self,
        number: usize,
        spec: &pagelab_abi::plan::Strategy,
        colours: Colours,
        strategy: AnyStrategy<'static>,
    ) -> Result<()> {
        let available = meminfo::available().unwrap_or(0) as u64;
        let pool = self.pool_for(colours, spec, available).ok_or(Errno::ENOSPC)?;
        let windows = match usize::from(spec.fault_around) {
            0 if spec.kind.facts().is_in_sequence => Windows::one_by_one(),
            0 if !strategy.is_by_address() => Windows::new(1),
            fixed => Windows::new(fixed.min(SLOTS)),
        };
        let place = self.placers.get_mut(number).ok_or(Errno::ENOSPC)?;
        if let Some(period) = PERIODS.get(number) {
            period.store(strategy.period(), Relaxed);
        }
        let bit = 1 << number;
        if spec.pin {
            PINNED.fetch_or(bit, Relaxed)
        } else {
            PINNED.fetch_and(!bit, Relaxed)
        };
        *place = Some(Placer { strategy, pool, windows, pinned: spec.pin });
        Ok(())
    }

    fn pool_for(&mut self, colours: Colours, spec: &pagelab_abi::plan::Strategy, available: u64) -> Option<usize> {
        let suits = |pool: &Option<Pool>| pool.as_ref().is_some_and(|pool| pool.suits(&colours, spec));
        // The pools of the first node stand for those of all nodes.
        let first = self.pools.all.get(..MAX_STRATEGIES)?;
        if let Some(at) = first.iter().position(suits) {
            self.pools.all.get_mut(at)?.as_mut()?.admit(spec, available);
            return Some(at);
        }
        if let Some(at) = first.iter().position(Option::is_none) {
            *self.pools.all.get_mut(at)? = Some(Pool::new(colours, spec, available)?);
            return Some(at);
        }
        let is_used = |at: usize| self.placers.iter().flatten().any(|placer| placer.pool == at);
        let is_idle = |(at, pool): &(usize, &Pool)| pool.pinned == spec.pin && !is_used(*at);
        let (at, _) = first.iter().flatten().enumerate().find(is_idle)?;
        for twin in self.pools.all.iter_mut().skip(at).step_by(MAX_STRATEGIES).flatten() {
            twin.recolour(colours, spec, available)?;
        }
        Some(at)
    }

    /// Populates a chunk for pool `at` at once, on the calling thread.
    pub fn refill(&mut self, at: usize) -> Result<()> {
        self.refill_with(at, false)
    }

    /// As [`Engine::refill`]; `small`: without a huge page.
    pub fn refill_with(&mut self, at: usize, small: bool) -> Result<()> {
        let order = self.pools.order(at).ok_or(Errno::ENOMEM)?;
        let begin = sys::monotonic_ns();
        let mut frames = self.scratch.frames;
        let made = chunks::populate(&self.pools.tools, &order, small, &mut frames);
        self.scratch.frames = frames;
        match made {
            Ok(made) => {
                count_chunk(&made, sys::monotonic_ns() - begin);
                self.pools.take_in(order, &made, &frames)
            }
            Err(errno) => {
                self.pools.cancel(order, errno);
                Err(errno)
            }
        }
    }

    /// Gives back every chunk that can go, because the program is short of memory.
    pub fn shed(&mut self) {
        self.checks.grip.let_go();
        self.pools.shed();
    }

    /// Gives all memory of the pools back to the kernel.
    pub fn dissolve(&mut self) {
        self.checks.grip.close();
        self.pools.dissolve();
        self.placers.fill_with(|| None);
    }
}

/// Periods of the strategies in pages, for threads that cannot ask the engine.
static PERIODS: [AtomicU64; PLACERS] = [const { AtomicU64::new(1) }; PLACERS];

/// Number of pages after which the answers of strategy `number` repeat; 0: never.
pub fn period(number: u32) -> u64 {
    PERIODS.get(number as usize).map_or(1, |period| period.load(Relaxed))
}

/// Strategies whose memory is locked, for threads that cannot ask the engine.
static PINNED: AtomicU64 = AtomicU64::new(0);

/// Whether memory of strategy `number` is locked.
pub fn is_pinned(number: u32) -> bool {
    PINNED.load(Relaxed) >> number & 1 != 0
}

/// Counts a populated chunk.
pub fn count_chunk(made: &chunks::Made, ns: u64) {
    tally::engine(|counts| &counts.refills, 1);
    tally::engine(|counts| &counts.refill_pages, made.pages as u64);
    tally::engine(|counts| &counts.refill_ns, ns);
    tally::engine(|counts| &counts.split_ns, made.split_ns);
    tally::engine(|counts| &counts.chunks, 1);
    tally::engine(|counts| &counts.small_chunks, u64::from(!made.huge));
    if made.huge {
        tally::engine(|counts| &counts.moves, 2);
        tally::engine(|counts| &counts.move_pages, 2);
    }
}
