//! 64-bit little-endian integers: addresses, or page numbers.

use crate::error::TraceError;
use crate::reference::{Kind, Reference};
use crate::run::{Run, RunBuilder, no_page};
use crate::source::{ReferenceSource, References, Result, RunSource, Span};
use std::io::{BufRead, ErrorKind};

/// Fills a record; returns the number of bytes, which is smaller only at the end.
pub(super) fn read_record(input: &mut impl BufRead, record: &mut [u8]) -> Result<usize> {
    let mut have = 0;
    while have < record.len() {
        match input.read(&mut record[have..]) {
            Ok(0) => break,
            Ok(more) => have += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(TraceError::Io { operation: "read the foreign trace", source }),
        }
    }
    Ok(have)
}

const BATCH_BYTES: usize = 8 << 16;

/// Reads words.
struct Words<R> {
    input: R,
    bytes: Vec<u8>,
    count: u64,
}

impl<R: BufRead> Words<R> {
    fn new(input: R) -> Self {
        Words { input, bytes: vec![0; BATCH_BYTES], count: 0 }
    }

    /// The next words; empty at the end.
    fn next(&mut self) -> Result<impl Iterator<Item = u64> + use<'_, R>> {
        let have = read_record(&mut self.input, &mut self.bytes)?;
        self.count += (have / 8) as u64;
        if !have.is_multiple_of(8) {
            let (count, rest) = (self.count, have % 8);
            return Err(TraceError::Invalid(format!(
                "{rest} bytes follow the {count} integers of 8 bytes: it is cut"
            )));
        }
        Ok(self.bytes[..have].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))))
    }
}

pub(super) struct Addresses<R> {
    words: Words<R>,
    span: [Span; 1],
    references: Vec<Reference>,
    done: bool,
}

impl<R: BufRead> Addresses<R> {
    pub fn new(input: R) -> Self {
        let span = [Span { asid: 0, thread: 0, length: 0 }];
        Addresses { words: Words::new(input), span, references: Vec::new(), done: false }
    }
}

impl<R: BufRead> ReferenceSource for Addresses<R> {
    fn next_references(&mut self) -> Result<Option<References<'_>>> {
        self.references.clear();
        if !self.done {
            self.done = true;
            let before = self.words.count;
            for (number, address) in (before + 1..).zip(self.words.next()?) {
                let reference = Reference::checked(address, Kind::Load, 0);
                self.references.push(reference.ok_or_else(|| {
                    TraceError::Invalid(format!("integer {number}: {}", super::lines::too_high(address)))
                })?);
            }
            self.done = self.references.is_empty();
        }
        self.span[0].length = self.references.len();
        Ok((!self.references.is_empty()).then(|| References::new(&self.span, &self.references)))
    }
}

pub(super) struct Pages<R> {
    words: Words<R>,
    page_bits: u32,
    builder: RunBuilder,
    runs: Vec<Run>,
    done: bool,
}

impl<R: BufRead> Pages<R> {
    pub fn new(input: R, page_bits: u32) -> Self {
        Pages { words: Words::new(input), page_bits, builder: RunBuilder::default(), runs: Vec::new(), done: false }
    }
}

impl<R: BufRead> RunSource for Pages<R> {
    fn page_bits(&self) -> u32 {
        self.page_bits
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        self.runs.clear();
        while self.runs.is_empty() && !self.done {
            self.done = true;
            let mut any = false;
            let before = self.words.count;
            for (number, page) in (before + 1..).zip(self.words.next()?) {
                if let Some(flaw) = no_page(page, self.page_bits) {
                    return Err(TraceError::Invalid(format!("integer {number}: {flaw}")));
                }
                any = true;
                self.builder.push(page, 1, &mut self.runs);
            }
            if any {
                self.done = false;
            } else {
                self.builder.finish(&mut self.runs);
            }
        }
        Ok((!self.runs.is_empty()).then_some(&self.runs))
    }
}
