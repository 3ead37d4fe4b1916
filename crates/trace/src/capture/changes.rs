//! Changes of page in a list of addresses: where, and by how much.
#![allow(unsafe_code, reason = "vector instructions, where the processor has them")]

use crate::format::{Level, zigzag};

/// Room for changes of page, kept from list to list.
pub(super) struct Changes {
    differences: Vec<u64>,
    places: Vec<u32>,
}

/// Elements that a vector may write past the last change.
const SLACK: usize = 8;

impl Changes {
    pub const fn new() -> Changes {
        Changes { differences: Vec::new(), places: Vec::new() }
    }

    /// For each address on another page than the one before: the difference of the pages, zigzag coded, and its place.
    ///
    /// No branch depends on the addresses: the processor could not predict whether the next has the same page.
    pub fn find(&mut self, addresses: &[u64], page_bits: u32, level: Level) -> (&[u64], &[u32]) {
        let room = addresses.len() + SLACK;
        self.differences.resize(self.differences.len().max(room), 0);
        self.places.resize(self.places.len().max(room), 0);
        let (differences, places) = (&mut self.differences[..], &mut self.places[..]);
        let count = match level {
            Level::Plain => find_from(1, 0, addresses, page_bits, differences, places),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this level is chosen only where the processor has these instructions.
            Level::Wide => unsafe { wide::find(addresses, page_bits, differences, places) },
        };
        (&self.differences[..count], &self.places[..count])
    }
}

/// Finds changes from `first` on, and puts them behind those found so far; returns their number.
#[inline(always)]
fn find_from(
    first: usize,
    found: usize,
    addresses: &[u64],
    page_bits: u32,
    differences: &mut [u64],
    places: &mut [u32],
) -> usize {
    let mut found = found;
    for at in first..addresses.len() {
        let (before, page) = (addresses[at - 1] >> page_bits, addresses[at] >> page_bits);
        differences[found] = zigzag(page.wrapping_sub(before));
        places[found] = at as u32;
        found += usize::from(before != page);
    }
    found
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{SLACK, find_from};
    use std::arch::x86_64::*;

    /// As [`find_from`] from the second address on, eight addresses at a time.
    #[target_feature(enable = "avx512f,avx512vl,bmi2,lzcnt,popcnt")]
    pub fn find(addresses: &[u64], page_bits: u32, differences: &mut [u64], places: &mut [u32]) -> usize {
        let shift = _mm_cvtsi32_si128(page_bits as i32);
        let mut place = _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8);
        let (mut found, mut at) = (0, 1);
        while at + SLACK <= addresses.len() {
            let before = _mm512_srl_epi64(load(&addresses[at - 1..]), shift);
            let page = _mm512_srl_epi64(load(&addresses[at..]), shift);
            let changed = _mm512_cmpneq_epu64_mask(before, page);
            let difference = _mm512_sub_epi64(page, before);
            let zigzag = _mm512_xor_si512(_mm512_slli_epi64::<1>(difference), _mm512_srai_epi64::<63>(difference));
            store(&mut differences[found..], _mm512_maskz_compress_epi64(changed, zigzag));
            store_places(&mut places[found..], _mm256_maskz_compress_epi32(changed, place));
            place = _mm256_add_epi32(place, _mm256_set1_epi32(SLACK as i32));
            found += changed.count_ones() as usize;
            at += SLACK;
        }
        find_from(at, found, addresses, page_bits, differences, places)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(words: &[u64]) -> __m512i {
        let words: &[u64; SLACK] = words.first_chunk().expect("eight words");
        // SAFETY: it reads as many words.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(room: &mut [u64], words: __m512i) {
        let room: &mut [u64; SLACK] = room.first_chunk_mut().expect("room for eight words");
        // SAFETY: it writes as many words.
        unsafe { _mm512_storeu_si512(room.as_mut_ptr().cast(), words) }
    }

    #[inline]
    #[target_feature(enable = "avx")]
    fn store_places(room: &mut [u32], places: __m256i) {
        let room: &mut [u32; SLACK] = room.first_chunk_mut().expect("room for eight places");
        // SAFETY: it writes as many.
        unsafe { _mm256_storeu_si256(room.as_mut_ptr().cast(), places) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn changes_are_those_seen_one_by_one_at_each_level(
            steps in prop::collection::vec((any::<u64>(), 8..62_u32, 1..30_usize), 1..60),
            page_bits in 4..41_u32,
        ) {
            let addresses: Vec<u64> =
                steps.iter().flat_map(|(address, less, times)| std::iter::repeat_n(address >> less, *times)).collect();
            let page = |at: usize| addresses[at] >> page_bits;
            let places: Vec<u32> =
                (1..addresses.len()).filter(|at| page(*at) != page(at - 1)).map(|at| at as u32).collect();
            let difference = |at: &u32| page(*at as usize) as i64 - page(*at as usize - 1) as i64;
            // Not negative: twice; negative: twice its size less one.
            let differences: Vec<u64> = places.iter().map(difference)
                .map(|step| if step < 0 { 2 * step.unsigned_abs() - 1 } else { 2 * step.unsigned_abs() }).collect();
            let mut changes = Changes::new();
            for level in Level::all() {
                prop_assert_eq!(changes.find(&addresses, page_bits, level), (&differences[..], &places[..]));
            }
        }
    }
}
