//! The stacks on several threads: each takes a segment of the references read so far, all but the first from empty
//! stacks. The segments are appended to the first one at the beginning of the next job, while the others count on.
//!
//! Appending costs as much as some references to each page, so segments are long. The last one is longer than the
//! others and stops where it is when these are done: its rest begins the next job, and no thread waits for another.
//!
//! The more pages there are, the longer are segments, up to a limit. If two segments within it are not worth it, one
//! thread does all work. Two threads for the colour counts of one chain were not worth it: most of a reference's cost
//! is that of its first colour count, and both threads had it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::super::Touch;
use super::super::colouring::{Colouring, ColouringError};
use super::{Curve, Stacks};
use crate::table::Table;

/// Number of page runs handed over at a time: a large page of them. A segment ends at the end of such a chunk.
const CHUNK: usize = 1 << 18;
/// Fewest chunks of a segment that are worth a thread, and chunks of the first job, because the number of pages is
/// unknown before it.
const LEAST: usize = 4;
/// Fewest chunks of a segment of later jobs: tens of milliseconds, much longer than a job's beginning and end ...
const USUAL: usize = 16;
/// ... and page runs of a segment per page, so that appending takes a few percent ...
const PER_PAGE: usize = 64;
/// ... if these are not more chunks than may wait, 8 bytes per page run. With many pages more may wait, as many runs
/// per page and thread, up to a greater limit.
const USUALLY_WAITING: usize = (1 << 23) / CHUNK;
const WAITING_PER_PAGE: usize = 8;
const MOST_WAITING: usize = (1 << 26) / CHUNK;
/// A segment of this many page runs per page is still worth a thread ...
const FEW_PER_PAGE: usize = 3;
/// ... as appending costs about as much as this many for each page.
const APPENDED_PER_PAGE: usize = 2;
/// Chunks that the caller may fill while a job has as many as are enough; further ones wait until it has counted some.
const READ_ON: usize = 4;
/// Length of the last segment, relative to the others.
const LAST_SHARE: f64 = 1.4;

/// Stacks that are fed by several threads, while the caller reads on.
#[derive(Debug)]
pub struct Parallel {
    /// `None` while `job` has the team.
    team: Option<Box<Team>>,
    job: Option<JoinHandle<Box<Team>>>,
    /// Pages of the runs that no job has yet: full chunks, and the one being filled. The length of runs matters only
    /// for `references`.
    waiting: Vec<Table<u64>>,
    filling: Table<u64>,
    /// Chunks to fill: those that were counted, and those that the job has counted since (a receiver alone is not
    /// `Sync`).
    spare: Vec<Table<u64>>,
    counted: Option<Mutex<Receiver<Table<u64>>>>,
    /// Number of chunks that there are.
    chunks: usize,
    /// Number of chunks of the next job.
    enough: usize,
    references: u64,
}

/// The threads and their work.
#[derive(Debug)]
struct Team {
    stacks: Stacks,
    threads: usize,
    /// The segments after those that `stacks` has, to be appended in this order.
    later: Vec<Stacks>,
    /// Empty stacks for further segments.
    others: Vec<Stacks>,
    chunks: Vec<Table<u64>>,
    /// Most chunks that may wait.
    most_waiting: usize,
}

impl Parallel {
    /// Empty stacks for `threads` threads.
    ///
    /// # Errors
    /// As [`Stacks::new`].
    pub fn new(colouring: &Colouring, counts: &[u32], threads: usize) -> Result<Self, ColouringError> {
        Self::exact_from(colouring, counts, 1, threads)
    }

    /// Empty stacks for memories of at least `memory` pages, as [`Stacks::exact_from`].
    ///
    /// # Errors
    /// As [`Stacks::new`].
    pub fn exact_from(
        colouring: &Colouring,
        counts: &[u32],
        memory: u64,
        threads: usize,
    ) -> Result<Self, ColouringError> {
        let threads = threads.max(1);
        let empty = || Stacks::exact_from(colouring, counts, memory);
        let others = (2..2 * threads).map(|_| empty()).collect::<Result<_, _>>()?;
        let (later, chunks) = Default::default();
        let stacks = empty()?;
        let team = Box::new(Team { stacks, threads, later, others, chunks, most_waiting: MOST_WAITING });
        let (waiting, filling, spare, counted) = Default::default();
        let enough = team.enough();
        let (chunks, references) = (1, 0);
        Ok(Self { team: Some(team), job: None, waiting, filling, spare, counted, chunks, enough, references })
    }

