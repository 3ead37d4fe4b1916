//! A validated policy: three independent axes, each with the default `kernel`, and rules for parts of memory.
//!
//! For each axis separately, the first rule that matches a piece of memory and names the axis decides; memory that no
//! such rule matches gets the policy's default. Values of these types satisfy the checks of [`crate::validate`].

use serde::{Deserialize, Serialize};

pub use crate::frames::{ByNumbers, ByPage, Colours, FirstBin, Frames, Span, Strategy};
pub use crate::machine::Via;
use crate::units::{Address, Bytes, PageSize, PoolOffset};

/// Size of each pool: offsets of a mosaic lie below this.
pub const POOL_BYTES: Bytes = Bytes(crate::plan::POOL_BYTES);

/// A kind of memory that a rule can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// Memory that grows with `brk`.
    Heap,
    /// Private anonymous mappings, malloc's large blocks among them.
    Anon,
    /// malloc's per-thread arenas.
    Arenas,
    /// File mappings.
    File,
    /// Data and bss of the program.
    Data,
    /// The main thread's stack.
    Stack,
}

impl Memory {
    /// Every kind, in canonical order.
    pub const ALL: [Memory; 6] =
        [Memory::Heap, Memory::Anon, Memory::Arenas, Memory::File, Memory::Data, Memory::Stack];

    /// The word in the policy language.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Memory::Heap => "heap",
            Memory::Anon => "anon",
            Memory::Arenas => "arenas",
            Memory::File => "file",
            Memory::Data => "data",
            Memory::Stack => "stack",
        }
    }

    /// The kind that `name` means.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Memory> {
        Memory::ALL.into_iter().find(|memory| memory.name() == name)
    }

    /// Size of the pool in which the offsets of a mosaic count; `None`: this kind has no pool.
    #[must_use]
    pub const fn pool_bytes(self) -> Option<Bytes> {
        match self {
            Memory::Heap | Memory::Anon | Memory::Arenas => Some(POOL_BYTES),
            Memory::File | Memory::Data | Memory::Stack => None,
        }
    }

    /// Whether it consists of mappings with their own sizes, with which `at_least` can be compared.
    #[must_use]
    pub const fn has_mappings(self) -> bool {
        matches!(self, Memory::Anon | Memory::Arenas | Memory::File)
    }
}

/// A set of kinds of memory; a list of words in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Memory>", into = "Vec<Memory>")]
pub struct MemorySet(u8);

impl From<Vec<Memory>> for MemorySet {
    fn from(kinds: Vec<Memory>) -> MemorySet {
        kinds.into_iter().collect()
    }
}

impl From<MemorySet> for Vec<Memory> {
    fn from(set: MemorySet) -> Vec<Memory> {
        set.iter().collect()
    }
}

impl MemorySet {
    /// Every kind.
    pub const ALL: MemorySet = MemorySet(0b11_1111);

    /// Adds a kind; false if it was in the set already.
    pub fn insert(&mut self, memory: Memory) -> bool {
        let before = self.0;
        self.0 |= 1 << memory as u8;
        self.0 != before
    }

    /// Whether the kind is in the set.
    #[must_use]
    pub const fn contains(self, memory: Memory) -> bool {
        self.0 & (1 << memory as u8) != 0
    }

    /// The kinds in the set, in canonical order.
    pub fn iter(self) -> impl Iterator<Item = Memory> {
        Memory::ALL.into_iter().filter(move |memory| self.contains(*memory))
    }

    /// Kinds of this set that `other` lacks.
    #[must_use]
    pub const fn without(self, other: MemorySet) -> MemorySet {
        MemorySet(self.0 & !other.0)
    }

    /// Kinds in both sets.
    #[must_use]
    pub const fn and(self, other: MemorySet) -> MemorySet {
        MemorySet(self.0 & other.0)
    }

    /// Whether the set has no kind.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Memory> for MemorySet {
    fn from_iter<I: IntoIterator<Item = Memory>>(kinds: I) -> MemorySet {
        let mut set = MemorySet::default();
        for memory in kinds {
            set.insert(memory);
        }
        set
    }
}

/// A size for a piece of memory, or the kernel's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// Left to the kernel.
    Kernel,
    /// Pages of this size.
    Size(PageSize),
}

/// An interval of a pool, backed by pages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tile {
    /// First byte.
    pub start: PoolOffset,
    /// One past the last byte.
    pub end: PoolOffset,
    /// Size of the pages in it; divides `start` and `end`.
    pub size: PageSize,
}

