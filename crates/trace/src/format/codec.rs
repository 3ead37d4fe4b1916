//! Records as bytes: differences as variable-length integers, before compression.
//!
//! References are two streams, because the upper byte of neighbours is mostly the same: one byte of kind and size each,
//! then the differences of addresses, each to the last address of the same kind (data and code go different ways). Runs
//! are the differences of pages, then the counts.

use crate::error::TraceError;
use crate::reference::Reference;
use crate::run::{MAX_ASID, Run};
use crate::source::Span;

/// Faults of a payload.
pub(super) type Flaw = &'static str;

#[inline]
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

#[inline]
fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ (code & 1).wrapping_neg()
}

/// Seven bits a byte, lowest first; the highest bit says that more follow.
#[inline]
fn put(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Reads variable-length integers from the front of a slice.
struct Take<'a>(&'a [u8]);

impl Take<'_> {
    #[inline]
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
            _ => self.long(),
        }
    }

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

pub(super) fn encode_runs(runs: &[Run], bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend([0; 4]);
    let mut last = 0u64;
    for run in runs {
        put(zigzag(run.page.wrapping_sub(last)), bytes);
        last = run.page;
    }
    let pages = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&pages.to_le_bytes());
    for run in runs {
        put(run.count, bytes);
    }
}

pub(super) fn decode_runs(bytes: &[u8], records: u32, references: u64, runs: &mut Vec<Run>) -> Result<(), Flaw> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or("the pages are cut off")?;
    let (pages, counts) =
        rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or("the pages are cut off")?;
    let (mut pages, mut counts) = (Take(pages), Take(counts));
    let (mut last, mut sum) = (0u64, 0u64);
    runs.reserve(records as usize);
    for _ in 0..records {
        last = last.wrapping_add(unzigzag(pages.next()?));
        let count = counts.next()?;
        if count == 0 {
            return Err("a run has no references");
        }
        sum = sum.wrapping_add(count);
        runs.push(Run { page: last, count });
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
        fn integers_come_back(values in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| put(zigzag(*value), &mut bytes));
            let mut take = Take(&bytes);
            for value in values {
                prop_assert_eq!(take.next().map(unzigzag), Ok(value));
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
