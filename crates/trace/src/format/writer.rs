//! Writes a trace, chunk by chunk.

use super::codec::{Compressor, encode_references};
use super::header::{Content, Header};
use super::index::Entry;
use super::layout::{self, ChunkHeader, IndexHeader};
use super::run_code::{CodedRuns, RunCode};
use crate::error::TraceError;
use crate::reference::Reference;
use crate::run::{MAX_ASID, Run, no_page};
use crate::source::{Result, Span};
use serde_json::Value;
use std::io::Write;

/// Settings of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Level of zstd's compression, 1 (fast) to 19.
    pub level: i32,
    /// Records in a chunk: a reader holds as many in memory, and a torn file loses as many. At most 4,194,304.
    pub chunk_records: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { level: 3, chunk_records: 1 << 17 }
    }
}

/// Writes a trace; [`TraceWriter::finish`] must be called, without it the file counts as torn.
pub struct TraceWriter<W: Write> {
    out: W,
    offset: u64,
    content: Content,
    settings: Settings,
    compressor: Compressor,
    raw: Vec<u8>,
    spans: Vec<Span>,
    references: Vec<Reference>,
    runs: RunCode,
    entries: Vec<Entry>,
    records: u64,
    /// References in all runs: their number must fit, or all counts would be wrong.
    references_in_runs: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header. `out` gets whole chunks, it needs no buffer of its own.
    pub fn new(mut out: W, header: &Header, settings: Settings) -> Result<Self> {
        if settings.chunk_records == 0 || settings.chunk_records > layout::MOST_RECORDS as usize {
            return Err(TraceError::Invalid(format!("a chunk has 1 to {} records", layout::MOST_RECORDS)));
        }
        let bytes = layout::encode_file_header(header)?;
        out.write_all(&bytes).map_err(TraceError::io("write the trace's header"))?;
        Ok(TraceWriter {
            out,
            offset: bytes.len() as u64,
            content: header.content,
            settings,
            compressor: Compressor::new(settings.level)?,
            raw: Vec::new(),
            spans: Vec::new(),
            references: Vec::new(),
            runs: RunCode::new(),
            entries: Vec::new(),
            records: 0,
            references_in_runs: 0,
        })
    }

    /// Records written until now.
    pub fn records(&self) -> u64 {
        self.records + (self.references.len() + self.runs.records) as u64
    }

    /// Appends references of one thread.
    pub fn references(&mut self, asid: u16, thread: u32, mut references: &[Reference]) -> Result<()> {
        if self.content != Content::References {
            return Err(TraceError::RunsOnly);
        }
        if asid > MAX_ASID {
            return Err(TraceError::Invalid(format!("address space {asid}: at most {MAX_ASID}")));
        }
        while !references.is_empty() {
            let room = self.settings.chunk_records - self.references.len();
            let (now, later) = references.split_at(room.min(references.len()));
            self.references.extend_from_slice(now);
            match self.spans.last_mut() {
                Some(span) if (span.asid, span.thread) == (asid, thread) => span.length += now.len(),
                _ => self.spans.push(Span { asid, thread, length: now.len() }),
            }
            if self.references.len() == self.settings.chunk_records {
                self.flush()?;
            }
            references = later;
        }
        Ok(())
    }

    /// Appends page runs.
    pub fn runs(&mut self, mut runs: &[Run]) -> Result<()> {
        let Content::Runs { page_bits } = self.content else {
            return Err(TraceError::Invalid("page runs cannot be written into a trace of full references".into()));
        };
        if runs.iter().any(|run| run.count == 0) {
            return Err(TraceError::Invalid("a page run has no references".into()));
        }
        let all = runs.iter().fold(0, |all, run| all | run.number());
        if no_page(all, page_bits).is_some() {
            return Err(self.wrong_page(runs, page_bits));
        }
        self.count(runs.iter().map(|run| u128::from(run.count)).sum())?;
        while !runs.is_empty() {
            let room = self.settings.chunk_records - self.runs.records;
            let (now, later) = runs.split_at(room.min(runs.len()));
            self.runs.append(now);
            if self.runs.records == self.settings.chunk_records {
                self.flush()?;
            }
            runs = later;
        }
        Ok(())
    }

