//! Records as bytes: differences as variable-length integers, before compression.
//!
//! References are two streams, because the upper byte of neighbours is mostly the same: one byte of kind and size each,
//! then the differences of addresses, each to the last address of the same kind (data and code go different ways). Runs
//! are the differences of pages, then the counts: [`super::run_code`] writes them.

use crate::error::TraceError;
use crate::reference::Reference;
use crate::run::{MAX_ASID, Run};
use crate::source::Span;

/// Faults of a payload.
pub(super) type Flaw = &'static str;

/// The fault of runs whose counts no number of 64 bits holds.
pub(super) const MANY: Flaw = "the counts of its runs add up to 2^64 or more";

#[inline]
pub(crate) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

#[inline]
fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ (code & 1).wrapping_neg()
}

/// Seven bits a byte, lowest first; the highest bit says that more follow.
#[inline]
pub(super) fn put(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The bytes that [`put`] appends for a value below 2^56, in a word, and how many they are.
#[inline]
pub(super) fn spread(value: u64) -> (u64, usize) {
    let halves = (value & 0x0fff_ffff) | (value & 0x00ff_ffff_f000_0000) << 4;
    let quarters = (halves & 0x0000_3fff_0000_3fff) | (halves & 0x0fff_c000_0fff_c000) << 2;
    let sevens = (quarters & 0x007f_007f_007f_007f) | (quarters & 0x3f80_3f80_3f80_3f80) << 1;
    let length = length(value);
    (sevens | more(length), length)
}

/// How many bytes [`put`] appends for a value below 2^56.
#[inline(always)]
pub(super) fn length(value: u64) -> usize {
    ((63 - (value | 1).leading_zeros()) * 37 / 256 + 1) as usize
}

/// The bits that say that more bytes follow, in all but the last of so many.
#[inline(always)]
pub(super) fn more(length: usize) -> u64 {
    MORE & !(u64::MAX << (8 * (length - 1)))
}

/// Reads variable-length integers from the front of a slice.
struct Take<'a>(&'a [u8]);

/// The highest bit of each byte, which says that more follow.
pub(super) const MORE: u64 = 0x8080_8080_8080_8080;

/// The value whose bytes, as [`put`] appends them, are the lowest `length` of a word: the inverse of [`spread`].
#[inline(always)]
const fn gathered(word: u64, length: u32) -> u64 {
    let sevens = word & !MORE & (u64::MAX >> (64 - 8 * length));
    let quarters = (sevens & 0x007f_007f_007f_007f) | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
    let halves = (quarters & 0x0000_3fff_0000_3fff) | (quarters & 0x3fff_0000_3fff_0000) >> 2;
    (halves & 0x0fff_ffff) | (halves & 0x0fff_ffff_0000_0000) >> 4
}

impl Take<'_> {
    #[inline(always)]
    fn next(&mut self) -> Result<u64, Flaw> {
        match *self.0 {
            [first, ref rest @ ..] if first < 0x80 => {
                self.0 = rest;
                Ok(u64::from(first))
            }
            [first, second, ref rest @ ..] if second < 0x80 => {
                self.0 = rest;
                Ok(u64::from(first & 0x7f) | u64::from(second) << 7)
            }
            _ => self.several(),
        }
    }

    /// Lengths follow patterns, as programs do. With a branch for each length, the processor predicts it and reads on
    /// before it is known.
    #[inline(always)]
    fn several(&mut self) -> Result<u64, Flaw> {
        let Some(bytes) = self.0.first_chunk::<8>() else { return self.long() };
        let word = u64::from_le_bytes(*bytes);
        let (value, length) = match (!word & MORE).trailing_zeros() / 8 + 1 {
            3 => (gathered(word, 3), 3),
            4 => (gathered(word, 4), 4),
            5 => (gathered(word, 5), 5),
            6 => (gathered(word, 6), 6),
            7 => (gathered(word, 7), 7),
            8 => (gathered(word, 8), 8),
            _ => return self.long(),
        };
        self.0 = &self.0[length..];
        Ok(value)
    }

    #[cold]
    fn long(&mut self) -> Result<u64, Flaw> {
        let mut value = 0u64;
        for (index, byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                if index == 9 && *byte > 1 {
                    return Err("an integer has more than 64 bits");
                }
                self.0 = &self.0[index + 1..];
                return Ok(value);
            }
        }
        Err("an integer does not end")
    }

    fn finish(self) -> Result<(), Flaw> {
        if self.0.is_empty() { Ok(()) } else { Err("bytes are left over") }
    }
}

