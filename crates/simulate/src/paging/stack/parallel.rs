//! The stacks on several threads: each takes a segment of the references read so far, all but the first from empty
//! stacks; then the segments are appended.
//!
//! Appending costs as much as a few references to each page, so segments are long. The last one is longer than the
//! others and stops where it is when these are done: its rest begins the next job, and no thread waits for another.
//!
//! The more pages there are, the longer are segments, up to a limit. If two segments within it are not worth it, one
//! thread does all work. Two threads for the colour counts of one chain were not worth it: most of a reference's cost is
//! that of its first colour count, and both threads had it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use super::super::Touch;
use super::super::colouring::{Colouring, ColouringError};
use super::{Curve, Stacks};

/// Number of page runs handed over at a time. A segment ends at the end of such a chunk.
const CHUNK: usize = 1 << 17;
/// Fewest chunks of a segment that are worth a thread, and chunks of the first job, because the number of pages is
/// unknown before it.
const LEAST: usize = 8;
/// Fewest chunks of a segment of later jobs: tens of milliseconds, much longer than a job's beginning and end ...
const USUAL: usize = 32;
/// ... and page runs of a segment per page, so that appending takes a few percent ...
const PER_PAGE: usize = 64;
/// ... if these are not more chunks than may wait, 8 bytes per page run; as many again are being counted. With many pages
/// more may wait, as many runs per page and thread, up to a greater limit.
const USUALLY_WAITING: usize = (1 << 23) / CHUNK;
const WAITING_PER_PAGE: usize = 8;
const MOST_WAITING: usize = (1 << 26) / CHUNK;
/// A segment of this many page runs per page is still worth a thread: appending costs less than two for each page.
const FEW_PER_PAGE: usize = 3;
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
    waiting: Vec<Vec<u64>>,
    filling: Vec<u64>,
    spare: Vec<Vec<u64>>,
    /// Number of chunks of the next job.
    enough: usize,
    references: u64,
}

/// The threads and their work.
#[derive(Debug)]
struct Team {
    stacks: Stacks,
    /// Stacks for the segments after the first; empty between jobs.
    others: Vec<Stacks>,
    chunks: Vec<Vec<u64>>,
    /// Chunks that were counted: space to read into.
    spare: Vec<Vec<u64>>,
    /// Most chunks that may wait.
    most_waiting: usize,
}

impl Parallel {
    /// Empty stacks for `threads` threads.
    ///
    /// # Errors
    /// As [`Stacks::new`].
    pub fn new(colouring: &Colouring, counts: &[u32], threads: usize) -> Result<Self, ColouringError> {
        let threads = threads.max(1);
        let others = (1..threads).map(|_| Stacks::new(colouring, counts)).collect::<Result<_, _>>()?;
        let (chunks, spare) = Default::default();
        let stacks = Stacks::new(colouring, counts)?;
        let team = Box::new(Team { stacks, others, chunks, spare, most_waiting: MOST_WAITING });
        let (waiting, filling, spare) = Default::default();
        let enough = team.enough();
        Ok(Self { team: Some(team), job: None, waiting, filling, spare, enough, references: 0 })
    }

