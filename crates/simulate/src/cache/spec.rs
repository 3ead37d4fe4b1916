//! The description of a cache hierarchy, and its validation.

use serde::{Deserialize, Serialize};

use super::index::Index;
use super::sets::{MOST_TREE_WAYS, Replacement};

/// Most levels.
pub const MOST_LEVELS: usize = 5;
/// Most cores.
pub const MOST_CORES: usize = 256;
const MOST_SETS: u64 = 1 << 26;
const MOST_WAYS: u64 = 1 << 12;

/// The references that a level serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Serves {
    /// Loads, stores and fetches.
    #[default]
    Unified,
    /// Loads and stores; only the first level.
    Data,
    /// Fetches; only the first level.
    Instruction,
}

/// Relation of a level's contents to those of the levels above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inclusion {
    /// Neither inclusive nor exclusive: filled on the way up, evicted without asking.
    #[default]
    Nine,
    /// It contains all lines of the levels above: a line that is evicted here leaves them too.
    Inclusive,
    /// It is filled with lines that the level above evicts; a line that is hit moves up.
    Exclusive,
}

/// How a reference that touches several lines is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Straddling {
    /// As one access for each line.
    #[default]
    Lines,
    /// As cachegrind counts: one access, a miss if any line misses; the level below then sees all of its lines.
    Whole,
}

/// One level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelSpec {
    /// `L1d`, `L2` …
    pub name: String,
    /// Its references.
    #[serde(default)]
    pub serves: Serves,
    /// Its capacity in bytes; if it is not shared, that of each core's.
    pub bytes: u64,
    /// Number of lines in a set.
    pub ways: u64,
    /// Its replacement.
    #[serde(default)]
    pub replacement: Replacement,
    /// Its relation to the levels above.
    #[serde(default)]
    pub inclusion: Inclusion,
    /// Whether all cores share it; then they share all levels below.
    #[serde(default)]
    pub shared: bool,
    /// Masks over physical addresses. The highest bits of the set number are their parities; the last mask gives the
    /// highest bit.
    #[serde(default)]
    pub hash: Vec<u64>,
    /// Whether a line that is written back and not present is put in; otherwise it is passed on to the level below.
    #[serde(default = "yes")]
    pub writebacks_allocate: bool,
    /// Cycles from the reference to the data, when it is found here.
    #[serde(default)]
    pub cycles: u32,
}

/// A hierarchy; the levels next to the core come first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HierarchySpec {
    /// Its name in tables.
    #[serde(default)]
    pub name: String,
    /// Bytes of a line, in all levels.
    #[serde(default = "sixty_four")]
    pub line_bytes: u64,
    /// Number of cores; threads of a trace are assigned to them in turn.
    #[serde(default = "one")]
    pub cores: usize,
    /// Counting of references over several lines.
    #[serde(default)]
    pub straddling: Straddling,
    /// Cycles from the reference to the data, when it is found in memory.
    #[serde(default)]
    pub memory_cycles: u32,
    /// The levels.
    pub levels: Vec<LevelSpec>,
}

const fn yes() -> bool {
    true
}

const fn sixty_four() -> u64 {
    64
}

const fn one() -> usize {
    1
}

/// Why a description is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(pub String);

impl std::fmt::Display for SpecError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

fn refuse<T>(message: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError(message.into()))
}

impl LevelSpec {
    /// Number of sets; valid once checked.
    #[must_use]
    pub const fn sets(&self, line_bytes: u64) -> u64 {
        self.bytes / (self.ways * line_bytes)
    }

    /// The function that spreads lines over the sets; `None` only before the check.
    pub(super) fn index(&self, line_bytes: u64) -> Option<Index> {
        let sets = self.sets(line_bytes);
        if self.hash.is_empty() {
            return Some(Index::plain(sets));
        }
        Index::hashed(sets, &self.hash, line_bytes.trailing_zeros())
    }