    /// The error of the first run whose page no address has.
    #[cold]
    fn wrong_page(&self, runs: &[Run], page_bits: u32) -> TraceError {
        let mut wrong =
            (self.records() + 1..).zip(runs).filter_map(|(at, run)| Some((at, no_page(run.number(), page_bits)?)));
        let (number, flaw) = wrong.next().unwrap_or_default();
        TraceError::Invalid(format!("run {number}: {flaw}"))
    }

    /// Adds references of runs to their sum.
    fn count(&mut self, references: u128) -> Result<()> {
        let sum = u128::from(self.references_in_runs) + references;
        self.references_in_runs = u64::try_from(sum).map_err(|_| {
            TraceError::Invalid(format!(
                "the counts of the page runs add up to {sum}; a trace has at most {}",
                u64::MAX
            ))
        })?;
        Ok(())
    }

    /// Appends the run or two of `before`, and coded runs whose first difference is to the last of these, into one
    /// chunk.
    pub(crate) fn coded_runs(&mut self, before: &[Run], coded: &CodedRuns) -> Result<()> {
        let records = before.len() + coded.records;
        if self.runs.records + records > self.settings.chunk_records {
            self.flush()?;
        }
        if records > self.settings.chunk_records {
            return Err(TraceError::Invalid(format!("chunks of a capture have at least {records} records")));
        }
        self.count(before.iter().map(|run| u128::from(run.count)).sum::<u128>() + u128::from(coded.references))?;
        self.runs.append(before);
        self.runs.append_coded(coded);
        Ok(())
    }

    /// Writes the waiting records as a chunk, so that a reader of the growing file, or of the file after a crash, sees
    /// them.
    pub fn flush(&mut self) -> Result<()> {
        let (records, references) = match self.content {
            Content::References => {
                encode_references(&self.spans, &self.references, &mut self.raw);
                (self.references.len(), self.references.len() as u64)
            }
            Content::Runs { .. } => {
                self.runs.payload(&mut self.raw);
                (self.runs.records, self.runs.references)
            }
        };
        if records == 0 {
            return Ok(());
        }
        self.compressor.run(&self.raw)?;
        let stored = &self.compressor.stored;
        let header = ChunkHeader {
            stored: stored.len() as u32,
            raw: self.raw.len() as u32,
            first: self.records,
            references,
            records: records as u32,
            spans: self.spans.len() as u32,
            content: layout::content_code(self.content),
            sum: crc32fast::hash(stored),
        };
        let operation = TraceError::io("write a chunk of the trace");
        self.out.write_all(&header.encode()).map_err(&operation)?;
        self.out.write_all(stored).map_err(&operation)?;
        self.out.flush().map_err(&operation)?;
        self.entries.push(Entry {
            offset: self.offset,
            first: self.records,
            references,
            records: header.records,
            stored: header.stored,
        });
        self.offset += (layout::CHUNK_HEADER + stored.len()) as u64;
        self.records += records as u64;
        self.spans.clear();
        self.references.clear();
        self.runs.begin(0);
        Ok(())
    }

    /// Writes the last chunk and the index, with what is known only at the end (exit status, time taken); gives back
    /// `out`.
    pub fn finish(mut self, ending: &Value) -> Result<W> {
        self.flush()?;
        let json = serde_json::to_vec(ending).map_err(|error| TraceError::Invalid(error.to_string()))?;
        let mut payload = Vec::with_capacity(self.entries.len() * layout::INDEX_ENTRY + json.len());
        self.entries.iter().for_each(|entry| payload.extend(entry.encode()));
        payload.extend(&json);
        let header = IndexHeader {
            entries: self.entries.len() as u64,
            json: json.len() as u32,
            sum: crc32fast::hash(&payload),
        };
        let operation = TraceError::io("write the trace's index");
        self.out.write_all(&header.encode()).map_err(&operation)?;
        self.out.write_all(&payload).map_err(&operation)?;
        self.out.write_all(&layout::encode_tail(self.offset)).map_err(&operation)?;
        self.out.flush().map_err(&operation)?;
        Ok(self.out)
    }
}
