//! A machine on which programs have started, grown concurrently, read files, and ended.

use pagelab_stats::stream::SplitMix64;

use super::history::History;
use super::kernel::{Kernel, LARGEST_FOLIO};

/// Most pages that a program gets in one turn, as a power of two.
const LONGEST_TURN: u32 = 6;
/// Pages that a program reads from a file at once (`cat`, `cp` and compilers: 128 KiB).
const READ: u64 = 32;

/// A size that is lognormally distributed, in pages.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    median: f64,
    /// Standard deviation of the binary logarithm.
    doublings: f64,
}

impl Sizes {
    fn draw(self, random: &mut SplitMix64, most: u64) -> u64 {
        ((self.median * exp2(self.doublings * normal(random))) as u64).clamp(1, most.max(1))
    }
}

#[derive(Clone, Debug, Default)]
struct Program {
    /// Its pages, in the order in which they came.
    pages: Vec<u32>,
    /// Number of pages that it wants.
    size: u64,
}

struct Ageing<'h> {
    history: &'h History,
    kernel: Kernel,
    random: SplitMix64,
    /// Programs that grow, `growing` of them for each processor.
    growing: Vec<Program>,
    /// Programs that have reached their size.
    grown: Vec<Program>,
    held: u64,
    handed: u64,
    read: u64,
}

/// Builds a machine with this history; `seed` determines the sequence of its programs and files.
///
/// Processors take turns at random. In a turn a program gets up to 64 pages, or a file is read. A program that has
/// reached its size stays until programs hold too much: then one of them, chosen at random, ends, and its pages go back
/// in the order in which they came. Files are dropped, the oldest first, when fewer pages than the low watermark are
/// free, or are deleted. In the end programs end until they hold `used`, files are dropped, and the processors' lists
/// shrink, as they do on an idle machine.
#[must_use]
pub fn aged(history: &History, seed: u64) -> Kernel {
    let frames = u32::try_from(history.memory_bytes >> super::PAGE_BITS).unwrap_or(u32::MAX - 1);
    let mut kernel = Kernel::new(frames, history.processors);
    let mut random = SplitMix64::new(seed);
    kernel.scatter((f64::from(frames) * history.scattered) as u64, &mut random);
    if history.turnover <= 0.0 {
        return kernel;
    }
    let growing = vec![Program::default(); history.growing * history.processors];
    let mut ageing = Ageing { history, kernel, random, growing, grown: vec![], held: 0, handed: 0, read: 0 };
    ageing.live(frames);
    ageing.settle(frames);
    ageing.kernel
}

impl Ageing<'_> {
    fn live(&mut self, frames: u32) {
        let share = |part: f64| (f64::from(frames) * part) as u64;
        let History { used, cached, turnover, peak, .. } = *self.history;
        let (most_held, most_cached) = (share(peak.max(used * (1.0 - self.history.kept))), share(cached));
        let wanted = share(turnover + used + cached);
        let file_share = match (cached > 0.0, most_held > 0) {
            (false, _) => 0.0,
            (true, false) => 1.0,
            (true, true) => self.history.from_files,
        };
        if file_share == 0.0 && most_held == 0 {
            return;
        }
        let kept = share(used * self.history.kept);
        for _ in 0..kept {
            _ = self.kernel.page(0);
        }
        self.handed += kept;
        while self.handed < wanted {
            let processor = self.random.below(self.history.processors as u64) as usize;
            if (self.read as f64) < (self.handed - kept) as f64 * file_share || file_share == 1.0 {
                self.read_file(processor, most_cached);
            } else {
                self.grow(processor, most_held);
            }
        }
    }

    /// Simulates a turn of one of the processor's programs.
    fn grow(&mut self, processor: usize, most_held: u64) {
        let nth = processor * self.history.growing + self.random.below(self.history.growing as u64) as usize;
        let longest = 1 << self.random.below(u64::from(LONGEST_TURN) + 1);
        let turn = 1 + self.random.below(longest);
        let program = &mut self.growing[nth];
        if program.size == 0 {
            let (mean, doublings) = (most_held as f64 / self.history.programs as f64, self.history.programs_differ);
            // The mean of a lognormal variable is e^(σ²/2) times its median.
            let median = mean / exp2(doublings * doublings * std::f64::consts::LN_2 / 2.0);
            program.size = Sizes { median, doublings }.draw(&mut self.random, most_held / 2);
        }
        let before = program.pages.len() as u64;
        let count = turn.min(program.size - before);
        program.pages.extend((0..count).map_while(|_| self.kernel.page(processor)));
        let (now, size) = (program.pages.len() as u64, program.size);
        self.held += now - before;
        self.handed += count;
        if now == size || now - before < count {
            let grown = std::mem::take(program);
            self.grown.push(grown);
        }
        while self.held > most_held {
            if self.grown.is_empty() {
                self.grown.push(std::mem::take(&mut self.growing[nth]));
            }
            self.end_one(processor);
        }
    }

    /// Ends one of the grown programs.
    fn end_one(&mut self, processor: usize) {
        let which = self.random.below(self.grown.len() as u64) as usize;
        let ended = self.grown.swap_remove(which);
        self.held -= ended.pages.len() as u64;
        ended.pages.into_iter().for_each(|page| self.kernel.release(processor, page));
    }

    /// Reads a file from its beginning to its end, in the windows of Linux's readahead (mm/readahead.c): the first
    /// window has single pages, each further one has folios four times as large. If memory has no block of a folio's
    /// size, the rest of the window is single pages.
    fn read_file(&mut self, processor: usize, most_cached: u64) {
        let median = self.history.file_bytes as f64 / f64::from(1 << super::PAGE_BITS);
        let file = Sizes { median, doublings: self.history.files_differ };
        let size = file.draw(&mut self.random, most_cached / 4);
        let largest = self.history.readahead_bytes >> super::PAGE_BITS;
        let mut window = first_window(largest);
        let (mut folios, mut at, mut order) = (vec![], 0, 0);
        while at < size {
            let end = (at + window).min(size);
            let mut wanted = order.min(window.ilog2() as usize).min(LARGEST_FOLIO);
            while at < end {
                let aligned = if at == 0 { wanted } else { wanted.min(at.trailing_zeros() as usize) };
                let order = aligned.min((end - at).ilog2() as usize);
                match self.kernel.folio(processor, order) {
                    Some(page) => folios.push((page, order as u8)),
                    None if order > 0 => {
                        wanted = 0;
                        continue;
                    }
                    None => break,
                }
                at += 1 << order;
            }
            if at < end {
                break;
            }
            order += 2;
            window = next_window(window, largest);
        }
        self.handed += size;
        self.read += size;
        self.kernel.cache(folios);
        while self.kernel.cached() > most_cached && self.kernel.forget_oldest() {}
        if self.random.below(1 << 20) < (self.history.deleted * f64::from(1 << 20)) as u64 {
            let nth = self.random.next();
            self.kernel.delete(nth);
        }
    }

    /// Brings the machine to its final state.
    fn settle(&mut self, frames: u32) {
        let left = (f64::from(frames) * self.history.used * (1.0 - self.history.kept)) as u64;
        self.grown.append(&mut self.growing);
        while self.held > left && !self.grown.is_empty() {
            let processor = self.random.below(self.history.processors as u64) as usize;
            self.end_one(processor);
        }
        let kept = (self.kernel.cached() as f64 * (1.0 - self.history.dropped)) as u64;
        while self.kernel.cached() > kept && self.kernel.forget_oldest() {}
        self.kernel.rest();
    }
}

