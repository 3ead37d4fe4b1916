//! Reads a trace, chunk by chunk.

use super::codec::{MANY, decode_references, decode_runs};
use super::header::{Content, Header};
use super::index::{Entry, Index};
use super::layout::{self, CHUNK_HEADER, ChunkHeader, FILE_HEADER, INDEX_HEADER, IndexHeader};
use crate::error::{Place, TraceError};
use crate::reference::{Kinds, Reference};
use crate::run::Run;
use crate::runs_of::{CoarserRuns, RunsOfReferences};
use crate::source::{ReferenceSource, References, Result, RunSource, Span};
use std::collections::VecDeque;
use std::io::{Read, Seek, SeekFrom};

/// The records of one chunk.
#[derive(Clone, Copy, Debug)]
pub enum Chunk<'a> {
    /// Full references.
    References(References<'a>),
    /// Page runs.
    Runs(&'a [Run]),
}

/// Reads a trace from any stream; holds one chunk in memory.
///
/// Returns all complete chunks; then the end, or the error that names the missing part ([`TraceError::Torn`],
/// [`TraceError::Damaged`]).
pub struct TraceReader<R> {
    input: R,
    header: Header,
    copy_is_whole: bool,
    offset: u64,
    chunks: u64,
    records: u64,
    /// References in the chunks before.
    references_before: u64,
    /// Number of chunks to read, if the file's end is not searched for.
    wanted: Option<u64>,
    index: Option<Index>,
    done: bool,
    stored: Vec<u8>,
    raw: Vec<u8>,
    spans: Vec<Span>,
    references: Vec<Reference>,
    runs: Vec<Run>,
    context: zstd::bulk::Decompressor<'static>,
}

/// Fills the buffer; returns fewer bytes only at the end.
pub(super) fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match input.read(&mut buffer[have..]) {
            Ok(0) => break,
            Ok(more) => have += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(source) => return Err(TraceError::Io { operation: "read the trace", source }),
        }
    }
    Ok(have)
}

impl<R: Read> TraceReader<R> {
    /// Reads the header.
    pub fn new(mut input: R) -> Result<Self> {
        let mut bytes = [0; FILE_HEADER];
        let have = read_full(&mut input, &mut bytes)?;
        if have < FILE_HEADER {
            let ours = have > 0 && bytes[..have.min(8)] == layout::FILE_MAGIC[..have.min(8)];
            return Err(if ours { cut_header() } else { TraceError::NotATrace });
        }
        let (header, json, copied) = header(&bytes, layout::FILE_MAGIC, &mut input)?;
        let mut offset = (FILE_HEADER + json.len()) as u64;
        let mut copy_is_whole = true;
        if copied {
            let mut copy = vec![0; FILE_HEADER + json.len()];
            let have = read_full(&mut input, &mut copy)?;
            if have < copy.len() {
                return Err(cut_header());
            }
            copy_is_whole = is_copy(&copy, &bytes, &json);
            offset += copy.len() as u64;
        }
        Ok(TraceReader { copy_is_whole, ..TraceReader::over(input, header, offset)? })
    }

    /// A reader of `input`, which is behind the header and at this offset.
    fn over(input: R, header: Header, offset: u64) -> Result<Self> {
        Ok(TraceReader {
            input,
            header,
            copy_is_whole: true,
            offset,
            chunks: 0,
            records: 0,
            references_before: 0,
            wanted: None,
            index: None,
            done: false,
            stored: Vec::new(),
            raw: Vec::new(),
            spans: Vec::new(),
            references: Vec::new(),
            runs: Vec::new(),
            context: zstd::bulk::Decompressor::new().map_err(TraceError::io("prepare decompression"))?,
        })
    }

    /// The trace's description of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the header's second copy is as the first (true in version 1, which has none).
    pub fn copy_is_whole(&self) -> bool {
        self.copy_is_whole
    }

    /// Offset of the next chunk, in bytes from the beginning of what is read.
    pub fn position(&self) -> u64 {
        self.offset
    }

    /// The index, once the end was reached.
    pub fn index(&self) -> Option<&Index> {
        self.index.as_ref()
    }

