//! Operations on vectors of 16-bit words and of bytes, by the widest instructions of a level: compilers split these
//! loops.
//!
//! Functions with a `LEVEL` are called in code that is compiled for it, on a processor that has it
//! ([`super::Leveled`]). Rows have a multiple of 8 words.

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::*;

use super::Level;

/// Number of bytes compared at once.
pub const CHUNK: usize = 64;
/// Number of rows of [`mark`].
pub const ROWS: usize = 16;

/// The number of set bits of each word under `mask`.
#[inline(always)]
pub fn count_bits<const W: usize, const LEVEL: u8>(words: &[u16; W], mask: u16) -> [u8; W] {
    let mut counts = [0; W];
    #[cfg(target_arch = "x86_64")]
    for (counts, words) in counts.as_chunks_mut::<8>().0.iter_mut().zip(words.as_chunks::<8>().0) {
        #[expect(unsafe_code, reason = "instructions that the baseline lacks, and pointers")]
        // SAFETY: the processor has the level's instructions; loads and stores are of 8 words and 8 bytes of the
        // arrays.
        unsafe {
            let words = _mm_and_si128(_mm_loadu_si128(words.as_ptr().cast()), _mm_set1_epi16(mask as i16));
            let bytes = if LEVEL >= Level::Avx512 as u8 {
                _mm_cvtepi16_epi8(_mm_popcnt_epi16(words))
            } else {
                let sums = bits_of_words(words);
                _mm_packus_epi16(sums, sums)
            };
            _mm_storel_epi64(counts.as_mut_ptr().cast(), bytes);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    for (count, word) in counts.iter_mut().zip(words) {
        *count = (word & mask).count_ones() as u8;
    }
    counts
}

/// The number of set bits of each word: sums of 2, 4, 8 and 16 neighbours.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn bits_of_words(words: __m128i) -> __m128i {
    #[expect(unsafe_code, reason = "the intrinsics are unsafe in code of any level")]
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        let part = |mask: i16, words| _mm_and_si128(words, _mm_set1_epi16(mask));
        let pairs = _mm_sub_epi16(words, part(0x5555, _mm_srli_epi16::<1>(words)));
        let fours = _mm_add_epi16(part(0x3333, pairs), part(0x3333, _mm_srli_epi16::<2>(pairs)));
        let eights = part(0x0f0f, _mm_add_epi16(fours, _mm_srli_epi16::<4>(fours)));
        part(0x1f, _mm_add_epi16(eights, _mm_srli_epi16::<8>(eights)))
    }
}

