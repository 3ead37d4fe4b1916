//! Several traces as one: joined, or interleaved.

use crate::error::TraceError;
use crate::reference::Reference;
use crate::run::{MAX_ASID, NUMBER_BITS, Run};
use crate::runs_of::End;
use crate::source::{ReferenceSource, References, Result, RunSource, Span};

/// The address spaces of a part of a mixed trace: its own, 0 to `count` - 1, become `first` and up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spaces {
    /// The first address space in the mixed trace.
    pub first: u16,
    /// Its number in the part.
    pub count: u16,
}

impl Spaces {
    /// Address spaces for parts with so many each, none shared.
    pub fn apart(counts: &[u16]) -> Result<Vec<Spaces>> {
        let mut first = 0u32;
        let spaces = counts.iter().map(|count| {
            let spaces = Spaces { first: first as u16, count: *count };
            first += u32::from(*count);
            if first > u32::from(MAX_ASID) + 1 {
                return Err(TraceError::Invalid(format!(
                    "together the traces have more than {MAX_ASID} address spaces"
                )));
            }
            Ok(spaces)
        });
        spaces.collect()
    }

    #[inline]
    fn map(self, asid: u16) -> Result<u16> {
        if asid < self.count {
            Ok(self.first + asid)
        } else {
            Err(TraceError::Invalid(format!(
                "a trace has address space {asid}, it was said to have {}",
                self.count
            )))
        }
    }
}

/// Takes turns.
#[derive(Debug)]
struct Turns {
    /// References in a turn; 0 for one after the other.
    quantum: u64,
    /// Parts that are not at their end, in the order of their turns.
    alive: Vec<usize>,
    at: usize,
    left: u64,
}

impl Turns {
    fn new(parts: usize, quantum: u64) -> Turns {
        let quantum = if quantum == 0 { u64::MAX } else { quantum };
        Turns { quantum, alive: (0..parts).collect(), at: 0, left: quantum }
    }

    fn part(&self) -> Option<usize> {
        self.alive.get(self.at).copied()
    }

    /// Takes this number of references of the present part.
    fn take(&mut self, references: u64) {
        self.left -= references;
        if self.left == 0 {
            self.at = (self.at + 1) % self.alive.len();
            self.left = self.quantum;
        }
    }

    /// The present part is at its end.
    fn end(&mut self) {
        self.alive.remove(self.at);
        if self.at >= self.alive.len() {
            self.at = 0;
        }
        self.left = self.quantum;
    }
}

struct RunPart<S> {
    source: S,
    spaces: Spaces,
    /// The last batch, in the mixed trace's address spaces.
    batch: Vec<Run>,
    at: usize,
}

/// Sources of runs in turns of a quantum of references.
pub struct MixedRuns<S> {
    page_bits: u32,
    parts: Vec<RunPart<S>>,
    turns: Turns,
    runs: Vec<Run>,
    end: End,
}

const BATCH: usize = 1 << 16;

impl<S: RunSource> MixedRuns<S> {
    /// Turns of `quantum` references; one after the other where that is 0. All must have pages of one size. A trace
    /// that is at its end leaves the round.
    pub fn new(parts: Vec<(S, Spaces)>, quantum: u64) -> Result<Self> {
        let page_bits = match parts.first() {
            Some((first, _)) => first.page_bits(),
            None => return Err(TraceError::Invalid("no traces to put together".into())),
        };
        if parts.iter().any(|(part, _)| part.page_bits() != page_bits) {
            return Err(TraceError::Invalid(
                "the traces have pages of different sizes; give all the same: --page".into(),
            ));
        }
        let turns = Turns::new(parts.len(), quantum);
        let parts = parts
            .into_iter()
            .map(|(source, spaces)| RunPart { source, spaces, batch: Vec::new(), at: 0 })
            .collect();
        Ok(MixedRuns { page_bits, parts, turns, runs: Vec::new(), end: End::default() })
    }
}