    /// The next chunk, in buffers that are used again by the next call; none at the end.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk<'_>>> {
        if self.done {
            return Ok(None);
        }
        match self.advance() {
            Ok(true) => {}
            Ok(false) => {
                self.done = true;
                return Ok(None);
            }
            Err(error) => {
                self.done = true;
                return Err(error);
            }
        }
        Ok(Some(match self.header.content {
            Content::References => Chunk::References(References::new(&self.spans, &self.references)),
            Content::Runs { .. } => Chunk::Runs(&self.runs),
        }))
    }

    /// Its references; an error where it has runs.
    pub fn into_references(self) -> Result<FileReferences<R>> {
        match self.header.content {
            Content::References => Ok(FileReferences(self)),
            Content::Runs { .. } => Err(TraceError::RunsOnly),
        }
    }

    /// Its page runs, for both kinds of records: references of `kinds` are put together; runs are made coarser (their
    /// kinds were chosen at capture).
    pub fn into_runs<'a>(self, page_bits: u32, kinds: Kinds) -> Result<Box<dyn RunSource + Send + 'a>>
    where
        R: Send + 'a,
    {
        if !crate::run::PAGE_BITS.contains(&page_bits) {
            return Err(TraceError::Invalid(format!("pages have 2^4 to 2^40 bytes, not 2^{page_bits}")));
        }
        match self.header.content {
            Content::References => Ok(Box::new(RunsOfReferences::new(FileReferences(self), page_bits, kinds))),
            Content::Runs { page_bits: has } if has == page_bits => Ok(Box::new(FileRuns(self, has))),
            Content::Runs { page_bits: has } => CoarserRuns::new(FileRuns(self, has), page_bits)
                .map(|runs| Box::new(runs) as _)
                .ok_or(TraceError::FinerPages { has, wanted: page_bits }),
        }
    }

    fn place(&self) -> Place {
        Place { chunks: self.chunks, records: self.records, offset: self.offset }
    }

    fn damaged(&self, what: &str) -> TraceError {
        TraceError::Damaged { place: self.place(), what: what.to_owned() }
    }

    /// Reads the next chunk into the buffers; false at the end.
    fn advance(&mut self) -> Result<bool> {
        if self.wanted == Some(self.chunks) {
            return Ok(false);
        }
        let mut bytes = [0; CHUNK_HEADER];
        let have = read_full(&mut self.input, &mut bytes)?;
        if have >= INDEX_HEADER && bytes[..8] == layout::INDEX_MAGIC {
            self.read_index(&bytes[..have])?;
            if !self.copy_is_whole {
                return Err(self.damaged("all chunks are whole, the second copy of the header is not"));
            }
            return Ok(false);
        }
        if have < CHUNK_HEADER {
            return Err(TraceError::Torn(self.place()));
        }
        let header = ChunkHeader::decode(&bytes).ok_or_else(|| self.damaged("its header is wrong"))?;
        let sum = self.references_before.checked_add(header.references).ok_or_else(|| self.damaged(MANY))?;
        self.read_chunk(&header)?;
        self.offset += CHUNK_HEADER as u64 + u64::from(header.stored);
        self.chunks += 1;
        self.records += u64::from(header.records);
        self.references_before = sum;
        Ok(true)
    }

    fn read_chunk(&mut self, header: &ChunkHeader) -> Result<()> {
        self.stored.resize(header.stored as usize, 0);
        if read_full(&mut self.input, &mut self.stored)? < self.stored.len() {
            return Err(TraceError::Torn(self.place()));
        }
        if crc32fast::hash(&self.stored) != header.sum {
            return Err(self.damaged("its checksum is wrong"));
        }
        if header.content != layout::content_code(self.header.content) {
            return Err(self.damaged("its records are not of the trace's kind"));
        }
        self.raw.clear();
        self.raw.reserve(header.raw as usize);
        let size = self.context.decompress_to_buffer(&self.stored, &mut self.raw);
        if !size.is_ok_and(|size| size == header.raw as usize) {
            return Err(self.damaged("it cannot be decompressed"));
        }
        self.spans.clear();
        self.references.clear();
        self.runs.clear();
        let ChunkHeader { spans, records, references, .. } = *header;
        let decoded = match self.header.content {
            Content::References => {
                decode_references(&self.raw, spans, records, &mut self.spans, &mut self.references)
            }
            Content::Runs { .. } => decode_runs(&self.raw, records, references, &mut self.runs),
        };
        decoded.map_err(|flaw| self.damaged(flaw))
    }

    /// Reads the index, whose header and perhaps more is in `begun`, and the tail.
    fn read_index(&mut self, begun: &[u8]) -> Result<()> {
        let (head, rest) = begun.split_at(INDEX_HEADER);
        let header = head.try_into().ok().and_then(IndexHeader::decode);
        let header = header.ok_or_else(|| self.damaged("the header of the index is wrong"))?;
        let size = header.entries as usize * layout::INDEX_ENTRY + header.json as usize + layout::TAIL;
        if rest.len() > size {
            return Err(self.damaged("bytes follow the index"));
        }
        let mut payload = Vec::new();
        payload.extend_from_slice(rest);
        let missing = (size - rest.len()) as u64;
        let read =
            (&mut self.input).take(missing).read_to_end(&mut payload).map_err(TraceError::io("read the trace"))?;
        if (read as u64) < missing {
            return Err(TraceError::Torn(self.place()));
        }
        let (index, tail) = payload.split_at(size - layout::TAIL);
        let tail = tail.try_into().ok().and_then(layout::decode_tail);
        let index = Index::decode(&header, index).filter(|_| tail == Some(self.offset));
        self.index = Some(index.ok_or_else(|| self.damaged("the index is wrong"))?);
        if read_full(&mut self.input, &mut [0])? > 0 {
            let place = Place { offset: self.offset + (INDEX_HEADER + size) as u64, ..self.place() };
            let what = "all chunks are whole, and bytes follow its end; where another trace follows, make one of both \
                        with pagelab trace concat";
            return Err(TraceError::Damaged { place, what: what.into() });
        }
        Ok(())
    }
}

