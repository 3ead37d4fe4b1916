//! Whether free pages of the pool are still on the frames that they were found on.
//!
//! The kernel moves them (compaction) and swaps them out. That has to be noticed before they are handed out: a page that
//! the program has may be referenced by the kernel, and cannot be exchanged for another one without harm. One look before
//! each move would cost a tenth of a fault, so neighbours are looked up together, and what was looked up a moment ago is
//! not looked up again. A page that changes its frame within that moment is among the moved ones of the count at exit.

use pagelab_frames::stock::CHUNK_SLOTS;
use pagelab_frames::{Run, SlotId, State};

use crate::arch::{self, PAGE};
use crate::sys::Result;

use super::engine::Engine;
use super::pagemap::Pagemap;
use super::pools::{MOST_CHUNKS, Pool, table};

/// Slots looked up together.
const GROUP: usize = 32;
const GROUPS: usize = CHUNK_SLOTS / GROUP;
/// A moment, in ticks of the processor's clock, as a power of two: 0.3 to 1 ms.
const MOMENT: u32 = 20;
/// Chunks that are found changed, for one run of pages.
const MOST_CHANGED: usize = 4096;

/// When the pages of each group were last looked up.
pub struct Looks(&'static mut [u32]);

impl Looks {
    /// Never.
    pub fn none() -> Result<Looks> {
        table::<u32>(MOST_CHUNKS * GROUPS).map(Looks)
    }

    fn of_run(&mut self, run: Run) -> &mut [u32] {
        let first = run.slot.0 as usize / GROUP;
        let end = (run.slot.0 + run.len) as usize;
        self.0.get_mut(first..end.div_ceil(GROUP)).unwrap_or(&mut [])
    }
}

/// Moments counted, for ever around.
fn now() -> u32 {
    (arch::ticks() >> MOMENT) as u32
}

impl Pool {
    /// Whether the pages of `run`, which is held, are on their frames. If not, nothing of it is held any more.
    fn is_known(&mut self, pagemap: Pagemap, run: Run, frames: &mut [u64; CHUNK_SLOTS]) -> bool {
        let now = now();
        if self.looks.of_run(run).iter().all(|look| now.wrapping_sub(*look) <= 1 && *look != 0) {
            return true;
        }
        let first = run.slot.index() as usize / GROUP * GROUP;
        let end = (run.slot.index() + run.len).next_multiple_of(GROUP as u32) as usize;
        let Some(address) = self.stock.chunk_address(run.slot.chunk()) else { return true };
        let Some(words) = frames.get_mut(..end - first) else { return true };
        if pagemap.read(address + first * PAGE, words).is_err() {
            return true;
        }
        let held = run.slot.0..run.slot.0 + run.len;
        let is_as_found = |(index, frame): (u32, &u64)| {
            let slot = SlotId::new(run.slot.chunk(), index);
            let counts = self.stock.state(slot) == Some(State::Free) || held.contains(&slot.0);
            !counts || self.stock.frame(slot) == Some(*frame)
        };
        if (first as u32..).zip(&*words).all(is_as_found) {
            self.looks.of_run(run).fill(now);
            return true;
        }
        self.stock.give_back(run);
        self.sort_anew(pagemap, run.slot.chunk(), frames);
        false
    }
}

impl Engine {
    /// As [`Engine::take`], pages that are still on the frames they were found on. A chunk in which some are not is sorted
    /// anew.
    pub(super) fn take_known(&mut self, number: u32, at: usize, most: usize) -> Option<(Run, usize)> {
        for _ in 0..MOST_CHANGED {
            let (run, from) = self.take(number, at, most)?;
            let pool = self.pool_of(number)?;
            let pool = self.pools.get_mut(pool)?.as_mut()?;
            if pool.is_known(self.tools.pagemap, run, &mut self.frames) {
                return Some((run, from));
            }
        }
        None
    }
}