/// For each place, the number of chunks (fewer than 256) that have `wanted` there.
#[inline(always)]
pub fn count_bytes<const LEVEL: u8>(chunks: &[[u8; CHUNK]], wanted: u8) -> [u8; CHUNK] {
    let mut counts = [0_u8; CHUNK];
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "instructions that the baseline lacks, and pointers")]
    // SAFETY: the processor has the level's instructions; loads and stores are of bytes of the chunks, at any
    // alignment.
    unsafe {
        if LEVEL >= Level::Avx512 as u8 {
            let (wanted, one) = (_mm512_set1_epi8(wanted as i8), _mm512_set1_epi8(1));
            let add = |sum, chunk: &[u8; CHUNK]| {
                let found = _mm512_cmpeq_epi8_mask(wanted, _mm512_loadu_si512(chunk.as_ptr().cast()));
                _mm512_mask_add_epi8(sum, found, sum, one)
            };
            // Two sums, which do not wait for each other.
            let mut sums = [_mm512_setzero_si512(); 2];
            let (pairs, rest) = chunks.as_chunks::<2>();
            for [one, other] in pairs {
                sums = [add(sums[0], one), add(sums[1], other)];
            }
            let sum = rest.iter().fold(_mm512_add_epi8(sums[0], sums[1]), add);
            _mm512_storeu_si512(counts.as_mut_ptr().cast(), sum);
        } else if LEVEL >= Level::Avx2 as u8 {
            let wanted = _mm256_set1_epi8(wanted as i8);
            let mut sums = [_mm256_setzero_si256(); 2];
            for chunk in chunks {
                for (half, sum) in sums.iter_mut().enumerate() {
                    let bytes = _mm256_loadu_si256(chunk.as_ptr().add(half * 32).cast());
                    *sum = _mm256_sub_epi8(*sum, _mm256_cmpeq_epi8(wanted, bytes));
                }
            }
            for (half, sum) in sums.into_iter().enumerate() {
                _mm256_storeu_si256(counts.as_mut_ptr().add(half * 32).cast(), sum);
            }
        } else {
            let wanted = _mm_set1_epi8(wanted as i8);
            let mut sums = [_mm_setzero_si128(); 4];
            for chunk in chunks {
                for (quarter, sum) in sums.iter_mut().enumerate() {
                    let bytes = _mm_loadu_si128(chunk.as_ptr().add(quarter * 16).cast());
                    *sum = _mm_sub_epi8(*sum, _mm_cmpeq_epi8(wanted, bytes));
                }
            }
            for (quarter, sum) in sums.into_iter().enumerate() {
                _mm_storeu_si128(counts.as_mut_ptr().add(quarter * 16).cast(), sum);
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    for (count, place) in counts.iter_mut().zip(0..) {
        *count = chunks.iter().filter(|chunk| chunk[place] == wanted).count() as u8;
    }
    counts
}

/// Sets `bit` of each word for whose row and column `differ` and `masks` have no bit in common, and clears it
/// elsewhere. Returns for each column the rows in which it was set, as bits.
#[inline(always)]
pub fn mark<const W: usize, const LEVEL: u8>(
    rows: &mut [[u16; W]; ROWS],
    differ: &[u16; ROWS],
    masks: &[u16; W],
    bit: u16,
) -> [u16; W] {
    let mut found = [0; W];
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "instructions that the baseline lacks, and pointers")]
    // SAFETY: the processor has the level's instructions; loads and stores are of words of the arrays, at any
    // alignment: 8 words of a row, or 4 rows of 8 words.
    unsafe {
        if LEVEL >= Level::Avx512 as u8 && W == 8 {
            return mark_four_rows(rows, differ, masks, bit);
        }
        let bits = _mm_set1_epi16(bit as i16);
        for part in (0..W).step_by(8) {
            let masks = _mm_loadu_si128(masks.as_ptr().add(part).cast());
            let mut marked = _mm_setzero_si128();
            for ((at, row), differ) in rows.iter_mut().enumerate().zip(differ) {
                let place = row.as_mut_ptr().add(part).cast();
                let common = _mm_and_si128(_mm_set1_epi16(*differ as i16), masks);
                let equal = _mm_cmpeq_epi16(common, _mm_setzero_si128());
                let others = _mm_andnot_si128(bits, _mm_loadu_si128(place));
                _mm_storeu_si128(place, _mm_or_si128(others, _mm_and_si128(equal, bits)));
                let mine = _mm_and_si128(equal, _mm_set1_epi16((1_u16 << at) as i16));
                marked = _mm_or_si128(marked, mine);
            }
            _mm_storeu_si128(found.as_mut_ptr().add(part).cast(), marked);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    for ((at, row), differ) in rows.iter_mut().enumerate().zip(differ) {
        for (column, word) in row.iter_mut().enumerate() {
            let is_equal = differ & masks[column] == 0;
            *word = (*word & !bit) | if is_equal { bit } else { 0 };
            found[column] |= u16::from(is_equal) << at;
        }
    }
    found
}

/// As [`mark`] with rows of 8 words, by AVX-512.
///
/// # Safety
/// The processor has AVX-512, and `W` is 8.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "instructions that the baseline lacks, and pointers")]
#[inline(always)]
unsafe fn mark_four_rows<const W: usize>(
    rows: &mut [[u16; W]; ROWS],
    differ: &[u16; ROWS],
    masks: &[u16; W],
    bit: u16,
) -> [u16; W] {
    /// The row of each word of four.
    const FIRST: [u16; 32] = {
        let mut rows = [0; 32];
        let mut word = 0;
        while word < 32 {
            rows[word] = word as u16 / 8;
            word += 1;
        }
        rows
    };
    let mut found = [0; W];
    // SAFETY: the caller promises AVX-512 and rows of 8 words; loads and stores are of words of the arrays, at any
    // alignment.
    unsafe {
        let differ = _mm512_castsi256_si512(_mm256_loadu_si256(differ.as_ptr().cast()));
        let masks = _mm512_broadcast_i32x4(_mm_loadu_si128(masks.as_ptr().cast()));
        let bits = _mm512_set1_epi16(bit as i16);
        let mut numbers = _mm512_loadu_si512(FIRST.as_ptr().cast());
        let mut marks = _mm512_sllv_epi16(_mm512_set1_epi16(1), numbers);
        let mut marked = _mm512_setzero_si512();
        for four in 0..ROWS / 4 {
            let place = rows.as_mut_ptr().add(4 * four).cast();
            let equal = _mm512_testn_epi16_mask(_mm512_permutexvar_epi16(numbers, differ), masks);
            let others = _mm512_andnot_si512(bits, _mm512_loadu_si512(place));
            _mm512_storeu_si512(place.cast(), _mm512_or_si512(others, _mm512_maskz_mov_epi16(equal, bits)));
            marked = _mm512_or_si512(marked, _mm512_maskz_mov_epi16(equal, marks));
            numbers = _mm512_add_epi16(numbers, _mm512_set1_epi16(4));
            marks = _mm512_slli_epi16::<4>(marks);
        }
        let half = _mm256_or_si256(_mm512_castsi512_si256(marked), _mm512_extracti64x4_epi64::<1>(marked));
        let quarter = _mm_or_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
        _mm_storeu_si128(found.as_mut_ptr().cast(), quarter);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::tests::on_every_level;
    use crate::cpu::{Leveled, widest_level};
    use proptest::prelude::*;

    struct Given<const W: usize> {
        rows: [[u16; W]; ROWS],
        differ: [u16; ROWS],
        masks: [u16; W],
        mask: u16,
        chunks: Vec<[u8; CHUNK]>,
    }

    type Found<const W: usize> = ([[u8; W]; ROWS], [u8; CHUNK], [[u16; W]; ROWS], [u16; W]);

    /// All functions, by code of the level that the processor has and the tests allow.
    struct All<'a, const W: usize>(&'a Given<W>, &'a mut Option<Found<W>>);

    impl<const W: usize> Leveled for All<'_, W> {
        #[inline(always)]
        fn run<const LEVEL: u8>(self) {
            let Self(given, found) = self;
            let mut rows = given.rows;
            let bits = rows.map(|row| count_bits::<W, LEVEL>(&row, given.mask));
            let bytes = count_bytes::<LEVEL>(&given.chunks, given.mask as u8 % 4);
            let marked = mark::<W, LEVEL>(&mut rows, &given.differ, &given.masks, 1 << (given.mask % 16));
            *found = Some((bits, bytes, rows, marked));
        }
    }

    /// The same by definition.
    fn naive<const W: usize>(given: &Given<W>) -> Found<W> {
        let bits = given.rows.map(|row| row.map(|word| (word & given.mask).count_ones() as u8));
        let wanted = given.mask as u8 % 4;
        let bytes = std::array::from_fn(|at| given.chunks.iter().filter(|chunk| chunk[at] == wanted).count() as u8);
        let equal = |row: usize, column: usize| given.differ[row] & given.masks[column] == 0;
        let bit = 1 << (given.mask % 16);
        let word =
            |row: usize, column: usize| given.rows[row][column] & !bit | if equal(row, column) { bit } else { 0 };
        let rows = std::array::from_fn(|row| std::array::from_fn(|column| word(row, column)));
        let marked = |column| (0..ROWS).map(|row| u16::from(equal(row, column)) << row).sum();
        (bits, bytes, rows, std::array::from_fn(marked))
    }

    fn is_as_defined<const W: usize>(words: &[u16], bytes: &[u8]) -> bool {
        let given = Given::<W> {
            rows: std::array::from_fn(|row| std::array::from_fn(|column| words[row * W + column])),
            // Fewer bits, so that some have none in common.
            differ: std::array::from_fn(|row| words[ROWS * W + row] & words[row]),
            masks: std::array::from_fn(|column| words[ROWS * W + ROWS + column] & words[column + 1]),
            mask: words[0],
            chunks: bytes.as_chunks().0.to_vec(),
        };
        let by_level = on_every_level(|| {
            let mut found = None;
            widest_level(All(&given, &mut found));
            found
        });
        by_level.iter().all(|found| *found == Some(naive(&given)))
    }

    proptest! {
        #[test]
        fn every_level_does_as_defined(
            words in proptest::collection::vec(any::<u16>(), 300..301),
            bytes in proptest::collection::vec(0..4_u8, 0..255 * CHUNK + 1),
        ) {
            prop_assert!(is_as_defined::<8>(&words, &bytes));
            prop_assert!(is_as_defined::<16>(&words, &bytes));
        }
    }

    #[test]
    fn the_most_chunks_do_not_overflow() {
        assert!(is_as_defined::<8>(&[0; 300], &[0; 255 * CHUNK]));
    }
}
