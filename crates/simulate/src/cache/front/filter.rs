//! One first level by itself.

use super::super::sets::EMPTY;
use super::{Event, Events, STORE};

/// The ways of a set, those used last first: key and, in the lowest bit, dirt. Up to eight lie in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Set<const W: usize>(pub(super) [u64; W]);

/// A first level with LRU and `W` ways.
#[derive(Clone, Debug)]
pub(super) struct Filter<const W: usize> {
    pub(super) sets: Vec<Set<W>>,
    pub(super) evictions: u64,
}

impl<const W: usize> Filter<W> {
    pub(super) fn new(sets: usize) -> Filter<W> {
        Filter { sets: vec![Set([EMPTY; W]); sets], evictions: 0 }
    }

    /// One access by a reference of `kind`; whether it hit.
    #[inline(always)]
    pub(super) fn access_of<const AVX2: bool>(&mut self, key: u64, kind: u64, events: &mut Events) -> bool {
        self.look_up::<AVX2>(key << 1 | u64::from(kind == STORE), kind, events)
    }

    /// One access by a load or (lowest bit of `word`, which has the key above) a store; whether it hit.
    #[inline(always)]
    pub(super) fn access<const AVX2: bool>(&mut self, word: u64, events: &mut Events) -> bool {
        self.look_up::<AVX2>(word, word & 1, events)
    }

    /// The two ways used last are asked first: in programs it is one of them, mostly, and the
    /// branches can be foretold. Everything after them has no branches.
    #[inline(always)]
    fn look_up<const AVX2: bool>(&mut self, word: u64, kind: u64, events: &mut Events) -> bool {
        let key = word >> 1;
        let at = key as usize & (self.sets.len() - 1);
        let set = &mut self.sets[at].0;
        let (wanted, flag) = (word | 1, word & 1);
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
