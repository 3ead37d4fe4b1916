//! Traces with a line a reference.

use crate::error::TraceError;
use crate::reference::{ADDRESS_BITS, Kind, Reference};
use crate::source::{ReferenceSource, References, Result, Span};
use std::io::BufRead;

/// References of some lines.
#[derive(Default)]
pub(super) struct Batch {
    spans: Vec<Span>,
    references: Vec<Reference>,
}

impl Batch {
    /// Appends a reference.
    pub fn push(&mut self, asid: u16, thread: u32, reference: Reference) {
        match self.spans.last_mut() {
            Some(span) if (span.asid, span.thread) == (asid, thread) => span.length += 1,
            _ => self.spans.push(Span { asid, thread, length: 1 }),
        }
        self.references.push(reference);
    }

    /// Appends a reference to an address that was read; [`Flaw`] where it has too many bits.
    pub fn add(
        &mut self,
        asid: u16,
        thread: u32,
        address: u64,
        kind: Kind,
        bytes: u32,
    ) -> std::result::Result<(), Flaw> {
        self.push(asid, thread, Reference::checked(address, kind, bytes).ok_or_else(|| too_high(address))?);
        Ok(())
    }

    pub fn clear(&mut self) {
        self.spans.clear();
        self.references.clear();
    }

    pub fn len(&self) -> usize {
        self.references.len()
    }

    pub fn view(&self) -> Option<References<'_>> {
        (!self.references.is_empty()).then(|| References::new(&self.spans, &self.references))
    }
}

/// The fault of an address that a reference cannot hold.
pub(super) fn too_high(address: u64) -> Flaw {
    format!("address {address:#x} has more than {ADDRESS_BITS} bits")
}

/// The fault of a line.
pub(super) type Flaw = String;

/// References of a batch.
pub(super) const BATCH: usize = 1 << 16;
/// Bytes of a wrong line that the error shows.
const SHOWN: usize = 80;
/// Bytes of the longest line; a binary file may have longer ones.
const LONGEST: usize = 1 << 16;

/// Reads lines and gives them to a parser.
pub(super) struct Lines<R, P> {
    input: R,
    parse: P,
    line: Vec<u8>,
    number: u64,
    batch: Batch,
    done: bool,
}

impl<R: BufRead, P: FnMut(&[u8], &mut Batch) -> std::result::Result<(), Flaw>> Lines<R, P> {
    pub fn new(input: R, parse: P) -> Self {
        Lines::after(input, parse, 0)
    }

    /// Continues after this number of lines.
    pub fn after(input: R, parse: P, number: u64) -> Self {
        Lines { input, parse, line: Vec::new(), number, batch: Batch::default(), done: false }
    }

    fn fill(&mut self) -> Result<()> {
        while self.batch.len() < BATCH && !self.done {
            if !next_line(&mut self.input, &mut self.line)? {
                self.done = true;
                break;
            }
            self.number += 1;
            if let Err(flaw) = (self.parse)(&self.line, &mut self.batch) {
                return Err(wrong_line(self.number, &self.line, &flaw));
            }
        }
        Ok(())
    }
}

/// The next line without its end; false at the end of the input.
pub(super) fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool> {
    line.clear();
    let mut limited = std::io::Read::take(&mut *input, LONGEST as u64);
    limited.read_until(b'\n', line).map_err(TraceError::io("read the foreign trace"))?;
    if line.is_empty() {
        return Ok(false);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() == LONGEST {
        return Err(TraceError::Invalid(format!(
            "a line is longer than {LONGEST} bytes: the trace is of another format"
        )));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(true)
}

pub(super) fn wrong_line(number: u64, line: &[u8], flaw: &str) -> TraceError {
    let shown = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
    TraceError::Invalid(format!("line {number}: {flaw}: {shown}"))
}

impl<R: BufRead, P: FnMut(&[u8], &mut Batch) -> std::result::Result<(), Flaw>> ReferenceSource for Lines<R, P> {
    fn next_references(&mut self) -> Result<Option<References<'_>>> {
        self.batch.clear();
        if let Err(error) = self.fill() {
            self.done = true;
            return Err(error);
        }
        Ok(self.batch.view())
    }
}

/// A hexadecimal number, with or without `0x`.
pub(super) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").or_else(|| digits.strip_prefix(b"0X")).unwrap_or(digits);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |value, digit| Some(value << 4 | u64::from((*digit as char).to_digit(16)?)))
}

/// A decimal number.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    digits.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// A number: decimal, or hexadecimal with `0x`.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.starts_with(b"0x") || digits.starts_with(b"0X") { hexadecimal(digits) } else { decimal(digits) }
}

/// Words with white space between them.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}
