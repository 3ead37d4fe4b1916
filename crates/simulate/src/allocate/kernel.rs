//! The kernel's page allocator: free lists, a list of single pages for each processor, and a history.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::buddy::Buddy;
use super::random::Random;

/// Pages moved between a processor's list and the zone at once (Linux: `zone_batchsize`, 63 for zones above 1 GiB).
pub const BATCH: usize = 63;
/// A processor's list gives a batch back when it is longer (six batches, as Linux had it before it adapted to the load).
pub const HIGH: usize = 6 * BATCH;
/// Most pages that a program of the history gets at once, or has read ahead from a file.
const MOST_AT_ONCE: u64 = 64;

/// What happened on the machine before the program started.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct History {
    /// Bytes of memory of the machine.
    pub memory_bytes: u64,
    /// Processors, each with a list of its own; the program runs on the first.
    pub processors: usize,
    /// The share of memory that other programs hold, at most.
    pub used: f64,
    /// The share of memory that holds pages of files; the oldest of them make room when less is free than the rest.
    pub cached: f64,
    /// How many times the machine's memory has been handed out and given back before. 0: a machine that has just started.
    pub turnover: f64,
    /// Programs that lived at the same time, at most.
    pub programs: usize,
}

impl Default for History {
    fn default() -> History {
        History { memory_bytes: 1 << 30, processors: 2, used: 0.4, cached: 0.5, turnover: 2.0, programs: 64 }
    }
}

impl History {
    /// Refuses shares and sizes that there are not.
    ///
    /// # Errors
    /// The value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let pages = self.memory_bytes >> super::PAGE_BITS;
        if !(1024..=1 << 30).contains(&pages) {
            return Err(format!("memory_bytes = {}; allowed: 4 MiB to 4 TiB", self.memory_bytes));
        }
        if !(0.0..=0.95).contains(&self.used)
            || !(0.0..=1.0).contains(&self.cached)
            || self.used + self.cached > 0.98
        {
            return Err(format!(
                "used = {}, cached = {}: shares of memory, 0.98 together at most",
                self.used, self.cached
            ));
        }
        if !(0.0..=1000.0).contains(&self.turnover) {
            return Err(format!("turnover = {}; allowed: 0 to 1000", self.turnover));
        }
        if !(1..=1024).contains(&self.processors) || !(1..=1 << 20).contains(&self.programs) {
            return Err("processors: 1 to 1024; programs: 1 to 1048576".to_owned());
        }
        Ok(())
    }
}

/// A zone with its processors' lists, and the file cache that makes room.
#[derive(Clone, Debug)]
pub struct Kernel {
    buddy: Buddy,
    lists: Vec<VecDeque<u32>>,
    /// Pages of files, the oldest first.
    cache: VecDeque<u32>,
    /// Free pages below which the file cache gives some up.
    watermark: u64,
}

impl Kernel {
    /// A machine that has just started.
    #[must_use]
    pub fn new(frames: u32, processors: usize) -> Kernel {
        Kernel {
            buddy: Buddy::new(frames),
            lists: vec![VecDeque::new(); processors.max(1)],
            cache: VecDeque::new(),
            watermark: 0,
        }
    }

    /// A page for processor `processor`; `None` when memory is used up.
    pub fn page(&mut self, processor: usize) -> Option<u32> {
        if self.lists[processor].is_empty() {
            if self.buddy.free() < self.watermark {
                let oldest = BATCH.min(self.cache.len());
                self.cache.drain(..oldest).for_each(|page| self.buddy.release(page, 0));
            }
            let refill = std::iter::from_fn(|| self.buddy.allocate(0)).take(BATCH);
            self.lists[processor].extend(refill);
        }
        let page = self.lists[processor].pop_front();
        // What the other processors hoard is drained before memory counts as used up.
        let page = page.or_else(|| self.lists.iter_mut().find_map(VecDeque::pop_front));
        page.or_else(|| self.cache.pop_front())
    }

    /// 2^`order` contiguous, aligned pages past the processors' lists.
    pub fn block(&mut self, order: usize) -> Option<u32> {
        self.buddy.allocate(order)
    }

    /// Takes a page back.
    pub fn release(&mut self, processor: usize, page: u32) {
        self.lists[processor].push_front(page);
        if self.lists[processor].len() > HIGH {
            for page in (0..BATCH).filter_map(|_| self.lists[processor].pop_back()) {
                self.buddy.release(page, 0);
            }
        }
    }

    /// Pages that nobody has, or that only the file cache has.
    #[must_use]
    pub fn available(&self) -> u64 {
        let lists = self.lists.iter().chain([&self.cache]);
        self.buddy.free() + lists.map(|list| list.len() as u64).sum::<u64>()
    }

