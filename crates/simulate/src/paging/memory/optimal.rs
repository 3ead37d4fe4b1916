//! OPT (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966):
//! the page whose next use lies farthest ahead leaves. It is simulated in one pass, without looking ahead.
//!
//! Between one use of a page and the next, the page occupies a frame, or it faults. So a memory of f frames, one of
//! which is occupied by the page in use, schedules such intervals on f - 1 machines, and OPT schedules as many as
//! possible. They are found in the order of their ends: an interval goes to the machine that has been free for the
//! shortest time, of those that are free when it begins (Carlisle and Lloyd, "On the k-coloring of intervals", Discrete
//! Applied Mathematics 59(3), 1995; Faigle and Nawijn, "Note on scheduling intervals on-line", same journal 58(1),
//! 1995). So whether OPT keeps a page is known when the page is used again. Free machines are bits on a line of time,
//! each at the use since which the machine is free; the last one up to a given time is taken.
//!
//! A larger memory keeps all pages that a smaller one keeps (Mattson et al., IBM Systems Journal 9(2), 1970). So
//! memories are examined from the largest down, until one has lost the page.

use super::{Asked, BATCH, Replace, TOGETHER};
use crate::cpu;
use crate::pages::Id;
use crate::paging::colouring::Chain;
use crate::table::Table;
use free_frames::FreeFrames;

mod free_frames;

/// The time before the first use; also that of pages that were never used.
const START: u32 = 0;
/// Least number of uses between two compactions.
const SHORT: usize = 1 << 14;
/// Number of references by which memory is prefetched.
const AHEAD: usize = 16;

/// Groups the memories that have the same number of colours.
pub fn alike(mut asked: Vec<Asked>) -> Vec<Box<dyn Replace>> {
    asked.sort_by(|a, b| a.chain.counts().cmp(b.chain.counts()).then(b.frames.cmp(&a.frames)));
    let mut groups: Vec<Group> = Vec::new();
    for one in asked {
        let last = groups
            .last_mut()
            .filter(|group| group.chain.counts() == one.chain.counts() && group.memories.len() < TOGETHER);
        match last {
            Some(group) => group.memories.push((one.nth, one.frames)),
            None => groups.push(Group::new(one)),
        }
    }
    groups.iter_mut().for_each(Group::begin);
    groups.into_iter().map(|group| Box::new(group) as Box<dyn Replace>).collect()
}

/// Memories with the same number of colours, the largest first.
#[derive(Debug)]
struct Group {
    chain: Chain,
    /// Number of each memory, and its frames per colour.
    memories: Vec<(usize, u32)>,
    /// A line of time for each colour.
    lines: Vec<Line>,
    /// Time of each page's last use, on its colour's line; pages of a chunk are neighbours.
    last_uses: Table<u32>,
    uses: u64,
    /// Number of uses by the number of memories that had kept the page.
    kept_by: [u64; TOGETHER + 1],
}

impl Group {
    fn new(one: Asked) -> Self {
        let memories = vec![(one.nth, one.frames)];
        let (lines, last_uses) = (Vec::new(), Table::default());
        Self { chain: one.chain, memories, lines, last_uses, uses: 0, kept_by: [0; TOGETHER + 1] }
    }

    /// Begins, when all memories of the group are known.
    fn begin(&mut self) {
        self.lines = (0..1 << self.chain.code_bits()).map(|_| Line::new(&self.memories)).collect();
    }

    #[inline(always)]
    fn take(&mut self, ids: &[Id], codes: &[u16]) {
        let mut uses = [(START, START); BATCH];
        for (nth, (&id, &code)) in ids.iter().zip(codes).enumerate() {
            if let Some(&soon) = ids.get(nth + AHEAD) {
                cpu::prefetch(&self.last_uses, soon as usize);
            }
            let line = &mut self.lines[code as usize];
            let last = &mut self.last_uses[id as usize];
            let before = std::mem::replace(last, line.append(id));
            line.free.prefetch(before);
            uses[nth] = (before, *last);
        }
        for (&(before, now), &code) in uses.iter().zip(codes) {
            let kept = self.lines[code as usize].use_again(before, now, self.memories.len());
            self.kept_by[kept] += 1;
        }
        self.uses += ids.len() as u64;
    }
}

