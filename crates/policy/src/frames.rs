//! Axis `frames` as validated values: which frames pages get.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::plan::{Parameter, StrategyKind};
use crate::units::{Address, Bytes, Colour, FrameNumber};

/// Definition of a frame's colour.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Colours {
    /// As many as the machine's last-level cache has; the colour is the frame number modulo their count.
    #[default]
    Machine,
    /// This many; the colour is the frame number modulo their count.
    Count(u32),
    /// As many as pages fit in one way of such a cache; the colour is the frame number modulo their count.
    Cache {
        /// Size of the cache.
        bytes: Bytes,
        /// Its ways.
        ways: u32,
    },
    /// Bit i of the colour is the parity of the frame number's bits that mask i has.
    Masks(Vec<u64>),
}

impl Colours {
    /// The number of colours; `None` if the machine's cache decides it and is unknown.
    #[must_use]
    pub fn count(&self, machine: &Machine) -> Option<u64> {
        let page = machine.base_page_bytes;
        match self {
            Colours::Machine => machine.cache.map(|cache| cache.colours(page)),
            Colours::Count(count) => Some(u64::from(*count)),
            Colours::Cache { bytes, ways } => Some((bytes.0 / u64::from(*ways) / page.bytes()).max(1)),
            Colours::Masks(masks) => u32::try_from(masks.len()).ok().and_then(|bits| 1_u64.checked_shl(bits)),
        }
    }

    /// The masks, if they define the colours.
    #[must_use]
    pub fn masks(&self) -> &[u64] {
        match self {
            Colours::Masks(masks) => masks,
            _ => &[],
        }
    }
}

/// Neighbouring pages, each with the value that it is to get; `None`: any value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span<T> {
    /// Address of the first page.
    pub start: Address,
    /// One value a page.
    pub values: Vec<Option<T>>,
}

/// The wanted value of each page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ByPage<T> {
    /// In order. Colours repeat over the virtual pages; frames count from the start of the pool or range, once.
    List(Vec<T>),
    /// By address, sorted and disjoint: a saved map. Pages outside may lie anywhere.
    Spans(Vec<Span<T>>),
}

/// First colour of bin hopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FirstBin {
    /// At this colour.
    Colour(u32),
    /// At a colour drawn from this seed.
    Seed(u64),
}

impl Default for FirstBin {
    fn default() -> FirstBin {
        FirstBin::Colour(0)
    }
}

/// Source of frames.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Strategy {
    /// Left to the kernel.
    #[default]
    Kernel,
    /// A colour for each page.
    Modulo {
        /// The colours.
        colours: ByPage<Colour>,
    },
    /// A frame for each page.
    Exact {
        /// The frames.
        frames: ByPage<FrameNumber>,
    },
    /// The answers of a shared object of the user's.
    Module {
        /// Its path.
        path: String,
        /// The text that it gets when it starts.
        argument: String,
        /// The seed that it gets.
        seed: u64,
    },
    /// Any other strategy, which needs only numbers.
    #[serde(untagged)]
    ByNumbers(ByNumbers),
}

/// A strategy that reads no lists, with its numbers; numbers that its row of the table ([`StrategyKind::facts`]) does
/// not name have their defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByNumbers {
    /// The kind of strategy.
    #[serde(serialize_with = "write_kind", deserialize_with = "read_kind")]
    pub kind: StrategyKind,
    /// Colours are turned by a hash of the process id, so that processes do not compete for the same ones.
    pub hash_pid: bool,
    /// Colour of the first page.
    pub first: FirstBin,
    /// Seed from which each page's colour is drawn.
    pub seed: u64,
}

impl ByNumbers {
    /// The strategy without any parameter.
    #[must_use]
    pub fn of(kind: StrategyKind) -> ByNumbers {
        ByNumbers { kind, hash_pid: false, first: FirstBin::default(), seed: 0 }
    }

    /// The parameters that are not at their defaults, as a flag has them; a seed that draws each page's colour is
    /// always one.
    pub(crate) fn words(&self) -> Vec<(Parameter, String)> {
        let mut words = Vec::new();
        words.extend(self.hash_pid.then(|| (Parameter::Hash, "pid".to_owned())));
        match self.first {
            FirstBin::Colour(0) => {}
            FirstBin::Colour(first) => words.push((Parameter::First, first.to_string())),
            FirstBin::Seed(seed) => words.push((Parameter::Seed, seed.to_string())),
        }
        if self.kind.takes(Parameter::Seed) && !self.kind.takes(Parameter::First) {
            words.push((Parameter::Seed, self.seed.to_string()));
        }
        words
    }
}

