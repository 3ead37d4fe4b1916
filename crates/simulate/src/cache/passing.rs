//! Levels below the first, one after the other: the events that pass one level are a list for the next.
//!
//! If no level takes a line from one above it, nothing goes upwards, so a level that has seen all events of a batch
//! need not wait for the next one. Each level is then a loop over one list, with one kind of set.

use super::counts::Counts;
use super::sets::lru::{position, to_front};
use super::sets::{EMPTY, Sets};
use crate::cpu::{self, Leveled};

/// Events between the prefetch of a set's words and their use.
pub(super) const AHEAD: usize = 12;

/// A physical line that passed a level, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passed(u64);

impl Passed {
    const WRITE_BACK: u64 = 3;

    /// A line that a reference of `kind` missed; without a kind, a dirty line that was evicted.
    #[inline(always)]
    pub(super) const fn new(line: u64, kind: Option<usize>) -> Passed {
        match kind {
            Some(kind) => Passed(line << 2 | kind as u64),
            None => Passed(line << 2 | Passed::WRITE_BACK),
        }
    }

    #[inline(always)]
    pub(super) const fn line(self) -> u64 {
        self.0 >> 2
    }

    /// The kind of reference; `None`: a line that is written back.
    #[inline(always)]
    pub(super) const fn kind(self) -> Option<usize> {
        if self.0 & 3 == Passed::WRITE_BACK { None } else { Some(self.0 as usize & 3) }
    }
}

/// One level of one core, with LRU and a power of two of sets; it writes back, and allocates for lines written back to
/// it.
pub(super) struct Stage<'a> {
    pub(super) sets: &'a mut Sets,
    pub(super) counts: &'a mut Counts,
    /// Bits of a line's number that are the number of its set.
    pub(super) mask: u64,
}

impl Stage<'_> {
    /// Simulates all of `events`, in their order; adds those that pass to `passed`.
    pub(super) fn take(self, events: &[Passed], passed: &mut Vec<Passed>) {
        passed.reserve(2 * events.len());
        cpu::widest_level(Batch { stage: self, events, passed });
    }
}

struct Batch<'a> {
    stage: Stage<'a>,
    events: &'a [Passed],
    passed: &'a mut Vec<Passed>,
}

impl Leveled for Batch<'_> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        match self.stage.sets.ways() {
            4 => self.each::<4, LEVEL>(),
            8 => self.each::<8, LEVEL>(),
            12 => self.each::<12, LEVEL>(),
            16 => self.each::<16, LEVEL>(),
            20 => self.each::<20, LEVEL>(),
            _ => self.each::<0, LEVEL>(),
        }
    }
}

impl Batch<'_> {
    /// The loop for `W` ways; 0: any other number.
    #[inline(always)]
    fn each<const W: usize, const LEVEL: u8>(self) {
        let Batch { stage: Stage { sets, counts, mask }, events, passed } = self;
        for (at, event) in events.iter().enumerate() {
            if let Some(soon) = events.get(at + AHEAD) {
                sets.prefetch((soon.line() & mask) as usize);
            }
            let line = event.line();
            let words = sets.ordered((line & mask) as usize);
            let wanted = line << 1 | 1;
            let found = position::<W, LEVEL>(words, wanted);
            let flag = match event.kind() {
                Some(kind) => {
                    counts.accesses[kind] += 1;
                    if let Some(way) = found {
                        let word = words[way];
                        to_front::<W, LEVEL>(words, way, word);
                        continue;
                    }
                    counts.misses[kind] += 1;
                    passed.push(*event);
                    0
                }
                None => {
                    counts.writebacks_in += 1;
                    if let Some(way) = found {
                        words[way] |= 1;
                        continue;
                    }
                    1
                }
            };
            let last = words.len() - 1;
            let victim = words[last];
            to_front::<W, LEVEL>(words, last, line << 1 | flag);
            if victim != EMPTY {
                counts.evictions += 1;
                if victim & 1 == 1 {
                    counts.writebacks_out += 1;
                    passed.push(Passed::new(victim >> 1, None));
                }
            }
        }
    }
}

/// Adds the memory's reads to the counts by kind, and the lines that it takes to `writes`.
pub(super) fn arrive(passed: &[Passed], reads: &mut [u64], writes: &mut u64) {
    for event in passed {
        match event.kind() {
            Some(kind) => reads[kind] += 1,
            None => *writes += 1,
        }
    }
}