/// Size of the first window (Linux: `get_init_ra_size`).
fn first_window(largest: u64) -> u64 {
    match READ {
        read if read <= largest / 32 => 4 * read,
        read if read <= largest / 4 => 2 * read,
        _ => largest,
    }
}

/// Size of the window after `window` (Linux: `get_next_ra_size`).
const fn next_window(window: u64, largest: u64) -> u64 {
    if window < largest / 16 {
        4 * window
    } else if window <= largest / 2 {
        2 * window
    } else {
        largest
    }
}

/// A normal variable of mean 0 and variance 1: the sum of twelve uniform numbers, which is the same on every machine.
fn normal(random: &mut SplitMix64) -> f64 {
    (0..12).map(|_| random.below(1 << 32) as f64).sum::<f64>() / f64::from(1 << 16) / f64::from(1 << 16) - 6.0
}

/// 2^`power`, linear between whole powers: the same on every machine, unlike libraries' functions.
fn exp2(power: f64) -> f64 {
    let whole = power.floor().clamp(-60.0, 60.0);
    let base = if whole < 0.0 { 1.0 / (1_u64 << -whole as u32) as f64 } else { (1_u64 << whole as u32) as f64 };
    base * (1.0 + (power - whole).clamp(0.0, 1.0))
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
    fn large_blocks_are_few_and_different_on_another_machine() {
        // With the former model, every seed left the same 25 blocks of 4 MiB, with nine tenths of the free memory.
        let history = History { memory_bytes: 256 << 20, turnover: 20.0, ..History::default() };
        let whole = |seed| aged(&history, seed).zone().blocks()[10] << 10;
        let shares: Vec<f64> =
            (0..4).map(|seed| whole(seed) as f64 / aged(&history, seed).zone().free() as f64).collect();
        assert!(shares.iter().all(|share| *share < 0.5), "{shares:?}");
    }

    #[test]
    fn every_past_that_is_allowed_ends_with_a_whole_zone() {
        let base = History { memory_bytes: 8 << 20, turnover: 3.0, ..History::default() };
        for history in [
            History { used: 0.0, cached: 0.0, ..base },
            History { used: 0.0, cached: 1.0, peak: 0.95, ..base },
            History { used: 0.95, cached: 0.05, programs: 1, growing: 1024, ..base },
            History { used: 0.5, cached: 0.5, kept: 1.0, from_files: 0.0, ..base },
            History { used: 0.5, cached: 0.5, programs_differ: 6.0, files_differ: 6.0, deleted: 1.0, ..base },
            History { from_files: 1.0, readahead_bytes: 64 << 20, file_bytes: 1 << 40, ..base },
            History { processors: 1024, programs: 1 << 20, readahead_bytes: 4 << 10, file_bytes: 1, ..base },
        ] {
            assert_eq!(history.check(), Ok(()));
            let mut kernel = aged(&history, 7);
            assert_eq!(kernel.zone().check(), Ok(()), "{history:?}");
            let (free, taken) = (kernel.available(), std::iter::from_fn(|| kernel.page(0)).count() as u64);
            assert_eq!(taken, free, "{history:?}");
        }
    }

    #[test]
    fn sizes_are_lognormal() {
        let mut random = SplitMix64::new(1);
        let mut drawn: Vec<u64> =
            (0..40_001).map(|_| Sizes { median: 1000.0, doublings: 2.0 }.draw(&mut random, 1 << 40)).collect();
        drawn.sort_unstable();
        // One standard deviation lies at 15.9 and 84.1%, two doublings off; linear between powers errs by 6% at most.
        for (rank, wanted) in [(6348, 250.0), (20_000, 1000.0), (33_653, 4000.0)] {
            let off = drawn[rank] as f64 / wanted;
            assert!((0.9..1.1).contains(&off), "{rank}: {off}");
        }
    }
}
