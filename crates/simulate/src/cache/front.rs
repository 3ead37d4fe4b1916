//! A first level that does not depend on frames: its misses are computed once for all executions.
//!
//! Suppose that the bits which choose a set lie within the page offset, that no level below takes a line away, and that
//! no two pages share a frame. Then a cache with tags of virtual addresses hits and misses exactly where the physically
//! tagged one does. So its misses and write-backs are one stream of [`Event`]s, whatever the placement.

mod filter;

use pagelab_trace::{ADDRESS_BITS, MAX_ASID, Reference, SIZES, Segment};

use super::counts::Counts;
use super::sets::Replacement;
use super::spec::{HierarchySpec, Inclusion, LevelSpec, Serves, Straddling};
use crate::allocate::PAGE_BITS;
use crate::cpu::{self, Leveled};
use filter::Filter;

const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;
/// Number of combinations of kinds and size codes.
const META: usize = 1 << (u64::BITS - ADDRESS_BITS);
const STORE: u64 = 1;
const FETCH: u64 = 2;

/// An event that passes the first level: a line of an address space, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event(u64);

impl Event {
    const WRITE_BACK: u64 = 3;
    const KIND_BITS: u32 = 2;

    const fn new(key: u64, kind: u64) -> Event {
        Event(key << Event::KIND_BITS | kind)
    }

    /// Address space and virtual line, as `key` joins them.
    pub(crate) const fn key(self) -> u64 {
        self.0 >> Event::KIND_BITS
    }

    /// The kind of reference that missed; `None`: a dirty line was evicted.
    pub(crate) const fn kind(self) -> Option<usize> {
        if self.0 & 3 == Event::WRITE_BACK { None } else { Some((self.0 & 3) as usize) }
    }
}

/// Events in the order in which they happened. Space is reserved ahead, so that writing one needs no branch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    words: Vec<Event>,
    len: usize,
}

impl Events {
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn as_slice(&self) -> &[Event] {
        &self.words[..self.len]
    }

    /// Reserves space for the events of `accesses` accesses, two each, and for one more that is written and not kept.
    fn reserve(&mut self, accesses: usize) {
        let needed = self.len + 2 * accesses + 1;
        if self.words.len() < needed {
            self.words.resize(needed, Event(0));
        }
    }

    /// Writes an event, and keeps it if `wanted`.
    #[inline(always)]
    fn add_if(&mut self, wanted: bool, event: Event) {
        self.words[self.len] = event;
        self.len += usize::from(wanted);
    }
}

/// Base of the keys of an address space's lines.
pub(crate) const fn key_base(asid: u16, line_bits: u32) -> u64 {
    (asid as u64) << (ADDRESS_BITS - line_bits)
}

/// Whether an event has room for the lines of all address spaces. Shorter lines have longer numbers.
const fn has_room(line_bytes: u64) -> bool {
    u16::BITS - MAX_ASID.leading_zeros() + ADDRESS_BITS - line_bytes.trailing_zeros() + Event::KIND_BITS
        <= u64::BITS
}

/// The first levels: of data, and of instructions if these have their own.
#[derive(Clone, Debug)]
struct Fronts<const D: usize, const I: usize> {
    data: Filter<D>,
    fetch: Option<Filter<I>>,
    /// Whether fetches use the level of data.
    unified: bool,
    line_bits: u32,
    /// By kind and size code: loads and stores that begin at lower offsets of a line lie within it. 0 for references
    /// that are always handled singly.
    within: [u16; META],
    data_counts: Counts,
    fetch_counts: Counts,
    /// Whether branches are predictable now.
    foretold: bool,
}

/// References between two decisions whether branches are predictable: they are if fewer than one in [`MOST_MOVES`]
/// references touches another line than the one that its set used last.
const TRIAL: usize = 1024;
const MOST_MOVES: u64 = 4;

