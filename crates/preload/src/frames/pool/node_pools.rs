//! Pools on several memory nodes: the pool of a page, and the pool of a chunk.
//!
//! A pool has a twin on each node, made when it is first needed. In the table, the twins lie `MAX_STRATEGIES` entries
//! apart.

use pagelab_abi::plan::MAX_STRATEGIES;

use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result, nodes as calls};
use crate::frames::kernel::memory_nodes::{self, Policy};
use crate::frames::report::tally;

use super::Pools;
use super::chunks::{Order, SLOTS};
use super::pools::Pool;

/// A node that had no memory is asked again after this many pages.
const DRY: u8 = 64;

impl Pools {
    /// All pools that can exist.
    pub fn pools(&self) -> &[Option<Pool>] {
        self.all.get(..pool_limit()).unwrap_or(&[])
    }

    /// As [`Pools::pools`].
    pub fn pools_mut(&mut self) -> &mut [Option<Pool>] {
        self.all.get_mut(..pool_limit()).unwrap_or(&mut [])
    }

    /// `thread` wants pages at `addr`: from now on they come from the node that the kernel would choose.
    pub fn ask_node(&mut self, addr: usize, thread: u32) {
        if memory_nodes::are_several() {
            self.source.thread = thread;
            self.source.policy = Policy::of(addr, thread);
            self.source.local = memory_nodes::of_processor_of(thread);
            self.settle_node(addr);
        }
    }

    /// Sets the node for the page at `addr` by the policy that was looked up last.
    fn settle_node(&mut self, addr: usize) {
        if memory_nodes::are_several() {
            self.source.wanted = self.source.policy.node(addr / PAGE, self.source.local);
            self.source.node = self.source.wanted;
        }
    }

    /// Sets the node for the page at `addr`, at which the part of the last request ends and another part begins.
    pub fn next_node(&mut self, addr: usize) {
        if self.source.policy.is_in_turn() {
            self.settle_node(addr);
        } else {
            self.ask_node(addr, self.source.thread);
        }
    }

    /// The part at the beginning of `span` whose pages come from one node.
    pub fn of_one_node(&self, span: Span) -> Span {
        if !memory_nodes::are_several() {
            return span;
        }
        if self.source.policy.is_in_turn() {
            return Span::new(span.start, span.end.min(span.start + PAGE));
        }
        self.of_one_policy(span)
    }

    /// The part at the beginning of `span` whose mappings have the same policy.
    pub fn of_one_policy(&self, span: Span) -> Span {
        if !memory_nodes::are_several() {
            return span;
        }
        let own = calls::policy_of_mapping(span.start);
        let differs = |page: &usize| calls::policy_of_mapping(*page) != own;
        let end = (span.start + PAGE..span.end).step_by(PAGE).find(differs);
        Span::new(span.start, end.unwrap_or(span.end))
    }

    /// Exchanges the first of the pages at `addr`, which are present, for pages of the same node. Returns how many of
    /// `count` pages those are.
    pub fn stay_on_node(&mut self, addr: usize, count: usize) -> usize {
        if !memory_nodes::are_several() {
            return count;
        }
        let mut found = [-1i32; SLOTS];
        let Some(found) = found.get_mut(..count.min(SLOTS)) else { return count };
        let known = calls::of_pages(addr, found).is_ok();
        match found.first().copied().map(usize::try_from) {
            Some(Ok(node)) if known && node < memory_nodes::MOST => {
                (self.source.wanted, self.source.node) = (node, node);
                found.iter().take_while(|other| **other == node as i32).count()
            }
            // In swap, for example: the node is chosen as if the page were touched now.
            _ => {
                let (policy, local) = (self.source.policy, self.source.local);
                self.ask_node(addr, sys::getpid());
                (self.source.policy, self.source.local) = (policy, local);
                1
            }
        }
    }

    /// Whether the pages placed last came from another node than wanted.
    pub fn is_elsewhere(&self) -> bool {
        self.source.node != self.source.wanted
    }

    /// Counts `pages` as placed, by node.
    pub fn count_node(&self, pages: usize) {
        if memory_nodes::are_several() {
            tally::on_node(self.source.node, self.is_elsewhere(), pages);
        }
    }

    /// Whether the current node recently had no memory.
    pub fn is_dry(&mut self) -> bool {
        let dry = self.source.dry.get_mut(self.source.node);
        dry.is_some_and(|dry| {
            let is_dry = *dry > 0;
            *dry = dry.saturating_sub(1);
            is_dry
        })
    }

    /// All nodes except the wanted one, nearest first; none if there is only one.
    pub fn other_nodes(&self) -> impl Iterator<Item = usize> + use<> {
        let wanted = self.source.wanted;
        let all = memory_nodes::are_several().then(|| memory_nodes::from_near(wanted));
        all.into_iter().flatten().filter(move |node| *node != wanted)
    }

    /// Takes pages from the wanted node again, after they came from another one.
    pub fn return_to_wanted(&mut self) {
        self.source.node = self.source.wanted;
    }

    /// Makes pool `at`, the twin of a pool on another node.
    pub fn make_twin(&mut self, at: usize) -> Result<()> {
        if self.all.get(at).is_some_and(Option::is_some) {
            return Ok(());
        }
        let twin = self.all.get(at % MAX_STRATEGIES).and_then(Option::as_ref).and_then(Pool::twin);
        let place = self.all.get_mut(at).ok_or(Errno::EINVAL)?;
        *place = Some(twin.ok_or(Errno::ENOMEM)?);
        tally::engine_set(|counts| &counts.nodes, self.nodes_in_use());
        Ok(())
    }

    fn nodes_in_use(&self) -> u64 {
        let is_used = |pools: &&[Option<Pool>]| pools.iter().any(Option::is_some);
        self.all.chunks(MAX_STRATEGIES).filter(is_used).count() as u64
    }

    /// Changes an order whose chunk turned out to be on `node`, as if it had been meant for that node.
    pub fn for_node(&mut self, order: Order, node: Option<usize>) -> Result<Order> {
        let meant = order.pool / MAX_STRATEGIES;
        let Some(node) = node.filter(|node| *node != meant && *node < memory_nodes::MOST) else { return Ok(order) };
        if let Some(dry) = self.source.dry.get_mut(meant) {
            *dry = DRY;
        }
        let pool = order.pool % MAX_STRATEGIES + node * MAX_STRATEGIES;
        self.make_twin(pool)?;
        self.make_room(pool);
        Ok(Order { pool, ..order })
    }
}

fn pool_limit() -> usize {
    if memory_nodes::are_several() { MAX_STRATEGIES * memory_nodes::MOST } else { MAX_STRATEGIES }
}
