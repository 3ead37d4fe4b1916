//! New traces from others: converted, mixed, reduced.

use super::files::{self, NewFile, Passing, Source};
use super::{Output, Records, Written};
use crate::error::TraceError;
use crate::foreign::{Foreign, Format};
use crate::format::{Header, Index, Reduction, TraceWriter};
use crate::mix::{MixedReferences, MixedRuns, Spaces};
use crate::reduce::Reduced;
use crate::run::Run;
use crate::source::{ReferenceSource, References, Result, RunSource};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A trace to convert.
pub(super) struct From<'a> {
    pub path: &'a Path,
    pub format: Option<Format>,
    pub page_bits: u32,
    pub recover: bool,
}

type GoOn<'a> = &'a mut dyn FnMut() -> bool;

/// The provenance of a trace that was made of others.
fn provenance(output: &Output, from: Vec<Value>) -> Value {
    let mut provenance = match &output.provenance {
        Value::Object(map) => map.clone(),
        Value::Null => serde_json::Map::new(),
        other => serde_json::Map::from_iter([("given".to_owned(), other.clone())]),
    };
    provenance.insert("from".to_owned(), Value::Array(from));
    Value::Object(provenance)
}

/// The ending of a trace of ours, where it has one.
fn ending(path: &Path) -> Value {
    if path.as_os_str() == "-" {
        return Value::Null;
    }
    files::index(path).map_or(Value::Null, |(_, index, _)| index.ending)
}

fn write(
    mut source: Source<'_>,
    header: &Header,
    passing: &Passing,
    output: &Output,
    go_on: GoOn<'_>,
) -> Result<Written> {
    let (new, file) = NewFile::create(output)?;
    let mut writer = TraceWriter::new(file, header, output.settings())?;
    let (records, references) = files::copy(&mut source, &mut writer, go_on)?;
    let file = writer.finish(&passing.ending(header.content, references))?;
    let bytes = new.publish(file)?;
    Ok(Written { records, references, read: None, read_runs: None, bytes, lost_bytes: None })
}

pub(super) fn convert(from: &From<'_>, records: &Records, output: &Output, go_on: GoOn<'_>) -> Result<Written> {
    if let Some(format) = from.format {
        let source = match format.open(files::bytes(from.path)?, from.page_bits)? {
            Foreign::References(source) => Source::References(source),
            Foreign::Runs(source) => Source::Runs(source),
        };
        let mut passing = Passing::new();
        let source = source.wanted(records, None, &mut passing)?;
        let origin = json!({"file": from.path, "format": format.name()});
        let mut header = Header::new(source.content());
        header.kinds = passing.kept();
        header.sampling = format.sampling();
        header.provenance = provenance(output, vec![origin]);
        return write(source, &header, &passing, output, go_on);
    }
    let (source, mut header, lost) = if from.recover {
        let (reader, lost) = files::recovered(from.path)?;
        let header = reader.header().clone();
        (Source::of_trace(reader)?, header, Some(lost))
    } else {
        let reader = files::open_reader(from.path)?;
        let header = reader.header().clone();
        (Source::of_trace(reader)?, header, None)
    };
    let (ending, mut passing) = (ending(from.path), Passing::new());
    let source = source.wanted(records, files::known(&header, &ending), &mut passing)?;
    refuse_reduced(&header, &source)?;
    let origin = files::origin(&header, &ending);
    header.content = source.content();
    header.kinds = passing.kept();
    header.provenance = provenance(output, vec![origin]);
    let written = write(source, &header, &passing, output, go_on)?;
    Ok(Written { lost_bytes: lost, ..written })
}

/// References dropped for pages of one size may matter for pages of another.
fn refuse_reduced(header: &Header, source: &Source<'_>) -> Result<()> {
    if header.reduction.is_some() && header.content != source.content() {
        return Err(TraceError::Reduced("it is exact for its own page size only".into()));
    }
    Ok(())
}

/// A part of a mixed trace.
struct Part {
    header: Header,
    ending: Value,
    names: Vec<String>,
}

impl Part {
    fn read(path: &Path) -> Result<Part> {
        let (header, index, _) = files::index(path)?;
        if header.reduction.is_some() {
            let what = "what mixing brings between its references is not known; mix first, then reduce";
            return Err(TraceError::Reduced(what.into()));
        }
        let names = names(&header, &index, path)?;
        Ok(Part { header, ending: index.ending, names })
    }
}