/// Additions of one segment to the counts.
#[derive(Default)]
struct Sums {
    rare: u64,
    stores: u64,
    misses: [u64; 2],
    moved: u64,
}

impl<const D: usize, const I: usize> Fronts<D, I> {
    #[inline(always)]
    fn run<const LEVEL: u8>(&mut self, segment: &Segment<'_>, events: &mut Events) {
        for references in segment.references.chunks(TRIAL) {
            let part = Segment { references, ..*segment };
            let moved = if self.foretold {
                self.part::<LEVEL, true>(&part, events)
            } else {
                self.part::<LEVEL, false>(&part, events)
            };
            self.foretold = moved * MOST_MOVES < references.len() as u64;
        }
    }

    /// Simulates the references of one segment. `FORETOLD`: for each, a branch first tests whether it touches the line
    /// that its set used last. Returns how many references within a line did not.
    #[inline(always)]
    fn part<const LEVEL: u8, const FORETOLD: bool>(&mut self, segment: &Segment<'_>, events: &mut Events) -> u64 {
        let (base, line_bits) = (key_base(segment.asid, self.line_bits), self.line_bits);
        let (within, offsets) = (self.within, (1 << line_bits) - 1);
        let mut sums = Sums::default();
        events.reserve(segment.references.len());
        for reference in segment.references {
            let bits = reference.bits();
            if bits & offsets >= u64::from(within[(bits >> ADDRESS_BITS) as usize]) {
                sums.rare += 1;
                self.rare::<LEVEL>(*reference, base, events);
                events.reserve(segment.references.len());
                continue;
            }
            let kind = bits >> ADDRESS_BITS & 1;
            let word = (base | (bits & ADDRESS_MASK) >> line_bits) << 1 | kind;
            sums.stores += kind;
            let settled = self.data.is_settled(word);
            if FORETOLD && settled {
                continue;
            }
            sums.moved += u64::from(!settled);
            if !self.data.access::<LEVEL>(word, events) {
                sums.misses[kind as usize] += 1;
            }
        }
        let counts = &mut self.data_counts;
        counts.accesses[0] += segment.references.len() as u64 - sums.rare - sums.stores;
        counts.accesses[1] += sums.stores;
        counts.misses[0] += sums.misses[0];
        counts.misses[1] += sums.misses[1];
        sums.moved
    }

    /// Handles fetches, references over several lines, and references that are no demand.
    #[inline(never)]
    fn rare<const LEVEL: u8>(&mut self, reference: Reference, base: u64, events: &mut Events) {
        let Some(kind) = super::counts::demand(reference.kind()) else { return };
        for line in
            reference.address() >> self.line_bits..=reference.last_byte().max(reference.address()) >> self.line_bits
        {
            let key = base | line;
            events.reserve(1);
            let (hit, counts) = match &mut self.fetch {
                Some(fetch) if kind as u64 == FETCH => {
                    (fetch.access_of::<LEVEL>(key, FETCH, events), &mut self.fetch_counts)
                }
                None if kind as u64 == FETCH && !self.unified => {
                    events.add_if(true, Event::new(key, FETCH));
                    continue;
                }
                _ => (self.data.access_of::<LEVEL>(key, kind as u64, events), &mut self.data_counts),
            };
            counts.accesses[kind] += 1;
            counts.misses[kind] += u64::from(!hit);
        }
    }
}

/// A [`Fronts`] with some number of ways, run by the best code for the present processor.
pub(crate) trait Front: Send + Sync {
    /// Simulates a segment and appends the events that pass.
    fn run(&mut self, segment: &Segment<'_>, events: &mut Events);
    /// Counts of the levels of data and of instructions; their write-backs are counted where they arrive.
    fn counts(&self) -> (Counts, Option<Counts>);
}

impl<const D: usize, const I: usize> Front for Fronts<D, I> {
    fn run(&mut self, segment: &Segment<'_>, events: &mut Events) {
        cpu::widest_level(Part { fronts: self, segment, events });
    }

