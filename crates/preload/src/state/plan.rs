//! The plan that the process runs under, and what it says of addresses.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use pagelab_abi::plan::{ANON_BASE, Flags, HEAP_BASE, MAX_ANON_POOLS, Memory, POOL_BYTES, Plan, Section};

use crate::boundary::span::Span;
use crate::state::layout::Layout;

/// All addresses that pools can have.
pub const POOLS: Span = Span::new(ANON_BASE as usize, ANON_BASE as usize + MAX_ANON_POOLS * POOL_BYTES as usize);

/// The heap's addresses.
pub const HEAP: Span = Span::new(HEAP_BASE as usize, (HEAP_BASE + POOL_BYTES) as usize);

struct PlanCell(UnsafeCell<Option<Plan<'static>>>);

// SAFETY: written once, before `READY` is set and before there are threads; read-only afterwards.
unsafe impl Sync for PlanCell {}

static PLAN: PlanCell = PlanCell(UnsafeCell::new(None));
static READY: AtomicBool = AtomicBool::new(false);
/// The policy is not inherited: nothing new is governed.
static MUTED: AtomicBool = AtomicBool::new(false);

/// Takes `plan` in; it counts from [`ready`] on.
///
/// # Safety
/// There is none yet, and nobody else is about to take one in.
pub unsafe fn put(plan: Plan<'static>) {
    // SAFETY: READY is not set yet, so nobody reads.
    unsafe { *PLAN.0.get() = Some(plan) };
}

/// The guest governs by the plan from now on.
pub fn ready() {
    READY.store(true, Ordering::Release);
}

/// In a child that does not inherit the policy.
pub fn mute() {
    MUTED.store(true, Ordering::Relaxed);
}

/// The plan, once the guest governs.
pub fn current() -> Option<Plan<'static>> {
    if !READY.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: not written any more after READY was set.
    unsafe { *PLAN.0.get() }
}

/// Whether the plan has this switch on.
pub fn has_flag(flag: Flags) -> bool {
    current().is_some_and(|plan| plan.flags().contains(flag))
}

/// The plan's section for a new mapping; none in a child that does not inherit.
pub fn section_for(memory: Memory, len: usize) -> Option<Section> {
    if MUTED.load(Ordering::Relaxed) {
        return None;
    }
    current()?.section_for(memory, len as u64)
}

/// The layout of the pool or heap around `addr`, read from the plan without a lock; `None`: no pool of the plan's.
pub fn layout_at(addr: usize) -> Option<Layout> {
    let plan = current()?;
    let inside = |section: &Section| {
        let base = section.pool_base as usize;
        base != 0 && (base..base + POOL_BYTES as usize).contains(&addr)
    };
    let section = (0..plan.section_count()).filter_map(|number| plan.section(number)).find(inside)?;
    Some(Layout::new(plan, section, section.pool_base as usize, POOL_BYTES as usize))
}

/// Where the pool around `addr`, which lies in [`POOLS`], ends.
pub fn pool_end(addr: usize) -> usize {
    POOLS.start + ((addr - POOLS.start) / POOL_BYTES as usize + 1) * POOL_BYTES as usize
}

/// Whether `[addr, addr + len)` touches any address that a pool can have.
pub fn touches_pools(addr: usize, len: usize) -> bool {
    addr < POOLS.end && addr.saturating_add(len) > POOLS.start
}
