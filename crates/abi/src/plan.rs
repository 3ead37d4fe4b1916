//! The compiled plan: the guest's view of a policy, as one flat little-endian file.
//!
//! The launcher writes it once; every process of the tree maps it read-only and reads it in place. The reading side
//! allocates nothing, and [`Plan::parse`] checks every offset before anything else is read, so that a torn or foreign
//! file disables the guest instead of crashing the program.
//!
//! # Layout
//! [`HEADER_BYTES`] of header, then the sections ([`SECTION_BYTES`] each, in rule order), the intervals
//! ([`INTERVAL_BYTES`] each, sorted and disjoint within a section), the strategies ([`STRATEGY_BYTES`] each), the table
//! of 64-bit words that their lists and texts lie in, then the run directory's path (NUL-terminated).
//!
//! # Meaning
//! A mapping of `len` bytes of some [`Memory`] kind is governed by the **first** section of that kind with
//! `at_least <= len`; sections of kind [`Memory::Range`] apply to addresses, whatever memory lies there. A kind without
//! a section is left to the kernel. Offsets of intervals count from [`Section::pool_base`]; bytes that no interval
//! names have the page size [`Section::otherwise`]. A section's [`Section::frames`] names the [`Strategy`] that places
//! its pages.

mod encode;
mod kinds;
mod strategies;
mod strategy;
#[cfg(test)]
mod tests;

use core::fmt;

pub use encode::{PlanSpec, RunSpec, SectionSpec, StrategySpec};
pub use kinds::{Fetch, Flags, Memory, Via};
pub use strategies::{Facts, Parameter, StrategyKind};
pub use strategy::{ANYWHERE, FIRST_FROM_SEED, Span, Strategy, WordRange, Words};

/// First eight bytes of a plan.
pub const MAGIC: [u8; 8] = *b"PGLBPLAN";
/// Version of the layout; a guest refuses any other.
pub const VERSION: u32 = 2;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of one section.
pub const SECTION_BYTES: usize = 72;
/// Bytes of one interval.
pub const INTERVAL_BYTES: usize = 32;
/// Bytes of one strategy.
pub const STRATEGY_BYTES: usize = 72;
/// Most strategies a plan may name (the guest file has as many slots).
pub const MAX_STRATEGIES: usize = 8;
/// Most colours a strategy may have; more than any cache has.
pub const MOST_COLOURS: u32 = 65_536;

/// Start of the heap, with and without ASLR. It must lie above the program's first break (glibc aborts otherwise): a
/// position-independent program and its break end below 0x6556_0000_0000 even with 32 random bits (`vm.mmap_rnd_bits`).
/// AddressSanitizer's allocator takes 0x6000_0000_0000 and 4 TiB from there, or 0x5000_0000_0000 in newer versions.
pub const HEAP_BASE: u64 = 0x6600_0000_0000;
/// Start of the first pool of anonymous memory; the pool of rule n begins n times [`POOL_BYTES`] further up.
pub const ANON_BASE: u64 = 0x6700_0000_0000;
/// Address room of each pool (1 TiB).
pub const POOL_BYTES: u64 = 0x100_0000_0000;
/// Greatest number of separate pools of anonymous memory in a plan.
pub const MAX_ANON_POOLS: usize = 16;

/// Page size that stands for "left to the kernel".
pub const KERNEL: u64 = 0;
/// Base page, in bytes.
pub const BASE_PAGE: u64 = 4096;
/// Largest page size a plan may name, in bytes.
pub const LARGEST_PAGE: u64 = 1 << 30;

/// Offsets `[start, end)` of a pool (absolute addresses for [`Memory::Range`]), and their page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// First byte, a multiple of `page_bytes` (of 4096 for [`KERNEL`]).
    pub start: u64,
    /// One past the last byte, a multiple likewise.
    pub end: u64,
    /// Page size in bytes, or [`KERNEL`].
    pub page_bytes: u64,
    /// The method of making its tiles.
    pub via: Via,
}

/// One section without its intervals: the rules for one kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The memory to which it applies.
    pub memory: Memory,
    /// Only mappings of at least this many bytes (0: all).
    pub at_least: u64,
    /// Start of its pool: [`HEAP_BASE`], or one of the anonymous pools. 0: it has no pool.
    pub pool_base: u64,
    /// Page size outside its intervals, or [`KERNEL`].
    pub otherwise: u64,
    /// The way to make tiles outside its intervals.
    pub otherwise_via: Via,
    /// The time at which its pages are brought in.
    pub fetch: Fetch,
    /// Number of the rule that it comes from; the default is one past the last rule.
    pub rule: u16,
    /// The placer of its pages: 0 = the kernel, otherwise one more than the number of a [`Strategy`] of the plan.
    pub frames: u16,
    /// [`Memory::Range`] only: addresses `[range_start, range_end)`.
    pub range_start: u64,
    /// See `range_start`.
    pub range_end: u64,
    first_interval: u32,
    interval_count: u32,
}

