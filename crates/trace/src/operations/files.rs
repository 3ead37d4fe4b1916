//! Opening and writing files: a new trace gets its name when it is whole, a captured one when its program begins.

use super::{Output, Records};
use crate::capture::Begun;
use crate::error::TraceError;
use crate::foreign::Format;
use crate::format::{Content, Header, Index, TraceReader, TraceWriter};
use crate::reference::Kinds;
use crate::source::{ReferenceSource, References, Result, RunSource};
use crate::{Run, Selection};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Buffers of files.
const BUFFER: usize = 1 << 18;

pub(super) fn format(name: &str) -> Result<Format> {
    Format::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
        TraceError::Invalid(format!("format {name:?}: none of {}", names.join(", ")))
    })
}

fn named<T>(path: &Path, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|source| {
        let message = format!("{}: {source}", path.display());
        TraceError::Io { operation: "open a trace", source: named_error(&source, message) }
    })
}

/// As [`named`], for a file that is to be made: if its directory is missing, the error has the command that makes it.
fn made<T>(path: &Path, result: std::io::Result<T>) -> Result<T> {
    let missing = path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.exists());
    let advised = result.map_err(|source| match missing {
        Some(parent) => {
            let advice = format!("there is no directory {0}; run: mkdir -p {0}", parent.display());
            named_error(&source, format!("{source}; {advice}"))
        }
        None => source,
    });
    named(path, advised)
}

fn named_error(source: &std::io::Error, message: String) -> std::io::Error {
    std::io::Error::new(source.kind(), message)
}

/// A stream of bytes: a file, or standard input for `-`.
pub(super) fn bytes(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(BufReader::with_capacity(BUFFER, std::io::stdin())));
    }
    Ok(Box::new(BufReader::with_capacity(BUFFER, named(path, File::open(path))?)))
}

/// A trace file of ours, as a stream.
pub fn open_reader(path: &Path) -> Result<TraceReader<Box<dyn BufRead + Send>>> {
    TraceReader::new(bytes(path)?)
}

/// The page runs of a trace file of ours.
pub fn open_runs(path: &Path, page_bits: u32, kinds: Kinds) -> Result<Box<dyn RunSource + Send>> {
    open_reader(path)?.into_runs(page_bits, kinds)
}

/// Whole chunks of a damaged trace, and the number of bytes that belong to no whole part.
pub(super) fn recovered(path: &Path) -> Result<(TraceReader<Selection<BufReader<File>>>, u64)> {
    TraceReader::recover(BufReader::with_capacity(BUFFER, named(path, File::open(path))?))
}

/// The index of a trace file, from its end or by scanning.
pub(super) fn index(path: &Path) -> Result<(Header, Index, u64)> {
    let mut file = BufReader::with_capacity(BUFFER, named(path, File::open(path))?);
    let header = TraceReader::new(&mut file)?.header().clone();
    let index = Index::read(&mut file)?;
    let length = named(path, file.seek(std::io::SeekFrom::End(0)))?;
    Ok((header, index, length))
}

/// A file that gets its name when it is whole.
pub(super) struct NewFile {
    path: PathBuf,
    part: PathBuf,
    /// It may replace a file of its name, also one that was made meanwhile.
    force: bool,
}

impl NewFile {
    pub fn create(output: &Output) -> Result<(NewFile, BufWriter<File>)> {
        refuse_existing(output)?;
        let (new, file) = NewFile::open(&output.path, output.force)?;
        Ok((new, BufWriter::with_capacity(BUFFER, file)))
    }

    fn open(path: &Path, force: bool) -> Result<(NewFile, File)> {
        let mut part: OsString = path.into();
        // In a directory that others may write to, a predictable name could be a link made by another user.
        part.push(format!(".part-{:016x}", RandomState::new().build_hasher().finish()));
        let part = PathBuf::from(part);
        let file = made(path, File::create_new(&part))?;
        Ok((NewFile { path: path.to_owned(), part, force }, file))
    }

    /// Gives the file its name.
    fn name(&self) -> Result<()> {
        let flags = if self.force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let renamed = match renameat_with(CWD, &self.part, CWD, &self.path, flags) {
            // The file system cannot refuse to replace.
            Err(Errno::INVAL | Errno::NOSYS) if !self.path.exists() => std::fs::rename(&self.part, &self.path),
            Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS) => return Err(exists(&self.path)),
            other => other.map_err(Into::into),
        };
        renamed.map_err(TraceError::io("name the trace"))
    }

    /// Gives the whole file its name; returns how many bytes it has.
    pub fn publish(self, file: BufWriter<File>) -> Result<u64> {
        let file = file
            .into_inner()
            .map_err(|error| TraceError::Io { operation: "write the trace", source: error.into_error() })?;
        file.sync_all().map_err(TraceError::io("write the trace"))?;
        let bytes = file.metadata().map_err(TraceError::io("write the trace"))?.len();
        self.name()?;
        Ok(bytes)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Gone already where the trace was published.
        let _ = std::fs::remove_file(&self.part);
    }
}

