//! The table that gives each address its strategy.
//!
//! Each pool and the heap have at most one strategy, known from the plan. Ranges (address rules of the policy, memory
//! that existed at start) take precedence over these, and the program's own hints over the ranges. Nobody waits for a
//! lock here; writers hold the guest's.

mod ranges;

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use pagelab_abi::plan::{MAX_ANON_POOLS, Memory, POOL_BYTES, Plan};

use crate::boundary::span::Span;
use crate::state::plan::{HEAP, POOLS};

use ranges::{Code, Ranges};

/// Number of strategies at a time: the plan's, and those of the program's own hints.
pub const PLACERS: usize = 32;

/// The code of memory whose pages the kernel places.
const BY_KERNEL: Code = 0;

static OF_HEAP: AtomicU8 = AtomicU8::new(0);
static OF_POOL: [AtomicU8; MAX_ANON_POOLS] = [const { AtomicU8::new(0) }; MAX_ANON_POOLS];
/// Pools (one bit each, and one for the heap) that have the policy's default strategy.
static BY_DEFAULT: AtomicU32 = AtomicU32::new(0);
const HEAP_BIT: usize = 31;
/// The program's own default for these pools: code plus one; 0: it has none.
static DEFAULT: AtomicU8 = AtomicU8::new(0);

/// Ranges from the policy, and memory that existed at start.
static GIVEN: Ranges = Ranges::new();
/// Ranges of the program's own hints.
static HINTS: Ranges = Ranges::new();
/// Ranges that the program has registered with its own userfaultfd, or is about to ([`Given`]): the kernel places them.
static PROGRAM: Ranges = Ranges::new();

/// Reads the plan's pools and address ranges; returns whether any frame is governed.
pub fn learn(plan: &Plan<'_>) -> bool {
    let mut any = false;
    for section in (0..plan.section_count()).rev().filter_map(|number| plan.section(number)) {
        let code = section.frames as Code;
        any |= code != 0;
        let base = section.pool_base as usize;
        if plan.is_default(&section) {
            let bit = match section.memory {
                Memory::Heap => Some(HEAP_BIT),
                _ => base.checked_sub(POOLS.start).map(|offset| offset / POOL_BYTES as usize),
            };
            if let Some(bit) = bit.filter(|bit| *bit <= HEAP_BIT) {
                BY_DEFAULT.fetch_or(1 << bit, Ordering::Relaxed);
            }
        }
        match section.memory {
            Memory::Heap if code != 0 => OF_HEAP.store(code, Ordering::Relaxed),
            Memory::Anon | Memory::Arenas if code != 0 && (POOLS.start..POOLS.end).contains(&base) => {
                if let Some(pool) = OF_POOL.get((base - POOLS.start) / POOL_BYTES as usize) {
                    pool.store(code, Ordering::Relaxed);
                }
            }
            Memory::Range if code != 0 => {
                set(Span::new(section.range_start as usize, section.range_end as usize), code);
            }
            _ => {}
        }
    }
    any
}

/// Strategy number of the page at `addr`, and the addresses around it with the same one; `None`: the kernel places it.
pub fn around(addr: usize) -> (Option<u32>, Span) {
    let (code, within) = match looked_up(addr) {
        (Some(code), within) => (code, within),
        (None, clear) => {
            let (code, bounds) = by_pool(addr);
            (code, bounds.and(clear))
        }
    };
    (u32::from(code).checked_sub(1), within)
}

/// Strategy number of the page at `addr`.
pub fn strategy_of(addr: usize) -> Option<u32> {
    around(addr).0
}

/// Calls `visit` for each part of `span` with its strategy.
pub fn each(span: Span, visit: &mut dyn FnMut(Span, Option<u32>)) {
    let mut at = span.start;
    while at < span.end {
        let (strategy, within) = around(at);
        let part = Span::new(at, within.end.min(span.end).max(at + 1));
        visit(part, strategy);
        at = part.end;
    }
}

/// Whether any part of `span` is governed.
pub fn touches(span: Span) -> bool {
    let mut any = false;
    each(span, &mut |_, strategy| any |= strategy.is_some());
    any
}

/// The code of a pool, or the program's own default if the pool is the policy's default.
fn defaulted(pool: usize, code: Code) -> Code {
    match DEFAULT.load(Ordering::Relaxed) {
        own if own > 0 && BY_DEFAULT.load(Ordering::Relaxed) >> pool & 1 != 0 => own - 1,
        _ => code,
    }
}

/// Gives the pools with the policy's default another strategy, or (`None`) their own again. False: there are no such
/// pools.
pub fn set_default(code: Option<Code>) -> bool {
    let any = BY_DEFAULT.load(Ordering::Relaxed) != 0;
    if any {
        DEFAULT.store(code.map_or(0, |code| code.saturating_add(1)), Ordering::Relaxed);
    }
    any
}

