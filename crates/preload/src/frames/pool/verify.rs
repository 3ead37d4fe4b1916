//! The check that free pages of the pool are still on the frames of their look-up.
//!
//! The kernel moves free pages (compaction) and swaps them out. The library must notice this before it hands them out:
//! once the program has a page, the kernel may refer to it, and the page cannot be exchanged safely for another one.
//! One look-up before each move would cost a tenth of a fault. So neighbours are looked up together, and pages that
//! were looked up a moment ago are not looked up again.
//!
//! This is enough while the kernel does not move free pages. Once some have strayed, pages are held
//! ([`crate::frames::pool::grip`]) from their look-up to their move, until no page has strayed for a while. Pages of
//! chunks without a huge page are always held, because compaction may move them at any time. Since holding a page does
//! not prevent its way to swap, held pages are looked up before every move.

use pagelab_frames::stock::CHUNK_SLOTS;
use pagelab_frames::{Run, SlotId, State};

use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::pipes::MOST_PAGES;
use crate::boundary::sys::{self, Result};
use crate::frames::kernel::pagemap::Pagemap;
use crate::frames::report::tally;

use super::chunks;
use super::grip::{Grip, List};
use super::pools::{MOST_CHUNKS, Pool, table};

/// Number of slots looked up together.
const GROUP: usize = 32;
const GROUPS: usize = CHUNK_SLOTS / GROUP;
/// Length of a moment, in ticks of the processor's clock, as a power of two: 0.03 to 0.1 ms, less than it takes to swap
/// out a chunk.
const MOMENT: u32 = 17;
/// For this many moments after the last page strayed, the kernel is taken to be at work on free pages: 1 to 4 s.
const WARY: u32 = 1 << 15;
/// Flag that distinguishes numbers of requests from moments; both have 31 bits.
const HELD: u32 = 1 << 31;

/// The look-ups of a pool's groups.
pub struct Looks {
    /// For each group: the moment of the last look-up, or, with [`HELD`], the number of the request that holds it; 0:
    /// none.
    words: &'static mut [u32],
    /// 1 for each chunk without a huge page behind it.
    small: &'static mut [u8],
    /// Until this moment the kernel is taken to be at work on free pages; 0: it is not.
    wary_until: u32,
}

impl Looks {
    /// No group was looked up.
    pub fn none() -> Result<Looks> {
        Ok(Looks { words: table::<u32>(MOST_CHUNKS * GROUPS)?, small: table::<u8>(MOST_CHUNKS)?, wary_until: 0 })
    }

    /// Records that chunk `number` is new, with a huge page behind it or not.
    pub fn begin(&mut self, number: u32, huge: bool) {
        if let Some(small) = self.small.get_mut(number as usize) {
            *small = u8::from(!huge);
        }
        let first = number as usize * GROUPS;
        self.words.get_mut(first..first + GROUPS).unwrap_or(&mut []).fill(0);
    }

    /// Whether all groups of `run` were looked up a moment ago.
    fn are_fresh(&self, run: Run, now: u32) -> bool {
        let is_fresh = |word: &u32| *word != 0 && *word & HELD == 0 && now.wrapping_sub(*word) & !HELD <= 1;
        self.words.get(groups(run)).unwrap_or(&[]).iter().all(is_fresh)
    }

    /// Whether `group` is held.
    fn is_held(&self, group: usize, grip: &Grip) -> bool {
        let word = self.words.get(group).copied().unwrap_or(0);
        word & HELD != 0 && grip.has(word & !HELD)
    }

    fn is_small(&self, number: u32) -> bool {
        self.small.get(number as usize).is_some_and(|small| *small != 0)
    }

    fn is_wary(&mut self, now: u32) -> bool {
        if self.wary_until != 0 && now.wrapping_sub(self.wary_until) & !HELD < HELD / 2 {
            self.wary_until = 0;
        }
        self.wary_until != 0
    }

    fn be_wary(&mut self, now: u32) {
        self.wary_until = (now.wrapping_add(WARY) & !HELD).max(1);
    }
}

fn groups(run: Run) -> core::ops::Range<usize> {
    let end = (run.slot.0 + run.len) as usize;
    run.slot.0 as usize / GROUP..end.div_ceil(GROUP)
}

