//! Page runs in the file's code, in two streams: differences of pages, and counts.
#![allow(unsafe_code, reason = "vector instructions, where the processor has them")]

use super::codec::{MORE, length, more, put, spread, zigzag};
use super::level::Level;
use crate::run::Run;

/// Bytes that are written at once.
const WORD: usize = 8;
/// Runs that are coded at once.
const AT_ONCE: usize = 64;
/// Counts that are looked at at once.
const TOGETHER: usize = 32;

/// Coded runs, to which more can be appended.
#[derive(Debug)]
pub(crate) struct RunCode {
    /// For each run the difference of its page to the last.
    pub pages: Vec<u8>,
    /// For each run its count.
    pub counts: Vec<u8>,
    /// The page that the next difference is to.
    pub last: u64,
    pub records: usize,
    /// Sum of the counts.
    pub references: u64,
}

impl RunCode {
    pub const fn new() -> RunCode {
        RunCode { pages: Vec::new(), counts: Vec::new(), last: 0, records: 0, references: 0 }
    }

    /// Forgets all runs; the first difference will be to `page`.
    pub fn begin(&mut self, page: u64) {
        self.pages.clear();
        self.counts.clear();
        (self.last, self.records, self.references) = (page, 0, 0);
    }

    /// Appends runs.
    pub fn append(&mut self, runs: &[Run]) {
        let mut room = [0; AT_ONCE];
        for runs in runs.chunks(AT_ONCE) {
            for (difference, run) in room.iter_mut().zip(runs) {
                *difference = zigzag(run.page.wrapping_sub(self.last));
                self.last = run.page;
                self.references = self.references.wrapping_add(run.count);
            }
            let differences = &room[..runs.len()];
            if differences.iter().all(|difference| *difference < 1 << 56) {
                put_differences(&mut self.pages, differences, Level::of_this_processor());
            } else {
                differences.iter().for_each(|difference| put(*difference, &mut self.pages));
            }
            runs.iter().for_each(|run| put(run.count, &mut self.counts));
        }
        self.records += runs.len();
    }

    /// Appends runs by the differences of their pages, zigzag coded and below 2^56, the first to the last page of
    /// these. They begin at `places` (the last of which is the end), counted in references; the last has `page`.
    pub fn append_differences(&mut self, differences: &[u64], places: &[u32], page: u64, level: Level) {
        let (Some(begin), Some(end)) = (places.first(), places.last()) else { return };
        put_differences(&mut self.pages, differences, level);
        put_counts(&mut self.counts, places);
        self.last = if differences.is_empty() { self.last } else { page };
        self.records += differences.len();
        self.references += u64::from(end - begin);
    }

    /// Appends runs that are coded: their first difference is to the last page of these.
    pub fn append_coded(&mut self, coded: &CodedRuns) {
        self.pages.extend_from_slice(coded.pages);
        self.counts.extend_from_slice(coded.counts);
        self.last = coded.last;
        self.records += coded.records;
        self.references = self.references.wrapping_add(coded.references);
    }

    /// The payload of a chunk.
    pub fn payload(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend((self.pages.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.pages);
        bytes.extend_from_slice(&self.counts);
    }
}

/// Runs in the code of [`RunCode`], stored elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodedRuns<'a> {
    pub pages: &'a [u8],
    pub counts: &'a [u8],
    /// The page of the last run.
    pub last: u64,
    pub records: usize,
    pub references: u64,
}

/// [`put`] of values below 2^56.
fn put_differences(bytes: &mut Vec<u8>, differences: &[u64], level: Level) {
    match level {
        Level::Plain => put_all(bytes, differences, spread),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this level is chosen only where the processor has these instructions.
        Level::Wide => unsafe { put_all_wide(bytes, differences) },
    }
}

/// [`put`] of values below 2^56 with unpredictable lengths: no branch depends on them.
#[inline(always)]
fn put_all(bytes: &mut Vec<u8>, values: &[u64], spread: impl Fn(u64) -> (u64, usize)) {
    let mut end = bytes.len();
    bytes.resize(end + values.len() * WORD, 0);
    for value in values {
        let (word, length) = spread(*value);
        bytes[end..end + WORD].copy_from_slice(&word.to_le_bytes());
        end += length;
    }
    bytes.truncate(end);
}

