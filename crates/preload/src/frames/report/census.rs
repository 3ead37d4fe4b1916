//! A census of pages: their current frames against the frames on which they were placed.

use core::mem::ManuallyDrop;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use pagelab_abi::guest::OutOfReach;

use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, c};
use crate::frames::areas;
use crate::frames::engine::Engine;
use crate::frames::place::{SHADOW, shadow};
use crate::frames::pool::chunks::SLOTS;
use crate::given_back::scan::Pagemap as Scan;

use super::tally;

/// The sums of one span.
#[derive(Default)]
struct Sums {
    resident: usize,
    kept: usize,
    moved: usize,
    unplaced: usize,
    large: usize,
    /// Pages that were placed ahead, and are all zero.
    zero: usize,
}

/// Most pages placed ahead that are checked for zeros in one process: some 10 ms.
const MOST_READ: usize = 1 << 15;
static LEFT_TO_READ: AtomicUsize = AtomicUsize::new(MOST_READ);

/// Counts the resident pages of `span`, which has one strategy, and returns their number. `tiled`: it lies in tiles of
/// larger pages.
pub fn take(engine: &mut Engine, span: Span, tiled: bool) -> usize {
    let Some(number) = areas::strategy_of(span.start) else { return 0 };
    let pagemap = engine.pools.tools.pagemap;
    // The descriptor stays the engine's, so it is not closed here.
    let scan = ManuallyDrop::new(Scan::with(pagemap.0));
    let mut sums = Sums::default();
    let mut contents = Contents::default();
    let frames = &mut engine.scratch.frames;
    let _ = scan.each(span, &mut |run, huge| {
        if huge || tiled {
            sums.large += run.len();
            return;
        }
        for start in (run.start..run.end).step_by(SLOTS * PAGE) {
            let part = Span::new(start, run.end.min(start + SLOTS * PAGE));
            let Some(words) = frames.get_mut(..part.len() / PAGE) else { return };
            if pagemap.read(start, words).is_ok() {
                sums.add(part, words, &mut contents);
            }
        }
    });
    tally::frames(number, |counts| &counts.resident_pages, sums.resident);
    tally::frames(number, |counts| &counts.kept_pages, sums.kept);
    tally::frames(number, |counts| &counts.moved_pages, sums.moved);
    tally::frames(number, |counts| &counts.unplaced_pages, sums.unplaced);
    tally::frames(number, |counts| &counts.ahead_zero_pages, sums.zero);
    tally::out_of_reach(number, OutOfReach::LargerPage, sums.large);
    sums.resident
}

impl Sums {
    fn add(&mut self, part: Span, frames: &[u64], contents: &mut Contents) {
        for (page, frame) in (part.start..part.end).step_by(PAGE).zip(frames) {
            if *frame == 0 {
                continue;
            }
            self.resident += 1;
            match SHADOW.get(page) {
                0 => self.unplaced += 1,
                placed if placed == shadow::low(*frame) => {
                    self.kept += 1;
                    self.zero += usize::from(SHADOW.is_ahead(page) && contents.is_zero(page));
                }
                _ => self.moved += 1,
            }
        }
    }
}

/// `/proc/self/mem`, opened at the first page that is examined. process_vm_readv(2) would pin the pages that it reads,
/// and so give this process its own copy of every page that it shares with the process it was forked from.
#[derive(Default)]
struct Contents(Option<sys::Result<i32>>);

impl Contents {
    /// Whether the page at `page` is present, readable, and holds nothing but zeros.
    fn is_zero(&mut self, page: usize) -> bool {
        let left = LEFT_TO_READ.load(Relaxed);
        LEFT_TO_READ.store(left.saturating_sub(1), Relaxed);
        if left == 0 {
            return false;
        }
        let opened = self.0.get_or_insert_with(|| sys::open(c"/proc/self/mem", c::O_RDONLY, 0));
        let Ok(memory) = *opened else { return false };
        let mut bytes = [0u8; PAGE];
        sys::pread(memory, &mut bytes, page) == Ok(PAGE) && bytes.iter().all(|byte| *byte == 0)
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        if let Some(Ok(memory)) = self.0 {
            sys::close(memory);
        }
    }
}