/// Why a file is not a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Shorter than the length in its header, or than any plan.
    Truncated,
    /// Does not begin with [`MAGIC`].
    NotAPlan,
    /// Another version of the layout.
    Version(u32),
    /// A field that no writer produces, by number of the section or interval.
    Invalid(&'static str, u32),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Truncated => write!(f, "the plan is truncated"),
            PlanError::NotAPlan => write!(f, "the file is not a plan"),
            PlanError::Version(v) => write!(f, "the plan has version {v}, this library reads {VERSION}"),
            PlanError::Invalid(what, at) => write!(f, "the plan has an invalid {what} (number {at})"),
        }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let raw = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(raw.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let raw = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(raw.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let raw = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(raw.try_into().ok()?))
}

fn valid_size(bytes: u64) -> bool {
    bytes == KERNEL || (bytes.is_power_of_two() && (BASE_PAGE..=LARGEST_PAGE).contains(&bytes))
}

fn via_of(code: u8) -> Option<Via> {
    match code {
        0 => Some(Via::Thp),
        1 => Some(Via::Hugetlb),
        _ => None,
    }
}

/// A plan read in place.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    bytes: &'a [u8],
    sections: u32,
    intervals: u32,
    strategies: u32,
    words: u32,
    rules: u32,
    flags: Flags,
    run_dir_bytes: usize,
}

impl<'a> Plan<'a> {
    /// Checks `bytes` from end to end and gives access to it. Allocates nothing.
    pub fn parse(bytes: &'a [u8]) -> Result<Plan<'a>, PlanError> {
        if bytes.get(..8) != Some(&MAGIC) {
            return Err(if bytes.len() < 8 { PlanError::Truncated } else { PlanError::NotAPlan });
        }
        let word = |at| u32_at(bytes, at).ok_or(PlanError::Truncated);
        let version = word(8)?;
        if version != VERSION {
            return Err(PlanError::Version(version));
        }
        let total = u64_at(bytes, 16).ok_or(PlanError::Truncated)?;
        let (flags, sections, intervals, run_dir) = (word(12)?, word(24)?, word(28)?, word(32)?);
        let (strategies, words, rules) = (word(36)?, word(40)?, word(44)?);
        let wanted = HEADER_BYTES as u64
            + u64::from(sections) * SECTION_BYTES as u64
            + u64::from(intervals) * INTERVAL_BYTES as u64
            + u64::from(strategies) * STRATEGY_BYTES as u64
            + u64::from(words) * 8
            + u64::from(run_dir)
            + 1;
        if total != wanted || (bytes.len() as u64) < total {
            return Err(PlanError::Truncated);
        }
        let (flags, run_dir_bytes) = (Flags(flags), run_dir as usize);
        let plan = Plan { bytes, sections, intervals, strategies, words, rules, flags, run_dir_bytes };
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), PlanError> {
        for number in 0..self.sections {
            let section = self.section(number).ok_or(PlanError::Invalid("section", number))?;
            let end = section.first_interval.checked_add(section.interval_count);
            if end.is_none_or(|end| end > self.intervals) {
                return Err(PlanError::Invalid("interval table", number));
            }
            if !valid_size(section.otherwise) {
                return Err(PlanError::Invalid("page size", number));
            }
            if section.memory == Memory::Range && section.range_start >= section.range_end {
                return Err(PlanError::Invalid("range", number));
            }
            if u32::from(section.frames) > self.strategies {
                return Err(PlanError::Invalid("strategy", number));
            }
            self.check_intervals(&section)?;
        }
        self.check_strategies()?;
        match self.bytes.get(self.run_dir_at() + self.run_dir_bytes) {
            Some(0) => Ok(()),
            _ => Err(PlanError::Invalid("run directory", 0)),
        }
    }

    fn check_intervals(&self, section: &Section) -> Result<(), PlanError> {
        let mut last = 0;
        for index in 0..section.interval_count {
            let interval = self.interval(section, index).ok_or(PlanError::Invalid("interval", index))?;
            let unit = interval.page_bytes.max(BASE_PAGE);
            let aligned = interval.start % unit == 0 && interval.end % unit == 0;
            if !valid_size(interval.page_bytes)
                || !aligned
                || interval.start < last
                || interval.end <= interval.start
            {
                return Err(PlanError::Invalid("interval", index));
            }
            last = interval.end;
        }
        Ok(())
    }

    fn intervals_at(&self) -> usize {
        HEADER_BYTES + self.sections as usize * SECTION_BYTES
    }

    fn strategies_at(&self) -> usize {
        self.intervals_at() + self.intervals as usize * INTERVAL_BYTES
    }

    fn words_at(&self) -> usize {
        self.strategies_at() + self.strategies as usize * STRATEGY_BYTES
    }

    fn run_dir_at(&self) -> usize {
        self.words_at() + self.words as usize * 8
    }

    /// Number of sections.
    pub fn section_count(&self) -> u32 {
        self.sections
    }

    /// Whether `section` comes from the policy's default, not from one of its rules.
    pub fn is_default(&self, section: &Section) -> bool {
        u32::from(section.rule) == self.rules
    }

    /// The plan's switches.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// The run directory, without its NUL (which follows it in memory).
    pub fn run_dir(&self) -> &'a [u8] {
        let at = self.run_dir_at();
        self.bytes.get(at..at + self.run_dir_bytes).unwrap_or(&[])
    }