impl<R: Read + Seek> TraceReader<Selection<R>> {
    /// Reads the part `number` of `count` parts with about equally many records. The last one also reads the file's
    /// end, and returns the error of a file without one: together the parts return what a reader of the whole does.
    pub fn shard(mut file: R, number: usize, count: usize) -> Result<Self> {
        if number >= count {
            return Err(TraceError::Invalid(format!("part {number} of {count}: parts are 0 to {count} - 1")));
        }
        let index = Index::read(&mut file)?;
        file.rewind().map_err(TraceError::io("seek in the trace"))?;
        let begun = TraceReader::new(&mut file)?;
        let (header, offset, copy_is_whole) = (begun.header, begun.offset, begun.copy_is_whole);
        let entries = &index.entries;
        let end = entries.last().map_or(offset, Entry::end);
        let range = index.shards(count).get(number).cloned().unwrap_or(entries.len()..entries.len());
        let first = entries.get(range.start);
        let mut reader =
            TraceReader::chosen(file, header, first.map_or(end, |first| first.offset), &entries[range.clone()])?;
        reader.chunks = range.start as u64;
        reader.records = first.map_or(index.records(), |first| first.first);
        reader.wanted = Some(range.end as u64);
        if number + 1 == count {
            reader.wanted = None;
            reader.copy_is_whole = copy_is_whole;
            reader.input.ranges.push_back((end, u64::MAX));
        }
        Ok(reader)
    }

    /// Reads only these chunks, of [`Index::shards`] for instance, or all that the scan of a damaged file found.
    pub fn select(mut file: R, entries: &[Entry]) -> Result<Self> {
        file.rewind().map_err(TraceError::io("seek in the trace"))?;
        let begun = TraceReader::new(&mut file)?;
        let (header, offset) = (begun.header, begun.offset);
        TraceReader::chosen(file, header, offset, entries)
    }

    fn chosen(file: R, header: Header, offset: u64, entries: &[Entry]) -> Result<Self> {
        let ranges: VecDeque<_> = entries.iter().map(|entry| (entry.offset, entry.end() - entry.offset)).collect();
        let mut reader = TraceReader::over(Selection { file, ranges, left: 0 }, header, offset)?;
        reader.wanted = Some(entries.len() as u64);
        Ok(reader)
    }

