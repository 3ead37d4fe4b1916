//! Page runs as the plugin sends them: those of one thread, coded as in the file, but for the first and the last.
//!
//! The collector need not decode them: only the first and the last may be parts of longer runs.

use super::changes::Changes;
use super::protocol::RunSegment;
use crate::format::{Level, RunCode};
use crate::run::Run;

/// Makes runs of addresses, and the block to be sent. It is empty between segments.
pub struct Packer {
    code: RunCode,
    /// The first run, once it has ended.
    first: Option<Run>,
    /// The run that has not ended; none if it has no references.
    open: Run,
    changes: Changes,
}

const NONE: Run = Run { page: 0, count: 0 };

impl Packer {
    /// An empty one.
    pub const fn new() -> Packer {
        Packer { code: RunCode::new(), first: None, open: NONE, changes: Changes::new() }
    }

    /// Appends references to `addresses`, on pages of 2 to the power of `page_bits` bytes.
    pub fn add(&mut self, addresses: &[u64], page_bits: u32) {
        if addresses.is_empty() {
            return;
        }
        let level = Level::of_this_processor();
        let (differences, places) = self.changes.find(addresses, page_bits, level);
        let run = |begin: u32, end: usize| Run {
            page: addresses[end - 1] >> page_bits,
            count: end as u64 - u64::from(begin),
        };
        let first = run(0, places.first().map_or(addresses.len(), |place| *place as usize));
        if self.open.count > 0 && self.open.page == first.page {
            self.open.count += first.count;
        } else {
            close(&mut self.open, &mut self.first, &mut self.code);
            self.open = first;
        }
        if let Some((_, between)) = differences.split_last() {
            close(&mut self.open, &mut self.first, &mut self.code);
            let place = places[between.len()];
            self.code.append_differences(between, places, addresses[place as usize - 1] >> page_bits, level);
            self.open = run(place, addresses.len());
        }
    }

    /// Appends the segment to a block. Nothing where there was no reference.
    pub fn finish(&mut self, thread: u32, block: &mut Vec<u8>) {
        let last = std::mem::replace(&mut self.open, NONE);
        if last.count == 0 {
            return;
        }
        let first = self.first.take();
        if first.is_none() {
            self.code.begin(0);
        }
        let segment = RunSegment {
            thread,
            records: self.code.records as u32,
            references: self.code.references,
            first: first.unwrap_or(last),
            last: first.map_or(NONE, |_| last),
            before_last: self.code.last,
            pages: self.code.pages.len() as u32,
            counts: self.code.counts.len() as u32,
        };
        block.extend(segment.encode());
        block.extend_from_slice(&self.code.pages);
        block.extend_from_slice(&self.code.counts);
    }
}

impl Default for Packer {
    fn default() -> Self {
        Packer::new()
    }
}

/// The open run, if there is one, has ended.
fn close(open: &mut Run, first: &mut Option<Run>, code: &mut RunCode) {
    let ended = std::mem::replace(open, NONE);
    if ended.count == 0 {
        return;
    }
    if first.is_some() {
        code.append(&[ended]);
    } else {
        *first = Some(ended);
        code.begin(ended.page);
    }
}
