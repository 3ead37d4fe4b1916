//! CSV: a line of column names, then a reference or a page run a line; no quotes.

use super::lines::{Batch, Flaw, next_line, number, wrong_line};
use crate::error::TraceError;
use crate::reference::Kind;
use crate::run::{MAX_ASID, Run, RunBuilder, no_page};
use crate::source::{Result, RunSource};
use std::io::BufRead;

/// Places of the columns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Columns {
    /// How many there are.
    width: usize,
    address: Option<usize>,
    kind: Option<usize>,
    size: Option<usize>,
    thread: Option<usize>,
    asid: Option<usize>,
    page: Option<usize>,
    count: Option<usize>,
}

const NAMES: &str = "address, kind, size, thread, asid; or page, count, asid";

impl Columns {
    pub fn read(input: &mut impl BufRead) -> Result<Columns> {
        let mut line = Vec::new();
        if !next_line(input, &mut line)? {
            return Err(TraceError::Invalid(format!("the CSV is empty; its first line names columns: {NAMES}")));
        }
        let mut columns = Columns::default();
        for (at, name) in line.split(|byte| *byte == b',').enumerate() {
            let slot = match name.trim_ascii().to_ascii_lowercase().as_slice() {
                b"address" => &mut columns.address,
                b"kind" => &mut columns.kind,
                b"size" => &mut columns.size,
                b"thread" => &mut columns.thread,
                b"asid" => &mut columns.asid,
                b"page" => &mut columns.page,
                b"count" => &mut columns.count,
                _ => return Err(wrong_line(1, &line, &format!("a column is none of {NAMES}"))),
            };
            if slot.replace(at).is_some() {
                return Err(wrong_line(1, &line, "a column is there twice"));
            }
            columns.width += 1;
        }
        match (columns.address, columns.page) {
            (Some(_), None) if columns.count.is_none() => Ok(columns),
            (None, Some(_)) if columns.kind.or(columns.size).or(columns.thread).is_none() => Ok(columns),
            _ => Err(wrong_line(1, &line, &format!("columns are {NAMES}"))),
        }
    }

    pub fn has_pages(&self) -> bool {
        self.page.is_some()
    }

    /// A line's fields: as many as there are columns. A number with a comma in it would be another number.
    fn fields<'a>(&self, line: &'a [u8]) -> std::result::Result<[&'a [u8]; 7], Flaw> {
        let mut fields: [&[u8]; 7] = [b""; 7];
        let mut count = 0;
        for value in line.split(|byte| *byte == b',') {
            if let Some(field) = fields.get_mut(count) {
                *field = value.trim_ascii();
            }
            count += 1;
        }
        match count == self.width {
            true => Ok(fields),
            false => Err(format!("fields: {count}, and the first line names {}", self.width)),
        }
    }

    pub fn reference(&self, line: &[u8], batch: &mut Batch) -> std::result::Result<(), Flaw> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let fields = self.fields(line)?;
        let address = value(&fields, self.address, "address", 0)?;
        let kind = match self.kind {
            Some(at) => kind(fields[at]).ok_or("the kind is none of load, store, fetch, other")?,
            None => Kind::Load,
        };
        let size = small(value(&fields, self.size, "size", 0)?, u32::MAX, "size")?;
        let thread = small(value(&fields, self.thread, "thread", 0)?, u32::MAX, "thread")?;
        let asid = small(value(&fields, self.asid, "asid", 0)?, u32::from(MAX_ASID), "asid")?;
        batch.add(asid as u16, thread, address, kind, size)
    }

    fn run(&self, line: &[u8], page_bits: u32) -> std::result::Result<Run, Flaw> {
        let fields = self.fields(line)?;
        let page = value(&fields, self.page, "page", 0)?;
        let count = value(&fields, self.count, "count", 1)?;
        let asid = small(value(&fields, self.asid, "asid", 0)?, u32::from(MAX_ASID), "asid")?;
        if count == 0 {
            return Err("counts begin at 1".into());
        }
        if let Some(flaw) = no_page(page, page_bits) {
            return Err(flaw);
        }
        Ok(Run::new(asid as u16, page, count))
    }
}

fn value(fields: &[&[u8]; 7], at: Option<usize>, name: &str, default: u64) -> std::result::Result<u64, Flaw> {
    match at {
        Some(at) => {
            number(fields[at]).ok_or_else(|| format!("the {name} is no number (decimal, or hexadecimal with 0x)"))
        }
        None => Ok(default),
    }
}

fn small(value: u64, most: u32, name: &str) -> std::result::Result<u32, Flaw> {
    u32::try_from(value).ok().filter(|value| *value <= most).ok_or_else(|| format!("the {name} is above {most}"))
}

fn kind(name: &[u8]) -> Option<Kind> {
    Some(match name {
        b"load" | b"l" | b"L" | b"r" | b"R" | b"read" | b"0" => Kind::Load,
        b"store" | b"s" | b"S" | b"w" | b"W" | b"write" | b"1" => Kind::Store,
        b"fetch" | b"f" | b"F" | b"i" | b"I" | b"ifetch" | b"2" => Kind::Fetch,
        b"other" | b"3" => Kind::Other,
        _ => return None,
    })
}

/// Page runs of a CSV.
pub(super) struct PageRows<R> {
    input: R,
    columns: Columns,
    page_bits: u32,
    line: Vec<u8>,
    number: u64,
    builder: RunBuilder,
    runs: Vec<Run>,
    done: bool,
}

impl<R: BufRead> PageRows<R> {
    pub fn new(input: R, columns: Columns, page_bits: u32) -> Self {
        let (line, runs) = (Vec::new(), Vec::new());
        PageRows { input, columns, page_bits, line, number: 1, builder: RunBuilder::default(), runs, done: false }
    }
}

impl<R: BufRead> RunSource for PageRows<R> {
    fn page_bits(&self) -> u32 {
        self.page_bits
    }

    fn next_runs(&mut self) -> Result<Option<&[Run]>> {
        self.runs.clear();
        while self.runs.len() < super::lines::BATCH && !self.done {
            self.done = true;
            if !next_line(&mut self.input, &mut self.line)? {
                self.builder.finish(&mut self.runs);
                break;
            }
            self.number += 1;
            if !self.line.trim_ascii().is_empty() {
                let run = self.columns.run(&self.line, self.page_bits);
                let run = run.map_err(|flaw| wrong_line(self.number, &self.line, &flaw))?;
                self.builder.push(run.page, run.count, &mut self.runs);
            }
            self.done = false;
        }
        Ok((!self.runs.is_empty()).then_some(&self.runs))
    }
}