/// Intervals with page sizes: sorted, disjoint, neighbours of one size merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mosaic {
    /// The intervals.
    pub tiles: Vec<Tile>,
    /// Size of pages between and after them.
    pub otherwise: Backing,
}

/// Axis `pages`: how large pages are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pages {
    /// Left to the kernel.
    #[default]
    Kernel,
    /// One size.
    Size(PageSize),
    /// Sizes by interval.
    Mosaic(Mosaic),
}

/// Axis `fetch`: when pages come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fetch {
    /// Left to the kernel.
    #[default]
    Kernel,
    /// When touched, one by one: no readahead, no fault-around, no prefault.
    Demand,
    /// All of them when mapped.
    Prefault,
    /// Announced to the kernel when mapped.
    Willneed,
}

impl Fetch {
    /// Every value.
    pub const ALL: [Fetch; 4] = [Fetch::Kernel, Fetch::Demand, Fetch::Prefault, Fetch::Willneed];

    /// The word in the policy language.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Fetch::Kernel => "kernel",
            Fetch::Demand => "demand",
            Fetch::Prefault => "prefault",
            Fetch::Willneed => "willneed",
        }
    }
}

/// The placer of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// The library in the program, which moves pages.
    #[default]
    Library,
    /// The kernel, where it allocates pages: Linux with the series of `kernel/`.
    Kernel,
    /// The kernel if it has the series and can carry out the policy, otherwise the library.
    Auto,
}

impl Backend {
    /// Every value.
    pub const ALL: [Backend; 3] = [Backend::Library, Backend::Kernel, Backend::Auto];

    /// The word in the policy language.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Library => "library",
            Backend::Kernel => "kernel",
            Backend::Auto => "auto",
        }
    }
}

/// Whether the policy holds for children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherit {
    /// After `fork`.
    pub fork: bool,
    /// After `exec`.
    pub exec: bool,
}

impl Default for Inherit {
    fn default() -> Inherit {
        Inherit { fork: true, exec: true }
    }
}

/// Memory of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Every kind of memory for which the rule's values are possible, like the policy's defaults.
    All,
    /// These kinds.
    Memory(MemorySet),
    /// A range of virtual addresses, whatever kind of memory lies there.
    Range {
        /// First byte.
        start: Address,
        /// One past the last byte.
        end: Address,
    },
}

/// One rule. An axis that is `None` is left to later rules and the defaults; at least one axis is named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its memory.
    pub scope: Scope,
    /// Only mappings of at least this many bytes.
    pub at_least: Option<Bytes>,
    /// Which frames pages get.
    pub frames: Option<Frames>,
    /// How large pages are.
    pub pages: Option<Pages>,
    /// The way to make tiles of `pages`; `None`: the policy's default. Only together with `pages`.
    pub via: Option<Via>,
    /// When pages come in.
    pub fetch: Option<Fetch>,
}

/// A validated policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Policy {
    /// Its name in tables and plots.
    pub name: String,
    /// Which frames pages get, by default.
    pub frames: Frames,
    /// How large pages are, by default.
    pub pages: Pages,
    /// How tiles are made, by default.
    pub via: Via,
    /// When pages come in, by default.
    pub fetch: Fetch,
    /// The placer of the frames of all rules.
    #[serde(default)]
    pub backend: Backend,
    /// Whether children get the policy too.
    pub inherit: Inherit,
    /// The rules, in order of precedence.
    pub rules: Vec<Rule>,
}

impl Policy {
    /// Whether every axis is left to the kernel everywhere: such a policy needs no preload library.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        !self.governs_frames()
            && self.pages == Pages::Kernel
            && self.fetch == Fetch::Kernel
            && self.rules.iter().all(|rule| {
                rule.pages.as_ref().is_none_or(|pages| *pages == Pages::Kernel)
                    && rule.fetch.is_none_or(|fetch| fetch == Fetch::Kernel)
            })
    }

    /// The same policy with all frames left to the kernel's own choice: the part for the library.
    #[must_use]
    pub fn without_frames(&self) -> Policy {
        let mut left = Policy { frames: Frames::default(), backend: Backend::default(), ..self.clone() };
        left.rules.iter_mut().for_each(|rule| rule.frames = None);
        left.rules.retain(|rule| rule.pages.is_some() || rule.fetch.is_some());
        left
    }

    /// Whether any memory has a strategy that places its frames.
    #[must_use]
    pub fn governs_frames(&self) -> bool {
        let rules = self.rules.iter().filter_map(|rule| rule.frames.as_ref());
        std::iter::once(&self.frames).chain(rules).any(|frames| !frames.is_kernel())
    }
}