fn refuse_existing(output: &Output) -> Result<()> {
    if !output.force && output.path.exists() {
        return Err(exists(&output.path));
    }
    Ok(())
}

fn exists(path: &Path) -> TraceError {
    TraceError::Invalid(format!("{} exists; replace it: --force", path.display()))
}

/// A file for a capture, and what gives it its name when the program begins: a capture cannot be repeated, so half of
/// it is kept, but one that never began replaces nothing. Devices and pipes are written to as they are.
pub(super) fn create_for_capture(output: &Output) -> Result<(File, Begun)> {
    refuse_existing(output)?;
    if output.path.exists() && !output.path.is_file() {
        let file = named(&output.path, OpenOptions::new().write(true).open(&output.path))?;
        return Ok((file, Box::new(|| Ok(()))));
    }
    // The file that a link names is replaced, not the link.
    let path = output.path.canonicalize().unwrap_or_else(|_| output.path.clone());
    let (new, file) = NewFile::open(&path, output.force)?;
    Ok((file, Box::new(move || new.name())))
}

/// References or runs.
pub(super) enum Source<'a> {
    References(Box<dyn ReferenceSource + Send + 'a>),
    Runs(Box<dyn RunSource + Send + 'a>),
}

impl<'a> Source<'a> {
    pub fn of_trace<R: std::io::Read + Send + 'a>(reader: TraceReader<R>) -> Result<Source<'a>> {
        match reader.header().content {
            Content::References => Ok(Source::References(Box::new(reader.into_references()?))),
            Content::Runs { page_bits } => Ok(Source::Runs(reader.into_runs(page_bits, Kinds::ALL)?)),
        }
    }

    /// The requested form: only some kinds, or runs. `known`: the kinds of this source's references, if they are
    /// known. Those that are kept, and those that pass, are added to `passing`.
    pub fn wanted(self, records: &Records, known: Option<Kinds>, passing: &mut Passing) -> Result<Source<'a>> {
        let kinds = records.kinds();
        match (self, records.page_bits) {
            (Source::References(source), None) => {
                passing.keep(Some(kinds.common(known.unwrap_or(Kinds::ALL))));
                Ok(Source::References(Box::new(Filtered::new(source, kinds))))
            }
            (Source::References(source), Some(bits)) => {
                passing.keep(Some(kinds.common(known.unwrap_or(Kinds::ALL))));
                let source = Noted { source, kinds, seen: Arc::clone(&passing.seen) };
                Ok(Source::Runs(Box::new(runs_of(source, bits, kinds)?)))
            }
            (Source::Runs(source), bits) => {
                refuse_choice(records.kinds, known)?;
                passing.keep(known);
                note(&passing.seen, known.unwrap_or(Kinds::NONE));
                let (has, wanted) = (source.page_bits(), bits.unwrap_or(source.page_bits()));
                if has == wanted {
                    return Ok(Source::Runs(source));
                }
                crate::CoarserRuns::new(source, wanted)
                    .map(|runs| Source::Runs(Box::new(runs)))
                    .ok_or(TraceError::FinerPages { has, wanted })
            }
        }
    }

    pub fn content(&self) -> Content {
        match self {
            Source::References(_) => Content::References,
            Source::Runs(runs) => Content::Runs { page_bits: runs.page_bits() },
        }
    }
}

/// Refuses to leave kinds out of page runs, which have them.
fn refuse_choice(asked: Option<Kinds>, known: Option<Kinds>) -> Result<()> {
    let left = known.unwrap_or(Kinds::NONE).without(asked.unwrap_or(Kinds::ALL));
    if left == Kinds::NONE {
        return Ok(());
    }
    Err(TraceError::Invalid(format!(
        "its page runs do not tell {} from other references, and none can be left out: make runs of the full \
         references, or capture it again with --kinds",
        left.names().join(" and ")
    )))
}

/// The kinds of references that come into a new trace.
#[derive(Debug)]
pub(super) struct Passing {
    /// Those that are kept; none if a part of the trace has unknown ones.
    kept: Option<Kinds>,
    /// Those that page runs were made of.
    seen: Seen,
}

/// The bits of kinds: [`Kinds::bits`].
type Seen = Arc<AtomicU8>;

