//! A first level that does not depend on frames: its misses are computed once for all executions.
//!
//! If the bits that choose a set lie within the page offset, and no level below ever takes a line away from it, a cache with
//! tags of virtual addresses hits and misses exactly where the physically tagged one does, as long as no two pages share a
//! frame. So its misses and write-backs are one stream of [`Event`]s, whatever the placement.

mod filter;

use pagelab_trace::{ADDRESS_BITS, Reference, SIZES, Segment};

use super::counts::Counts;
use super::sets::Replacement;
use super::spec::{HierarchySpec, Inclusion, LevelSpec, Serves, Straddling};
use crate::allocate::PAGE_BITS;
use crate::cpu;
use filter::Filter;

const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;
const STORE: u64 = 1;
const FETCH: u64 = 2;

/// Bytes of a reference after its first, by size code.
const REST: [u16; 64] = {
    let mut rest = [0; 64];
    let mut code = 1;
    while code < 64 {
        rest[code] = SIZES[code] - 1;
        code += 1;
    }
    rest
};

/// What passes the first level: a line of an address space, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event(u64);

impl Event {
    const WRITE_BACK: u64 = 3;

    const fn new(key: u64, kind: u64) -> Event {
        Event(key << 2 | kind)
    }

    /// Address space and virtual line, as `key` joins them.
    pub(crate) const fn key(self) -> u64 {
        self.0 >> 2
    }

    /// The kind of reference that missed; `None`: a dirty line that fell out.
    pub(crate) const fn kind(self) -> Option<usize> {
        if self.0 & 3 == Event::WRITE_BACK { None } else { Some((self.0 & 3) as usize) }
    }
}

/// Events in the order in which they happened. Room is made ahead, so that writing one needs no branch.
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

    /// Makes room for the events of `accesses` accesses, two each, and one more that is written and not kept.
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

/// The first levels: of data, and of instructions where they have one of their own.
#[derive(Clone, Debug)]
struct Fronts<const D: usize, const I: usize> {
    data: Filter<D>,
    fetch: Option<Filter<I>>,
    /// Fetches meet the level that data meets.
    unified: bool,
    line_bits: u32,
    data_counts: Counts,
    fetch_counts: Counts,
}

/// References that are looked at together.
const GROUP: usize = 8;
/// After groups in a row that were no repetition, fewer are looked at; at least one in 2^this.
const MOST_DOUBT: u32 = 5;

/// A group of references, taken apart side by side.
struct Ready {
    /// Of each, the key of its line and, in the lowest bit, whether it is a store.
    words: [u64; GROUP],
    stores: u64,
    /// They are loads and stores within a line each; otherwise nothing else is said.
    plain: bool,
}

impl Ready {
    /// Nothing is compared, so that the processor's vectors can do it.
    #[inline(always)]
    fn new(group: &[Reference; GROUP], base: u64, line_bits: u32) -> Ready {
        let line_bytes = 1_u64 << line_bits;
        let bits = group.map(Reference::bits);
        let words = bits.map(|bits| (base | (bits & ADDRESS_MASK) >> line_bits) << 1 | bits >> ADDRESS_BITS & 1);
        let odd = bits.map(|bits| {
            let (kind, size) = (bits >> ADDRESS_BITS & 3, bits >> (ADDRESS_BITS + 2));
            // Size codes up to 32 are the size; larger ones go the other way. Where one is too large, a difference is negative.
            let beyond = line_bytes.wrapping_sub((bits & (line_bytes - 1)) + size) | 32_u64.wrapping_sub(size);
            kind >> 1 | beyond >> 63
        });
        Ready {
            words,
            stores: words.iter().map(|word| word & 1).sum(),
            plain: odd.iter().fold(0, |all, odd| all | odd) == 0,
        }
    }
}

/// What a segment adds to the counts.
#[derive(Default)]
struct Sums {
    data: u64,
    stores: u64,
    misses: [u64; 2],
}

impl<const D: usize, const I: usize> Fronts<D, I> {
    #[inline(always)]
    fn run<const AVX2: bool>(&mut self, segment: &Segment<'_>, events: &mut Events) {
        let base = key_base(segment.asid, self.line_bits);
        let mut sums = Sums::default();
        let (groups, rest) = segment.references.as_chunks::<GROUP>();
        let (mut doubt, mut alone) = (0, 0_u32);
        for group in groups {
            let ready = Ready::new(group, base, self.line_bits);
            events.reserve(GROUP);
            if !ready.plain {
                group.iter().for_each(|reference| self.one::<AVX2>(*reference, base, &mut sums, events));
                continue;
            }
            sums.data += GROUP as u64;
            sums.stores += ready.stores;
            if alone > 0 {
                alone -= 1;
            } else if self.is_repetition(&ready.words) {
                doubt = 0;
                continue;
            } else {
                alone = (1 << doubt) - 1;
                doubt = (doubt + 1).min(MOST_DOUBT);
            }
            for word in ready.words {
                if !self.data.access::<AVX2>(word, events) {
                    sums.misses[word as usize & 1] += 1;
                }
            }
        }
        events.reserve(GROUP);
        rest.iter().for_each(|reference| self.one::<AVX2>(*reference, base, &mut sums, events));
        let counts = &mut self.data_counts;
        counts.accesses[0] += sums.data - sums.stores;
        counts.accesses[1] += sums.stores;
        counts.misses[0] += sums.misses[0];
        counts.misses[1] += sums.misses[1];
    }

