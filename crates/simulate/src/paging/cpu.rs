//! What the processor can do beyond its baseline.

/// Runs `work` compiled for the wide instructions (AVX2, BMI, POPCNT) where the processor has them.
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
        // SAFETY: every feature that `wide` is compiled for was just detected.
        unsafe {
            wide(work);
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
