//! Which strategy places the pages of an address.
//!
//! Each pool and the heap have at most one strategy, known from the plan. Ranges on top of them (address rules of the
//! policy, memory that existed at start, hints of the program) lie in a sorted table that is read without a lock, because
//! the handler must not wait for threads whose faults it answers; writers hold the guest's lock.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};

use pagelab_abi::plan::{MAX_ANON_POOLS, Memory, POOL_BYTES, Plan};

use crate::guest::{HEAP, POOLS};
use crate::intervals::Span;
use crate::sys;

/// Most ranges.
const ROOM: usize = 16 << 10;

/// Strategy number plus one; 0: the kernel.
type Code = u8;

static OF_HEAP: AtomicU8 = AtomicU8::new(0);
static OF_POOL: [AtomicU8; MAX_ANON_POOLS] = [const { AtomicU8::new(0) }; MAX_ANON_POOLS];
/// Pools (one bit each, and one for the heap) that come from the policy's default.
static BY_DEFAULT: AtomicU32 = AtomicU32::new(0);
const HEAP_BIT: usize = 31;
/// The program's own default for them: code plus one; 0: it has none.
static DEFAULT: AtomicU8 = AtomicU8::new(0);

struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    code: AtomicU8,
}

type Table = [Range; ROOM];

static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Odd while the table changes.
static VERSION: AtomicU32 = AtomicU32::new(0);

/// Learns what the plan says of pools and address ranges; whether any frame is governed.
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

/// Strategy number of the page at `addr`, and the addresses around it that have the same one; `None`: the kernel's.
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

/// Gives the pools of the policy's default another strategy, or (`None`) their own again. False: there are none.
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

/// The range around `addr`, or else the addresses around it that no range covers.
fn looked_up(addr: usize) -> (Option<Code>, Span) {
    loop {
        let version = VERSION.load(Ordering::Acquire);
        let found = if version % 2 == 0 { search(addr) } else { (None, Span::new(0, 0)) };
        fence(Ordering::Acquire);
        if version % 2 == 0 && VERSION.load(Ordering::Relaxed) == version {
            return found;
        }
        core::hint::spin_loop();
    }
}

fn table() -> Option<&'static Table> {
    // SAFETY: null, or the mapping that `set` made, which is never taken away.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

fn range(at: usize) -> Option<(Span, Code)> {
    let range = table()?.get(at)?;
    let span = Span::new(range.start.load(Ordering::Relaxed), range.end.load(Ordering::Relaxed));
    Some((span, range.code.load(Ordering::Relaxed)))
}

/// Number of the first range that ends after `addr`.
fn position(addr: usize) -> usize {
    let (mut low, mut high) = (0, COUNT.load(Ordering::Relaxed));
    while low < high {
        let middle = low + (high - low) / 2;
        match range(middle) {
            Some((span, _)) if span.end <= addr => low = middle + 1,
            _ => high = middle,
        }
    }
    low
}

fn search(addr: usize) -> (Option<Code>, Span) {
    let at = position(addr);
    let next = if at < COUNT.load(Ordering::Relaxed) { range(at) } else { None };
    if let Some((span, code)) = next
        && span.start <= addr
    {
        return (Some(code), span);
    }
    let before = at.checked_sub(1).and_then(range).map_or(0, |(span, _)| span.end);
    (None, Span::new(before, next.map_or(usize::MAX, |(span, _)| span.start)))
}

fn put(at: usize, span: Span, code: Code) {
    if let Some(range) = table().and_then(|table| table.get(at)) {
        range.start.store(span.start, Ordering::Relaxed);
        range.end.store(span.end, Ordering::Relaxed);
        range.code.store(code, Ordering::Relaxed);
    }
}

/// Moves the ranges from number `from` on to number `to` on.
fn slide(from: usize, to: usize) {
    let count = COUNT.load(Ordering::Relaxed);
    let one = |at: usize| {
        if let Some((span, code)) = range(at) {
            put(at + to - from, span, code);
        }
    };
    if to > from {
        (from..count).rev().for_each(one)
    } else {
        (from..count).for_each(one)
    }
    COUNT.store(count + to - from, Ordering::Relaxed);
}

/// Whether some range has the strategy with this code, or it is the default. Callers take turns with writers.
pub fn uses(code: Code) -> bool {
    let is_default = DEFAULT.load(Ordering::Relaxed) == code + 1;
    is_default || (0..COUNT.load(Ordering::Relaxed)).any(|at| range(at).is_some_and(|(_, held)| held == code))
}