    fn check(&self, line_bytes: u64) -> Result<(), SpecError> {
        let name = &self.name;
        if self.ways == 0 || self.ways > MOST_WAYS {
            return refuse(format!("{name}: ways = {}; allowed: 1 to {MOST_WAYS}", self.ways));
        }
        let row = self.ways * line_bytes;
        if self.bytes == 0 || !self.bytes.is_multiple_of(row) {
            let message = format!(
                "{name}: {} bytes are no whole sets of {} ways × {line_bytes} bytes",
                self.bytes, self.ways
            );
            return refuse(format!("{message}; the size is a multiple of {row}"));
        }
        let sets = self.sets(line_bytes);
        if sets > MOST_SETS {
            return refuse(format!("{name}: {sets} sets; the most is {MOST_SETS}"));
        }
        if self.replacement == Replacement::TreePlru
            && !(self.ways.is_power_of_two() && self.ways <= MOST_TREE_WAYS as u64)
        {
            let message = format!("{name}: tree-plru with {} ways; a tree has a power of two, up to 64", self.ways);
            return refuse(format!("{message}; allowed here: lru, random"));
        }
        if self.index(line_bytes).is_none() {
            return refuse(format!(
                "{name}: hash: {sets} sets have at most {} index bits, each mask makes one of them and has no bits within the \
                 line (below {line_bytes})",
                if sets.is_power_of_two() { sets.trailing_zeros() } else { 0 }
            ));
        }
        Ok(())
    }
}

impl HierarchySpec {
    /// Refuses impossible descriptions.
    ///
    /// # Errors
    /// The level, the value, and the allowed values.
    pub fn check(&self) -> Result<(), SpecError> {
        if !self.line_bytes.is_power_of_two() || !(8..=4096).contains(&self.line_bytes) {
            return refuse(format!("line_bytes = {}: a power of two from 8 to 4096", self.line_bytes));
        }
        if self.cores == 0 || self.cores > MOST_CORES {
            return refuse(format!("cores = {}; allowed: 1 to {MOST_CORES}", self.cores));
        }
        if self.levels.is_empty() || self.levels.len() > MOST_LEVELS {
            return refuse(format!("{} levels; allowed: 1 to {MOST_LEVELS}", self.levels.len()));
        }
        for (number, level) in self.levels.iter().enumerate() {
            if level.name.is_empty() || self.levels[..number].iter().any(|above| above.name == level.name) {
                return refuse(format!(
                    "level {}: name = {:?}: each level has a name of its own",
                    number + 1,
                    level.name
                ));
            }
            level.check(self.line_bytes)?;
        }
        self.check_order()?;
        self.check_straddling()
    }

    fn check_order(&self) -> Result<(), SpecError> {
        let (data, fetch) = (self.path(false), self.path(true));
        let split = self.levels.iter().filter(|level| level.serves != Serves::Unified).count();
        if data.is_empty() {
            return refuse("no level serves data");
        }
        let tops_first = self.levels.iter().skip(split).all(|level| level.serves == Serves::Unified);
        if split > 2 || !tops_first || (split == 2 && self.levels[0].serves == self.levels[1].serves) {
            return refuse(
                "levels that serve only data or only instructions: one of each at most, before all others",
            );
        }
        for path in [&data, &fetch] {
            if let Some(first) = path.first().map(|level| &self.levels[*level])
                && first.inclusion != Inclusion::Nine
            {
                return refuse(format!("{}: inclusion = … is for levels that have others above them", first.name));
            }
            if let Some(pair) =
                path.windows(2).find(|pair| self.levels[pair[0]].shared && !self.levels[pair[1]].shared)
            {
                let [above, below] = [pair[0], pair[1]].map(|level| &self.levels[level].name);
                return refuse(format!("{below}: below the shared {above}, so shared = true is needed"));
            }
        }
        Ok(())
    }