fn by_pool(addr: usize) -> (Code, Span) {
    if (HEAP.start..HEAP.end).contains(&addr) {
        return (defaulted(HEAP_BIT, OF_HEAP.load(Ordering::Relaxed)), HEAP);
    }
    if (POOLS.start..POOLS.end).contains(&addr) {
        let number = (addr - POOLS.start) / POOL_BYTES as usize;
        let base = POOLS.start + number * POOL_BYTES as usize;
        let code = OF_POOL.get(number).map_or(0, |code| code.load(Ordering::Relaxed));
        return (defaulted(number, code), Span::new(base, base + POOL_BYTES as usize));
    }
    let outside = match addr {
        _ if addr < HEAP.start => Span::new(0, HEAP.start),
        _ if addr < POOLS.start => Span::new(HEAP.end, POOLS.start),
        _ => Span::new(POOLS.end, usize::MAX),
    };
    (0, outside)
}

/// The range around `addr`, hints before the plan's ranges; otherwise the addresses around it that no range covers.
fn looked_up(addr: usize) -> (Option<Code>, Span) {
    let (programs, around) = PROGRAM.around(addr);
    if programs.is_some() {
        return (Some(BY_KERNEL), around);
    }
    let (hint, within) = HINTS.around(addr);
    let within = within.and(around);
    if hint.is_some() {
        return (hint, within);
    }
    let (code, wider) = GIVEN.around(addr);
    (code, wider.and(within))
}

/// The mark of memory that the program fills through its own userfaultfd.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// The program has registered it.
    Registered = 0,
    /// The program is about to register it.
    Asked = 1,
}

/// Marks `span` as memory that the program fills through its own userfaultfd; `None` removes the mark. As [`set`].
pub fn give_to_program(span: Span, given: Option<Given>) -> bool {
    PROGRAM.change(span, given.map(|given| given as Code))
}

/// Calls `visit` for each part of `span` that the program was about to register.
pub fn each_asked(span: Span, visit: &mut dyn FnMut(Span)) {
    let mut at = span.start;
    while at < span.end {
        let (code, within) = PROGRAM.around(at);
        let part = Span::new(at, within.end.min(span.end).max(at + 1));
        if code == Some(Given::Asked as Code) {
            visit(part);
        }
        at = part.end;
    }
}

/// Whether the program itself fills the page at `addr`.
pub fn is_programs(addr: usize) -> bool {
    PROGRAM.around(addr).0.is_some()
}

/// Whether the program is about to register the page at `addr`.
pub fn is_asked(addr: usize) -> bool {
    PROGRAM.around(addr).0 == Some(Given::Asked as Code)
}

/// Whether the strategy with this code is that of a hint, or the default. Callers take turns with writers.
pub fn uses(code: Code) -> bool {
    DEFAULT.load(Ordering::Relaxed) == code + 1 || HINTS.has(code)
}

/// Gives `span` the strategy with this code (0: the kernel places it). False if there are too many ranges.
///
/// Callers take turns (the guest's lock, or the only thread).
pub fn set(span: Span, code: Code) -> bool {
    GIVEN.change(span, Some(code))
}

/// Removes the ranges in `span`, which has its pool's strategy again.
pub fn clear(span: Span) -> bool {
    GIVEN.change(span, None)
}

/// Sets the program's own hint for `span`, above everything else; `None` removes it. As [`set`].
pub fn hint(span: Span, code: Option<Code>) -> bool {
    HINTS.change(span, code)
}

/// Resets the tables in a forked child.
pub fn after_fork() {
    GIVEN.after_fork();
    HINTS.after_fork();
    PROGRAM.after_fork();
    // A child's memory is not registered with a userfaultfd of the program.
    PROGRAM.change(Span::new(0, usize::MAX), None);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This is one test, because all tests share the process's tables.
    #[test]
    fn ranges_lie_over_pools_and_hints_over_ranges() {
        OF_POOL[1].store(3, Ordering::Relaxed);
        let pool = POOLS.start + POOL_BYTES as usize;
        assert!(set(Span::new(pool + 4096, pool + 8192), 0));
        let seen = || {
            let mut seen = Vec::new();
            each(Span::new(pool, pool + 16384), &mut |part, strategy| seen.push((part.len(), strategy)));
            seen
        };
        assert_eq!(seen(), [(4096, Some(2)), (4096, None), (8192, Some(2))]);
        assert_eq!(around(pool + 9000).1, Span::new(pool + 8192, pool + POOL_BYTES as usize));
        assert!(touches(Span::new(pool, pool + 8192)) && !touches(Span::new(0x1000, 0x2000)));
        assert!(hint(Span::new(pool + 6000, pool + 12288), Some(9)));
        assert!(uses(9) && !uses(3), "only hints count");
        assert_eq!(seen(), [(4096, Some(2)), (1904, None), (6288, Some(8)), (4096, Some(2))]);
        assert!(hint(Span::new(0, usize::MAX), None));
        assert_eq!(seen(), [(4096, Some(2)), (4096, None), (8192, Some(2))], "as if there had never been one");
        OF_POOL[1].store(0, Ordering::Relaxed);
        clear(Span::new(0, usize::MAX));
    }
}