/// The names of a trace's address spaces; if the header has none, the trace is read to count them.
fn names(header: &Header, index: &Index, path: &Path) -> Result<Vec<String>> {
    if !header.address_spaces.is_empty() {
        return Ok(header.address_spaces.clone());
    }
    if let Some(images) = index.ending.get("images").and_then(Value::as_array) {
        let command = |image: &Value| {
            let words = image["command"].as_array().map(|words| words.iter().filter_map(Value::as_str).collect());
            words.map_or_else(String::new, |words: Vec<_>| words.join(" "))
        };
        return Ok(images.iter().map(command).collect());
    }
    let mut most = 0;
    match Source::of_trace(files::open_reader(path)?)? {
        Source::References(mut source) => {
            while let Some(batch) = source.next_references()? {
                most = batch.spans().iter().map(|span| span.asid).fold(most, u16::max);
            }
        }
        Source::Runs(mut source) => {
            while let Some(runs) = source.next_runs()? {
                most = runs.iter().map(|run| run.asid()).fold(most, u16::max);
            }
        }
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok((0..=most).map(|asid| if most == 0 { stem.to_string() } else { format!("{stem}:{asid}") }).collect())
}

pub(super) fn mix(
    inputs: &[PathBuf],
    quantum: u64,
    same_space: bool,
    records: &Records,
    output: &Output,
    go_on: GoOn<'_>,
) -> Result<Written> {
    let parts = inputs
        .iter()
        .map(|path| Part::read(path).map_err(TraceError::in_trace(path)))
        .collect::<Result<Vec<_>>>()?;
    let counts: Vec<u16> = parts.iter().map(|part| part.names.len() as u16).collect();
    let (spaces, names) = if same_space {
        let most =
            parts.iter().map(|part| &part.names).max_by_key(|names| names.len()).cloned().unwrap_or_default();
        (counts.iter().map(|count| Spaces { first: 0, count: *count }).collect(), most)
    } else {
        (Spaces::apart(&counts)?, parts.iter().flat_map(|part| part.names.iter().cloned()).collect())
    };
    let (mut references, mut runs) = (Vec::new(), Vec::new());
    let mut passing = Passing::new();
    for ((path, part), spaces) in inputs.iter().zip(&parts).zip(spaces) {
        let known = files::known(&part.header, &part.ending);
        let source = files::open_reader(path)
            .and_then(Source::of_trace)
            .and_then(|source| source.wanted(records, known, &mut passing))
            .map_err(TraceError::in_trace(path))?;
        match source {
            Source::References(source) => references.push((Named { source, path }, spaces)),
            Source::Runs(source) => runs.push((Named { source, path }, spaces)),
        }
    }
    let source = match (references.is_empty(), runs.is_empty()) {
        (false, true) => Source::References(Box::new(MixedReferences::new(references, quantum))),
        (true, false) => Source::Runs(Box::new(MixedRuns::new(runs, quantum)?)),
        (true, true) => return Err(TraceError::Invalid("no traces to put together".into())),
        (false, false) => {
            let message = "some of the traces have full references, others page runs; make all runs: --page SIZE";
            return Err(TraceError::Invalid(message.into()));
        }
    };
    let mut header = Header::new(source.content());
    header.address_spaces = names;
    header.kinds = passing.kept();
    header.sampling = parts.iter().find_map(|part| part.header.sampling.clone());
    let from = parts.iter().map(|part| files::origin(&part.header, &part.ending)).collect();
    header.provenance = provenance(output, from);
    write(source, &header, &passing, output, go_on)
}

/// A source whose errors name its file.
struct Named<'a, S> {
    source: S,
    path: &'a Path,
}

impl<S: ReferenceSource> ReferenceSource for Named<'_, S> {
    fn next_references(&mut self) -> Result<Option<References<'_>>> {
        self.source.next_references().map_err(TraceError::in_trace(self.path))
    }
}

impl<S: RunSource> RunSource for Named<'_, S> {
    fn page_bits(&self) -> u32 {
        self.source.page_bits()
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        self.source.next_runs().map_err(TraceError::in_trace(self.path))
    }
}

/// Counts the records that pass through.
struct Counted<S> {
    source: S,
    runs: Rc<Cell<u64>>,
}

impl<S: RunSource> RunSource for Counted<S> {
    fn page_bits(&self) -> u32 {
        self.source.page_bits()
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        let runs = self.source.next_runs()?;
        self.runs.set(self.runs.get() + runs.map_or(0, |runs| runs.len() as u64));
        Ok(runs)
    }
}

pub(super) fn reduce(
    input: &Path,
    memory_pages: u64,
    colours: &[u32],
    records: &Records,
    output: &Output,
    go_on: GoOn<'_>,
) -> Result<Written> {
    let reader = files::open_reader(input)?;
    let mut header = reader.header().clone();
    header.require_every_reference()?;
    let page_bits = match (records.page_bits, header.content) {
        (Some(bits), _) | (None, crate::Content::Runs { page_bits: bits }) => bits,
        (None, crate::Content::References) => 12,
    };
    let (ending, mut passing) = (ending(input), Passing::new());
    let records = Records { page_bits: Some(page_bits), ..records.clone() };
    let source = Source::of_trace(reader)?.wanted(&records, files::known(&header, &ending), &mut passing)?;
    refuse_reduced(&header, &source)?;
    let Source::Runs(source) = source else { return Err(TraceError::RunsOnly) };
    let count = Rc::new(Cell::new(0));
    let mut reduced = Reduced::new(Counted { source, runs: Rc::clone(&count) }, memory_pages, colours)?;
    let reduction = both(header.reduction.as_ref(), reduced.reduction())?;
    let origin = files::origin(&header, &ending);
    header.kinds = passing.kept();
    header.content = crate::Content::Runs { page_bits };
    header.reduction = Some(reduction);
    header.provenance = provenance(output, vec![origin]);
    let (new, file) = NewFile::create(output)?;
    let mut writer = TraceWriter::new(file, &header, output.settings())?;
    let mut references = 0;
    while let Some(runs) = reduced.next_runs()? {
        if !go_on() {
            return Err(TraceError::Invalid("interrupted".into()));
        }
        references += files::sum(runs);
        writer.runs(runs)?;
    }
    let records = writer.records();
    let ending = passing.ending(header.content, references);
    let bytes = new.publish(writer.finish(&ending)?)?;
    Ok(Written { records, references, read: None, read_runs: Some(count.get()), bytes, lost_bytes: None })
}

/// The memories and colours for which a trace is exact that was reduced before and is reduced again.
fn both(before: Option<&Reduction>, now: &Reduction) -> Result<Reduction> {
    let Some(before) = before else { return Ok(now.clone()) };
    let colours: Vec<u32> =
        now.colours.iter().copied().filter(|colours| before.colours.contains(colours)).collect();
    if colours.is_empty() {
        return Err(TraceError::Reduced(format!("it is exact for {:?} colours only", before.colours)));
    }
    Ok(Reduction { memory_pages: before.memory_pages.max(now.memory_pages), colours })
}