    /// Takes the next references; with one thread, or if one is enough, they are counted at once.
    pub fn feed<T: Touch>(&mut self, mut references: &[T]) {
        while !references.is_empty() {
            if let Some(team) = &mut self.team
                && self.waiting.is_empty()
                && self.filling.is_empty()
                && team.is_alone()
            {
                team.append();
                team.stacks.feed(references);
                self.references += references.iter().map(Touch::count).sum::<u64>();
                return;
            }
            let (piece, rest) = references.split_at(references.len().min(CHUNK - self.filling.len()));
            self.filling.reserve(CHUNK);
            self.filling.extend(piece.iter().map(Touch::page));
            self.references += piece.iter().map(Touch::count).sum::<u64>();
            references = rest;
            if self.filling.len() == CHUNK {
                let next = self.empty_chunk();
                self.waiting.push(std::mem::replace(&mut self.filling, next));
                if self.waiting.len() >= self.enough {
                    self.start();
                }
            }
        }
    }

    /// A chunk to fill. If there are enough, it waits for the job to have counted one.
    fn empty_chunk(&mut self) -> Table<u64> {
        let counted =
            self.counted.as_mut().map(|receiver| receiver.get_mut().unwrap_or_else(PoisonError::into_inner));
        let found = self.spare.pop().or_else(|| match self.chunks < self.enough + READ_ON {
            true => counted?.try_recv().ok(),
            false => counted?.recv().ok(),
        });
        self.chunks += usize::from(found.is_none());
        found.unwrap_or_default()
    }

    /// Adds this many references, each to the page used just before it: hits with any memory.
    pub fn repeat(&mut self, references: u64) {
        if let Some(team) = &mut self.team {
            team.stacks.references += references;
        }
        self.references += references;
    }

    /// Waits for the job under way, and starts a new one with the waiting chunks, if that is worth it.
    fn start(&mut self) {
        let mut team = self.join();
        self.enough = team.enough();
        if team.chunks.len() + self.waiting.len() < self.enough {
            // The job saw more pages than were known before.
            self.team = Some(team);
            return;
        }
        team.chunks.append(&mut self.waiting);
        let (counted, receiver) = mpsc::channel();
        self.counted = Some(Mutex::new(receiver));
        if team.is_alone() {
            team.count(1.0, &counted);
            self.team = Some(team);
            return;
        }
        self.job = Some(thread::spawn(move || {
            team.count(LAST_SHARE, &counted);
            team
        }));
    }

