//! Counters.
use crate::cpus::Cpus;
use crate::error::Result;
use crate::record::{Counter, Warnings};
use std::collections::BTreeMap;
use std::os::fd::RawFd;

/// Role.
#[derive(Clone, Debug)]
pub struct Role;
/// Counted.
#[derive(Debug, Default)]
pub struct Counted {
    /// c
    pub counters: Vec<Counter>,
    /// p
    pub by_process: BTreeMap<i32, BTreeMap<String, u64>>,
}
/// Counting.
#[derive(Debug, Default)]
pub struct Counting;
/// parse
pub fn parse(_events: &[String]) -> Result<Vec<Role>> {
    Ok(Vec::new())
}
impl Counting {
    /// open
    pub fn open(_e: &[Role], _pid: i32, _c: &Cpus, _p: bool) -> Counting {
        Counting
    }
    /// fds
    pub fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }
    /// drain
    pub fn drain(&mut self) {}
    /// finish
    pub fn finish(self, _pid: i32, _w: &mut Warnings) -> Counted {
        Counted::default()
    }
}
