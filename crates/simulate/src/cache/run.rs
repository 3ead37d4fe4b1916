//! The simulation of a trace in a hierarchy, in one execution for each placement.

use std::collections::HashMap;

use pagelab_trace::{Reference, References, Segment};

use super::counts::{Counts, MemoryCounts, demand};
use super::front::{Event, Events, Front, front, key_base};
use super::hierarchy::Hierarchy;
use super::passing::{AHEAD, Passed};
use super::spec::{HierarchySpec, SpecError, Straddling};
use crate::allocate::{Memory, PAGE_BITS, PlaceCounts};
use crate::cpu;
use crate::tasks::Task;

/// References that one level simulates before the next level gets their events, which stay in the nearest cache.
const BATCH: usize = 4096;

/// Counts of one execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Events of each level, in the specification's order.
    pub levels: Vec<Counts>,
    /// Events at memory.
    pub memory: MemoryCounts,
    /// Cycles of the demand references if each waits for the one before: Σ accesses × cycles of the level that they
    /// hit.
    pub cycles: u64,
    /// Placement of the pages.
    pub placed: PlaceCounts,
}

/// One placement, and its caches.
struct Execution {
    hierarchy: Hierarchy,
    memory: Memory,
    /// Events that passed the common first level, and space for those that pass the next one.
    passed: Vec<Passed>,
    spare: Vec<Passed>,
}

/// The simulation of one hierarchy under several placements.
pub struct Simulation {
    spec: HierarchySpec,
    line_bits: u32,
    front: Option<Box<dyn Front>>,
    /// Events that passed the common first level; with several threads, those of the turn before.
    events: Events,
    passing: Events,
    executions: Vec<Execution>,
    cores: HashMap<(u16, u32), usize>,
}

impl Simulation {
    /// Empty caches before the trace's first reference; one execution for each of `memories`. Random replacement is
    /// seeded with the execution's number.
    ///
    /// # Errors
    /// As [`Hierarchy::new`].
    pub fn new(spec: &HierarchySpec, memories: Vec<Memory>) -> Result<Simulation, SpecError> {
        let alike = memories.iter().all(Memory::never_shares_frames);
        let executions = memories.into_iter().enumerate().map(|(number, memory)| {
            Ok(Execution { hierarchy: Hierarchy::new(spec, number as u64)?, memory, passed: vec![], spare: vec![] })
        });
        Ok(Simulation {
            executions: executions.collect::<Result<_, SpecError>>()?,
            line_bits: spec.line_bytes.trailing_zeros(),
            front: if alike { front(spec) } else { None },
            events: Events::default(),
            passing: Events::default(),
            spec: spec.clone(),
            cores: HashMap::new(),
        })
    }

    /// Drops the common first level: for tests that compare both ways.
    #[must_use]
    pub fn in_lockstep(mut self) -> Simulation {
        self.front = None;
        self
    }

    /// Whether the first level is simulated once for all executions.
    #[must_use]
    pub fn has_common_front(&self) -> bool {
        self.front.is_some()
    }

    /// Simulates the next references of the trace.
    pub fn feed(&mut self, segment: &Segment<'_>) {
        if let Some(front) = &mut self.front {
            for references in segment.references.chunks(BATCH) {
                self.events.clear();
                front.run(&Segment { references, ..*segment }, &mut self.events);
                for execution in &mut self.executions {
                    execution.below(self.events.as_slice(), self.line_bits);
                }
            }
            return;
        }
        let core = self.core(segment);
        let whole = self.spec.straddling == Straddling::Whole;
        for execution in &mut self.executions {
            execution.lockstep(segment, core, self.line_bits, whole);
        }
    }

