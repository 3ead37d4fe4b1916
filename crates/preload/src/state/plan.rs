//! The plan under which the process runs, and its answers for addresses.

use core::sync::atomic::{AtomicBool, Ordering};

use pagelab_abi::plan::{ANON_BASE, Fetch, Flags, HEAP_BASE, MAX_ANON_POOLS, Memory, POOL_BYTES, Plan, Section};

use crate::boundary::own::Once;
use crate::boundary::span::Span;
use crate::state::layout::Layout;

/// All addresses that pools can have.
pub const POOLS: Span = Span::new(ANON_BASE as usize, ANON_BASE as usize + MAX_ANON_POOLS * POOL_BYTES as usize);

/// The heap's addresses.
pub const HEAP: Span = Span::new(HEAP_BASE as usize, (HEAP_BASE + POOL_BYTES) as usize);

static PLAN: Once<Plan<'static>> = Once::empty();
/// Whether the policy is not inherited, so that nothing new is governed.
static MUTED: AtomicBool = AtomicBool::new(false);

/// Puts `plan` into force; there was none before.
pub fn put(plan: Plan<'static>) {
    PLAN.set(plan);
}

/// Mutes the plan in a child that does not inherit the policy.
pub fn mute() {
    MUTED.store(true, Ordering::Relaxed);
}

/// The plan, once the guest governs.
pub fn current() -> Option<Plan<'static>> {
    PLAN.get().copied()
}

/// Whether the plan has this flag.
pub fn has_flag(flag: Flags) -> bool {
    current().is_some_and(|plan| plan.flags().contains(flag))
}

/// Whether the library does work at the process's end and before an exec.
pub fn watches_exit() -> bool {
    current().is_some_and(|plan| at_exit(&plan))
}

/// Whether `plan` asks for that.
pub fn at_exit(plan: &Plan<'_>) -> bool {
    plan.flags().contains(Flags::MEASURE) || !plan.flags().contains(Flags::INHERIT_EXEC)
}

/// The plan's section for a new mapping; none in a child that does not inherit.
pub fn section_for(memory: Memory, len: usize) -> Option<Section> {
    if MUTED.load(Ordering::Relaxed) {
        return None;
    }
    current()?.section_for(memory, len as u64)
}

fn sections<'a>(plan: &'a Plan<'static>) -> impl Iterator<Item = Section> + 'a {
    (0..plan.section_count()).filter_map(|number| plan.section(number))
}

/// Whether `addr` lies in the section's pool.
fn is_inside(section: &Section, addr: usize) -> bool {
    let base = section.pool_base as usize;
    base != 0 && (base..base + POOL_BYTES as usize).contains(&addr)
}

/// The layout of the pool or heap around `addr`, read from the plan without a lock; `None`: the plan has no pool there.
pub fn layout_at(addr: usize) -> Option<Layout> {
    let plan = current()?;
    let section = sections(&plan).find(|section| is_inside(section, addr))?;
    Some(Layout::new(plan, section, section.pool_base as usize, POOL_BYTES as usize))
}

/// Whether the plan has memory brought in before it is touched.
pub fn prefaults() -> bool {
    current().is_some_and(|plan| sections(&plan).any(|section| section.fetch == Fetch::Prefault))
}

/// How pages of `memory` in the pool around `addr` are brought in, which is mapped already.
pub fn fetch_at(addr: usize, memory: Memory) -> Fetch {
    let Some(plan) = current().filter(|_| !MUTED.load(Ordering::Relaxed)) else { return Fetch::Kernel };
    let found = sections(&plan).find(|section| section.memory == memory && is_inside(section, addr));
    found.map_or(Fetch::Kernel, |section| section.fetch)
}

/// End of the pool around `addr`, which lies in [`POOLS`].
pub fn pool_end(addr: usize) -> usize {
    POOLS.start + ((addr - POOLS.start) / POOL_BYTES as usize + 1) * POOL_BYTES as usize
}

/// Whether `[addr, addr + len)` touches any address that a pool can have.
pub fn touches_pools(addr: usize, len: usize) -> bool {
    addr < POOLS.end && addr.saturating_add(len) > POOLS.start
}