/// Gives `span` the strategy with this code (0: the kernel places it). False if there are too many ranges.
///
/// Callers take turns (the guest's lock, or the only thread).
pub fn set(span: Span, code: Code) -> bool {
    change(span, Some(code))
}

/// What lies in `span` has its pool's strategy again.
pub fn clear(span: Span) -> bool {
    change(span, None)
}

/// Takes away ranges in `span` whose codes are beyond `last`. Callers take turns.
pub fn clear_beyond(span: Span, last: Code) {
    let mut at = span.start;
    while at < span.end {
        let (code, within) = looked_up(at);
        let part = within.and(span);
        if code.is_some_and(|code| code > last) {
            let _ = clear(part);
        }
        at = part.end.max(at + 1);
    }
}

fn change(span: Span, code: Option<Code>) -> bool {
    if span.is_empty() {
        return true;
    }
    if table().is_none() {
        let Ok(at) = sys::mmap_own(size_of::<Table>()) else { return false };
        TABLE.store(at as *mut Table, Ordering::Release);
    }
    if COUNT.load(Ordering::Relaxed) + 2 > ROOM {
        return false;
    }
    VERSION.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::Release);
    replace(span, code);
    VERSION.fetch_add(1, Ordering::Release);
    true
}

fn replace(span: Span, code: Option<Code>) {
    let first = position(span.start);
    let (mut end, mut kept) = (first, [None; 3]);
    kept[1] = code.map(|code| (span, code));
    while end < COUNT.load(Ordering::Relaxed)
        && let Some((old, other)) = range(end).filter(|(old, _)| old.start < span.end)
    {
        if old.start < span.start {
            kept[0] = Some((Span::new(old.start, span.start), other));
        }
        if old.end > span.end {
            kept[2] = Some((Span::new(span.end, old.end), other));
        }
        end += 1;
    }
    let count = kept.iter().flatten().count();
    slide(end, first + count);
    for (at, (span, code)) in kept.into_iter().flatten().enumerate() {
        put(first + at, span, code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the table is one for the process.
    #[test]
    fn ranges_lie_over_pools() {
        let at = |addr| looked_up(addr).0;
        let base = 0x100_0000;
        assert_eq!(at(base), None);
        let mut naive = vec![None; 64];
        let mut seed = 1u64;
        for step in 0..3000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (from, len) = ((seed >> 33) as usize % 60, 1 + (seed >> 45) as usize % 4);
            let code = (step % 3 != 0).then_some((seed >> 55) as u8 % 5);
            assert!(change(Span::new(base + from * 4096, base + (from + len) * 4096), code));
            naive[from..from + len].fill(code);
            for (page, wanted) in naive.iter().enumerate() {
                assert_eq!(at(base + page * 4096), *wanted, "page {page} after step {step}");
            }
        }
        clear(Span::new(0, usize::MAX));
        assert_eq!(COUNT.load(Ordering::Relaxed), 0);
        for (page, code) in [(0, 3), (1, 9), (2, 8), (3, 0), (5, 20)] {
            assert!(set(Span::new(base + page * 4096, base + (page + 1) * 4096), code));
        }
        clear_beyond(Span::new(base + 4096, base + 6 * 4096), 8);
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|page| at(base + page * 4096)),
            [Some(3), None, Some(8), Some(0), None, None]
        );
        clear(Span::new(0, usize::MAX));
        OF_POOL[1].store(3, Ordering::Relaxed);
        let pool = POOLS.start + POOL_BYTES as usize;
        assert!(set(Span::new(pool + 4096, pool + 8192), 0));
        let mut seen = Vec::new();
        each(Span::new(pool, pool + 16384), &mut |part, strategy| seen.push((part.len(), strategy)));
        assert_eq!(seen, [(4096, Some(2)), (4096, None), (8192, Some(2))]);
        assert_eq!(around(pool + 9000).1, Span::new(pool + 8192, pool + POOL_BYTES as usize));
        assert!(touches(Span::new(pool, pool + 8192)) && !touches(Span::new(0x1000, 0x2000)));
        OF_POOL[1].store(0, Ordering::Relaxed);
        clear(Span::new(0, usize::MAX));
    }
}
