//! A hint to the processor that runs the simulator; without effect on results.

#![allow(unsafe_code, reason = "the intrinsic is unsafe; its pointer comes from a checked index")]

/// Asks for the cache line of `words[at]`; nothing where there is no such word.
#[inline(always)]
pub(crate) fn line(words: &[u64], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(word) = words.get(at) {
        // SAFETY: SSE is part of x86-64, and the pointer is of a word that is there.
        unsafe {
            std::arch::x86_64::_mm_prefetch(std::ptr::from_ref(word).cast::<i8>(), std::arch::x86_64::_MM_HINT_T0)
        };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (words, at);
}
