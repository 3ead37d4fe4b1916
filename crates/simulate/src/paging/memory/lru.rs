//! LRU at one size: a log of uses for each list, in which only each page's last entry is valid.
//!
//! A hit appends to the log and writes one other word. The page to evict is found by a walk over the log from its old
//! end, over entries that later uses have made stale. Each entry is passed once.

use super::{Asked, BATCH, Replace};
use crate::cpu;
use crate::pages::Id;
use crate::paging::colouring::Chain;

const ABSENT: u32 = u32::MAX;
/// A log has space for so many times the pages in memory.
const ROOM: usize = 4;
/// Entries of a log at first, at most: a large memory may never be full.
const FIRST_ROOM: usize = 1 << 16;

/// One memory.
#[derive(Debug)]
pub struct Lru {
    nth: usize,
    chain: Chain,
    frames: u32,
    faults: u64,
    /// Position of the page's last use in the log of its list, or [`ABSENT`].
    stamp: Vec<u32>,
    logs: Vec<Log>,
}

#[derive(Debug)]
struct Log {
    entries: Vec<Id>,
    start: usize,
    pages: u32,
}

impl Lru {
    pub fn new(asked: Asked) -> Self {
        let (lists, frames) = (asked.lists(), asked.frames);
        let room = (frames as usize * ROOM).clamp(64, FIRST_ROOM);
        let log = || Log { entries: Vec::with_capacity(room), start: 0, pages: 0 };
        let logs = (0..lists).map(|_| log()).collect();
        Self { nth: asked.nth, chain: asked.chain, frames, faults: 0, stamp: Vec::new(), logs }
    }
}

impl Log {
    /// Removes the page used longest ago.
    #[inline(always)]
    fn evict(&mut self, stamp: &mut [u32]) {
        loop {
            let oldest = self.entries[self.start] as usize;
            let live = stamp[oldest] as usize == self.start;
            self.start += 1;
            if live {
                stamp[oldest] = ABSENT;
                return;
            }
        }
    }

    /// Compacts the log: keeps the valid entries, and makes space for more.
    #[cold]
    fn compact(&mut self, stamp: &mut [u32]) {
        let mut kept = 0;
        for at in self.start..self.entries.len() {
            let id = self.entries[at];
            if stamp[id as usize] as usize == at {
                self.entries[kept] = id;
                stamp[id as usize] = kept as u32;
                kept += 1;
            }
        }
        self.entries.truncate(kept);
        self.start = 0;
        if kept > self.entries.capacity() / ROOM {
            self.entries.reserve_exact(kept * (ROOM - 1));
        }
    }
}

impl Replace for Lru {
    fn feed(&mut self, pages: &[u64], ids: &[Id], bound: usize) {
        let mut lists = [0; BATCH];
        self.chain.codes(pages, &mut lists[..pages.len()]);
        self.stamp.resize(bound, ABSENT);
        let stamp = &mut self.stamp[..];
        for &id in ids {
            cpu::prefetch(stamp, id as usize);
        }
        for (&id, &list) in ids.iter().zip(&lists) {
            let log = &mut self.logs[list as usize];
            if log.entries.len() == log.entries.capacity() {
                log.compact(stamp);
            }
            if stamp[id as usize] == ABSENT {
                self.faults += 1;
                if log.pages == self.frames {
                    log.evict(stamp);
                } else {
                    log.pages += 1;
                }
            }
            stamp[id as usize] = log.entries.len() as u32;
            log.entries.push(id);
        }
    }

    fn faults(&self) -> Vec<(usize, u64)> {
        vec![(self.nth, self.faults)]
    }
}