/// The present moment; the count wraps around.
fn now() -> u32 {
    (sys::ticks() >> MOMENT) as u32 & !HELD
}

/// Counts the pages of `run`, which are handed out without being held, because they were found a moment ago.
#[cold]
fn unheld(run: Run) -> bool {
    tally::engine(|counts| &counts.unheld_pages, u64::from(run.len));
    true
}

/// The slots of one group.
fn group_run(group: usize) -> Run {
    Run { slot: SlotId((group * GROUP) as u32), len: GROUP as u32 }
}

impl Pool {
    /// Whether the pages of `run`, which is held, are on their frames. If not, nothing of the run is held any more.
    pub fn is_known(
        &mut self,
        grip: &mut Grip,
        pagemap: Pagemap,
        run: Run,
        frames: &mut [u64; CHUNK_SLOTS],
    ) -> bool {
        let now = now();
        if self.looks.is_wary(now) || self.looks.is_small(run.slot.chunk()) {
            return self.is_gripped(grip, pagemap, run, now, frames);
        }
        if self.looks.are_fresh(run, now) {
            return true;
        }
        let wide =
            Run { slot: SlotId((groups(run).start * GROUP) as u32), len: (groups(run).len() * GROUP) as u32 };
        match self.is_as_found(pagemap, wide, run, frames) {
            false => self.strayed(pagemap, run, now, frames),
            true => {
                if self.is_short_of_memory() {
                    self.unmark(wide);
                }
                self.looks.words.get_mut(groups(run)).unwrap_or(&mut []).fill(now);
                return true;
            }
        }
        false
    }

    /// As [`Pool::is_known`], where the kernel may be at work on free pages: the pages handed out are held.
    fn is_gripped(
        &mut self,
        grip: &mut Grip,
        pagemap: Pagemap,
        run: Run,
        now: u32,
        frames: &mut [u64; CHUNK_SLOTS],
    ) -> bool {
        let by_group = run.len as usize <= GROUP / 2 && grip.room() >= 2 * GROUP;
        let all_held = |looks: &Looks, grip: &Grip| by_group && groups(run).all(|group| looks.is_held(group, grip));
        // Holding one group may release another one, which is then held once more.
        for _ in 0..2 {
            if all_held(&self.looks, grip) {
                // A page can go to swap although it is held.
                let known = self.is_as_found(pagemap, run, run, frames);
                if !known {
                    self.strayed(pagemap, run, now, frames);
                }
                return known;
            }
            for group in groups(run) {
                let part = if by_group { group_run(group) } else { run };
                if by_group && self.looks.is_held(group, grip) {
                    continue;
                }
                // A page that has gone already must not be waited for until it is back from swap.
                if !self.is_as_found(pagemap, part, run, frames) {
                    self.strayed(pagemap, run, now, frames);
                    return false;
                }
                let number = self.hold(grip, part, run);
                if !self.is_as_found(pagemap, part, run, frames) {
                    self.strayed(pagemap, run, now, frames);
                    return false;
                }
                match number {
                    None => return unheld(run),
                    Some(_) if !by_group => return true,
                    Some(number) => {
                        if let Some(place) = self.looks.words.get_mut(group) {
                            *place = number | HELD;
                        }
                    }
                }
            }
        }
        if all_held(&self.looks, grip) { true } else { unheld(run) }
    }

    /// Holds the slots of `part` that have a page; returns the request's number.
    fn hold(&self, grip: &mut Grip, part: Run, run: Run) -> Option<u32> {
        let base = self.stock.chunk_address(part.slot.chunk())?;
        let mut list = List::new();
        for slot in part.slots().filter(|slot| self.has_page(*slot, run)) {
            list.push(base, slot.index() as usize);
        }
        let number = grip.hold(list.pages());
        if self.is_short_of_memory() {
            self.unmark(part);
        }
        number
    }

    /// Removes the referenced marks from the pages of `part`, which are about to be handed out. The marks come from the
    /// library's look-ups and references, not from the program, and the kernel is slow to reclaim pages that are marked
    /// twice (see [`chunks`]).
    fn unmark(&self, part: Run) {
        if let Some(address) = self.stock.address(part.slot) {
            chunks::unmark(Span::new(address, address + part.len as usize * PAGE));
        }
    }

