//! A first level that needs no frames: what it lets through is computed once for all executions.
//!
//! If the bits that choose a set lie within the page offset, and no level below ever takes a line away from it, a cache with
//! tags of virtual addresses hits and misses exactly where the physically tagged one does, as long as no two pages share a
//! frame. So its misses and write-backs are one stream of [`Event`]s, whatever the placement.

use pagelab_trace::{ADDRESS_BITS, Reference, SIZES, Segment};

use super::counts::Counts;
use super::sets::{EMPTY, Replacement};
use super::spec::{HierarchySpec, Inclusion, LevelSpec, Serves, Straddling};
use crate::allocate::PAGE_BITS;

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

/// A first level with LRU and `W` ways.
#[derive(Clone, Debug)]
struct Filter<const W: usize> {
    sets: Vec<[u64; W]>,
    evictions: u64,
}

impl<const W: usize> Filter<W> {
    fn new(sets: usize) -> Filter<W> {
        Filter { sets: vec![[EMPTY; W]; sets], evictions: 0 }
    }

    /// One access; whether it hit. The two ways used last are asked first: in programs it is one of them, mostly, and the
    /// branches can be foretold. Everything after them has no branches.
    #[inline(always)]
    fn access<const AVX2: bool>(&mut self, key: u64, kind: u64, events: &mut Events) -> bool {
        let at = key as usize & (self.sets.len() - 1);
        let set = &mut self.sets[at];
        let (wanted, flag) = (key << 1 | 1, u64::from(kind == STORE));
        if set[0] | 1 == wanted {
            // A store of one word keeps the next load of the whole set waiting: only where it changes something.
            if set[0] & 1 < flag {
                set[0] |= 1;
            }
            return true;
        }
        // Two lines that meet in a set in turns: a branch that is foretold does not wait for the set as it was left, which
        // what follows does.
        if W > 1 && set[1] | 1 == wanted {
            (set[0], set[1]) = (set[1] | flag, set[0]);
            return true;
        }
        let victim = set[W - 1];
        let hit = to_front::<W, AVX2>(set, wanted, flag);
        self.evictions += u64::from(!hit && victim != EMPTY);
        events.add_if(!hit, Event::new(key, kind));
        events.add_if(!hit && victim & 1 == 1 && victim != EMPTY, Event::new(victim >> 1, Event::WRITE_BACK));
        hit
    }
}

/// Moves the way of `wanted` (key and a set lowest bit) to the front, or puts it there in place of the last way; adds `flag`.
/// Whether it was there.
#[inline(always)]
fn to_front<const W: usize, const AVX2: bool>(set: &mut [u64; W], wanted: u64, flag: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if AVX2 && W == 8 {
        return avx2::to_front(set.as_mut_slice(), wanted, flag);
    }
    let old = *set;
    let mut found = 0_u32;
    for (way, word) in old.iter().enumerate() {
        found |= u32::from(word | 1 == wanted) << way;
    }
    let hit = found != 0;
    let from = (found | 1 << (W - 1)).trailing_zeros() as usize;
    for way in 1..W {
        set[way] = if way <= from { old[way - 1] } else { old[way] };
    }
    set[0] = (wanted - 1) | flag | (old[from] & u64::from(hit));
    hit
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions; called where the processor has them")]
mod avx2 {
    use std::arch::x86_64::{
        _mm256_blend_epi32, _mm256_blendv_epi8, _mm256_castsi256_pd, _mm256_cmpeq_epi64, _mm256_cmpgt_epi64,
        _mm256_loadu_si256, _mm256_movemask_pd, _mm256_or_si256, _mm256_permute4x64_epi64, _mm256_set1_epi64x,
        _mm256_setr_epi64x, _mm256_storeu_si256,
    };

    /// [`super::to_front`] for eight ways in two registers.
    #[inline(always)]
    pub(super) fn to_front(set: &mut [u64], wanted: u64, flag: u64) -> bool {
        assert!(set.len() == 8);
        let at = set.as_mut_ptr();
        // SAFETY: only callers with AVX2 come here (`dispatch`); both halves of the eight words are in bounds, and loads and
        // stores may be unaligned.
        unsafe {
            let [low, high] = [at, at.add(4)].map(|half| _mm256_loadu_si256(half.cast()));
            let (one, key) = (_mm256_set1_epi64x(1), _mm256_set1_epi64x(wanted as i64));
            let bits = [low, high].map(|half| {
                _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(_mm256_or_si256(half, one), key))) as u32
            });
            let found = bits[0] | bits[1] << 4;
            let from = (found | 1 << 7).trailing_zeros();
            let dirty = *at.add(from as usize) & u64::from(found != 0);
            let word = _mm256_set1_epi64x(((wanted - 1) | flag | (dirty & 1)) as i64);
            // Each way takes what was before it: 2 bits a lane, lanes 0, 0, 1, 2.
            let shifted_low = _mm256_blend_epi32::<0b11>(_mm256_permute4x64_epi64::<0b10_01_00_00>(low), word);
            let last_of_low = _mm256_permute4x64_epi64::<0b11_11_11_11>(low);
            let shifted_high =
                _mm256_blend_epi32::<0b11>(_mm256_permute4x64_epi64::<0b10_01_00_00>(high), last_of_low);
            let bound = _mm256_set1_epi64x(i64::from(from) + 1);
            let moves_low = _mm256_cmpgt_epi64(bound, _mm256_setr_epi64x(0, 1, 2, 3));
            let moves_high = _mm256_cmpgt_epi64(bound, _mm256_setr_epi64x(4, 5, 6, 7));
            _mm256_storeu_si256(at.cast(), _mm256_blendv_epi8(low, shifted_low, moves_low));
            _mm256_storeu_si256(at.add(4).cast(), _mm256_blendv_epi8(high, shifted_high, moves_high));
            found != 0
        }
    }
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

impl<const D: usize, const I: usize> Fronts<D, I> {
    #[inline(always)]
    fn run<const AVX2: bool>(&mut self, segment: &Segment<'_>, events: &mut Events) {
        events.reserve(segment.references.len());
        let base = key_base(segment.asid, self.line_bits);
        let line_bytes = 1_u64 << self.line_bits;
        let (mut stores, mut data, mut load_misses, mut store_misses) = (0_u64, 0_u64, 0_u64, 0_u64);
        for (done, reference) in segment.references.iter().enumerate() {
            let bits = reference.bits();
            let kind = bits >> ADDRESS_BITS & 3;
            let address = bits & ADDRESS_MASK;
            let rest = u64::from(REST[(bits >> (ADDRESS_BITS + 2)) as usize]);
            if kind >= FETCH || (address & (line_bytes - 1)) + rest >= line_bytes {
                self.rare::<AVX2>(*reference, base, events);
                events.reserve(segment.references.len() - done);
                continue;
            }
            let hit = self.data.access::<AVX2>(base | address >> self.line_bits, kind, events);
            data += 1;
            stores += kind;
            if !hit {
                load_misses += u64::from(kind == 0);
                store_misses += kind;
            }
        }
        let counts = &mut self.data_counts;
        counts.accesses[0] += data - stores;
        counts.accesses[1] += stores;
        counts.misses[0] += load_misses;
        counts.misses[1] += store_misses;
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
                    (fetch.access::<AVX2>(key, FETCH, events), &mut self.fetch_counts)
                }
                None if kind as u64 == FETCH && !self.unified => {
                    events.add_if(true, Event::new(key, FETCH));
                    continue;
                }
                _ => (self.data.access::<AVX2>(key, kind as u64, events), &mut self.data_counts),
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
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2")
        {
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
