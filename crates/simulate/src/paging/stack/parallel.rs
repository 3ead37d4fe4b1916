//! The stacks on several processors: each takes a segment of the trace from empty stacks, then the segments are appended.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use super::super::Touch;
use super::super::colouring::{Colouring, ColouringError};
use super::{Curve, Stacks};

/// Page runs that are handed over at a time, at most, and that are worth a thread, sixteen times over.
const SEGMENT: usize = 1 << 20;
/// Page runs of a job at least, for each thread: tens of milliseconds, beside which its beginning and end count for little.
const JOB: usize = 1 << 22;
/// Page runs that wait at most, 8 bytes each; as many again are being counted.
const MOST_WAITING: usize = 1 << 24;
/// Page runs of a segment for each page seen: appending costs about as much as three or four references to each page.
const PER_PAGE: usize = 64;
/// Segments for each thread at most: whoever is done early takes another one.
const SEGMENTS_PER_THREAD: usize = 4;
/// With fewer for each page, one thread is as good.
const TOO_FEW_PER_PAGE: usize = 8;

/// Stacks that are fed by several threads, while the caller reads on.
#[derive(Debug)]
pub struct Parallel {
    how: How,
    /// `None` while `job` has them.
    stacks: Option<Stacks>,
    job: Option<JoinHandle<(Stacks, Vec<u64>)>>,
    /// Pages of the runs that no thread has yet. How long runs are matters to `references` only.
    waiting: Vec<u64>,
    enough: usize,
    references: u64,
}

#[derive(Debug, Clone)]
struct How {
    colouring: Colouring,
    counts: Vec<u32>,
    threads: usize,
}

impl Parallel {
    /// Empty stacks for `threads` threads.
    ///
    /// # Errors
    /// As [`Stacks::new`].
    pub fn new(colouring: &Colouring, counts: &[u32], threads: usize) -> Result<Self, ColouringError> {
        let stacks = Some(Stacks::new(colouring, counts)?);
        let how = How { colouring: colouring.clone(), counts: counts.to_vec(), threads: threads.max(1) };
        let enough = how.enough(0);
        Ok(Self { how, stacks, job: None, waiting: Vec::new(), enough, references: 0 })
    }

    /// Takes the next references; with one thread they are counted at once.
    pub fn feed<T: Touch>(&mut self, references: &[T]) {
        if let (1, Some(stacks)) = (self.how.threads, &mut self.stacks) {
            stacks.feed(references);
            self.references = stacks.references;
            return;
        }
        for piece in references.chunks(SEGMENT) {
            self.waiting.extend(piece.iter().map(Touch::page));
            self.references += piece.iter().map(Touch::count).sum::<u64>();
            if self.waiting.len() >= self.enough {
                self.start();
            }
        }
    }

    /// So many references more, each to the page used just before it: hits with any memory.
    pub fn repeat(&mut self, references: u64) {
        if let Some(stacks) = &mut self.stacks {
            stacks.references += references;
        }
        self.references += references;
    }

    /// Waits for the job under way, and gives what waits to a new one.
    fn start(&mut self) {
        let (stacks, mut empty) = self.join();
        self.enough = self.how.enough(stacks.pages.len());
        empty.clear();
        let (how, pages) = (self.how.clone(), std::mem::replace(&mut self.waiting, empty));
        self.job = Some(thread::spawn(move || (how.count(stacks, &pages), pages)));
    }

    fn join(&mut self) -> (Stacks, Vec<u64>) {
        match self.job.take() {
            Some(job) => job.join().expect("counting does not panic"),
            None => (self.stacks.take().expect("no job has the stacks"), Vec::new()),
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
        let (stacks, _) = self.join();
        let mut stacks = self.how.count(stacks, &self.waiting);
        self.waiting.clear();
        stacks.references = self.references;
        let curves = stacks.curves();
        self.stacks = Some(stacks);
        curves
    }
}

impl How {
    /// How many page runs should wait for a job, when there are so many pages.
    fn enough(&self, pages: usize) -> usize {
        ((pages * PER_PAGE).max(JOB) * self.threads).min(MOST_WAITING)
    }

    /// Counts page runs with as many threads as pays: the first segment after what `stacks` has, the others from empty
    /// stacks. There are more segments than threads, because a program's phases take different times.
    fn count(&self, mut stacks: Stacks, pages: &[u64]) -> Stacks {
        let least = (stacks.pages.len() * TOO_FEW_PER_PAGE).max(SEGMENT / 16);
        let segments = (pages.len() / least).clamp(1, self.threads);
        let more = pages.len() / (stacks.pages.len() * PER_PAGE).max(SEGMENT / 4);
        // How many pages there are is not known at first.
        let most = if stacks.pages.is_empty() { segments } else { SEGMENTS_PER_THREAD * segments };
        let segments = if segments > 1 { more.clamp(segments, most) } else { 1 };
        let (first, rest) = pages.split_at(pages.len().div_ceil(segments));
        let rest: Vec<_> =
            rest.chunks(first.len().max(1)).map(|pages| Segment { pages, counted: OnceLock::new() }).collect();
        let next = AtomicUsize::new(0);
        let take = || {
            while let Some(segment) = rest.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut stacks =
                    Stacks::new(&self.colouring, &self.counts).expect("the same colours were accepted before");
                stacks.feed(segment.pages);
                let _ = segment.counted.set(stacks);
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads.min(segments) {
                scope.spawn(take);
            }
            stacks.feed(first);
            take();
        });
        for segment in rest {
            stacks.append(&segment.counted.into_inner().expect("every segment was counted"));
        }
        stacks
    }
}

/// Page runs that some thread counts by themselves.
struct Segment<'a> {
    pages: &'a [u64],
    counted: OnceLock<Stacks>,
}
