//! `perf script -F pid,tid,time,event,addr`: ` 6519/6519  25119.846402: page-faults:     562870d5f1e0`.
//!
//! Processes become address spaces and threads are numbered in the order of their first sample. Whether an event is a
//! load or a store is taken from its name (`mem-loads`, `mem-stores`); a page fault counts as a load.

use super::lines::{Batch, Flaw, decimal, hexadecimal, words};
use crate::reference::Kind;
use crate::run::MAX_ASID;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Perf {
    /// Address spaces by process, with their number of threads so far.
    spaces: HashMap<u64, (u16, u32)>,
    /// Threads within their address space.
    threads: HashMap<(u64, u64), u32>,
}

impl Perf {
    pub fn parser(mut self) -> impl FnMut(&[u8], &mut Batch) -> Result<(), Flaw> {
        move |line, batch| self.parse(line, batch)
    }

    fn parse(&mut self, line: &[u8], batch: &mut Batch) -> Result<(), Flaw> {
        if line.trim_ascii().is_empty() || line.starts_with(b"#") {
            return Ok(());
        }
        let mut words = words(line);
        let wrong = || "not a line of: perf script -F pid,tid,time,event,addr".to_owned();
        let who = words.next().ok_or_else(wrong)?;
        let slash = who.iter().position(|byte| *byte == b'/').ok_or_else(wrong)?;
        let process = decimal(&who[..slash]).ok_or_else(wrong)?;
        let thread = decimal(&who[slash + 1..]).ok_or_else(wrong)?;
        let _time = words.next().filter(|time| time.ends_with(b":")).ok_or_else(wrong)?;
        let event = words.next().filter(|event| event.ends_with(b":")).ok_or_else(wrong)?;
        let address = words.next().and_then(hexadecimal).ok_or_else(wrong)?;
        let known = self.spaces.len();
        let space = self.spaces.entry(process).or_insert((known as u16, 0));
        if space.0 > MAX_ASID {
            return Err(format!("more than {} processes", u32::from(MAX_ASID) + 1));
        }
        let threads = &mut space.1;
        let number = *self.threads.entry((process, thread)).or_insert_with(|| {
            *threads += 1;
            *threads - 1
        });
        let stores = event.windows(5).any(|part| part == b"store");
        let kind = if stores { Kind::Store } else { Kind::Load };
        batch.add(space.0, number, address, kind, 0)
    }
}
