//! Fixed-size parts of the file, encoded and decoded.

use super::header::{Content, Header};
use crate::error::TraceError;

pub(super) const FILE_MAGIC: [u8; 8] = *b"PAGELABT";
pub(super) const COPY_MAGIC: [u8; 8] = *b"\xf5PLcopy\n";
pub(super) const CHUNK_MAGIC: [u8; 8] = *b"\xf5PLchnk\n";
pub(super) const INDEX_MAGIC: [u8; 8] = *b"\xf5PLindx\n";
pub(super) const TAIL_MAGIC: [u8; 8] = *b"\xf5PLtail\n";
/// The version that is written. Version 1 is read, too: it has no copy of the header.
pub(super) const VERSION: u16 = 2;
pub(super) const FILE_HEADER: usize = 24;
pub(super) const CHUNK_HEADER: usize = 56;
pub(super) const INDEX_HEADER: usize = 32;
pub(super) const INDEX_ENTRY: usize = 40;
pub(super) const TAIL: usize = 24;
/// Larger chunks count as damage: a wrong length must not make a reader reserve memory.
pub(super) const MOST_RECORDS: u32 = 1 << 22;
/// A raw record has at most a meta byte or a count (10 bytes) and a delta (10 bytes); spans are at most as many (18
/// bytes).
pub(super) const MOST_RAW: u32 = MOST_RECORDS * 38 + 8;
const MOST_JSON: u32 = 1 << 26;

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Writes the checksum of all before the last four bytes into these.
fn seal(bytes: &mut [u8]) {
    let at = bytes.len() - 4;
    let sum = crc32fast::hash(&bytes[..at]);
    bytes[at..].copy_from_slice(&sum.to_le_bytes());
}

fn sealed(bytes: &[u8]) -> bool {
    let at = bytes.len() - 4;
    crc32fast::hash(&bytes[..at]) == u32_at(bytes, at)
}

/// Magic, version, two zero bytes, length of the JSON, its checksum, checksum of all this; then the JSON; then all that
/// again with another magic.
pub(super) fn encode_file_header(header: &Header) -> Result<Vec<u8>, TraceError> {
    header.check()?;
    let json = serde_json::to_vec(header).map_err(|error| TraceError::Invalid(error.to_string()))?;
    if json.len() > MOST_JSON as usize {
        return Err(TraceError::Invalid("the provenance is longer than 64 MiB".into()));
    }
    let mut file = Vec::with_capacity(2 * (FILE_HEADER + json.len()));
    for magic in [FILE_MAGIC, COPY_MAGIC] {
        let mut bytes = [0; FILE_HEADER];
        bytes[..8].copy_from_slice(&magic);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(json.len() as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&crc32fast::hash(&json).to_le_bytes());
        seal(&mut bytes);
        file.extend(bytes);
        file.extend(&json);
    }
    Ok(file)
}

/// The fixed part of a file's header, or of its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// Length of the JSON that follows.
    pub json: usize,
    /// Its checksum.
    pub sum: u32,
    /// Whether a copy of all this follows.
    pub copied: bool,
}

pub(super) fn decode_file_header(bytes: &[u8; FILE_HEADER], magic: [u8; 8]) -> Result<FileHeader, TraceError> {
    if bytes[..8] != magic {
        return Err(TraceError::NotATrace);
    }
    // The checksum of another version may lie elsewhere.
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if !(1..=VERSION).contains(&version) {
        return Err(TraceError::Version(version));
    }
    let length = u32_at(bytes, 12);
    if !sealed(bytes) || length > MOST_JSON {
        return Err(TraceError::Header("its checksum is wrong".into()));
    }
    Ok(FileHeader { json: length as usize, sum: u32_at(bytes, 16), copied: version > 1 && magic == FILE_MAGIC })
}

