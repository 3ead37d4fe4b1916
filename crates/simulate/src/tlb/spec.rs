//! The description of a core's translation hardware, and its validation.

use serde::{Deserialize, Serialize};

use crate::allocate::{PAGE_BITS, PAGE_SIZES};
use crate::cache::{Replacement, SpecError};

const MOST_ENTRIES: u64 = 1 << 20;

/// The references that a first-level array serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Loads and stores.
    #[default]
    Data,
    /// Only loads, if other arrays serve stores.
    Load,
    /// Stores only.
    Store,
    /// Fetches.
    Instruction,
}

/// An array of entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArraySpec {
    /// Its name in tables.
    #[serde(default)]
    pub name: String,
    /// Its references (first level only).
    #[serde(default)]
    pub serves: Side,
    /// Sizes in bytes that an entry can map. Sizes between 4 KiB and 2 MiB are entries for several contiguous base
    /// pages.
    pub pages: Vec<u64>,
    /// The sizes that each part holds, if the array consists of equal parts that differ in this; parts with the same
    /// size are next to each other. A page of a size that several parts hold goes to one of them by the bits above its
    /// set.
    #[serde(default)]
    pub parts: Vec<Vec<u64>>,
    /// Number of entries in all parts.
    pub entries: u64,
    /// Entries of a set; 0: fully associative.
    #[serde(default)]
    pub ways: u64,
    /// Replacement in a full set.
    #[serde(default)]
    pub replacement: Replacement,
    /// Whether a page larger than any entry is held in pieces.
    #[serde(default)]
    pub fragments: bool,
}

/// A cache of entries of the upper levels, by which walks begin further down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCacheSpec {
    /// Bytes that one of its entries spans: 2 MiB (a walk then reads only the last level), 1 GiB, 512 GiB, 256 TiB.
    pub spans: u64,
    /// Number of entries.
    pub entries: u64,
    /// Entries of a set; 0: fully associative.
    #[serde(default)]
    pub ways: u64,
    /// Replacement in a full set.
    #[serde(default)]
    pub replacement: Replacement,
}

/// The second dimension, for guests of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NestedSpec {
    /// Size of the host's pages.
    pub page_bytes: u64,
    /// Levels of the host's tables: 4 or 5.
    #[serde(default = "four")]
    pub levels: u32,
    /// Entries from guest-physical to host-physical pages; `pages` is the host's page size.
    #[serde(default)]
    pub tlb: Option<ArraySpec>,
    /// Caches of the host tables' upper levels.
    #[serde(default)]
    pub walk_caches: Vec<WalkCacheSpec>,
}

/// The translation hardware of a core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbSpec {
    /// Its name in tables.
    #[serde(default)]
    pub name: String,
    /// Number of cores; threads of a trace are assigned to them in turn.
    #[serde(default = "one")]
    pub cores: usize,
    /// The arrays searched first; each page size is in one array of a side.
    pub first: Vec<ArraySpec>,
    /// The arrays searched after them, for data and instructions.
    #[serde(default)]
    pub second: Vec<ArraySpec>,
    /// Whether the hardware itself merges base pages that are contiguous in memory into one entry (AMD: PTE
    /// coalescing); otherwise entries between 4 KiB and 2 MiB need pages of such a size.
    #[serde(default)]
    pub coalesces: bool,
    /// Walks that can be under way at the same time.
    #[serde(default = "one")]
    pub walkers: usize,
    /// Levels of the page tables: 4 or 5.
    #[serde(default = "four")]
    pub levels: u32,
    /// Caches of the upper levels.
    #[serde(default)]
    pub walk_caches: Vec<WalkCacheSpec>,
    /// The level of the data hierarchy from which walkers read, counted from 1.
    #[serde(default = "one")]
    pub walks_enter_level: usize,
    /// Cycles to read a table entry, if no data hierarchy is simulated.
    #[serde(default = "entry_cycles")]
    pub entry_cycles: u32,
    /// Cycles from one reference to the next when nothing waits; walks overlap with them.
    #[serde(default = "one_cycle")]
    pub cycles_per_reference: f64,
    /// Translation of guests.
    #[serde(default)]
    pub nested: Option<NestedSpec>,
}

const fn one() -> usize {
    1
}

const fn four() -> u32 {
    4
}

const fn entry_cycles() -> u32 {
    10
}

const fn one_cycle() -> f64 {
    1.0
}

fn refuse<T>(message: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError(message.into()))
}

/// Sets and ways of `entries` entries with `ways` ways (0: all of them).
pub(super) fn shape(entries: u64, ways: u64) -> (u64, u64) {
    entries.checked_div(ways).map_or((1, entries), |sets| (sets, ways))
}

fn check_shape(name: &str, entries: u64, ways: u64, replacement: Replacement) -> Result<(), SpecError> {
    if entries == 0 || entries > MOST_ENTRIES {
        return refuse(format!("{name}: entries = {entries}; allowed: 1 to {MOST_ENTRIES}"));
    }
    if ways > entries || (ways > 0 && !entries.is_multiple_of(ways)) {
        return refuse(format!(
            "{name}: {entries} entries are no whole sets of {ways}; ways divides entries (0: one set)"
        ));
    }
    let (_, ways) = shape(entries, ways);
    if replacement == Replacement::TreePlru && !(ways.is_power_of_two() && ways <= 64) {
        return refuse(format!(
            "{name}: tree-plru with {ways} ways; a tree has a power of two, up to 64; allowed: lru, random"
        ));
    }
    Ok(())
}