    /// One turn for several threads: tasks for the next references. References of a turn may still be in work in the
    /// next one, so end with turns without references until there are no tasks.
    pub fn turn<'a>(&'a mut self, batch: Option<&'a References<'a>>) -> Vec<Task<'a>> {
        if self.front.is_none() {
            return batch.map_or_else(Vec::new, |batch| self.turn_in_lockstep(batch));
        }
        std::mem::swap(&mut self.events, &mut self.passing);
        self.passing.clear();
        let (events, passing, line_bits) = (self.events.as_slice(), &mut self.passing, self.line_bits);
        let front = self.front.as_mut().zip(batch).map(|(front, batch)| -> Task<'a> {
            Box::new(move || batch.segments().for_each(|segment| front.run(&segment, passing)))
        });
        let executions = self.executions.iter_mut().filter(|_| !events.is_empty());
        let below = executions.map(|execution| -> Task<'a> {
            Box::new(move || events.chunks(BATCH).for_each(|events| execution.below(events, line_bits)))
        });
        front.into_iter().chain(below).collect()
    }

    fn turn_in_lockstep<'a>(&'a mut self, batch: &'a References<'a>) -> Vec<Task<'a>> {
        let (line_bits, whole) = (self.line_bits, self.spec.straddling == Straddling::Whole);
        let cores: Vec<usize> = batch.segments().map(|segment| self.core(&segment)).collect();
        let executions = self.executions.iter_mut().zip(std::iter::repeat(cores));
        let lockstep = executions.map(|(execution, cores)| -> Task<'a> {
            Box::new(move || {
                for (segment, core) in batch.segments().zip(cores) {
                    execution.lockstep(&segment, core, line_bits, whole);
                }
            })
        });
        lockstep.collect()
    }

    /// The core on which a segment's thread runs.
    fn core(&mut self, segment: &Segment<'_>) -> usize {
        let next = self.cores.len() % self.spec.cores;
        *self.cores.entry((segment.asid, segment.thread)).or_insert(next)
    }

    /// The results, in the order of the placements.
    #[must_use]
    pub fn finish(self) -> Vec<Outcome> {
        let Simulation { spec, front, mut executions, .. } = self;
        if let Some(front) = front {
            let (data, fetch) = front.counts();
            for execution in &mut executions {
                execution.hierarchy.counts_of(spec.path(false)[0]).add(&data);
                if let Some(fetch) = &fetch {
                    execution.hierarchy.counts_of(spec.path(true)[0]).add(fetch);
                }
            }
        }
        executions.into_iter().map(|execution| execution.outcome(&spec)).collect()
    }

    /// Checks the invariants of every execution's caches: [`Hierarchy::check`].
    ///
    /// # Errors
    /// The first invariant that is violated.
    pub fn check(&self) -> Result<(), String> {
        // A common first level has counted references that the level below has not seen yet; the sums agree only at the
        // end.
        self.executions
            .iter()
            .filter(|_| self.front.is_none())
            .try_for_each(|execution| execution.hierarchy.check())
    }
}

impl Execution {
    fn below(&mut self, events: &[Event], line_bits: u32) {
        let page_lines = PAGE_BITS - line_bits;
        let base_bits = key_base(1, line_bits).trailing_zeros();
        self.passed.clear();
        for event in events {
            let key = event.key();
            let (asid, page) = ((key >> base_bits) as u16, (key & ((1 << base_bits) - 1)) >> page_lines);
            let frame = self.memory.frame(asid, page);
            self.passed.push(Passed::new(frame << page_lines | key & ((1 << page_lines) - 1), event.kind()));
        }
        let Execution { hierarchy, passed, spare, .. } = self;
        if hierarchy.pass_below(passed, spare) {
            return;
        }
        cpu::with_avx2(
            #[inline(always)]
            || {
                for (at, event) in passed.iter().enumerate() {
                    if let Some(soon) = passed.get(at + AHEAD) {
                        hierarchy.prefetch_below(soon.line());
                    }
                    match event.kind() {
                        Some(kind) => _ = hierarchy.access_below(0, kind, event.line()),
                        None => hierarchy.write_back_below(0, event.line()),
                    }
                }
            },
        );
    }

    fn lockstep(&mut self, segment: &Segment<'_>, core: usize, line_bits: u32, whole: bool) {
        for reference in segment.references {
            let Some(kind) = demand(reference.kind()) else { continue };
            let [first, last] = ends(*reference).map(|address| address >> line_bits);
            if first == last {
                let line = self.line(segment.asid, first, line_bits);
                self.hierarchy.access(core, kind, line);
            } else if whole {
                let lines: Vec<u64> = (first..=last).map(|line| self.line(segment.asid, line, line_bits)).collect();
                self.hierarchy.access_whole(kind, &lines);
            } else {
                for line in first..=last {
                    let line = self.line(segment.asid, line, line_bits);
                    self.hierarchy.access(core, kind, line);
                }
            }
        }
    }

    #[inline]
    fn line(&mut self, asid: u16, line: u64, line_bits: u32) -> u64 {
        let page_lines = PAGE_BITS - line_bits;
        self.memory.frame(asid, line >> page_lines) << page_lines | line & ((1 << page_lines) - 1)
    }

    fn outcome(self, spec: &HierarchySpec) -> Outcome {
        let levels: Vec<Counts> = self.hierarchy.counts().copied().collect();
        let hits = |number: usize| {
            let (accesses, misses) = levels[number].totals();
            accesses - misses
        };
        let found: u64 = (0..levels.len()).map(|number| hits(number) * u64::from(spec.levels[number].cycles)).sum();
        let reads: u64 = self.hierarchy.memory().reads.iter().sum();
        Outcome {
            cycles: found + reads * u64::from(spec.memory_cycles),
            memory: *self.hierarchy.memory(),
            levels,
            placed: self.memory.counts(),
        }
    }
}

/// The addresses of a reference's first and last byte; a reference that runs over the end of the address space ends
/// there.
#[inline]
fn ends(reference: Reference) -> [u64; 2] {
    let first = reference.address();
    [first, reference.last_byte().max(first)]
}