impl<S: RunSource> RunPart<S> {
    /// Whether there is a run at the present place.
    fn fill(&mut self) -> Result<bool> {
        if self.at < self.batch.len() {
            return Ok(true);
        }
        let Some(batch) = self.source.next_runs()? else { return Ok(false) };
        self.batch.clear();
        self.at = 0;
        for run in batch {
            let space = self.spaces.map(run.asid())?;
            self.batch.push(Run { page: run.number() | u64::from(space) << NUMBER_BITS, count: run.count });
        }
        Ok(true)
    }
}

impl<S: RunSource> RunSource for MixedRuns<S> {
    fn page_bits(&self) -> u32 {
        self.page_bits
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        self.runs.clear();
        while self.runs.len() < BATCH && self.end.is_ahead() {
            let Some(number) = self.turns.part() else { break };
            let part = &mut self.parts[number];
            match part.fill() {
                Ok(true) => {}
                Ok(false) => {
                    self.turns.end();
                    continue;
                }
                Err(error) => {
                    self.end.reach(Some(error));
                    break;
                }
            }
            let run = &mut part.batch[part.at];
            let count = run.count.min(self.turns.left);
            self.runs.push(Run { page: run.page, count });
            run.count -= count;
            part.at += usize::from(run.count == 0);
            self.turns.take(count);
        }
        self.end.given(&self.runs)
    }
}

struct ReferencePart<S> {
    source: S,
    spaces: Spaces,
    spans: Vec<Span>,
    references: Vec<Reference>,
    span: usize,
    at: usize,
}

/// Sources of references in turns of a quantum of references.
pub struct MixedReferences<S> {
    parts: Vec<ReferencePart<S>>,
    turns: Turns,
    spans: Vec<Span>,
    references: Vec<Reference>,
    end: End,
}

impl<S: ReferenceSource> MixedReferences<S> {
    /// As [`MixedRuns::new`].
    pub fn new(parts: Vec<(S, Spaces)>, quantum: u64) -> Self {
        let turns = Turns::new(parts.len(), quantum);
        let part = |(source, spaces)| ReferencePart {
            source,
            spaces,
            spans: Vec::new(),
            references: Vec::new(),
            span: 0,
            at: 0,
        };
        let parts = parts.into_iter().map(part).collect();
        MixedReferences { parts, turns, spans: Vec::new(), references: Vec::new(), end: End::default() }
    }
}

impl<S: ReferenceSource> ReferencePart<S> {
    fn fill(&mut self) -> Result<bool> {
        if self.span < self.spans.len() {
            return Ok(true);
        }
        let Some(batch) = self.source.next_references()? else { return Ok(false) };
        (self.span, self.at) = (0, 0);
        self.references.clear();
        self.references.extend_from_slice(batch.all());
        self.spans.clear();
        for span in batch.spans() {
            self.spans.push(Span { asid: self.spaces.map(span.asid)?, ..*span });
        }
        Ok(true)
    }
}

impl<S: ReferenceSource> ReferenceSource for MixedReferences<S> {
    fn next_references(&mut self) -> Result<Option<References<'_>>> {
        self.spans.clear();
        self.references.clear();
        while self.references.len() < BATCH && self.end.is_ahead() {
            let Some(number) = self.turns.part() else { break };
            let part = &mut self.parts[number];
            match part.fill() {
                Ok(true) => {}
                Ok(false) => {
                    self.turns.end();
                    continue;
                }
                Err(error) => {
                    self.end.reach(Some(error));
                    break;
                }
            }
            let span = &mut part.spans[part.span];
            let length = (span.length as u64).min(self.turns.left) as usize;
            self.references.extend_from_slice(&part.references[part.at..part.at + length]);
            if length > 0 {
                self.spans.push(Span { length, ..*span });
            }
            part.at += length;
            span.length -= length;
            part.span += usize::from(span.length == 0);
            self.turns.take(length as u64);
        }
        self.end.check(self.references.is_empty())?;
        Ok((!self.references.is_empty()).then(|| References::new(&self.spans, &self.references)))
    }
}
