//! The index: positions of a file's chunks.

use super::layout::{self, CHUNK_HEADER, ChunkHeader, INDEX_ENTRY, IndexHeader, TAIL, u32_at, u64_at};
use super::reader::read_full;
use crate::error::TraceError;
use crate::source::Result;
use serde_json::Value;
use std::io::{Read, Seek, SeekFrom};

/// A chunk of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Offset of its header in the file, in bytes.
    pub offset: u64,
    /// Records of the trace before it.
    pub first: u64,
    /// References in it.
    pub references: u64,
    /// Records in it.
    pub records: u32,
    /// Bytes of its payload as stored.
    pub stored: u32,
}

impl Entry {
    /// Offset of the first byte behind it in the file.
    pub fn end(&self) -> u64 {
        self.offset + CHUNK_HEADER as u64 + u64::from(self.stored)
    }

    pub(super) fn encode(&self) -> [u8; INDEX_ENTRY] {
        let mut bytes = [0; INDEX_ENTRY];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.references.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.records.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.stored.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Entry {
        Entry {
            offset: u64_at(bytes, 0),
            first: u64_at(bytes, 8),
            references: u64_at(bytes, 16),
            records: u32_at(bytes, 24),
            stored: u32_at(bytes, 28),
        }
    }

    fn of(offset: u64, header: &ChunkHeader) -> Entry {
        let ChunkHeader { first, references, records, stored, .. } = *header;
        Entry { offset, first, references, records, stored }
    }
}

/// The chunks of a file, for random access and for sharding.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// The chunks, in the file's order.
    pub entries: Vec<Entry>,
    /// Facts known at the end; null if the file has no end.
    pub ending: Value,
    /// Whether the file has its end. If not, the chunks were found by scanning, and further ones may be lost.
    pub complete: bool,
}

impl Index {
    /// The index of a file: read from its end, or, where that is missing or damaged, found by scanning the file.
    pub fn read(file: &mut (impl Read + Seek)) -> Result<Index> {
        match Index::read_end(file)? {
            Some(index) => Ok(index),
            None => Index::scan(file),
        }
    }