    /// Takes the next references; with one thread, or if one is enough, they are counted at once.
    pub fn feed<T: Touch>(&mut self, mut references: &[T]) {
        while !references.is_empty() {
            if let Some(team) = &mut self.team
                && self.waiting.is_empty()
                && self.filling.is_empty()
                && team.is_alone()
            {
                team.stacks.feed(references);
                self.references += references.iter().map(Touch::count).sum::<u64>();
                return;
            }
            let (piece, rest) = references.split_at(references.len().min(CHUNK - self.filling.len()));
            self.filling.extend(piece.iter().map(Touch::page));
            self.references += piece.iter().map(Touch::count).sum::<u64>();
            references = rest;
            if self.filling.len() == CHUNK {
                let next = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK));
                self.waiting.push(std::mem::replace(&mut self.filling, next));
                if self.waiting.len() >= self.enough {
                    self.start();
                }
            }
        }
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
        self.spare.append(&mut team.spare);
        self.enough = team.enough();
        if team.chunks.len() + self.waiting.len() < self.enough {
            // The job saw more pages than were known before.
            self.team = Some(team);
            return;
        }
        team.chunks.append(&mut self.waiting);
        if team.is_alone() {
            team.count(1.0);
            self.team = Some(team);
            return;
        }
        self.job = Some(thread::spawn(move || {
            team.count(LAST_SHARE);
            team
        }));
    }

    fn join(&mut self) -> Box<Team> {
        match self.job.take() {
            Some(job) => job.join().expect("counting does not panic"),
            None => self.team.take().expect("no job has it"),
        }
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
        while !team.chunks.is_empty() {
            let share = if team.chunks.len() > team.enough() { LAST_SHARE } else { 1.0 };
            team.count(share);
        }
        team.stacks.references = self.references;
        let curves = team.stacks.curves();
        self.team = Some(team);
        curves
    }
}

impl Team {
    /// Number of chunks that should wait for a job.
    fn enough(&self) -> usize {
        let pages = self.stacks.held();
        if pages == 0 {
            return LEAST;
        }
        if self.is_alone() {
            return 1;
        }
        let segment = (pages * PER_PAGE).div_ceil(CHUNK).max(USUAL);
        let threads = 1 + self.others.len();
        let most = (pages * threads * WAITING_PER_PAGE / CHUNK).max(USUALLY_WAITING).min(self.most_waiting);
        ((segment as f64 * shares(threads, LAST_SHARE)).ceil() as usize).min(most)
    }

    /// Counts the chunks: the first segment on top of the state of `stacks`, each other one from empty stacks. If the
    /// last segment has more than one share, it need not come to its end.
    fn count(&mut self, last_share: f64) {
        let most = if self.stacks.held() == 0 { 1 } else { 1 + self.others.len() };
        let segments = (self.chunks.len() / self.least()).clamp(1, most);
        let share = self.chunks.len() as f64 / shares(segments, last_share);
        let start = |nth: usize| ((share * nth as f64).round() as usize).min(self.chunks.len());
        let others = &mut self.others[..segments - 1];
        let unfinished = AtomicUsize::new(segments - 1);
        let counted = AtomicUsize::new(self.chunks.len());
        let feed = |nth: usize, stacks: &mut Stacks| {
            let is_last = nth + 1 == segments && nth > 0;
            let end = if is_last { self.chunks.len() } else { start(nth + 1) };
            for chunk in start(nth)..end {
                if is_last && last_share > 1.0 && unfinished.load(Ordering::Relaxed) == 0 {
                    counted.store(chunk, Ordering::Relaxed);
                    return;
                }
                stacks.feed(&self.chunks[chunk]);
            }
            if !is_last {
                unfinished.fetch_sub(1, Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            for (nth, stacks) in (1..).zip(&mut *others) {
                let feed = &feed;
                scope.spawn(move || feed(nth, stacks));
            }
            feed(0, &mut self.stacks);
        });
        for stacks in others {
            self.stacks.append(stacks);
            stacks.clear();
        }
        self.counted(counted.into_inner());
    }

    /// Chunks of the shortest segment that is worth a thread.
    fn least(&self) -> usize {
        (self.stacks.held() * FEW_PER_PAGE).div_ceil(CHUNK).max(LEAST)
    }

    /// Whether the caller's thread does all work: if it is the only one, or if two segments are not worth it.
    fn is_alone(&self) -> bool {
        self.others.is_empty() || 2 * self.least() > self.most_waiting
    }

    fn counted(&mut self, chunks: usize) {
        self.spare.extend(self.chunks.drain(..chunks));
        self.spare.iter_mut().for_each(Vec::clear);
    }
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