    fn counts(&self) -> (Counts, Option<Counts>) {
        let with = |counts: &Counts, evictions| Counts { evictions, ..*counts };
        let data = with(&self.data_counts, self.data.evictions);
        (data, self.fetch.as_ref().map(|fetch| with(&self.fetch_counts, fetch.evictions)))
    }
}

struct Part<'a, const D: usize, const I: usize> {
    fronts: &'a mut Fronts<D, I>,
    segment: &'a Segment<'a>,
    events: &'a mut Events,
}

impl<const D: usize, const I: usize> Leveled for Part<'_, D, I> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        self.fronts.run::<LEVEL>(self.segment, self.events);
    }
}

/// The first levels of `spec`, if they can be simulated without frames; the caller ensures that no two pages share one.
pub(crate) fn front(spec: &HierarchySpec) -> Option<Box<dyn Front>> {
    let data = &spec.levels[*spec.path(false).first()?];
    let own = spec.levels.iter().find(|level| level.serves == Serves::Instruction);
    // What misses in a level of fetches above a unified one would be an access to this front, not an event.
    let stacked = own.is_some() && data.serves == Serves::Unified;
    let (fits, below) = (|level: &LevelSpec| fits(level, spec.line_bytes), spec.path(false));
    let undisturbed = below.iter().enumerate().skip(1).all(|(depth, level)| match spec.levels[*level].inclusion {
        Inclusion::Nine => true,
        Inclusion::Exclusive => depth > 1,
        Inclusion::Inclusive => false,
    });
    let alone = !stacked && undisturbed && spec.cores == 1 && spec.straddling == Straddling::Lines;
    if !alone || !has_room(spec.line_bytes) || below.len() < 2 || !fits(data) || !own.is_none_or(fits) {
        return None;
    }
    match data.ways {
        1 => with_data::<1>(spec, data, own),
        2 => with_data::<2>(spec, data, own),
        4 => with_data::<4>(spec, data, own),
        8 => with_data::<8>(spec, data, own),
        12 => with_data::<12>(spec, data, own),
        16 => with_data::<16>(spec, data, own),
        _ => None,
    }
}

fn fits(level: &LevelSpec, line_bytes: u64) -> bool {
    let sets = level.sets(line_bytes);
    level.replacement == Replacement::Lru
        && level.hash.is_empty()
        && sets.is_power_of_two()
        && sets * line_bytes <= 1 << PAGE_BITS
}

fn with_data<const D: usize>(
    spec: &HierarchySpec,
    data: &LevelSpec,
    own: Option<&LevelSpec>,
) -> Option<Box<dyn Front>> {
    match own.map_or(8, |own| own.ways) {
        2 => Some(fronts::<D, 2>(spec, data, own)),
        4 => Some(fronts::<D, 4>(spec, data, own)),
        8 => Some(fronts::<D, 8>(spec, data, own)),
        16 => Some(fronts::<D, 16>(spec, data, own)),
        _ => None,
    }
}

fn fronts<const D: usize, const I: usize>(
    spec: &HierarchySpec,
    data: &LevelSpec,
    own: Option<&LevelSpec>,
) -> Box<dyn Front> {
    Box::new(Fronts::<D, I> {
        data: Filter::new(data.sets(spec.line_bytes) as usize),
        fetch: own.map(|own| Filter::new(own.sets(spec.line_bytes) as usize)),
        unified: data.serves == Serves::Unified,
        line_bits: spec.line_bytes.trailing_zeros(),
        within: std::array::from_fn(|meta| {
            let (kind, size) = (meta as u64 & 3, u64::from(SIZES[meta >> 2]));
            if kind >= FETCH { 0 } else { (spec.line_bytes + 1).saturating_sub(size.max(1)) as u16 }
        }),
        data_counts: Counts::default(),
        fetch_counts: Counts::default(),
        foretold: true,
    })
}