fn note(seen: &AtomicU8, kinds: Kinds) {
    seen.fetch_or(kinds.bits(), Ordering::Relaxed);
}

impl Passing {
    pub fn new() -> Passing {
        Passing { kept: Some(Kinds::NONE), seen: Seen::default() }
    }

    fn keep(&mut self, kinds: Option<Kinds>) {
        self.kept = self.kept.zip(kinds).map(|(before, kinds)| before.and(kinds));
    }

    /// The kinds that are kept, for the header.
    pub fn kept(&self) -> Option<Kinds> {
        self.kept
    }

    /// The facts that are known at the end.
    pub fn ending(&self, content: Content, references: u64) -> Value {
        let mut ending = serde_json::json!({"references": references});
        if let (Content::Runs { .. }, Some(_)) = (content, self.kept) {
            ending[RUN_KINDS] = Kinds::from_bits(self.seen.load(Ordering::Relaxed)).names().into();
        }
        ending
    }
}

/// The entry of an ending for the kinds of the references that page runs were made of.
const RUN_KINDS: &str = "run_kinds";

/// The kinds of a trace's references, if they are known: those that were found, or else those that were kept.
pub(super) fn known(header: &Header, ending: &Value) -> Option<Kinds> {
    let found = ending.get(RUN_KINDS).and_then(|kinds| serde_json::from_value(kinds.clone()).ok());
    found.or(header.kinds)
}

/// References whose kinds are noted as they pass.
struct Noted<S> {
    source: S,
    /// Those that matter.
    kinds: Kinds,
    seen: Seen,
}

impl<S: ReferenceSource> ReferenceSource for Noted<S> {
    fn next_references(&mut self) -> Result<Option<References<'_>>> {
        let batch = self.source.next_references()?;
        if let Some(batch) = &batch {
            note(&self.seen, Kinds::of(batch.all()).common(self.kinds));
        }
        Ok(batch)
    }
}

fn runs_of<S: ReferenceSource>(source: S, bits: u32, kinds: Kinds) -> Result<crate::RunsOfReferences<S>> {
    if !crate::run::PAGE_BITS.contains(&bits) {
        return Err(TraceError::Invalid(format!("pages have 2^4 to 2^40 bytes, not 2^{bits}")));
    }
    Ok(crate::RunsOfReferences::new(source, bits, kinds))
}

/// References of some kinds.
struct Filtered<S> {
    source: S,
    kinds: Kinds,
    spans: Vec<crate::source::Span>,
    references: Vec<crate::Reference>,
}

impl<S> Filtered<S> {
    fn new(source: S, kinds: Kinds) -> Self {
        Filtered { source, kinds, spans: Vec::new(), references: Vec::new() }
    }
}

impl<S: ReferenceSource> ReferenceSource for Filtered<S> {
    fn next_references(&mut self) -> Result<Option<References<'_>>> {
        self.references.clear();
        self.spans.clear();
        while self.references.is_empty() {
            let Some(batch) = self.source.next_references()? else { return Ok(None) };
            for segment in batch.segments() {
                let before = self.references.len();
                let kept = segment.references.iter().filter(|reference| self.kinds.has(reference.kind()));
                self.references.extend(kept);
                let length = self.references.len() - before;
                if length > 0 {
                    self.spans.push(crate::source::Span { asid: segment.asid, thread: segment.thread, length });
                }
            }
        }
        Ok(Some(References::new(&self.spans, &self.references)))
    }
}

/// Writes a source to its end; returns the numbers of records and references.
pub(super) fn copy<W: Write>(
    source: &mut Source<'_>,
    writer: &mut TraceWriter<W>,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(u64, u64)> {
    let mut references = 0u64;
    loop {
        if !go_on() {
            return Err(TraceError::Invalid("interrupted".into()));
        }
        match source {
            Source::References(source) => {
                let Some(batch) = source.next_references()? else { break };
                references += batch.all().len() as u64;
                for segment in batch.segments() {
                    writer.references(segment.asid, segment.thread, segment.references)?;
                }
            }
            Source::Runs(source) => {
                let Some(runs) = source.next_runs()? else { break };
                references += sum(runs);
                writer.runs(runs)?;
            }
        }
    }
    Ok((writer.records(), references))
}

pub(super) fn sum(runs: &[Run]) -> u64 {
    runs.iter().fold(0, |sum: u64, run| sum.wrapping_add(run.count))
}

/// The parts of headers and endings that a new trace keeps of its sources.
pub(super) fn origin(header: &Header, ending: &Value) -> Value {
    serde_json::json!({"header": header, "ending": ending})
}
