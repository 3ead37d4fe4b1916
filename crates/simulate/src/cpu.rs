//! Optional instructions of the processor, and code that uses them.

pub mod lanes;

use std::sync::OnceLock;

/// Sets of instructions for which code is compiled; each contains those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Instructions of every processor of the architecture.
    Baseline,
    /// AVX2, BMI, LZCNT and POPCNT.
    Avx2,
    /// AVX-512 with population counts.
    Avx512,
}

/// The environment variable that limits code to a level: `baseline` or `avx2`, to measure the gain of the others.
pub const LIMIT: &str = "PAGELAB_INSTRUCTIONS";

/// The highest level that this processor has and [`LIMIT`] allows.
#[inline]
pub fn level() -> Level {
    #[cfg(test)]
    return allowed().min(tests::LIMIT.get());
    #[cfg(not(test))]
    allowed()
}

fn allowed() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| match std::env::var(LIMIT).as_deref() {
        Ok("baseline") => Level::Baseline,
        Ok("avx2") => detected().min(Level::Avx2),
        _ => detected(),
    })
}

fn detected() -> Level {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
    {
        let wider = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vpopcntdq")
            && is_x86_feature_detected!("avx512bitalg");
        return if wider { Level::Avx512 } else { Level::Avx2 };
    }
    Level::Baseline
}

/// Runs `work` compiled for AVX2, if the processor has it and [`LIMIT`] allows it. (For AVX-512 such code was no
/// faster.)
///
/// `work` must be `#[inline(always)]` down to its loops: functions that are not inlined remain baseline code.
#[inline]
pub fn with_avx2(work: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    if level() >= Level::Avx2 {
        #[expect(unsafe_code, reason = "calling code compiled for features that the baseline lacks")]
        // SAFETY: the processor has every feature of its level.
        unsafe {
            wide(work);
        }
        return;
    }
    work();
}

/// Work that knows the level for which it is compiled.
pub trait Leveled {
    /// Does the work; `#[inline(always)]` down to its loops. `LEVEL` is a [`Level`] that the processor has.
    fn run<const LEVEL: u8>(self);
}

/// Runs `work` compiled for the widest instructions that the processor has ([`level`]), as [`with_avx2`] does.
#[inline]
pub fn widest_level(work: impl Leveled) {
    #[cfg(target_arch = "x86_64")]
    match level() {
        Level::Baseline => {}
        #[expect(unsafe_code, reason = "calling code compiled for features that the baseline lacks")]
        // SAFETY: the processor has every feature of its level.
        Level::Avx2 => unsafe {
            return wide(
                #[inline(always)]
                || work.run::<{ Level::Avx2 as u8 }>(),
            );
        },
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: the processor has every feature of its level.
        Level::Avx512 => unsafe {
            return wider(
                #[inline(always)]
                || work.run::<{ Level::Avx512 as u8 }>(),
            );
        },
    }
    work.run::<{ Level::Baseline as u8 }>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn wide(work: impl FnOnce()) {
    work();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(
    enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,avx512bitalg"
)]
fn wider(work: impl FnOnce()) {
    work();
}

/// A bit for each lane in which both have the same value.
#[inline(always)]
pub fn equal_lanes(one: &[u16; 16], other: &[u16; 16]) -> u16 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16};
        #[expect(unsafe_code, reason = "the intrinsics take pointers")]
        // SAFETY: SSE2 is part of x86-64; each load reads 8 of the 16 lanes, at any alignment.
        unsafe {
            let half = |at: usize| {
                let lanes = |of: &[u16; 16]| _mm_loadu_si128(of.as_ptr().add(at).cast());
                _mm_cmpeq_epi16(lanes(one), lanes(other))
            };
            _mm_movemask_epi8(_mm_packs_epi16(half(0), half(8))) as u16
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    one.iter().zip(other).rev().fold(0, |bits, (one, other)| bits << 1 | u16::from(one == other))
}

