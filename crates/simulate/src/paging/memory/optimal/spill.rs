//! Records of fixed size in a file, in blocks.

use std::fs::File;
use std::io::{Read, Write};

use super::{BLOCK, SpillError, failed, seek};

/// Records of `N` bytes.
#[derive(Debug)]
pub struct Spill<const N: usize> {
    file: File,
    waiting: Vec<[u8; N]>,
    written: u64,
}

impl<const N: usize> Spill<N> {
    pub fn new(file: File) -> Self {
        Self { file, waiting: Vec::with_capacity(BLOCK), written: 0 }
    }

    pub fn push(&mut self, record: [u8; N]) -> Result<(), SpillError> {
        self.waiting.push(record);
        if self.waiting.len() == BLOCK { self.flush() } else { Ok(()) }
    }

    /// Appends what waits; the last block may be short, after that nothing can be pushed.
    pub fn flush(&mut self) -> Result<(), SpillError> {
        let waiting = std::mem::take(&mut self.waiting);
        self.written += waiting.len() as u64;
        self.file.write_all(waiting.as_flattened()).map_err(failed("write the spill file"))?;
        self.waiting = waiting;
        self.waiting.clear();
        Ok(())
    }

    pub fn blocks(&self) -> u64 {
        self.written.div_ceil(BLOCK as u64)
    }

    /// The records of a block.
    pub fn read(&self, block: u64, records: &mut Vec<[u8; N]>) -> Result<(), SpillError> {
        let first = block * BLOCK as u64;
        records.resize((self.written - first).min(BLOCK as u64) as usize, [0; N]);
        seek(&self.file, first * N as u64)?;
        (&self.file).read_exact(records.as_flattened_mut()).map_err(failed("read the spill file"))
    }

    /// Writes a block anywhere, in any order.
    pub fn write(&mut self, block: u64, records: &[[u8; N]]) -> Result<(), SpillError> {
        let first = block * BLOCK as u64;
        seek(&self.file, first * N as u64)?;
        self.written = self.written.max(first + records.len() as u64);
        (&self.file).write_all(records.as_flattened()).map_err(failed("write the spill file"))
    }
}