    /// Whether each of these is of the line that its set has used last, and changes nothing: such a group needs one branch.
    #[inline(always)]
    fn is_repetition(&self, words: &[u64; GROUP]) -> bool {
        let other = words.iter().fold(0, |other, word| {
            let first = self.data.sets[(word >> 1) as usize & (self.data.sets.len() - 1)].0[0];
            // A load takes the line clean or dirty, a store changes a clean one.
            other | ((first | (word & 1 ^ 1)) ^ (word | 1))
        });
        other == 0
    }

    #[inline(always)]
    fn one<const AVX2: bool>(&mut self, reference: Reference, base: u64, sums: &mut Sums, events: &mut Events) {
        let line_bytes = 1_u64 << self.line_bits;
        let bits = reference.bits();
        let kind = bits >> ADDRESS_BITS & 3;
        let address = bits & ADDRESS_MASK;
        let rest = u64::from(REST[(bits >> (ADDRESS_BITS + 2)) as usize]);
        if kind >= FETCH || (address & (line_bytes - 1)) + rest >= line_bytes {
            self.rare::<AVX2>(reference, base, events);
            return events.reserve(GROUP);
        }
        let hit = self.data.access::<AVX2>((base | address >> self.line_bits) << 1 | kind, events);
        sums.data += 1;
        sums.stores += kind;
        if !hit {
            sums.misses[kind as usize & 1] += 1;
        }
    }

    /// Fetches, references over several lines, and what is no demand.
    #[inline(never)]
    fn rare<const AVX2: bool>(&mut self, reference: Reference, base: u64, events: &mut Events) {
        let Some(kind) = super::counts::demand(reference.kind()) else { return };
        for line in
            reference.address() >> self.line_bits..=reference.last_byte().max(reference.address()) >> self.line_bits
        {
            let key = base | line;
            events.reserve(1);
            let (hit, counts) = match &mut self.fetch {
                Some(fetch) if kind as u64 == FETCH => {
                    (fetch.access_of::<AVX2>(key, FETCH, events), &mut self.fetch_counts)
                }
                None if kind as u64 == FETCH && !self.unified => {
                    events.add_if(true, Event::new(key, FETCH));
                    continue;
                }
                _ => (self.data.access_of::<AVX2>(key, kind as u64, events), &mut self.data_counts),
            };
            counts.accesses[kind] += 1;
            counts.misses[kind] += u64::from(!hit);
        }
    }
}

/// A [`Fronts`] of some number of ways, driven through the best code that the processor at hand can run.
pub(crate) trait Front: Send + Sync {
    /// Simulates a segment and appends what passes.
    fn run(&mut self, segment: &Segment<'_>, events: &mut Events);
    /// What the levels of data and of instructions have counted; their write-backs are counted where they arrive.
    fn counts(&self) -> (Counts, Option<Counts>);
}

impl<const D: usize, const I: usize> Front for Fronts<D, I> {
    fn run(&mut self, segment: &Segment<'_>, events: &mut Events) {
        dispatch(self, segment, events);
    }

    fn counts(&self) -> (Counts, Option<Counts>) {
        let with = |counts: &Counts, evictions| Counts { evictions, ..*counts };
        let data = with(&self.data_counts, self.data.evictions);
        (data, self.fetch.as_ref().map(|fetch| with(&self.fetch_counts, fetch.evictions)))
    }
}

#[allow(unsafe_code, reason = "functions for processors with AVX2, called where it is there")]
fn dispatch<const D: usize, const I: usize>(fronts: &mut Fronts<D, I>, segment: &Segment<'_>, events: &mut Events) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        fn fast<const D: usize, const I: usize>(
            fronts: &mut Fronts<D, I>,
            segment: &Segment<'_>,
            events: &mut Events,
        ) {
            fronts.run::<true>(segment, events);
        }
        if cpu::level() >= cpu::Level::Avx2 {
            // SAFETY: the processor has the features.
            return unsafe { fast(fronts, segment, events) };
        }
    }
    fronts.run::<false>(segment, events);
}

/// The first levels of `spec`, if they can be simulated without frames; the caller sees to it that no two pages share one.
pub(crate) fn front(spec: &HierarchySpec) -> Option<Box<dyn Front>> {
    let data = &spec.levels[*spec.path(false).first()?];
    let own = spec.levels.iter().find(|level| level.serves == Serves::Instruction);
    let (fits, below) = (|level: &LevelSpec| fits(level, spec.line_bytes), spec.path(false));
    let undisturbed = below.iter().enumerate().skip(1).all(|(depth, level)| match spec.levels[*level].inclusion {
        Inclusion::Nine => true,
        Inclusion::Exclusive => depth > 1,
        Inclusion::Inclusive => false,
    });
    let whole = spec.straddling == Straddling::Whole;
    if !undisturbed || whole || spec.cores != 1 || below.len() < 2 || !fits(data) || !own.is_none_or(fits) {
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
        data_counts: Counts::default(),
        fetch_counts: Counts::default(),
    })
}
