//! ChampSim's `input_instr`: 64 bytes an instruction, little-endian.
//!
//! Instruction pointer (8), branch flags (2), registers (2 + 4), two addresses written, four read; an address of 0 is
//! none. An instruction is a fetch, its reads, its writes, in this order; sizes are not known.

use super::lines::{BATCH, Batch, Flaw};
use crate::error::TraceError;
use crate::reference::Kind;
use crate::source::{ReferenceSource, References, Result};
use std::io::BufRead;

const RECORD: usize = 64;
const WRITTEN: std::ops::Range<usize> = 16..32;
const READ: std::ops::Range<usize> = 32..64;

pub(super) struct ChampSim<R> {
    input: R,
    records: u64,
    batch: Batch,
    done: bool,
}

impl<R: BufRead> ChampSim<R> {
    pub fn new(input: R) -> Self {
        ChampSim { input, records: 0, batch: Batch::default(), done: false }
    }

    fn fill(&mut self) -> Result<()> {
        while self.batch.len() < BATCH && !self.done {
            let mut record = [0; RECORD];
            match super::raw::read_record(&mut self.input, &mut record)? {
                0 => self.done = true,
                RECORD => {
                    self.records += 1;
                    push(&record, &mut self.batch)
                        .map_err(|flaw| TraceError::Invalid(format!("instruction {}: {flaw}", self.records)))?;
                }
                some => {
                    return Err(TraceError::Invalid(format!(
                        "{some} bytes follow the {} instructions of 64 bytes: the trace is cut, or still compressed",
                        self.records
                    )));
                }
            }
        }
        Ok(())
    }
}

fn push(record: &[u8; RECORD], batch: &mut Batch) -> std::result::Result<(), Flaw> {
    let addresses = |range: std::ops::Range<usize>| {
        let words = record[range].chunks_exact(8);
        words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).filter(|address| *address != 0)
    };
    let pointer = u64::from_le_bytes(record[..8].try_into().expect("eight bytes"));
    batch.add(0, 0, pointer, Kind::Fetch, 0)?;
    addresses(READ).try_for_each(|address| batch.add(0, 0, address, Kind::Load, 0))?;
    addresses(WRITTEN).try_for_each(|address| batch.add(0, 0, address, Kind::Store, 0))
}

impl<R: BufRead> ReferenceSource for ChampSim<R> {
    fn next_references(&mut self) -> Result<Option<References<'_>>> {
        self.batch.clear();
        if let Err(error) = self.fill() {
            self.done = true;
            return Err(error);
        }
        Ok(self.batch.view())
    }
}
