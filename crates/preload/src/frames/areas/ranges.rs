//! A sorted table of address ranges with a strategy each. Readers take no lock: the handler must not wait for threads
//! whose faults it answers. Writers take turns.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};

use crate::boundary::own::{Fresh, Published, Zeroed};
use crate::boundary::span::Span;

/// Most ranges that the table holds.
const ROOM: usize = 16 << 10;

/// Strategy number plus one; 0: the kernel.
pub type Code = u8;

struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    code: AtomicU8,
}

// SAFETY: it contains numbers only, of which zero is a value.
unsafe impl Zeroed for Range {}

type Table = [Range; ROOM];

/// One table. Its memory is mapped with the first range.
pub struct Ranges {
    table: Published<Table>,
    count: AtomicUsize,
    /// Odd while the table changes.
    version: AtomicU32,
}

impl Ranges {
    /// A table without ranges.
    pub const fn new() -> Ranges {
        Ranges { table: Published::none(), count: AtomicUsize::new(0), version: AtomicU32::new(0) }
    }

    /// The range around `addr`, or otherwise the addresses around it that no range covers.
    pub fn around(&self, addr: usize) -> (Option<Code>, Span) {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let found = if version.is_multiple_of(2) { self.search(addr) } else { (None, Span::new(0, 0)) };
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return found;
            }
            core::hint::spin_loop();
        }
    }

    fn table(&self) -> Option<&'static Table> {
        self.table.get()
    }

    fn range(&self, at: usize) -> Option<(Span, Code)> {
        let range = self.table()?.get(at)?;
        let span = Span::new(range.start.load(Ordering::Relaxed), range.end.load(Ordering::Relaxed));
        Some((span, range.code.load(Ordering::Relaxed)))
    }

    /// Number of the first range that ends after `addr`.
    fn position(&self, addr: usize) -> usize {
        let (mut low, mut high) = (0, self.count.load(Ordering::Relaxed));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.range(middle) {
                Some((span, _)) if span.end <= addr => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    fn search(&self, addr: usize) -> (Option<Code>, Span) {
        let at = self.position(addr);
        let next = if at < self.count.load(Ordering::Relaxed) { self.range(at) } else { None };
        if let Some((span, code)) = next
            && span.start <= addr
        {
            return (Some(code), span);
        }
        let before = at.checked_sub(1).and_then(|at| self.range(at)).map_or(0, |(span, _)| span.end);
        (None, Span::new(before, next.map_or(usize::MAX, |(span, _)| span.start)))
    }

    fn put(&self, at: usize, span: Span, code: Code) {
        if let Some(range) = self.table().and_then(|table| table.get(at)) {
            range.start.store(span.start, Ordering::Relaxed);
            range.end.store(span.end, Ordering::Relaxed);
            range.code.store(code, Ordering::Relaxed);
        }
    }

    /// Moves the ranges from number `from` on to number `to` on.
    fn slide(&self, from: usize, to: usize) {
        let count = self.count.load(Ordering::Relaxed);
        let one = |at: usize| {
            if let Some((span, code)) = self.range(at) {
                self.put(at + to - from, span, code);
            }
        };
        if to > from {
            (from..count).rev().for_each(one)
        } else {
            (from..count).for_each(one)
        }
        self.count.store(count + to - from, Ordering::Relaxed);
    }

    /// Gives `span` a code, or removes its code. False if there are too many ranges.
    pub fn change(&self, span: Span, code: Option<Code>) -> bool {
        if span.is_empty() {
            return true;
        }
        if self.table().is_none() {
            let Ok(memory) = Fresh::map_sparse(size_of::<Table>()) else { return false };
            self.table.set_first(memory);
        }
        if self.count.load(Ordering::Relaxed) + 2 > ROOM {
            return false;
        }
        self.version.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.replace(span, code);
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    fn replace(&self, span: Span, code: Option<Code>) {
        let mut first = self.position(span.start);
        let (mut wide, mut kept) = (span, [None; 3]);
        // Neighbours with the same code become one range: a program may name a large block page by page.
        let joins =
            |old: Span, other: Code| code == Some(other) && (old.end == span.start || old.start == span.end);
        if let Some(before) = first.checked_sub(1)
            && self.range(before).is_some_and(|(old, other)| joins(old, other))
        {
            first = before;
        }
        let mut end = first;
        while end < self.count.load(Ordering::Relaxed)
            && let Some((old, other)) =
                self.range(end).filter(|(old, other)| old.start < span.end || joins(*old, *other))
        {
            if old.start < span.start {
                match code == Some(other) {
                    true => wide.start = old.start,
                    false => kept[0] = Some((Span::new(old.start, span.start), other)),
                }
            }
            if old.end > span.end {
                match code == Some(other) {
                    true => wide.end = old.end,
                    false => kept[2] = Some((Span::new(span.end, old.end), other)),
                }
            }
            end += 1;
        }
        kept[1] = code.map(|code| (wide, code));
        let count = kept.iter().flatten().count();
        self.slide(end, first + count);
        for (at, (span, code)) in kept.into_iter().flatten().enumerate() {
            self.put(first + at, span, code);
        }
    }

    /// Whether some range has this code. Callers take turns with writers.
    pub fn has(&self, code: Code) -> bool {
        (0..self.count.load(Ordering::Relaxed)).any(|at| self.range(at).is_some_and(|(_, held)| held == code))
    }

    /// In a forked child: ends a change whose writer does not exist there. Its range may be lost, but readers must not
    /// wait.
    pub fn after_fork(&self) {
        if !self.version.load(Ordering::Relaxed).is_multiple_of(2) {
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_naive_map_of_pages() {
        static RANGES: Ranges = Ranges::new();
        let at = |addr| RANGES.around(addr).0;
        let base = 0x100_0000;
        assert_eq!(at(base), None);
        let mut naive = [None; 64];
        let mut seed = 1u64;
        for step in 0..3000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (from, len) = ((seed >> 33) as usize % 60, 1 + (seed >> 45) as usize % 4);
            let code = (step % 3 != 0).then_some((seed >> 55) as u8 % 5);
            assert!(RANGES.change(Span::new(base + from * 4096, base + (from + len) * 4096), code));
            naive[from..from + len].fill(code);
            for (page, wanted) in naive.iter().enumerate() {
                assert_eq!(at(base + page * 4096), *wanted, "page {page} after step {step}");
            }
            for code in 0..5 {
                assert_eq!(RANGES.has(code), naive.contains(&Some(code)));
            }
        }
        assert!(RANGES.change(Span::new(0, usize::MAX), None));
        assert_eq!(RANGES.count.load(Ordering::Relaxed), 0);
        assert_eq!(RANGES.around(base).1, Span::new(0, usize::MAX));
    }

    #[test]
    fn neighbours_with_the_same_code_are_one_range() {
        static RANGES: Ranges = Ranges::new();
        let page = |number: usize| Span::new(number * 4096, (number + 1) * 4096);
        let count = || RANGES.count.load(Ordering::Relaxed);
        // More than the table holds, in ascending, then in descending order, then every other one and those between.
        let ascending = 0..2 * ROOM;
        let descending = (3 * ROOM..5 * ROOM).rev();
        assert!(ascending.chain(descending).all(|number| RANGES.change(page(number), Some(1))));
        assert_eq!(count(), 2);
        let some = 6 * ROOM..7 * ROOM;
        assert!(
            some.clone()
                .step_by(2)
                .chain(some.skip(1).step_by(2))
                .all(|number| RANGES.change(page(number), Some(1)))
        );
        assert_eq!(count(), 3);
        assert_eq!(RANGES.around(5).1, Span::new(0, page(2 * ROOM).start));
        assert!(RANGES.change(page(2 * ROOM), Some(2)) && RANGES.change(page(7), Some(2)));
        assert_eq!(count(), 6, "others stay apart");
        assert!(RANGES.change(page(7), Some(1)));
        assert_eq!((count(), RANGES.around(5).1), (4, Span::new(0, page(2 * ROOM).start)));
    }

    #[test]
    fn readers_go_on_where_a_writer_was_lost() {
        static RANGES: Ranges = Ranges::new();
        assert!(RANGES.change(Span::new(4096, 8192), Some(2)));
        RANGES.version.fetch_add(1, Ordering::Relaxed);
        RANGES.after_fork();
        assert_eq!(RANGES.around(5000), (Some(2), Span::new(4096, 8192)));
        RANGES.after_fork();
        assert_eq!(RANGES.around(9000).0, None);
    }
}
