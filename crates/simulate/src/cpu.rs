//! What the processor can do beyond its baseline.

/// Runs `work` compiled for the widest instructions that the processor has: AVX-512 with population counts, or AVX2, BMI and
/// POPCNT, or its baseline.
///
/// `work` must be `#[inline(always)]` down to its loops: what is not inlined stays baseline code.
#[inline]
pub fn widest(work: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
    {
        #[expect(unsafe_code, reason = "calling code compiled for features that the baseline lacks")]
        // SAFETY: every feature that the called function is compiled for was just detected.
        unsafe {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vpopcntdq")
            {
                wider(work);
            } else {
                wide(work);
            }
        }
        return;
    }
    work();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn wide(work: impl FnOnce()) {
    work();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq")]
fn wider(work: impl FnOnce()) {
    work();
}

/// A bit for each lane in which both have the same.
#[inline(always)]
pub fn equal_lanes(one: &[u16; 16], other: &[u16; 16]) -> u16 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16};
        #[expect(unsafe_code, reason = "the intrinsics take pointers")]
        // SAFETY: SSE2 is part of x86-64; each load reads 8 of the 16 lanes that are there, from any alignment.
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

/// Tells the processor that `slice[index]` is wanted soon; an index outside does nothing.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(wanted) = slice.get(index) {
        #[expect(unsafe_code, reason = "the intrinsic takes a pointer")]
        // SAFETY: a prefetch reads and writes nothing, and the pointer is a reference's.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(wanted).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slice.get(index);
}