/// A bit for each of at most 32 words that equals `wanted` when the bits of `LOW` are set; for code that is compiled
/// for `LEVEL`, a [`Level`] that the processor has.
#[inline(always)]
pub fn equal_words<const W: usize, const LOW: u64, const LEVEL: u8>(words: &[u64; W], wanted: u64) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if LEVEL > Level::Baseline as u8 && W.is_multiple_of(4) {
        use core::arch::x86_64::{
            _mm256_castsi256_pd, _mm256_cmpeq_epi64, _mm256_cmpeq_epi64_mask, _mm256_loadu_si256,
            _mm256_movemask_pd, _mm256_or_si256, _mm256_set1_epi64x, _mm512_cmpeq_epi64_mask, _mm512_loadu_si512,
            _mm512_or_si512, _mm512_set1_epi64,
        };
        let (mut found, mut at) = (0, 0);
        #[expect(unsafe_code, reason = "instructions that the baseline lacks")]
        // SAFETY: the processor has the level's instructions; each load reads words of the array, at any alignment.
        unsafe {
            if LEVEL >= Level::Avx512 as u8 {
                while at + 8 <= W {
                    let words = _mm512_loadu_si512(words.as_ptr().add(at).cast());
                    let words = _mm512_or_si512(words, _mm512_set1_epi64(LOW as i64));
                    found |= u32::from(_mm512_cmpeq_epi64_mask(words, _mm512_set1_epi64(wanted as i64))) << at;
                    at += 8;
                }
            }
            while at < W {
                let (words, wanted) =
                    (_mm256_loadu_si256(words.as_ptr().add(at).cast()), _mm256_set1_epi64x(wanted as i64));
                let words = _mm256_or_si256(words, _mm256_set1_epi64x(LOW as i64));
                found |= if LEVEL >= Level::Avx512 as u8 {
                    u32::from(_mm256_cmpeq_epi64_mask(words, wanted)) << at
                } else {
                    (_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(words, wanted))) as u32) << at
                };
                at += 4;
            }
        }
        return found;
    }
    words.iter().enumerate().fold(0, |found, (at, word)| found | u32::from(*word | LOW == wanted) << at)
}

/// Puts `word` in front of `words`; each word up to `way` moves one place back. For code that is compiled for `LEVEL`,
/// a [`Level`] that the processor has.
#[inline(always)]
pub fn to_front<const W: usize, const LEVEL: u8>(words: &mut [u64; W], way: usize, word: u64) {
    #[cfg(target_arch = "x86_64")]
    if LEVEL >= Level::Avx512 as u8 && W.is_multiple_of(4) {
        use core::arch::x86_64::{
            _mm256_alignr_epi64, _mm256_loadu_si256, _mm256_mask_mov_epi64, _mm256_storeu_si256,
            _mm512_alignr_epi64, _mm512_extracti64x4_epi64, _mm512_loadu_si512, _mm512_mask_mov_epi64,
            _mm512_set1_epi64, _mm512_storeu_si512,
        };
        // A bit for each way that changes.
        let moved = (2_u32 << way) - 1;
        let mut at = 0;
        #[expect(unsafe_code, reason = "instructions that the baseline lacks")]
        // SAFETY: the processor has the level's instructions; loads and stores are of words of the array, at any
        // alignment.
        unsafe {
            let mut before = _mm512_set1_epi64(word as i64);
            while at + 8 <= W {
                let place = words.as_mut_ptr().add(at);
                let old = _mm512_loadu_si512(place.cast());
                let new = _mm512_alignr_epi64::<7>(old, before);
                _mm512_storeu_si512(place.cast(), _mm512_mask_mov_epi64(old, (moved >> at) as u8, new));
                before = old;
                at += 8;
            }
            if at < W {
                let place = words.as_mut_ptr().add(at);
                let old = _mm256_loadu_si256(place.cast());
                let new = _mm256_alignr_epi64::<3>(old, _mm512_extracti64x4_epi64::<1>(before));
                _mm256_storeu_si256(place.cast(), _mm256_mask_mov_epi64(old, (moved >> at) as u8, new));
            }
        }
        return;
    }
    let old = *words;
    *words = std::array::from_fn(|at| match at {
        0 => word,
        at if at <= way => old[at - 1],
        at => old[at],
    });
}

/// Tells the processor that `slice[index]` is needed soon; an index outside does nothing.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(wanted) = slice.get(index) {
        #[expect(unsafe_code, reason = "the intrinsic takes a pointer")]
        // SAFETY: a prefetch reads and writes nothing, and the pointer comes from a reference.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(wanted).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slice.get(index);
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Instructions that this thread's code may use.
        pub static LIMIT: Cell<Level> = const { Cell::new(Level::Avx512) };
    }

    /// Results of `work` on processors of every level, up to this one's.
    pub fn on_every_level<T>(work: impl Fn() -> T) -> Vec<T> {
        let levels = [Level::Baseline, Level::Avx2, Level::Avx512];
        let results = levels.into_iter().filter(|level| *level <= allowed()).map(|level| {
            LIMIT.set(level);
            work()
        });
        let results = results.collect();
        LIMIT.set(Level::Avx512);
        results
    }
}