    /// Reads every whole chunk of a damaged file, with the header or its copy, whichever is whole. Also returns the
    /// number of bytes that belong to no whole part.
    pub fn recover(mut file: R) -> Result<(Self, u64)> {
        let operation = TraceError::io("seek in the trace");
        let index = Index::read(&mut file)?;
        let end = match index.entries.last() {
            Some(last) if index.complete => last.end(),
            _ => file.seek(SeekFrom::End(0)).map_err(&operation)?,
        };
        let whole = if index.complete { Index::scan(&mut file)? } else { index };
        file.rewind().map_err(&operation)?;
        let (header, begin, lost) = match TraceReader::new(&mut file) {
            Ok(begun) => {
                let copy = if begun.copy_is_whole { 0 } else { begun.offset / 2 };
                (begun.header, begun.offset, copy)
            }
            Err(damage) => {
                let (header, copy, begin) = find_copy(&mut file)?.ok_or(damage)?;
                (header, begin, copy)
            }
        };
        let kept: u64 = whole.entries.iter().map(|entry| entry.end() - entry.offset).sum();
        let reader = TraceReader::chosen(file, header, begin, &whole.entries)?;
        Ok((reader, lost + end.saturating_sub(begin + kept)))
    }
}

/// The header whose fixed part was read, with its JSON, and whether a copy follows.
fn header(bytes: &[u8; FILE_HEADER], magic: [u8; 8], input: &mut impl Read) -> Result<(Header, Vec<u8>, bool)> {
    let fixed = layout::decode_file_header(bytes, magic)?;
    let mut json = vec![0; fixed.json];
    if read_full(input, &mut json)? < fixed.json {
        return Err(cut_header());
    }
    Ok((layout::decode_json(&json, fixed.sum)?, json, fixed.copied))
}

/// Whether this is the copy of a header that is whole.
fn is_copy(copy: &[u8], fixed: &[u8; FILE_HEADER], json: &[u8]) -> bool {
    let (own, rest) = copy.split_at(FILE_HEADER);
    let decoded = own.try_into().is_ok_and(|own| layout::decode_file_header(own, layout::COPY_MAGIC).is_ok());
    decoded && own[8..20] == fixed[8..20] && rest == json
}

/// The whole copy of a header, wherever it lies: the header, and where the copy begins and ends.
fn find_copy(file: &mut (impl Read + Seek)) -> Result<Option<(Header, u64, u64)>> {
    let operation = TraceError::io("search the trace for its header's copy");
    let mut start = 0;
    while let Some(at) = super::index::find(file, &[layout::COPY_MAGIC], start)? {
        file.seek(SeekFrom::Start(at)).map_err(&operation)?;
        let mut bytes = [0; FILE_HEADER];
        if read_full(file, &mut bytes)? == FILE_HEADER
            && let Ok((header, json, _)) = header(&bytes, layout::COPY_MAGIC, file)
        {
            return Ok(Some((header, at, at + (FILE_HEADER + json.len()) as u64)));
        }
        start = at + 1;
    }
    Ok(None)
}

/// The bytes of some ranges of a file, one after the other.
pub struct Selection<R> {
    file: R,
    /// Offset and length of each range to come.
    ranges: VecDeque<(u64, u64)>,
    /// Bytes left of the present range.
    left: u64,
}

impl<R: Read + Seek> Read for Selection<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.left == 0 {
            let Some((offset, length)) = self.ranges.pop_front() else { return Ok(0) };
            self.file.seek(SeekFrom::Start(offset))?;
            self.left = length;
        }
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read(&mut buffer[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}

fn cut_header() -> TraceError {
    TraceError::Header("the file ends within it".into())
}

/// The references of a trace file.
pub struct FileReferences<R>(TraceReader<R>);

impl<R: Read> ReferenceSource for FileReferences<R> {
    fn next_references(&mut self) -> Result<Option<References<'_>>> {
        match self.0.next_chunk()? {
            Some(Chunk::References(references)) => Ok(Some(references)),
            _ => Ok(None),
        }
    }
}

/// The runs of a trace file.
struct FileRuns<R>(TraceReader<R>, u32);

impl<R: Read> RunSource for FileRuns<R> {
    fn page_bits(&self) -> u32 {
        self.1
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        match self.0.next_chunk()? {
            Some(Chunk::Runs(runs)) => Ok(Some(runs)),
            _ => Ok(None),
        }
    }
}