impl Replace for Group {
    fn feed(&mut self, pages: &[u64], ids: &[Id], bound: usize) {
        let mut codes = [0; BATCH];
        let codes = &mut codes[..pages.len()];
        self.chain.codes(pages, codes);
        self.last_uses.resize(bound, START);
        for line in &mut self.lines {
            line.prepare(ids.len(), &mut self.last_uses);
        }
        cpu::with_avx2(
            #[inline(always)]
            || self.take(ids, codes),
        );
    }

    fn faults(&self) -> Vec<(usize, u64)> {
        // The largest memories are the ones that had kept it.
        let kept = |rank: usize| self.kept_by[rank + 1..].iter().sum::<u64>();
        self.memories.iter().enumerate().map(|(rank, &(nth, _))| (nth, self.uses - kept(rank))).collect()
    }
}

/// Uses of one colour's pages in order of time, and the free frames.
#[derive(Debug)]
struct Line {
    free: FreeFrames,
    /// The page of each use, and space for more.
    pages: Table<Id>,
    length: usize,
    /// Number of uses from which on compaction is worth its cost.
    long: usize,
}

impl Line {
    fn new(memories: &[(usize, u32)]) -> Self {
        let mut unused = [0; TOGETHER];
        // The page in use has one frame.
        unused.iter_mut().zip(memories).for_each(|(unused, (_, frames))| *unused = frames - 1);
        Self { free: FreeFrames::new(unused), pages: Table::default(), length: 1, long: SHORT }
    }

    /// Appends a use of this page; returns its time.
    #[inline(always)]
    fn append(&mut self, page: Id) -> u32 {
        let now = self.length;
        self.pages[now] = page;
        self.length += 1;
        now as u32
    }

    /// The page that was used at `before` is used `now`; returns how many of the memories, the largest first, had kept
    /// it.
    #[inline(always)]
    fn use_again(&mut self, before: u32, now: u32, memories: usize) -> usize {
        if before == START {
            return 0;
        }
        if before + 1 == now {
            // Nothing was used in between, and no further frame is free.
            return memories;
        }
        let kept = self.free.take_up_to(before, memories);
        if kept > 0 {
            self.free.insert(now - 1, kept);
        }
        kept
    }

    /// Makes space for `uses` more uses; first removes uses that will never be needed, if there are many.
    fn prepare(&mut self, uses: usize, last_uses: &mut Table<u32>) {
        if self.length >= self.long {
            cpu::with_avx2(
                #[inline(always)]
                || self.compact(last_uses),
            );
            self.long = SHORT.max(4 * self.length);
        }
        self.pages.resize(self.pages.len().max(self.length + uses), 0);
        self.free.reserve(self.length + uses);
    }

    /// Keeps the last use of each page, and uses since which a frame is free.
    #[inline(always)]
    fn compact(&mut self, last_uses: &mut Table<u32>) {
        let (pages, length) = (&mut self.pages, self.length);
        self.length = self.free.compact(length, 1, |first, free, mut to| {
            let mut kept = 0;
            for (place, at) in (first..length.min(first + u64::BITS as usize)).enumerate() {
                if let Some(&soon) = pages.get(at + AHEAD) {
                    cpu::prefetch(last_uses, soon as usize);
                }
                let page = pages[at];
                let last = &mut last_uses[page as usize];
                let is_last = *last == at as u32 && at as u32 != START;
                if is_last {
                    *last = to as u32;
                }
                if is_last || free >> place & 1 == 1 {
                    pages[to] = page;
                    to += 1;
                    kept |= 1 << place;
                }
            }
            kept
        });
    }
}