pub(super) fn decode_json(json: &[u8], sum: u32) -> Result<Header, TraceError> {
    if crc32fast::hash(json) != sum {
        return Err(TraceError::Header("the checksum of its JSON is wrong".into()));
    }
    let header: Header =
        serde_json::from_slice(json).map_err(|error| TraceError::Header(format!("its JSON: {error}")))?;
    header.check().map_err(|error| TraceError::Header(error.to_string()))?;
    Ok(header)
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHeader {
    /// Bytes of the payload as stored.
    pub stored: u32,
    /// Bytes of the payload after decompression.
    pub raw: u32,
    /// Records before this chunk.
    pub first: u64,
    /// References in this chunk: for runs, the sum of their counts.
    pub references: u64,
    /// Records in this chunk.
    pub records: u32,
    /// Segments in this chunk; 0 for runs.
    pub spans: u32,
    /// Kind of the records: 1 references, 2 runs.
    pub content: u32,
    /// Checksum of the payload as stored.
    pub sum: u32,
}

impl ChunkHeader {
    pub fn encode(&self) -> [u8; CHUNK_HEADER] {
        let mut bytes = [0; CHUNK_HEADER];
        bytes[..8].copy_from_slice(&CHUNK_MAGIC);
        bytes[8..12].copy_from_slice(&self.stored.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.raw.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.references.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.records.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.spans.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.content.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.sum.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    /// The header, if the checksum of these bytes is right, and their lengths are possible.
    pub fn decode(bytes: &[u8; CHUNK_HEADER]) -> Option<ChunkHeader> {
        if bytes[..8] != CHUNK_MAGIC || !sealed(bytes) {
            return None;
        }
        let header = ChunkHeader {
            stored: u32_at(bytes, 8),
            raw: u32_at(bytes, 12),
            first: u64_at(bytes, 16),
            references: u64_at(bytes, 24),
            records: u32_at(bytes, 32),
            spans: u32_at(bytes, 36),
            content: u32_at(bytes, 40),
            sum: u32_at(bytes, 44),
        };
        let possible = header.records <= MOST_RECORDS
            && header.records > 0
            && header.raw <= MOST_RAW
            && header.stored <= MOST_RAW + (MOST_RAW >> 8) + 64
            && header.spans <= header.records;
        possible.then_some(header)
    }
}

/// The number that a chunk header has for this content.
pub(super) fn content_code(content: Content) -> u32 {
    match content {
        Content::References => 1,
        Content::Runs { .. } => 2,
    }
}

/// The header of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexHeader {
    pub entries: u64,
    /// Length of the JSON behind the entries.
    pub json: u32,
    /// Checksum of entries and JSON.
    pub sum: u32,
}

impl IndexHeader {
    pub fn encode(&self) -> [u8; INDEX_HEADER] {
        let mut bytes = [0; INDEX_HEADER];
        bytes[..8].copy_from_slice(&INDEX_MAGIC);
        bytes[8..16].copy_from_slice(&self.entries.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.json.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.sum.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    pub fn decode(bytes: &[u8; INDEX_HEADER]) -> Option<IndexHeader> {
        if bytes[..8] != INDEX_MAGIC || !sealed(bytes) {
            return None;
        }
        let header = IndexHeader { entries: u64_at(bytes, 8), json: u32_at(bytes, 16), sum: u32_at(bytes, 20) };
        (header.json <= MOST_JSON && header.entries < 1 << 40).then_some(header)
    }
}

/// The last bytes of a complete file: the offset of the index.
pub(super) fn encode_tail(index: u64) -> [u8; TAIL] {
    let mut bytes = [0; TAIL];
    bytes[..8].copy_from_slice(&TAIL_MAGIC);
    bytes[8..16].copy_from_slice(&index.to_le_bytes());
    seal(&mut bytes);
    bytes
}

pub(super) fn decode_tail(bytes: &[u8; TAIL]) -> Option<u64> {
    (bytes[..8] == TAIL_MAGIC && sealed(bytes)).then(|| u64_at(bytes, 8))
}
