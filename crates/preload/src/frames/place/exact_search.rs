//! The search for exact frames in the free memory of the machine.
//!
//! The kernel has no call that allocates a given frame. But populated memory shows its frames. So chunks are populated
//! and held until the frame is among them, or the budget is used up. If `/proc/kpageflags` shows that the frame is in
//! use, nothing is populated; if it shows that only a part of the huge page around it is free, small pages are
//! populated.

use pagelab_abi::plan::{ANYWHERE, Words};
use pagelab_frames::{End, Run, Want};

use crate::boundary::arch::PMD;
use crate::boundary::sys::Result;
use crate::frames::engine::Engine;
use crate::frames::pool::pools::{Pool, give_back, table};

/// The frame numbers in `values`, sorted.
fn sorted(values: Words<'_>) -> &'static [u64] {
    let Ok(list) = table::<u64>(values.len()) else { return &[] };
    for (place, value) in list.iter_mut().zip(values.iter()) {
        *place = value;
    }
    list.sort_unstable();
    let count = list.partition_point(|frame| *frame != ANYWHERE);
    list.get(..count).unwrap_or(&[])
}

impl Pool {
    /// The end of its list that a page goes to: pages that a strategy will request by number are handed out last.
    pub fn end_for(&self, frame: u64) -> End {
        if self.wanted.is_empty() || self.wanted.binary_search(&frame).is_ok() { End::Back } else { End::Front }
    }

    /// Makes frames findable by number.
    fn keep_index(&mut self) -> Result<()> {
        if self.stock.has_index() {
            return Ok(());
        }
        // Room for twice as many as there are: the index is seldom made anew.
        let words = table::<u64>(2 * self.stock.index_room())?;
        if let Some(old) = self.stock.set_index(Some(words)) {
            // SAFETY: the old index is a table from `table`, and nothing refers to it any more.
            unsafe { give_back(old) };
        }
        Ok(())
    }
}

impl Engine {
    /// Records that strategy `number` requests these frames by number.
    pub fn will_search(&mut self, number: usize, frames: Words<'_>) {
        self.opened_flags();
        let pool = self.placers.get(number).and_then(Option::as_ref).map(|placer| placer.pool);
        if let Some(pool) = pool.and_then(|pool| self.pools.pool(pool))
            && pool.wanted.is_empty()
        {
            pool.wanted = sorted(frames);
        }
    }

    /// As [`Engine::take`], from a pool with requests for frames by number: frames that others may request are taken
    /// last.
    pub fn take_exact(&mut self, at_pool: usize, at: usize, most: usize) -> Option<(Run, usize)> {
        let want = *self.scratch.wants.get(at)?;
        if let Want::Frame(frame) = want {
            let _ = self.pools.pool(at_pool)?.keep_index();
            if self.pools.pool(at_pool)?.stock.find(frame).is_some() || self.search(at_pool, frame) {
                let stock = &mut self.pools.all.get_mut(at_pool)?.as_mut()?.stock;
                let run = stock.take_run(self.scratch.wants.get(at..at + most)?)?;
                return Some((run, stock.address(run.slot)?));
            }
        }
        if self.pools.pool(at_pool)?.stock.totals().free == 0 {
            self.pools.measure(at_pool);
            self.refill(at_pool).ok()?;
        }
        let stock = &mut self.pools.pool(at_pool)?.stock;
        let slot = match want {
            Want::Colour(colour) => stock.take(colour).or_else(|| stock.take_near(colour))?,
            Want::Frame(_) | Want::Any => stock.take_any()?,
        };
        Some((Run::one(slot), stock.address(slot)?))
    }

    /// Populates chunks until pool `at` has `frame`, or must not hold more. Returns whether it has the frame.
    pub fn search(&mut self, at: usize, frame: u64) -> bool {
        if !self.checks.flags.may_be_free(frame) {
            return false;
        }
        let small = !self.checks.flags.is_whole_free(frame);
        loop {
            self.pools.measure(at);
            let Some(pool) = self.pools.pool(at) else { return false };
            if pool.held_bytes() + PMD as u64 > pool.budget_bytes() {
                return false;
            }
            if self.refill_with(at, small).is_err() {
                return false;
            }
            let Some(pool) = self.pools.pool(at) else { return false };
            if pool.keep_index().is_err() {
                return false;
            }
            if pool.stock.find(frame).is_some() {
                return true;
            }
        }
    }
}