    fn join(&mut self) -> Box<Team> {
        let team = match self.job.take() {
            Some(job) => job.join().expect("counting does not panic"),
            None => self.team.take().expect("no job has it"),
        };
        if let Some(counted) = self.counted.take() {
            self.spare.extend(counted.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        team
    }

    /// References so far.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// The curves of every colour count, ascending.
    #[must_use]
    pub fn curves(&mut self) -> Vec<Curve> {
        let mut team = self.join();
        team.chunks.append(&mut self.waiting);
        team.chunks.push(std::mem::take(&mut self.filling));
        let (counted, receiver) = mpsc::channel();
        while !team.chunks.is_empty() {
            let share = if team.chunks.len() > team.enough() { LAST_SHARE } else { 1.0 };
            team.count(share, &counted);
        }
        self.spare.extend(receiver.try_iter());
        team.append();
        team.stacks.references = self.references;
        let curves = team.stacks.curves();
        self.team = Some(team);
        curves
    }
}

impl Team {
    /// Number of chunks that should wait for a job.
    fn enough(&self) -> usize {
        let pages = self.pages();
        if pages == 0 {
            return LEAST;
        }
        if self.is_alone() {
            return 1;
        }
        let segment = (pages * PER_PAGE).div_ceil(CHUNK).max(USUAL);
        let most = (pages * self.threads * WAITING_PER_PAGE / CHUNK).max(USUALLY_WAITING).min(self.most_waiting);
        ((segment as f64 * shares(self.threads, LAST_SHARE)).ceil() as usize).min(most)
    }

    /// Different pages so far, or somewhat fewer.
    fn pages(&self) -> usize {
        self.later.iter().chain([&self.stacks]).map(Stacks::held).max().unwrap_or(0)
    }

    /// Appends the later segments.
    fn append(&mut self) {
        for mut later in self.later.drain(..) {
            self.stacks.append(&mut later);
            later.clear();
            self.others.push(later);
        }
    }

    /// Counts the chunks, and hands each over when it is counted: the first segment on top of the state of `stacks` and
    /// of the later ones, each other one from empty stacks. If the last segment has more than one share, it need not
    /// come to its end.
    fn count(&mut self, last_share: f64, counted: &Sender<Table<u64>>) {
        let most = if self.pages() == 0 { 1 } else { self.threads };
        let segments = (self.chunks.len() / self.least()).clamp(1, most);
        let mut chunks = std::mem::take(&mut self.chunks);
        let appended = self.later.iter().map(Stacks::held).sum::<usize>() * APPENDED_PER_PAGE / CHUNK;
        let (first, others) = parts(&mut chunks, segments, last_share, appended);
        let mut counting = self.others.split_off(self.others.len() + 1 - segments);
        let unfinished = AtomicUsize::new(segments);
        let feed = |stacks: &mut Stacks, part: &mut [Table<u64>], stops: bool| {
            for chunk in part {
                if stops && unfinished.load(Ordering::Relaxed) == 1 {
                    return;
                }
                stacks.feed(chunk);
                let mut chunk = std::mem::take(chunk);
                chunk.clear();
                // Where the caller does the counting, it takes the chunks afterwards, or not at all.
                let _ = counted.send(chunk);
            }
            unfinished.fetch_sub(1, Ordering::Relaxed);
        };
        let feed = &feed;
        thread::scope(|scope| {
            for (nth, (stacks, part)) in (2..).zip(counting.iter_mut().zip(others)) {
                scope.spawn(move || feed(stacks, part, nth == segments && last_share > 1.0));
            }
            self.append();
            feed(&mut self.stacks, first, false);
        });
        self.later = counting;
        chunks.retain(|chunk| !chunk.is_empty());
        self.chunks = chunks;
    }

    /// Chunks of the shortest segment that is worth a thread.
    fn least(&self) -> usize {
        (self.pages() * FEW_PER_PAGE).div_ceil(CHUNK).max(LEAST)
    }

    /// Whether the caller's thread does all work: if it is the only one, or if two segments are not worth it.
    fn is_alone(&self) -> bool {
        self.threads == 1 || 2 * self.least() > self.most_waiting
    }
}

/// The chunks of the first segment and of each other one. The first is shorter by what takes as long as `appended`
/// chunks.
fn parts<T>(chunks: &mut [T], segments: usize, last_share: f64, appended: usize) -> (&mut [T], Vec<&mut [T]>) {
    let share = (chunks.len() + appended) as f64 / shares(segments, last_share);
    let (mut rest, mut begin) = (chunks, 0);
    let mut parts = Vec::with_capacity(segments);
    for nth in 1..=segments {
        let end = if nth == segments {
            begin + rest.len()
        } else {
            ((share * nth as f64).round() as usize).saturating_sub(appended)
        };
        let (part, others) = rest.split_at_mut(end.saturating_sub(begin).min(rest.len()));
        begin += part.len();
        rest = others;
        parts.push(part);
    }
    let first = parts.remove(0);
    (first, parts)
}

/// Sum of the lengths of `segments` segments, in lengths of the first one.
fn shares(segments: usize, last: f64) -> f64 {
    if segments == 1 { 1.0 } else { (segments - 1) as f64 + last }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_stats::stream::mix;

    /// From so many pages on one thread does all work; what waited until then is counted first.
    #[test]
    fn too_many_pages_for_several_segments_are_counted_by_one_thread() {
        let trace: Vec<u64> = (0..3_000_000).map(|i| mix(i) % (1 + i / 4)).collect();
        let curves = |threads, most_waiting| {
            let mut stacks = Parallel::new(&Colouring::Modulo, &[1, 3, 6], threads).unwrap();
            stacks.team.as_mut().unwrap().most_waiting = most_waiting;
            trace.chunks(70_001).for_each(|piece| stacks.feed(piece));
            let found = stacks.curves();
            (found, stacks.team.as_ref().unwrap().is_alone())
        };
        let (expected, _) = curves(1, MOST_WAITING);
        for (most_waiting, alone) in [(MOST_WAITING, false), (2 * LEAST, true)] {
            assert_eq!(curves(2, most_waiting), (expected.clone(), alone), "{most_waiting} chunks");
        }
    }
}
