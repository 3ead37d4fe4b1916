//! The engine: pools and strategies behind one lock, which only our own threads take.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use pagelab_abi::plan::{MAX_STRATEGIES, Plan, StrategyKind};
use pagelab_frames::stock::Refused;
use pagelab_frames::{AnyStrategy, Colours, Run, SlotId, Strategy, Want};

use crate::boundary::arch::PAGE;
use crate::boundary::meminfo;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result};
use crate::frames::areas::PLACERS;
use crate::frames::kernel::control_groups::Group;
use crate::frames::kernel::kpageflags::Flags;
use crate::frames::kernel::memory_nodes;
use crate::frames::kernel::memory_nodes::Policy;
use crate::frames::place::stale_faults::Doubts;
use crate::frames::place::strategies;
use crate::frames::place::window::Windows;
use crate::frames::pool::chunks::{self, Addresses, Order, SLOTS, Tools};
use crate::frames::pool::grip::Grip;
use crate::frames::pool::pools::{Books, Pool, Pools};
use crate::frames::report::tally;
use crate::state::lock::Owned;

/// One strategy at work.
pub struct Placer {
    /// Its rule.
    pub strategy: AnyStrategy<'static>,
    /// Its pool.
    pub pool: usize,
    /// How much each fault brings in.
    pub windows: Windows,
    /// Its memory is locked.
    pub pinned: bool,
}

/// Everything that changes.
pub struct Engine {
    pub(in crate::frames) tools: Tools,
    pub(in crate::frames) pools: Pools,
    pub(in crate::frames) home: Home,
    pub(in crate::frames) placers: [Option<Placer>; PLACERS],
    pub(in crate::frames) wants: [Want; SLOTS],
    pub(in crate::frames) flags: Flags,
    pub(in crate::frames) addresses: Addresses,
    pub(in crate::frames) books: Books,
    pub(in crate::frames) frames: [u64; SLOTS],
    pub(in crate::frames) doubts: Doubts,
    pub(in crate::frames) grip: Grip,
    pub(in crate::frames) group: Group,
    /// The page that the fault in question touched: what else it brings in comes ahead.
    pub(in crate::frames) touched: Option<usize>,
    /// Several threads wait: those whose pages are there are woken together, and where these pages are.
    pub(in crate::frames) later: Option<Later>,
}

/// The process's engine.
pub static ENGINE: Owned<Engine> = Owned::new(Engine::off());

/// Where the pages that are being placed come from.
pub struct Home {
    /// What the mapping, or the thread, wants.
    pub policy: Policy,
    /// Who wants them.
    pub thread: u32,
    /// Node of the processor that it runs on.
    pub local: usize,
    /// The node that they are to come from.
    pub wanted: usize,
    /// The node that they do come from.
    pub node: usize,
    /// How many more times a node is not asked that had no memory.
    pub dry: [u8; memory_nodes::MOST],
}

impl Home {
    /// On the first node.
    pub const fn first() -> Home {
        Home { policy: Policy::Local, thread: 0, local: 0, wanted: 0, node: 0, dry: [0; memory_nodes::MOST] }
    }
}

/// Where threads wait whose pages are there.
#[derive(Clone, Copy)]
pub struct Later(pub Option<Span>);

impl Later {
    /// Nobody does yet.
    pub const fn none() -> Later {
        Later(None)
    }

    /// And there.
    pub fn add(&mut self, span: Span) {
        self.0 = Some(match self.0 {
            None => span,
            Some(all) => Span::new(all.start.min(span.start), all.end.max(span.end)),
        });
    }
}

impl Engine {
    /// Before the start.
    pub const fn off() -> Engine {
        let tools = Tools {
            uffd: crate::frames::kernel::uffd::Uffd(-1),
            pagemap: crate::frames::kernel::pagemap::Pagemap(-1),
            landing: 0,
            transit: 0,
        };
        Engine {
            tools,
            pools: [const { None }; MAX_STRATEGIES * memory_nodes::MOST],
            home: Home::first(),
            placers: [const { None }; PLACERS],
            wants: [Want::Any; SLOTS],
            flags: Flags(-1),
            addresses: Addresses::new(),
            books: Books::new(),
            frames: [0; SLOTS],
            doubts: Doubts::none(),
            grip: Grip::none(),
            group: Group::unknown(),
            touched: None,
            later: None,
        }
    }

