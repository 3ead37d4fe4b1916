//! Which event counts what, for each microarchitecture. Data; every row cites its source.
//!
//! `verified` says where a row was checked on hardware against a program with a known answer; a row without it follows
//! the vendor's documents. Roles mean the same everywhere:
//!
//! - `tlb.hits`: data accesses that miss the first-level TLB and hit the second (H)
//! - `tlb.walks`: data accesses that miss both, so that the page table is walked (M)
//! - `tlb.walk_cycles`: cycles of walks in progress, summed over concurrent walks where the hardware can (C)
//! - `cache.l1_misses`, `cache.l2_misses`, `cache.l3_misses`: data lines the level did not have

/// One event that a role consists of.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// perf_event_attr.config of a PERF_TYPE_RAW event.
    pub config: u64,
    /// Added (1) or subtracted (-1).
    pub sign: i64,
    /// The vendor's name for it.
    pub name: &'static str,
}

/// How one microarchitecture counts one role.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The role.
    pub role: &'static str,
    /// Events that are added up.
    pub events: &'static [Event],
    /// Where it is documented.
    pub source: &'static str,
    /// Where it was checked.
    pub verified: Option<&'static str>,
    /// Not documented by the vendor.
    pub experimental: bool,
}

/// A microarchitecture.
#[derive(Clone, Copy, Debug)]
pub struct Microarchitecture {
    /// Its name.
    pub name: &'static str,
    /// Processors that have it.
    pub processors: Processors,
    /// Its events.
    pub rows: &'static [Row],
}

/// How processors identify themselves.
#[derive(Clone, Copy, Debug)]
pub enum Processors {
    /// GenuineIntel, family 6, these models.
    Intel(&'static [u32]),
    /// AuthenticAMD, this family, models in these ranges (both ends in).
    Amd(u32, &'static [(u32, u32)]),
    /// Arm Limited (0x41), this part number.
    Arm(u32),
}

/// All of them.
pub const ALL: [&[Microarchitecture]; 3] = [super::table_intel::ALL, super::table_amd::ALL, super::table_arm::ALL];

/// Named sets of roles.
pub const SETS: [(&str, &[&str]); 3] = [
    ("tlb", &["tlb.hits", "tlb.walks", "tlb.walk_cycles"]),
    ("cache", &["cache.l1_misses", "cache.l2_misses", "cache.l3_misses"]),
    ("faults", &["faults.minor", "faults.major"]),
];

/// One added event.
pub const fn plus(config: u64, name: &'static str) -> Event {
    Event { config, sign: 1, name }
}

/// One subtracted event.
pub const fn minus(config: u64, name: &'static str) -> Event {
    Event { config, sign: -1, name }
}

/// A documented row that was not checked on hardware.
pub const fn row(role: &'static str, events: &'static [Event], source: &'static str) -> Row {
    Row { role, events, source, verified: None, experimental: false }
}

/// A documented row that was checked.
pub const fn checked(role: &'static str, events: &'static [Event], source: &'static str, on: &'static str) -> Row {
    Row { role, events, source, verified: Some(on), experimental: false }
}

/// A row the vendor does not document.
pub const fn experimental(role: &'static str, events: &'static [Event], source: &'static str) -> Row {
    Row { role, events, source, verified: None, experimental: true }
}
