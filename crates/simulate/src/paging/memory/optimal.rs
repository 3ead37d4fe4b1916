//! OPT (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966): the
//! page whose next use lies farthest ahead leaves. In one pass, without looking ahead.
//!
//! Between one use of a page and the next it occupies a frame, or it faults. So a memory of f frames, one of which the page
//! in use has, keeps such intervals on f - 1 machines, and OPT keeps as many as can be kept. Those are found in order of
//! their ends: an interval goes to the machine that has been free for the shortest time, of those that are free when it
//! begins (Carlisle and Lloyd, "On the k-coloring of intervals", Discrete Applied Mathematics 59(3), 1995; Faigle and
//! Nawijn, "Note on scheduling intervals on-line", same journal 58(1), 1995). A page that OPT would keep is thus known when
//! it is used again. Machines that are free are bits on a line of time, at the use from which on they are; the last one up
//! to a time is taken.
//!
//! A larger memory keeps what a smaller one keeps (Mattson et al., IBM Systems Journal 9(2), 1970), so that memories are
//! asked from the largest down, until one has lost the page.

use super::{Asked, BATCH, Replace, TOGETHER};
use crate::cpu;
use crate::pages::Id;
use crate::paging::colouring::Chain;
use crate::table::Table;
use free_frames::FreeFrames;

mod free_frames;

/// The time before the first use, and of pages that were not used.
const START: u32 = 0;
/// Uses between two compactions, at least.
const SHORT: usize = 1 << 14;
/// How far ahead memory is fetched.
const AHEAD: usize = 16;

/// Memories with as many colours together.
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

/// Memories with as many colours, the largest first.
#[derive(Debug)]
struct Group {
    chain: Chain,
    /// Their numbers, and the frames of a colour.
    memories: Vec<(usize, u32)>,
    /// By colour.
    lines: Vec<Line>,
    /// When each page was used last, on its colour's line; pages of a chunk are neighbours.
    last_uses: Table<u32>,
    uses: u64,
    /// Uses by the number of memories that had kept the page.
    kept_by: [u64; TOGETHER + 1],
}

impl Group {
    fn new(one: Asked) -> Self {
        let memories = vec![(one.nth, one.frames)];
        let (lines, last_uses) = (Vec::new(), Table::default());
        Self { chain: one.chain, memories, lines, last_uses, uses: 0, kept_by: [0; TOGETHER + 1] }
    }

    /// All of its memories are there.
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
        cpu::widest(
            #[inline(always)]
            || self.take(ids, codes),
        );
    }

    fn faults(&self) -> Vec<(usize, u64)> {
        // What so many memories had kept was kept by the largest of them.
        let kept = |rank: usize| self.kept_by[rank + 1..].iter().sum::<u64>();
        self.memories.iter().enumerate().map(|(rank, &(nth, _))| (nth, self.uses - kept(rank))).collect()
    }
}

/// Uses of one colour's pages in order of time, and the frames that were free.
#[derive(Debug)]
struct Line {
    free: FreeFrames,
    /// The page of each use, and room for more.
    pages: Table<Id>,
    length: usize,
    /// Uses from which on compacting pays.
    long: usize,
}

impl Line {
    fn new(memories: &[(usize, u32)]) -> Self {
        let mut unused = [0; TOGETHER];
        // One frame has the page in use.
        unused.iter_mut().zip(memories).for_each(|(unused, (_, frames))| *unused = frames - 1);
        Self { free: FreeFrames::new(unused), pages: Table::default(), length: 1, long: SHORT }
    }

    /// A use of this page; returns its time.
    #[inline(always)]
    fn append(&mut self, page: Id) -> u32 {
        let now = self.length;
        self.pages[now] = page;
        self.length += 1;
        now as u32
    }

    /// The page that was used at `before` is used `now`; returns how many of the memories, the largest first, had kept it.
    #[inline(always)]
    fn use_again(&mut self, before: u32, now: u32, memories: usize) -> usize {
        if before == START {
            return 0;
        }
        if before + 1 == now {
            // Nothing came between, and no frame is free that was not.
            return memories;
        }
        let kept = self.free.take_up_to(before, memories);
        if kept > 0 {
            self.free.insert(now - 1, kept);
        }
        kept
    }

    /// Room for as many uses; before that, uses that nobody will ask for are left out, where there are many.
    fn prepare(&mut self, uses: usize, last_uses: &mut Table<u32>) {
        if self.length >= self.long {
            cpu::widest(
                #[inline(always)]
                || self.compact(last_uses),
            );
            self.long = SHORT.max(4 * self.length);
        }
        self.pages.resize(self.pages.len().max(self.length + uses), 0);
        self.free.reserve(self.length + uses);
    }

    /// Keeps the last use of each page, and those since when a frame is free.
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