    fn check_straddling(&self) -> Result<(), SpecError> {
        let plain = self.cores == 1 && self.levels.iter().all(|level| level.inclusion == Inclusion::Nine);
        if self.straddling == Straddling::Whole && !plain {
            return refuse("straddling = \"whole\" is for one core and levels with inclusion = \"nine\"");
        }
        Ok(())
    }

    /// The numbers of the levels that a reference meets, in order. If there is no level for instructions, fetches meet
    /// none of the levels that serve only data.
    #[must_use]
    pub fn path(&self, fetch: bool) -> Vec<usize> {
        let other = if fetch { Serves::Data } else { Serves::Instruction };
        (0..self.levels.len()).filter(|level| self.levels[*level].serves != other).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn level(name: &str, bytes: u64, ways: u64) -> LevelSpec {
        let json = format!(r#"{{"name": "{name}", "bytes": {bytes}, "ways": {ways}}}"#);
        serde_json::from_str(&json).unwrap()
    }

    fn hierarchy(levels: Vec<LevelSpec>) -> HierarchySpec {
        HierarchySpec { levels, ..serde_json::from_str(r#"{"levels": []}"#).unwrap() }
    }

    fn refusal(spec: &HierarchySpec) -> String {
        spec.check().unwrap_err().0
    }

    #[test]
    fn geometry_is_checked() {
        assert_eq!(hierarchy(vec![level("L1", 48 << 10, 12), level("L2", 2 << 20, 16)]).check(), Ok(()));
        assert!(refusal(&hierarchy(vec![])).contains("0 levels"));
        let twice = hierarchy(vec![level("L1", 32 << 10, 8), level("L2", 1 << 20, 16), level("L2", 8 << 20, 16)]);
        assert!(refusal(&twice).contains("level 3: name = \"L2\": each level has a name of its own"));
        assert!(refusal(&hierarchy(vec![level("", 32 << 10, 8)])).contains("level 1: name = \"\""));
        assert!(refusal(&hierarchy(vec![level("L1", 32 << 10, 0)])).contains("ways = 0"));
        assert!(refusal(&hierarchy(vec![level("L1", 33_000, 8)])).contains("multiple of 512"));
        let tree = LevelSpec { replacement: Replacement::TreePlru, ..level("L1", 48 << 10, 12) };
        assert!(refusal(&hierarchy(vec![tree])).contains("allowed here: lru, random"));
        let hash = LevelSpec { hash: vec![0x20], ..level("L1", 32 << 10, 8) };
        assert!(refusal(&hierarchy(vec![hash])).contains("within the line"));
        assert!(
            refusal(&HierarchySpec { line_bytes: 48, ..hierarchy(vec![level("L1", 48, 1)]) })
                .contains("power of two")
        );
    }

    #[test]
    fn the_order_of_levels_is_checked() {
        let shared = LevelSpec { shared: true, ..level("L2", 1 << 20, 16) };
        let spec = hierarchy(vec![level("L1", 32 << 10, 8), shared, level("L3", 8 << 20, 16)]);
        assert!(refusal(&spec).contains("L3: below the shared L2"));
        let first = LevelSpec { inclusion: Inclusion::Inclusive, ..level("L1", 32 << 10, 8) };
        assert!(refusal(&hierarchy(vec![first])).contains("others above"));
        let data = LevelSpec { serves: Serves::Data, ..level("L1d", 32 << 10, 8) };
        let other = LevelSpec { name: "L0d".into(), ..data.clone() };
        let split = hierarchy(vec![data.clone(), level("L2", 1 << 20, 16)]);
        assert_eq!((split.check(), split.path(false), split.path(true)), (Ok(()), vec![0, 1], vec![1]));
        assert!(refusal(&hierarchy(vec![other, data])).contains("one of each"));
        let fetch = LevelSpec { serves: Serves::Instruction, ..level("L1i", 32 << 10, 8) };
        assert!(refusal(&hierarchy(vec![fetch])).contains("no level serves data"));
    }
}