    /// Whether `slot` is free, or one of `run`, which is held.
    fn has_page(&self, slot: SlotId, run: Run) -> bool {
        self.stock.state(slot) == Some(State::Free) || (run.slot.0..run.slot.0 + run.len).contains(&slot.0)
    }

    /// Whether all pages of `part` are where they were found last.
    fn is_as_found(&self, pagemap: Pagemap, part: Run, run: Run, frames: &mut [u64; CHUNK_SLOTS]) -> bool {
        let Some(base) = self.stock.chunk_address(part.slot.chunk()) else { return true };
        let Some(words) = frames.get_mut(..part.len as usize) else { return true };
        if pagemap.read(base + part.slot.index() as usize * PAGE, words).is_err() {
            return true;
        }
        part.slots()
            .zip(words)
            .all(|(slot, frame)| !self.has_page(slot, run) || self.stock.frame(slot) == Some(*frame))
    }

    /// Handles pages around `run` that are not where they were: the run is not held any more, and its chunk is sorted
    /// anew.
    #[cold]
    fn strayed(&mut self, pagemap: Pagemap, run: Run, now: u32, frames: &mut [u64; CHUNK_SLOTS]) {
        self.looks.be_wary(now);
        self.stock.give_back(run);
        let changed = self.sort_anew(pagemap, run.slot.chunk(), frames);
        tally::engine(|counts| &counts.strayed_pages, changed);
    }
}

impl Pool {
    /// As much of `run` as can be held, where holding is needed; the rest becomes free again.
    pub fn shortened(&mut self, run: Run, room: usize) -> Run {
        let most = room.clamp(1, MOST_PAGES) as u32;
        if run.len <= most || !(self.looks.wary_until != 0 || self.looks.is_small(run.slot.chunk())) {
            return run;
        }
        self.stock.give_back(Run { slot: SlotId(run.slot.0 + most), len: run.len - most });
        Run { slot: run.slot, len: most }
    }
}

#[cfg(test)]
mod tests {
    use pagelab_abi::plan::{Strategy, StrategyKind};
    use pagelab_frames::stock::End;
    use pagelab_frames::{Chunk, Colours};

    use super::*;

    /// A pool of one small chunk, in memory of the test's own, and the chunk's address; `None`: frames are hidden.
    fn small_pool(pagemap: Pagemap) -> Option<(Pool, usize)> {
        let spec = Strategy::plain(StrategyKind::PageColoring, 64);
        let mut pool = Pool::new(Colours::low_bits(64).unwrap(), &spec, 0).unwrap();
        let address = sys::mmap_own(CHUNK_SLOTS * PAGE).unwrap();
        let number = pool.stock.add_chunk(Box::leak(Box::new(Chunk::new())), address).unwrap();
        pool.looks.begin(number, false);
        for page in 0..GROUP {
            // SAFETY: the page lies in fresh writable memory of the test.
            unsafe { *((address + page * PAGE) as *mut u8) = 1 };
        }
        let mut frames = [0; GROUP];
        pagemap.read(address, &mut frames).unwrap();
        for (index, frame) in (0..).zip(frames).filter(|(_, frame)| *frame != 0) {
            pool.stock.add(SlotId::new(number, index), frame, End::Back).unwrap();
        }
        (frames[0] != 0).then_some((pool, address))
    }

    #[test]
    fn held_pages_can_be_gone_all_the_same() {
        let pagemap = Pagemap::open().unwrap();
        let Some((mut pool, address)) = small_pool(pagemap) else { return };
        let mut grip = Grip::none();
        grip.open().unwrap();
        let mut frames = [0; CHUNK_SLOTS];
        let mut is_known = |pool: &mut Pool, index: usize| {
            let run = Run::one(SlotId::new(0, index as u32));
            pool.stock.take_this(run.slot) && pool.is_known(&mut grip, pagemap, run, &mut frames)
        };
        assert!(is_known(&mut pool, 0) && is_known(&mut pool, 1), "held together");
        // Reclaim would leave a swap entry.
        chunks::discard(Span::new(address + 2 * PAGE, address + 3 * PAGE));
        assert!(is_known(&mut pool, 3) && !is_known(&mut pool, 2));
        assert_eq!(pool.stock.state(SlotId::new(0, 2)), Some(State::Empty), "given up");
        grip.close();
    }
}
