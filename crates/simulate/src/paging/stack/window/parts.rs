//! Vectors that depend on a number are parts of longer ones, by value: one load each, where comparing lanes with the number, or
//! going through a reference, made the compiler take the lanes apart.

use super::{LANES, WORDS};

/// Part `LANES - 1 - l`: 1 in the lanes after lane l.
pub(super) static AFTER_NEAR: [u16; 2 * LANES] = {
    let mut lanes = [0; 2 * LANES];
    let mut lane = LANES;
    while lane < lanes.len() {
        lanes[lane] = 1;
        lane += 1;
    }
    lanes
};
pub(super) static AFTER_FAR: [u32; 2 * LANES] = {
    let mut lanes = [0; 2 * LANES];
    let mut lane = LANES;
    while lane < lanes.len() {
        lanes[lane] = 1;
        lane += 1;
    }
    lanes
};
/// Part `WORDS - w`: all bits in the words before word w.
pub(super) static BEFORE: [u64; 2 * WORDS] = {
    let mut words = [0; 2 * WORDS];
    let mut word = 0;
    while word < WORDS {
        words[word] = u64::MAX;
        word += 1;
    }
    words
};
/// Part `WORDS - w`: all bits in word w.
pub(super) static HERE: [u64; 2 * WORDS] = {
    let mut words = [0; 2 * WORDS];
    words[WORDS] = u64::MAX;
    words
};

#[inline(always)]
pub(super) fn part<T: Copy, const N: usize, const M: usize>(table: &[T; M], from: usize) -> [T; N] {
    *table[from..].first_chunk().expect("tables are twice as long as their parts")
}