    /// The zone.
    #[must_use]
    pub const fn zone(&self) -> &Buddy {
        &self.buddy
    }
}

/// A machine on which programs have come, grown side by side, read files, and gone, as `seed` decides.
///
/// Each step either gives a program of random place in the table 1 to 64 pages, or reads as many pages of a file. Where the
/// programs hold all they may, one of them is ended: its pages go back in the order in which they came. Where less than the
/// rest is free, the oldest file pages go. Programs that grow side by side have their pages mixed with each other's and with
/// those of files, so that the end of one leaves holes; the order of the free lists is that of the ends.
#[must_use]
pub fn aged(history: &History, seed: u64) -> Kernel {
    let frames = u32::try_from(history.memory_bytes >> super::PAGE_BITS).unwrap_or(u32::MAX - 1);
    let mut kernel = Kernel::new(frames, history.processors);
    if history.turnover <= 0.0 {
        return kernel;
    }
    let share = |part: f64| (f64::from(frames) * part) as u64;
    kernel.watermark = if history.cached > 0.0 { share(1.0 - history.used - history.cached) } else { 0 };
    let (most_held, wanted) = (share(history.used), share(history.turnover + history.used + history.cached));
    let mut random = Random::new(seed);
    let mut programs: Vec<Vec<u32>> = vec![vec![]; history.programs.max(1)];
    let (mut handed, mut held) = (0_u64, 0_u64);
    while handed < wanted {
        let which = random.below(programs.len() as u64) as usize;
        let processor = random.below(history.processors as u64) as usize;
        let count = 1 + random.below(MOST_AT_ONCE);
        handed += count;
        if history.cached > 0.0 && random.below(2) == 0 {
            for _ in 0..count {
                let page = kernel.page(processor);
                kernel.cache.extend(page);
            }
            continue;
        }
        if held + count > most_held {
            let ended = std::mem::take(&mut programs[which]);
            held -= ended.len() as u64;
            ended.into_iter().for_each(|page| kernel.release(processor, page));
            continue;
        }
        let before = programs[which].len();
        programs[which].extend((0..count).map_while(|_| kernel.page(processor)));
        held += (programs[which].len() - before) as u64;
    }
    kernel
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        History { memory_bytes: 64 << 20, ..History::default() }
    }

    #[test]
    fn a_fresh_machine_hands_out_frames_in_order() {
        let mut kernel = aged(&History { turnover: 0.0, ..history() }, 1);
        assert!((0..5000).all(|frame| kernel.page(0) == Some(frame)));
    }

    #[test]
    fn freed_pages_are_handed_out_again_first() {
        let mut kernel = Kernel::new(1 << 12, 2);
        let pages: Vec<u32> = (0..4).map_while(|_| kernel.page(0)).collect();
        pages.iter().for_each(|page| kernel.release(0, *page));
        assert_eq!((0..4).map_while(|_| kernel.page(0)).collect::<Vec<_>>(), [3, 2, 1, 0]);
        // The other processor has a batch of its own, behind the first one's.
        assert_eq!(kernel.page(1), Some(BATCH as u32));
    }

    #[test]
    fn history_is_decided_by_its_seed_and_loses_nothing() {
        let order = |seed| {
            let mut kernel = aged(&history(), seed);
            assert_eq!(kernel.zone().check(), Ok(()));
            let free = kernel.available();
            let pages: Vec<u32> = std::iter::from_fn(|| kernel.page(0)).collect();
            assert_eq!(pages.len() as u64, free);
            assert_eq!(pages.iter().collect::<std::collections::HashSet<_>>().len(), pages.len());
            pages
        };
        assert_eq!(order(3), order(3));
        assert_ne!(order(3), order(4));
    }

    #[test]
    fn an_old_machine_hands_out_frames_in_short_runs() {
        let mut kernel = aged(&history(), 5);
        assert_eq!(kernel.zone().check(), Ok(()));
        let available = kernel.available() as f64 / f64::from(kernel.zone().frames());
        assert!((0.58..=0.8).contains(&available), "{available}");
        let pages: Vec<u32> = (0..2000).map_while(|_| kernel.page(0)).collect();
        let runs = pages.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert!((40..1900).contains(&runs), "{runs} runs");
    }

    #[test]
    fn histories_that_cannot_be_are_refused() {
        assert_eq!(History::default().check(), Ok(()));
        let bad = |change: fn(&mut History)| {
            let mut history = History::default();
            change(&mut history);
            history.check().unwrap_err()
        };
        assert!(bad(|history| history.used = 0.6).contains("together"));
        assert!(bad(|history| history.memory_bytes = 4096).contains("4 MiB"));
        assert!(bad(|history| history.turnover = f64::NAN).contains("turnover"));
        assert!(bad(|history| history.processors = 0).contains("processors"));
    }
}
