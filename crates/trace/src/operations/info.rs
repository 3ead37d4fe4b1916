//! The contents of a trace.

use super::files;
use crate::error::TraceError;
use crate::format::{Chunk, Content, Header};
use crate::source::Result;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;

/// Contents of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// The file's header.
    pub header: Header,
    /// Bytes of the file.
    pub bytes: u64,
    /// Whether it has its end.
    pub complete: bool,
    /// Chunks that are whole.
    pub chunks: usize,
    /// Records in them.
    pub records: u64,
    /// References in them: of runs, the sum of their counts.
    pub references: u64,
    /// Facts known at the end of writing.
    pub ending: Value,
    /// Facts known only after reading all of it.
    pub thorough: Option<Thorough>,
}

/// Facts known only after reading all of a trace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Thorough {
    /// The fault; null without one.
    pub damage: Option<String>,
    /// Loads, stores, fetches, others; null for runs.
    pub kinds: Option<[u64; 4]>,
    /// Pages of the trace's size (references: 4 KiB), in all address spaces.
    pub pages: u64,
    /// Address spaces that occur.
    pub address_spaces: u64,
    /// Threads that occur; null for runs.
    pub threads: Option<u64>,
}

pub(super) fn read(path: &Path, thorough: bool, go_on: &mut dyn FnMut() -> bool) -> Result<Info> {
    let (header, index, bytes) = files::index(path)?;
    let (records, references) = (index.records(), index.references());
    let thorough = if thorough { Some(read_all(path, go_on)?) } else { None };
    Ok(Info {
        header,
        bytes,
        complete: index.complete,
        chunks: index.entries.len(),
        records,
        references,
        ending: index.ending,
        thorough,
    })
}

/// Pages of full references are counted in this size.
const PAGE_BITS: u32 = 12;

fn read_all(path: &Path, go_on: &mut dyn FnMut() -> bool) -> Result<Thorough> {
    let mut reader = files::open_reader(path)?;
    let full = reader.header().content == Content::References;
    let (mut pages, mut spaces, mut threads) = (HashSet::new(), HashSet::new(), HashSet::new());
    let (mut kinds, mut damage) = ([0; 4], None);
    loop {
        if !go_on() {
            return Err(TraceError::Invalid("interrupted".into()));
        }
        match reader.next_chunk() {
            Ok(None) => break,
            Err(error @ (TraceError::Torn(_) | TraceError::Damaged { .. })) => {
                damage = Some(error.to_string());
                break;
            }
            Err(error) => return Err(error),
            Ok(Some(Chunk::References(batch))) => {
                for segment in batch.segments() {
                    spaces.insert(segment.asid);
                    threads.insert((segment.asid, segment.thread));
                    for reference in segment.references {
                        kinds[reference.kind() as usize] += 1;
                        pages.insert((segment.asid, reference.page(PAGE_BITS)));
                    }
                }
            }
            Ok(Some(Chunk::Runs(runs))) => {
                for run in runs {
                    spaces.insert(run.asid());
                    pages.insert((run.asid(), run.number()));
                }
            }
        }
    }
    Ok(Thorough {
        damage,
        kinds: full.then_some(kinds),
        pages: pages.len() as u64,
        address_spaces: spaces.len() as u64,
        threads: full.then_some(threads.len() as u64),
    })
}