    /// Section `number`, in rule order.
    pub fn section(&self, number: u32) -> Option<Section> {
        if number >= self.sections {
            return None;
        }
        let at = HEADER_BYTES + number as usize * SECTION_BYTES;
        let raw = self.bytes.get(at..at + SECTION_BYTES)?;
        Some(Section {
            memory: Memory::from_code(u64::from(*raw.first()?))?,
            otherwise_via: via_of(*raw.get(1)?)?,
            fetch: Fetch::from_code(*raw.get(2)?)?,
            rule: u16_at(raw, 4)?,
            frames: u16_at(raw, 6)?,
            at_least: u64_at(raw, 8)?,
            pool_base: u64_at(raw, 16)?,
            otherwise: u64_at(raw, 24)?,
            range_start: u64_at(raw, 32)?,
            range_end: u64_at(raw, 40)?,
            first_interval: u32_at(raw, 48)?,
            interval_count: u32_at(raw, 52)?,
        })
    }

    /// Interval `index` of `section`.
    pub fn interval(&self, section: &Section, index: u32) -> Option<Interval> {
        if index >= section.interval_count {
            return None;
        }
        let number = section.first_interval.checked_add(index)? as usize;
        let at = self.intervals_at() + number * INTERVAL_BYTES;
        let raw = self.bytes.get(at..at + INTERVAL_BYTES)?;
        Some(Interval {
            start: u64_at(raw, 0)?,
            end: u64_at(raw, 8)?,
            page_bytes: u64_at(raw, 16)?,
            via: via_of(*raw.get(24)?)?,
        })
    }

    /// The first section for a mapping of `len` bytes of `memory`.
    pub fn section_for(&self, memory: Memory, len: u64) -> Option<Section> {
        (0..self.sections)
            .filter_map(|number| self.section(number))
            .find(|section| section.memory == memory && section.at_least <= len)
    }

    /// Page size, way of making tiles, and extent of the piece of `section` around `offset`: an interval, or the gap
    /// between two.
    ///
    /// The extent is the largest `[start, end)` around `offset` with the same answer (`end` is `u64::MAX` after the
    /// last interval), so that callers can work through a range piece by piece.
    pub fn piece(&self, section: &Section, offset: u64) -> Interval {
        let (mut low, mut high) = (0, section.interval_count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.interval(section, middle) {
                Some(interval) if interval.end <= offset => low = middle + 1,
                _ => high = middle,
            }
        }
        let next = self.interval(section, low);
        if let Some(interval) = next
            && interval.start <= offset
        {
            return interval;
        }
        let before = low.checked_sub(1).and_then(|index| self.interval(section, index));
        Interval {
            start: before.map_or(0, |interval| interval.end),
            end: next.map_or(u64::MAX, |interval| interval.start),
            page_bytes: section.otherwise,
            via: section.otherwise_via,
        }
    }
}

impl Section {
    /// Number of its intervals.
    pub fn interval_count(&self) -> u32 {
        self.interval_count
    }

    /// Whether the axis `pages` is governed at all.
    pub fn governs_pages(&self) -> bool {
        self.otherwise != KERNEL || self.interval_count > 0
    }

    /// Whether the axis `frames` is governed.
    pub fn governs_frames(&self) -> bool {
        self.frames != 0
    }

    /// Number of the plan's strategy that places its pages; `None`: the kernel does.
    pub fn strategy(&self) -> Option<u32> {
        u32::from(self.frames).checked_sub(1)
    }
}
