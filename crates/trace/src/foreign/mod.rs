//! Traces of other tools, as streams of references or of runs.

mod champsim;
mod csv;
mod dinero;
mod lackey;
mod lines;
mod perf;
mod raw;

use crate::error::TraceError;
use crate::format::Sampling;
use crate::source::{ReferenceSource, Result, RunSource};
use std::io::BufRead;

/// A foreign format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The output of `valgrind --tool=lackey --trace-mem=yes`.
    Lackey,
    /// Dinero's input: a label and an address a line, as `din` (0 to 3) or as Dinero IV's extended form (r, w, i, m,
    /// and a size).
    Dinero,
    /// ChampSim's binary instructions, 64 bytes each, decompressed.
    ChampSim,
    /// CSV with a line of names: `address`, and any of `kind`, `size`, `thread`, `asid`; or `page`, and any of `count`,
    /// `asid`.
    Csv,
    /// Addresses as 64-bit little-endian integers, all taken for loads of unknown size.
    RawAddresses,
    /// Page numbers as 64-bit little-endian integers.
    RawPages,
    /// The output of `perf script -F pid,tid,time,event,addr` for page faults or memory samples.
    PerfScript,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 7] = [
        Format::Lackey,
        Format::Dinero,
        Format::ChampSim,
        Format::Csv,
        Format::RawAddresses,
        Format::RawPages,
        Format::PerfScript,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Lackey => "lackey",
            Format::Dinero => "dinero",
            Format::ChampSim => "champsim",
            Format::Csv => "csv",
            Format::RawAddresses => "raw",
            Format::RawPages => "raw-pages",
            Format::PerfScript => "perf-script",
        }
    }

    /// The format with this name.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Set for formats that hold samples instead of every reference.
    pub fn sampling(self) -> Option<Sampling> {
        (self == Format::PerfScript).then(|| Sampling { what: "page faults or memory samples by perf".to_owned() })
    }

    /// Opens a stream of it. `page_bits` is the page size of formats that have pages.
    pub fn open<'a>(self, mut input: impl BufRead + Send + 'a, page_bits: u32) -> Result<Foreign<'a>> {
        if !crate::run::PAGE_BITS.contains(&page_bits) {
            return Err(TraceError::Invalid(format!("pages have 2^4 to 2^40 bytes, not 2^{page_bits}")));
        }
        Ok(match self {
            Format::Lackey => references(lines::Lines::new(input, lackey::parse)),
            Format::Dinero => references(lines::Lines::new(input, dinero::parse)),
            Format::PerfScript => references(lines::Lines::new(input, perf::Perf::default().parser())),
            Format::ChampSim => references(champsim::ChampSim::new(input)),
            Format::RawAddresses => references(raw::Addresses::new(input)),
            Format::RawPages => Foreign::Runs(Box::new(raw::Pages::new(input, page_bits))),
            Format::Csv => {
                let columns = csv::Columns::read(&mut input)?;
                if columns.has_pages() {
                    Foreign::Runs(Box::new(csv::PageRows::new(input, columns, page_bits)))
                } else {
                    let parse = move |line: &[u8], batch: &mut lines::Batch| columns.reference(line, batch);
                    references(lines::Lines::after(input, parse, 1))
                }
            }
        })
    }
}

fn references<'a>(source: impl ReferenceSource + Send + 'a) -> Foreign<'a> {
    Foreign::References(Box::new(source))
}

/// Contents of a foreign trace.
pub enum Foreign<'a> {
    /// References.
    References(Box<dyn ReferenceSource + Send + 'a>),
    /// Page runs.
    Runs(Box<dyn RunSource + Send + 'a>),
}