    /// Sets everything up for `plan`. False: a module cannot be used (the other strategies work).
    pub fn set_up(&mut self, plan: &Plan<'static>, tools: Tools) -> bool {
        self.tools = tools;
        let (mut complete, pid) = (true, sys::getpid());
        for number in 0..plan.strategy_count() {
            let Some(spec) = plan.strategy(number) else { continue };
            let Some(colours) = Colours::of_plan(plan, &spec) else { continue };
            let strategy = strategies::build(plan, number, &spec, pid);
            complete &= strategy.is_some();
            let Some(strategy) = strategy else { continue };
            if let Some(slot) = tally::slot(number) {
                slot.kind.store(spec.kind as u64 + 1, Relaxed);
                slot.colours.store(u64::from(spec.colours), Relaxed);
            }
            if self.admit(number as usize, &spec, colours, strategy).is_ok() && spec.kind == StrategyKind::Exact {
                self.will_hunt(number as usize, plan.words(spec.values));
            }
        }
        complete
    }

    /// What the kernel says of frames.
    pub fn opened_flags(&mut self) -> Flags {
        if self.flags.0 < 0 {
            self.flags = Flags::open();
        }
        self.flags
    }

    /// Takes a strategy in under `number`, in place of what had it.
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
            0 if spec.kind == StrategyKind::BinHopping => Windows::one_by_one(),
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
        // Those of the first node stand for all.
        let first = self.pools.get(..MAX_STRATEGIES)?;
        if let Some(at) = first.iter().position(suits) {
            self.pools.get_mut(at)?.as_mut()?.admit(spec, available);
            return Some(at);
        }
        if let Some(at) = first.iter().position(Option::is_none) {
            *self.pools.get_mut(at)? = Some(Pool::new(colours, spec, available)?);
            return Some(at);
        }
        let is_used = |at: usize| self.placers.iter().flatten().any(|placer| placer.pool == at);
        let is_idle = |(at, pool): &(usize, &Pool)| pool.pinned == spec.pin && !is_used(*at);
        let (at, _) = first.iter().flatten().enumerate().find(is_idle)?;
        for twin in self.pools.iter_mut().skip(at).step_by(MAX_STRATEGIES).flatten() {
            twin.recolour(colours, spec, available)?;
        }
        Some(at)
    }

    /// Pool number `at`.
    pub fn pool(&mut self, at: usize) -> Option<&mut Pool> {
        self.pools.get_mut(at)?.as_mut()
    }

    /// A place for another chunk of pool `at`.
    pub fn order(&mut self, at: usize) -> Option<Order> {
        let pool = self.pools.get(at)?.as_ref()?;
        let (pinned, pages, frugal) = (pool.pinned, pool.order_pages(), pool.is_short_of_memory());
        if !chunks::has_address_room(self.chunk_count()) {
            return None;
        }
        let address = self.addresses.take()?;
        if let Some(pool) = self.pool(at) {
            pool.ordered += 1;
        }
        self.group.took((pages * PAGE) as u64);
        Some(Order { pool: at, address, pinned, pages, frugal })
    }

    /// An order has come to its end.
    fn arrived(&mut self, order: Order) {
        if let Some(pool) = self.pool(order.pool) {
            pool.ordered = pool.ordered.saturating_sub(1);
        }
    }

    fn chunk_count(&self) -> usize {
        self.pools().iter().flatten().map(|pool| pool.stock.chunk_count() as usize).sum()
    }

    /// An order could not be carried out.
    pub fn cancel(&mut self, order: Order, errno: Errno) {
        self.arrived(order);
        // Somebody else's memory lies there: never again.
        if errno != Errno::EEXIST {
            self.addresses.give_back(order.address);
        }
    }

    /// Takes a populated chunk in. EXDEV: it went to another node's pool, since the kernel had no memory on the right one.
    pub fn take_in(&mut self, meant: Order, made: &chunks::Made, frames: &[u64; SLOTS]) -> Result<()> {
        self.arrived(meant);
        let rehomed = self.rehomed(meant, made.node);
        let order = rehomed.unwrap_or(meant);
        let entered = rehomed.and_then(|_| self.books.take()).and_then(|book| self.fill(book, order, made, frames));
        if entered.is_err() {
            chunks::unmap(order.address);
            self.addresses.give_back(order.address);
        }
        self.account();
        self.trim(order.pool);
        entered.and(if order.pool == meant.pool { Ok(()) } else { Err(Errno::EXDEV) })
    }

    fn fill(
        &mut self,
        book: &'static mut pagelab_frames::Chunk,
        order: Order,
        made: &chunks::Made,
        frames: &[u64; SLOTS],
    ) -> Result<()> {
        let pool = self.pools.get_mut(order.pool).and_then(Option::as_mut).ok_or(Errno::EINVAL)?;
        let refused = |_: Refused| Errno::ENOMEM;
        let number = pool.stock.add_chunk(book, order.address).map_err(refused)?;
        pool.looks.begin(number, made.huge);
        for (index, frame) in (0..).zip(frames) {
            let slot = SlotId::new(number, index);
            let end = pool.end_for(*frame);
            if pool.stock.add(slot, *frame, end).is_err() {
                if (index as usize) < made.pages {
                    chunks::discard(page_at(order.address + index as usize * PAGE));
                }
                pool.stock.emptied(Run::one(slot));
            }
        }
        pool.starving = false;
        Ok(())
    }

    /// Populates a chunk for pool `at` here and now.
    pub fn refill(&mut self, at: usize) -> Result<()> {
        self.refill_with(at, false)
    }

    /// As [`Engine::refill`]; `small`: without a huge page.
    pub fn refill_with(&mut self, at: usize, small: bool) -> Result<()> {
        let order = self.order(at).ok_or(Errno::ENOMEM)?;
        let begin = sys::monotonic_ns();
        let mut frames = self.frames;
        let made = chunks::populate(&self.tools, &order, small, &mut frames);
        self.frames = frames;
        match made {
            Ok(made) => {
                count_chunk(&made, sys::monotonic_ns() - begin);
                self.take_in(order, &made, &frames)
            }
            Err(errno) => {
                self.cancel(order, errno);
                Err(errno)
            }
        }
    }

    /// Locks the memory of pinned pools again, and unlocks the others'.
    pub fn relock(&self) {
        for pool in self.pools.iter().flatten() {
            for address in (0..pool.stock.chunk_limit()).filter_map(|number| pool.stock.chunk_address(number)) {
                let _ = chunks::relock(address, pool.pinned);
            }
        }
    }

    /// Brings the numbers of the guest file up to date.
    pub(in crate::frames) fn account(&self) {
        let pools = || self.pools().iter().flatten();
        let held = pools().map(Pool::held_bytes).sum();
        tally::engine_set(|counts| &counts.pool_bytes, held);
        tally::engine_set(|counts| &counts.budget_bytes, pools().map(Pool::most_bytes).sum());
        tally::engine_peak(held);
    }

    /// Looks up how much memory the process has, if the budget of pool `at` depends on it, and what its control groups leave.
    pub(in crate::frames) fn measure(&mut self, at: usize) {
        let left = self.group.left();
        let count = self.pools().iter().flatten().count().max(1) as u64;
        if let Some(pool) = self.pool(at) {
            pool.left(left.map(|left| left / count));
        }
        if self.pool(at).is_some_and(|pool| pool.is_measured()) {
            let held: u64 = self.pools.iter().flatten().map(Pool::held_bytes).sum();
            let resident = meminfo::resident_bytes().unwrap_or(0) as u64;
            if let Some(pool) = self.pool(at) {
                pool.measured(resident.saturating_sub(held));
            }
        }
    }
}

/// Periods of the strategies, pages, for threads that cannot ask the engine.
static PERIODS: [AtomicU64; PLACERS] = [const { AtomicU64::new(1) }; PLACERS];

/// After how many pages the answers of strategy `number` repeat; 0: never.
pub fn period(number: u32) -> u64 {
    PERIODS.get(number as usize).map_or(1, |period| period.load(Relaxed))
}

/// Strategies whose memory is locked, for threads that cannot ask the engine.
static PINNED: AtomicU64 = AtomicU64::new(0);

/// Whether memory of strategy `number` is locked.
pub fn is_pinned(number: u32) -> bool {
    PINNED.load(Relaxed) >> number & 1 != 0
}

/// The page at `addr`.
pub fn page_at(addr: usize) -> Span {
    Span::new(addr, addr + PAGE)
}

/// Counts a chunk that was populated.
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