impl ArraySpec {
    fn check(&self, name: &str) -> Result<(), SpecError> {
        check_shape(name, self.entries, self.ways, self.replacement)?;
        if self.pages.is_empty() {
            return refuse(format!("{name}: pages = []; name the sizes that it holds"));
        }
        let fits = |bytes: &u64| bytes.is_power_of_two() && PAGE_SIZES.contains(&bytes.trailing_zeros());
        if let Some(bytes) = self.pages.iter().find(|bytes| !fits(bytes)) {
            return refuse(format!("{name}: pages of {bytes} bytes; allowed: powers of two from 4 KiB to 1 GiB"));
        }
        if self.parts.is_empty() { Ok(()) } else { self.check_parts(name) }
    }

    fn check_parts(&self, name: &str) -> Result<(), SpecError> {
        let count = self.parts.len() as u64;
        if count > 64 || !self.entries.is_multiple_of(count) {
            return refuse(format!(
                "{name}: {} entries are no {count} equal parts; at most 64 parts",
                self.entries
            ));
        }
        check_shape(&format!("{name}, a part"), self.entries / count, self.ways, self.replacement)?;
        if let Some(bytes) = self.parts.iter().flatten().find(|bytes| !self.pages.contains(bytes)) {
            return refuse(format!("{name}: a part holds pages of {bytes} bytes, which are not among its pages"));
        }
        for bytes in &self.pages {
            let holding: Vec<bool> = self.parts.iter().map(|part| part.contains(bytes)).collect();
            let runs = holding.chunk_by(|one, other| one == other).filter(|run| run[0]).count();
            if runs != 1 {
                return refuse(format!(
                    "{name}: pages of {bytes} bytes are in {runs} groups of parts; allowed: one, next to each other"
                ));
            }
        }
        Ok(())
    }

    /// The parts as separate arrays; the array itself if it has none.
    pub(super) fn split(&self) -> Vec<ArraySpec> {
        let part = |pages: &Vec<u64>| ArraySpec {
            pages: pages.clone(),
            parts: vec![],
            entries: self.entries / self.parts.len() as u64,
            ..self.clone()
        };
        if self.parts.is_empty() { vec![self.clone()] } else { self.parts.iter().map(part).collect() }
    }
}

impl WalkCacheSpec {
    fn check(&self, levels: u32) -> Result<(), SpecError> {
        let name = format!("walk_caches, {} bytes", self.spans);
        check_shape(&name, self.entries, self.ways, self.replacement)?;
        let spans: Vec<u64> = (1..levels).map(|level| 1 << (PAGE_BITS + 9 * level)).collect();
        if !spans.contains(&self.spans) {
            return refuse(format!("{name}: spans is one of {spans:?} with {levels} levels"));
        }
        Ok(())
    }
}

impl TlbSpec {
    /// Refuses impossible descriptions.
    ///
    /// # Errors
    /// The array, the value, and the allowed values.
    pub fn check(&self) -> Result<(), SpecError> {
        let named = |prefix: &str, array: &ArraySpec, at: usize| match array.name.as_str() {
            "" => format!("{prefix}[{at}]"),
            name => name.to_owned(),
        };
        for (prefix, arrays) in [("first", &self.first), ("second", &self.second)] {
            for (at, array) in arrays.iter().enumerate() {
                array.check(&named(prefix, array, at))?;
            }
            for side in [Side::Data, Side::Load, Side::Store, Side::Instruction] {
                let side = arrays.iter().filter(|array| prefix == "second" || array.serves == side);
                let mut pages: Vec<u64> = side.flat_map(|array| array.pages.iter().copied()).collect();
                pages.sort_unstable();
                if let Some(pair) = pages.windows(2).find(|pair| pair[0] == pair[1]) {
                    return refuse(format!("{prefix}: pages of {} bytes are in two arrays; allowed: one", pair[0]));
                }
            }
        }
        let serves = |side| self.first.iter().any(|array| array.serves == side);
        match (serves(Side::Data), serves(Side::Load), serves(Side::Store)) {
            (true, false, false) | (false, true, true) => {}
            (false, false, false) => return refuse("first: no array serves data"),
            _ => {
                return refuse(
                    "first: loads and stores are served by the same arrays (data), or by load and store",
                );
            }
        }
        if self.walkers == 0 || self.walkers > 16 || self.cores == 0 || self.cores > crate::cache::MOST_CORES {
            return refuse(format!("walkers = {}, cores = {}: 1 to 16, 1 to 256", self.walkers, self.cores));
        }
        if !(self.cycles_per_reference >= 0.0 && self.cycles_per_reference <= 1e6) {
            return refuse(format!("cycles_per_reference = {}; allowed: 0 to 1e6", self.cycles_per_reference));
        }
        self.check_tables()
    }

    fn check_tables(&self) -> Result<(), SpecError> {
        let nested = self.nested.iter().map(|nested| (nested.levels, &nested.walk_caches));
        for (levels, caches) in std::iter::once((self.levels, &self.walk_caches)).chain(nested) {
            if !(4..=5).contains(&levels) {
                return refuse(format!("levels = {levels}; allowed: 4, 5"));
            }
            caches.iter().try_for_each(|cache| cache.check(levels))?;
        }
        if let Some(nested) = &self.nested {
            if ![12, 21, 30].map(|bits| 1_u64 << bits).contains(&nested.page_bytes) {
                return refuse(format!("nested: page_bytes = {}; allowed: 4 KiB, 2 MiB, 1 GiB", nested.page_bytes));
            }
            if let Some(tlb) = &nested.tlb {
                if !tlb.parts.is_empty() {
                    return refuse("nested.tlb: holds one size, and has no parts");
                }
                tlb.check("nested.tlb")?;
            }
        }
        Ok(())
    }
}
