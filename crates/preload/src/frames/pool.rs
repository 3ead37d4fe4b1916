//! Free pages with known frames: their sources, and their return to the kernel.

pub mod chunks;
pub mod grip;
pub mod node_pools;
pub mod pools;
pub mod release;
pub mod verify;

use pagelab_abi::plan::MAX_STRATEGIES;
use pagelab_frames::stock::Refused;
use pagelab_frames::{Run, SlotId};

use crate::boundary::arch::PAGE;
use crate::boundary::control_groups::Group;
use crate::boundary::meminfo;
use crate::boundary::span::page_at;
use crate::boundary::sys::{Errno, Result};
use crate::frames::kernel::memory_nodes::{self, Policy};
use crate::frames::kernel::pagemap::Pagemap;
use crate::frames::kernel::uffd::Uffd;
use crate::frames::report::tally;

use chunks::{Addresses, Order, SLOTS, Tools};
use pools::{Books, Pool};

/// The pools of a process, and the tools to fetch and move their pages.
pub struct Pools {
    /// The userfaultfd, frame numbers, and pages through which others are moved.
    pub tools: Tools,
    /// The pools of the first node, in any order, then the same of the second node, and so on.
    pub all: [Option<Pool>; MAX_STRATEGIES * memory_nodes::MOST],
    /// The node from which pages come.
    pub source: Source,
    /// Addresses of chunks.
    pub addresses: Addresses,
    /// Memory for the chunks' bookkeeping.
    pub books: Books,
    /// Headroom of the process's control groups.
    pub group: Group,
}

/// Source of the pages being placed.
pub struct Source {
    /// Policy of the mapping or of the thread.
    pub policy: Policy,
    /// The thread that wants the pages.
    pub thread: u32,
    /// Node of the processor on which that thread runs.
    pub local: usize,
    /// The node from which the pages should come.
    pub wanted: usize,
    /// The node from which they do come.
    pub node: usize,
    /// For each node that had no memory: how many more times it is not asked.
    pub dry: [u8; memory_nodes::MOST],
}

impl Source {
    /// Pages from the first node.
    pub const fn first() -> Source {
        Source { policy: Policy::Local, thread: 0, local: 0, wanted: 0, node: 0, dry: [0; memory_nodes::MOST] }
    }
}

impl Pools {
    /// Pools without memory.
    pub const fn none() -> Pools {
        Pools {
            tools: Tools { uffd: Uffd(-1), pagemap: Pagemap(-1), landing: 0, transit: 0 },
            all: [const { None }; MAX_STRATEGIES * memory_nodes::MOST],
            source: Source::first(),
            addresses: Addresses::new(),
            books: Books::new(),
            group: Group::unknown(),
        }
    }

    /// Pool number `at`.
    pub fn pool(&mut self, at: usize) -> Option<&mut Pool> {
        self.all.get_mut(at)?.as_mut()
    }

    /// Chooses an address for another chunk of pool `at`.
    pub fn order(&mut self, at: usize) -> Option<Order> {
        let pool = self.all.get(at)?.as_ref()?;
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

    /// Ends an order, carried out or not.
    fn arrived(&mut self, order: Order) {
        if let Some(pool) = self.pool(order.pool) {
            pool.ordered = pool.ordered.saturating_sub(1);
        }
    }

    fn chunk_count(&self) -> usize {
        self.pools().iter().flatten().map(|pool| pool.stock.chunk_count() as usize).sum()
    }

    /// Records that an order could not be carried out.
    pub fn cancel(&mut self, order: Order, errno: Errno) {
        self.arrived(order);
        // Another mapping lies there, so the address is not used again.
        if errno != Errno::EEXIST {
            self.addresses.give_back(order.address);
        }
    }

    /// Adds a populated chunk. EXDEV: it went to another node's pool, since the kernel had no memory on the right one.
    pub fn take_in(&mut self, meant: Order, made: &chunks::Made, frames: &[u64; SLOTS]) -> Result<()> {
        self.arrived(meant);
        let for_node = self.for_node(meant, made.node);
        let order = for_node.unwrap_or(meant);
        let entered =
            for_node.and_then(|_| self.books.take()).and_then(|book| self.fill(book, order, made, frames));
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
        let pool = self.all.get_mut(order.pool).and_then(Option::as_mut).ok_or(Errno::EINVAL)?;
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

    /// Locks the memory of pinned pools again, and unlocks the others'.
    pub fn relock(&self) {
        for pool in self.all.iter().flatten() {
            for address in (0..pool.stock.chunk_limit()).filter_map(|number| pool.stock.chunk_address(number)) {
                let _ = chunks::relock(address, pool.pinned);
            }
        }
    }

    /// Updates the pools' numbers in the guest file.
    pub fn account(&self) {
        let pools = || self.pools().iter().flatten();
        let held = pools().map(Pool::held_bytes).sum();
        tally::engine_set(|counts| &counts.pool_bytes, held);
        tally::engine_set(|counts| &counts.budget_bytes, pools().map(Pool::most_bytes).sum());
        tally::engine_peak(held);
    }

    /// Looks up how much memory the process has, if the budget of pool `at` depends on it, and how much its control
    /// groups leave.
    pub fn measure(&mut self, at: usize) {
        let left = self.group.left();
        let count = self.pools().iter().flatten().count().max(1) as u64;
        if let Some(pool) = self.pool(at) {
            pool.left(left.map(|left| left / count));
        }
        if self.pool(at).is_some_and(|pool| pool.is_measured()) {
            let held: u64 = self.all.iter().flatten().map(Pool::held_bytes).sum();
            let resident = meminfo::resident_bytes().unwrap_or(0) as u64;
            if let Some(pool) = self.pool(at) {
                pool.measured(resident.saturating_sub(held));
            }
        }
    }
}