fn write_kind<S: serde::Serializer>(kind: &StrategyKind, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(kind.name())
}

fn read_kind<'de, D: serde::Deserializer<'de>>(from: D) -> Result<StrategyKind, D::Error> {
    let name = String::deserialize(from)?;
    StrategyKind::from_name(&name).ok_or_else(|| serde::de::Error::custom(format!("no strategy {name:?}")))
}

impl Strategy {
    /// The word in the policy language.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.kind() {
            None => "kernel",
            Some(kind) => kind.name(),
        }
    }

    /// Its row of the table; `None`: the kernel.
    #[must_use]
    pub const fn kind(&self) -> Option<StrategyKind> {
        match self {
            Strategy::Kernel => None,
            Strategy::Modulo { .. } => Some(StrategyKind::Modulo),
            Strategy::Exact { .. } => Some(StrategyKind::Exact),
            Strategy::Module { .. } => Some(StrategyKind::Module),
            Strategy::ByNumbers(numbers) => Some(numbers.kind),
        }
    }
}

/// Axis `frames`: which frames pages get.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Frames {
    /// The choice of frames.
    pub strategy: Strategy,
    /// Definition of colours.
    pub colours: Colours,
    /// Most pages placed for one fault; `None`: the strategy decides.
    pub fault_around: Option<u16>,
    /// Memory that the pool may hold besides the placed pages; `None`: as the strategy needs.
    pub budget: Option<Bytes>,
    /// Keep placed pages where they are (mlock), so that compaction and swap leave them.
    pub pin: bool,
}

impl Frames {
    /// Whether frames are left to the kernel.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        self.strategy == Strategy::Kernel
    }

    /// The strategy and its parameters in few words, much as in a flag; long lists are only named.
    #[must_use]
    pub fn brief(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        match &self.colours {
            Colours::Machine => {}
            Colours::Count(count) => words.push(format!("colors={count}")),
            Colours::Cache { bytes, ways } => words.push(format!("cache={bytes},{ways}")),
            Colours::Masks(masks) => {
                let masks: Vec<String> = masks.iter().map(|mask| format!("{mask:#x}")).collect();
                words.push(format!("masks={}", masks.join("+")));
            }
        }
        words.extend(self.strategy.brief());
        words.extend(self.fault_around.map(|pages| format!("fault-around={pages}")));
        words.extend(self.budget.map(|bytes| format!("budget={bytes}")));
        words.extend(self.pin.then(|| "pin=true".to_owned()));
        if words.is_empty() {
            return self.strategy.name().to_owned();
        }
        format!("{}:{}", self.strategy.name(), words.join(","))
    }
}

impl Strategy {
    fn brief(&self) -> Option<String> {
        match self {
            Strategy::Kernel => None,
            Strategy::ByNumbers(numbers) => {
                let words =
                    numbers.words().into_iter().map(|(parameter, value)| format!("{}={value}", parameter.name()));
                Some(words.collect::<Vec<_>>().join(",")).filter(|words| !words.is_empty())
            }
            Strategy::Modulo { colours: ByPage::List(pattern) } => {
                const SHOWN: usize = 8;
                let shown: Vec<String> = pattern.iter().take(SHOWN).map(|colour| colour.0.to_string()).collect();
                let more = if pattern.len() > SHOWN { "+…" } else { "" };
                Some(format!("pattern={}{more}", shown.join("+")))
            }
            Strategy::Exact { frames: ByPage::List(frames) } => Some(format!("{} frames", frames.len())),
            Strategy::Modulo { colours: ByPage::Spans(_) } | Strategy::Exact { frames: ByPage::Spans(_) } => {
                Some("a map".to_owned())
            }
            Strategy::Module { path, argument, seed } => {
                let file = path.rsplit('/').next().unwrap_or(path);
                let seed = if *seed == 0 { String::new() } else { format!(",seed={seed}") };
                Some(if argument.is_empty() { format!("{file}{seed}") } else { format!("{file}{seed},{argument}") })
            }
        }
    }
}