/// [`put_all`], with bits deposited by one instruction.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "bmi2,lzcnt")]
fn put_all_wide(bytes: &mut Vec<u8>, values: &[u64]) {
    put_all(bytes, values, |value| {
        let length = length(value);
        (std::arch::x86_64::_pdep_u64(value, !MORE) | more(length), length)
    });
}

/// [`put`] of the distances of neighbours.
fn put_counts(bytes: &mut Vec<u8>, places: &[u32]) {
    let mut at = 0;
    while at + 1 < places.len() {
        let part = &places[at..places.len().min(at + TOGETHER + 1)];
        let before = bytes.len();
        bytes.resize(before + part.len() - 1, 0);
        let mut all = 0;
        for (byte, pair) in bytes[before..].iter_mut().zip(part.windows(2)) {
            let count = pair[1] - pair[0];
            *byte = count as u8;
            all |= count;
        }
        // Some have more than a byte.
        if all >= 0x80 {
            bytes.truncate(before);
            part.windows(2).for_each(|pair| put(u64::from(pair[1] - pair[0]), bytes));
        }
        at += part.len() - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// [`put`] of each integer by itself.
    fn naive(runs: &[Run]) -> Vec<u8> {
        let (mut pages, mut counts, mut last) = (Vec::new(), Vec::new(), 0);
        for run in runs {
            put(zigzag(run.page.wrapping_sub(last)), &mut pages);
            put(run.count, &mut counts);
            last = run.page;
        }
        [&(pages.len() as u32).to_le_bytes()[..], &pages, &counts].concat()
    }

    proptest! {
        #[test]
        fn runs_appended_in_parts_coded_or_not_are_those_put_one_by_one(
            values in prop::collection::vec((any::<u64>(), 0..64_u32, any::<u64>(), 0..64_u32), 0..3000),
            parts in 1..700_usize,
        ) {
            let runs: Vec<Run> =
                values.iter().map(|(page, less, count, few)| Run { page: page >> less, count: count >> few }).collect();
            let (mut code, mut other, mut payload) = (RunCode::new(), RunCode::new(), Vec::new());
            for (nth, part) in runs.chunks(parts).enumerate() {
                if nth % 2 == 0 {
                    code.append(part);
                    continue;
                }
                other.begin(code.last);
                other.append(part);
                let RunCode { pages, counts, last, records, references } = &other;
                code.append_coded(&CodedRuns { pages, counts, last: *last, records: *records, references: *references });
            }
            code.payload(&mut payload);
            prop_assert_eq!(payload, naive(&runs));
            prop_assert_eq!(code.records, runs.len());
            prop_assert_eq!(code.references, runs.iter().fold(0, |sum: u64, run| sum.wrapping_add(run.count)));
        }
    }
    proptest! {
        #[test]
        fn runs_appended_by_differences_are_those_put_one_by_one_at_each_level(
            steps in prop::collection::vec((0..1_u64 << 52, 0..52_u32, 1..300_u32, 0..9_u32), 0..2000),
        ) {
            let runs: Vec<Run> = steps
                .iter()
                .map(|(page, less, count, few)| Run { page: page >> less, count: u64::from((count >> few).max(1)) })
                .collect();
            let (mut differences, mut places, mut last) = (Vec::new(), vec![7], 0);
            for run in &runs {
                differences.push(zigzag(run.page.wrapping_sub(last)));
                places.push(places[places.len() - 1] + run.count as u32);
                last = run.page;
            }
            for level in Level::all() {
                let (mut code, mut payload) = (RunCode::new(), Vec::new());
                code.append_differences(&differences, &places, last, level);
                code.payload(&mut payload);
                prop_assert_eq!(payload, naive(&runs));
                prop_assert_eq!(code.references, runs.iter().map(|run| run.count).sum::<u64>());
                prop_assert_eq!((code.records, code.last), (runs.len(), last));
            }
        }
    }
}
