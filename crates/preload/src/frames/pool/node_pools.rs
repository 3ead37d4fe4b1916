//! Pools on several memory nodes: the pool of a page, and the pool of a chunk.
//!
//! A pool has a twin on each node, `MAX_STRATEGIES` further on in the table for each node, made when it is first needed.

use pagelab_abi::plan::MAX_STRATEGIES;

use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result, nodes as calls};
use crate::frames::kernel::memory_nodes::{self, Policy};
use crate::frames::report::tally;

use super::Pools;
use super::chunks::{Order, SLOTS};
use super::pools::Pool;

/// A node without memory is asked again after so many pages.
const DRY: u8 = 64;

impl Pools {
    /// The pools there can be.
    pub fn pools(&self) -> &[Option<Pool>] {
        self.all.get(..pool_limit()).unwrap_or(&[])
    }

    /// As [`Pools::pools`].
    pub fn pools_mut(&mut self) -> &mut [Option<Pool>] {
        self.all.get_mut(..pool_limit()).unwrap_or(&mut [])
    }

    /// `thread` wants pages at `addr`: from now on they come from where the kernel would take them.
    pub fn ask_node(&mut self, addr: usize, thread: u32) {
        if memory_nodes::are_several() {
            self.source.thread = thread;
            self.source.policy = Policy::of(addr, thread);
            self.source.local = memory_nodes::of_processor_of(thread);
            self.settle_node(addr);
        }
    }

    /// The page at `addr` comes from the node of the policy that was looked up last.
    fn settle_node(&mut self, addr: usize) {
        if memory_nodes::are_several() {
            self.source.wanted = self.source.policy.node(addr / PAGE, self.source.local);
            self.source.node = self.source.wanted;
        }
    }

    /// The page at `addr`, where another part begins than the one that was asked for last.
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

    /// The first of the pages at `addr`, which are there, are exchanged for pages of the same node: how many of `count`
    /// that is.
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
            // In swap, for example: as if it were touched now.
            _ => {
                let (policy, local) = (self.source.policy, self.source.local);
                self.ask_node(addr, sys::getpid());
                (self.source.policy, self.source.local) = (policy, local);
                1
            }
        }
    }

    /// Whether what was placed last came from another node than wanted.
    pub fn is_elsewhere(&self) -> bool {
        self.source.node != self.source.wanted
    }

    /// `pages` were placed.
    pub fn count_node(&self, pages: usize) {
        if memory_nodes::are_several() {
            tally::on_node(self.source.node, self.is_elsewhere(), pages);
        }
    }

    /// Whether the node in question had no memory of late.
    pub fn is_dry(&mut self) -> bool {
        let dry = self.source.dry.get_mut(self.source.node);
        dry.is_some_and(|dry| {
            let is_dry = *dry > 0;
            *dry = dry.saturating_sub(1);
            is_dry
        })
    }

    /// The nodes but the wanted one, nearest first; none where there is but one.
    pub fn other_nodes(&self) -> impl Iterator<Item = usize> + use<> {
        let wanted = self.source.wanted;
        let all = memory_nodes::are_several().then(|| memory_nodes::from_near(wanted));
        all.into_iter().flatten().filter(move |node| *node != wanted)
    }

    /// Pages come from the wanted node again, after they came from another one.
    pub fn return_to_wanted(&mut self) {
        self.source.node = self.source.wanted;
    }

    /// Makes pool `at`, which is another one on another node.
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

    /// A chunk was populated for an order, on `node`: the order as if it had been meant for that.
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