    /// Records in all chunks.
    pub fn records(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.records)).sum()
    }

    /// References in all chunks.
    pub fn references(&self) -> u64 {
        self.entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.references))
    }

    /// At most `count` ranges of chunks, in order, that hold about equally many records: one a worker.
    pub fn shards(&self, count: usize) -> Vec<std::ops::Range<usize>> {
        let total = self.records();
        let mut shards = Vec::new();
        let (mut start, mut records) = (0, 0);
        for (at, entry) in self.entries.iter().enumerate() {
            records += u64::from(entry.records);
            let due = total * (shards.len() as u64 + 1) / count.max(1) as u64;
            if records >= due.max(1) {
                shards.push(start..at + 1);
                start = at + 1;
            }
        }
        shards
    }

    fn read_end(file: &mut (impl Read + Seek)) -> Result<Option<Index>> {
        let operation = TraceError::io("read the trace's index");
        let length = file.seek(SeekFrom::End(0)).map_err(&operation)?;
        if length < (TAIL + layout::INDEX_HEADER) as u64 {
            return Ok(None);
        }
        let mut tail = [0; TAIL];
        file.seek(SeekFrom::Start(length - TAIL as u64)).map_err(&operation)?;
        file.read_exact(&mut tail).map_err(&operation)?;
        let Some(offset) = layout::decode_tail(&tail).filter(|offset| *offset < length) else { return Ok(None) };
        file.seek(SeekFrom::Start(offset)).map_err(&operation)?;
        let mut header = [0; layout::INDEX_HEADER];
        if file.read_exact(&mut header).is_err() {
            return Ok(None);
        }
        let Some(header) = IndexHeader::decode(&header) else { return Ok(None) };
        let size = header.entries * INDEX_ENTRY as u64 + u64::from(header.json);
        if offset + layout::INDEX_HEADER as u64 + size + TAIL as u64 != length {
            return Ok(None);
        }
        let mut payload = vec![0; size as usize];
        file.read_exact(&mut payload).map_err(&operation)?;
        Ok(Index::decode(&header, &payload))
    }

    /// The index behind this header, if its checksum is right.
    pub(super) fn decode(header: &IndexHeader, payload: &[u8]) -> Option<Index> {
        if crc32fast::hash(payload) != header.sum {
            return None;
        }
        let (entries, json) = payload.split_at_checked(header.entries as usize * INDEX_ENTRY)?;
        let entries = entries.chunks_exact(INDEX_ENTRY).map(Entry::decode).collect();
        Some(Index { entries, ending: serde_json::from_slice(json).ok()?, complete: true })
    }

    /// Finds the chunks without an index: every chunk whose header and payload are whole, wherever it lies. After
    /// damage, the search goes on at the next byte that begins a chunk. It ends at this trace's index, and at the
    /// header of another trace: chunks behind these are not of this trace.
    pub fn scan(file: &mut (impl Read + Seek)) -> Result<Index> {
        let operation = TraceError::io("search the trace for chunks");
        let mut entries = Vec::new();
        let length = file.seek(SeekFrom::End(0)).map_err(&operation)?;
        let (mut offset, mut payload, mut has_copy) = (layout::FILE_HEADER as u64, Vec::new(), false);
        while offset < length {
            file.seek(SeekFrom::Start(offset)).map_err(&operation)?;
            let mut bytes = [0; CHUNK_HEADER];
            let have = read_full(file, &mut bytes)?;
            if have == CHUNK_HEADER
                && let Some(header) = ChunkHeader::decode(&bytes)
                && offset + CHUNK_HEADER as u64 + u64::from(header.stored) <= length
            {
                payload.resize(header.stored as usize, 0);
                file.read_exact(&mut payload).map_err(&operation)?;
                if crc32fast::hash(&payload) == header.sum {
                    entries.push(Entry::of(offset, &header));
                    offset += CHUNK_HEADER as u64 + u64::from(header.stored);
                    continue;
                }
            }
            match part(&bytes[..have]) {
                Part::Index => break,
                // The trace's own header may lie behind damage.
                Part::Header if has_copy || !entries.is_empty() => break,
                Part::Copy if !entries.is_empty() => break,
                Part::Copy => has_copy = true,
                Part::Header | Part::Other => {}
            }
            let Some(next) = find(file, &PARTS, offset + 1)? else { break };
            offset = next;
        }
        Ok(Index { entries, ending: Value::Null, complete: false })
    }
}

/// The beginnings of a file's parts.
const PARTS: [[u8; 8]; 4] = [layout::CHUNK_MAGIC, layout::INDEX_MAGIC, layout::FILE_MAGIC, layout::COPY_MAGIC];

/// What begins at a place that is no chunk.
enum Part {
    Index,
    /// The header of a trace.
    Header,
    /// Its copy.
    Copy,
    Other,
}

fn part(bytes: &[u8]) -> Part {
    let is_header = |magic| {
        let fixed = bytes.first_chunk().map(|fixed| layout::decode_file_header(fixed, magic));
        fixed.is_some_and(|decoded| decoded.is_ok())
    };
    match bytes {
        _ if bytes.first_chunk().is_some_and(|index| IndexHeader::decode(index).is_some()) => Part::Index,
        _ if is_header(layout::FILE_MAGIC) => Part::Header,
        _ if is_header(layout::COPY_MAGIC) => Part::Copy,
        _ => Part::Other,
    }
}

/// The offset of the next of these magics at or behind `start`.
pub(super) fn find(file: &mut (impl Read + Seek), magics: &[[u8; 8]], start: u64) -> Result<Option<u64>> {
    let operation = TraceError::io("search the trace for its parts");
    file.seek(SeekFrom::Start(start)).map_err(&operation)?;
    let (mut window, mut base) = (Vec::new(), start);
    let mut block = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut block).map_err(&operation)?;
        if read == 0 {
            return Ok(None);
        }
        window.extend_from_slice(&block[..read]);
        if let Some(at) = window.windows(8).position(|bytes| magics.iter().any(|magic| bytes == magic)) {
            return Ok(Some(base + at as u64));
        }
        let gone = window.len().saturating_sub(7);
        window.drain(..gone);
        base += gone as u64;
    }
}