pub(super) fn encode_references(spans: &[Span], references: &[Reference], bytes: &mut Vec<u8>) {
    bytes.clear();
    for span in spans {
        put(u64::from(span.asid), bytes);
        put(u64::from(span.thread), bytes);
        put(span.length as u64, bytes);
    }
    bytes.extend(references.iter().map(|reference| reference.meta()));
    let mut last = [0u64; 4];
    for reference in references {
        let last = &mut last[usize::from(reference.meta() & 3)];
        put(zigzag(reference.address().wrapping_sub(*last)), bytes);
        *last = reference.address();
    }
}

pub(super) fn decode_references(
    bytes: &[u8],
    span_count: u32,
    records: u32,
    spans: &mut Vec<Span>,
    references: &mut Vec<Reference>,
) -> Result<(), Flaw> {
    let mut take = Take(bytes);
    let records = records as usize;
    let mut sum = 0usize;
    for _ in 0..span_count {
        let (asid, thread, length) = (take.next()?, take.next()?, take.next()?);
        if asid > u64::from(MAX_ASID) || thread > u64::from(u32::MAX) || length > records as u64 {
            return Err("a segment is out of range");
        }
        sum += length as usize;
        spans.push(Span { asid: asid as u16, thread: thread as u32, length: length as usize });
    }
    if sum != records {
        return Err("the segments do not add up");
    }
    if take.0.len() < records {
        return Err("the kinds are cut off");
    }
    let (metas, differences) = take.0.split_at(records);
    let mut take = Take(differences);
    let mut last = [0u64; 4];
    references.reserve(records);
    for meta in metas {
        let last = &mut last[usize::from(meta & 3)];
        let address = last.wrapping_add(unzigzag(take.next()?));
        *last = address;
        references.push(Reference::with_meta(address, *meta));
    }
    take.finish()
}

pub(super) fn decode_runs(bytes: &[u8], records: u32, references: u64, runs: &mut Vec<Run>) -> Result<(), Flaw> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or("the pages are cut off")?;
    let (pages, counts) =
        rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or("the pages are cut off")?;
    let (mut pages, mut counts) = (Take(pages), Take(counts));
    let (mut last, mut sum, mut wrapped) = (0u64, 0u64, false);
    runs.reserve(records as usize);
    for _ in 0..records {
        last = last.wrapping_add(unzigzag(pages.next()?));
        let count = counts.next()?;
        if count == 0 {
            return Err("a run has no references");
        }
        let (next, wraps) = sum.overflowing_add(count);
        (sum, wrapped) = (next, wrapped | wraps);
        runs.push(Run { page: last, count });
    }
    if wrapped {
        return Err(MANY);
    }
    if sum != references {
        return Err("the counts do not add up");
    }
    pages.finish()?;
    counts.finish()
}

/// Compresses chunks, with one context for all.
pub(super) struct Compressor {
    context: zstd::bulk::Compressor<'static>,
    pub stored: Vec<u8>,
}

impl Compressor {
    pub fn new(level: i32) -> Result<Compressor, TraceError> {
        let context = zstd::bulk::Compressor::new(level).map_err(TraceError::io("prepare compression"))?;
        Ok(Compressor { context, stored: Vec::new() })
    }

    pub fn run(&mut self, raw: &[u8]) -> Result<(), TraceError> {
        self.stored.clear();
        self.stored.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        self.context.compress_to_buffer(raw, &mut self.stored).map_err(TraceError::io("compress a chunk"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // A checksum can be right and the payload wrong all the same: another writer's mistake must not end the reader.
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), spans in 0..9u32, records in 0..40u32) {
            let (mut found_spans, mut references, mut runs) = (Vec::new(), Vec::new(), Vec::new());
            if decode_references(&bytes, spans, records, &mut found_spans, &mut references).is_ok() {
                prop_assert_eq!(references.len(), records as usize);
                prop_assert_eq!(found_spans.iter().map(|span| span.length).sum::<usize>(), references.len());
            }
            if decode_runs(&bytes, records, 1, &mut runs).is_ok() {
                prop_assert_eq!(runs.len(), records as usize);
            }
        }

        #[test]
        fn integers_come_back(values in prop::collection::vec((any::<u64>(), 0..64_u32), 0..50)) {
            let values: Vec<u64> = values.into_iter().map(|(value, shift)| value >> shift).collect();
            let mut bytes = Vec::new();
            values.iter().for_each(|value| put(*value, &mut bytes));
            let mut take = Take(&bytes);
            for value in values {
                prop_assert_eq!(unzigzag(zigzag(value)), value);
                prop_assert_eq!(take.next(), Ok(value));
            }
            prop_assert!(take.finish().is_ok());
        }
    }

    #[test]
    fn integers_that_are_too_long_are_refused() {
        assert_eq!(Take(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).next(), Ok(u64::MAX));
        assert!(Take(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).next().is_err());
        assert!(Take(&[0x80; 11]).next().is_err());
        assert!(Take(&[0x80]).next().is_err());
        assert!(Take(&[]).next().is_err());
    }
}
