//! A policy as written: plain text with its place; only the shape is checked.

use crate::error::Place;
use crate::framemap::FrameMap;

/// A value and its place in the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its place in the input.
    pub place: Place,
}

impl<T> At<T> {
    /// A value at a place.
    pub fn new(value: T, place: &Place) -> At<T> {
        At { value, place: place.clone() }
    }
}

/// Axis `frames` with its parameters, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawFrames {
    /// Name of the strategy.
    pub kind: At<String>,
    /// Parameters by name: one text, or a list of them.
    pub parameters: Vec<(At<String>, Vec<At<String>>)>,
    /// The contents of the saved map that the parameter `map` names.
    pub map: Option<At<FrameMap>>,
}

/// One interval of a mosaic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawTile {
    /// Offset of its first byte.
    pub start: String,
    /// Offset one past its last byte.
    pub end: String,
    /// Page size.
    pub size: String,
}

/// A list of intervals with page sizes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawMosaic {
    /// The intervals, in the order they were written.
    pub tiles: Vec<At<RawTile>>,
    /// The page size elsewhere.
    pub otherwise: Option<At<String>>,
}

/// Axis `pages` as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawPages {
    /// `kernel` or a size.
    Word(String),
    /// A mosaic.
    Mosaic(RawMosaic),
    /// The contents of a Mosalloc layout.
    Layout(RawLayout),
}

/// A Mosalloc layout: one mosaic for each pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawLayout {
    /// For the heap.
    pub brk: Option<RawMosaic>,
    /// For anonymous mappings and arenas.
    pub mmap: Option<RawMosaic>,
    /// For file mappings.
    pub file: Option<RawMosaic>,
}

/// The values of a policy, or of one of its rules, on each axis.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawAxes {
    /// Which frames pages get.
    pub frames: Option<At<RawFrames>>,
    /// How large pages are.
    pub pages: Option<At<RawPages>>,
    /// Method of making tiles.
    pub via: Option<At<String>>,
    /// When pages come in.
    pub fetch: Option<At<String>>,
}

impl RawAxes {
    /// Whether no axis is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_none() && self.pages.is_none() && self.via.is_none() && self.fetch.is_none()
    }
}

/// Memory of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawScope {
    /// Kinds of memory by name, `all` among them.
    Memory(Vec<At<String>>),
    /// Start and end of a range of addresses.
    Range(At<String>, At<String>),
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRule {
    /// Place of the rule.
    pub place: Place,
    /// Its memory.
    pub scope: RawScope,
    /// Least size of a mapping.
    pub at_least: Option<At<String>>,
    /// Its values.
    pub axes: RawAxes,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPolicy {
    /// The input as a whole.
    pub place: Place,
    /// Its name, if one was given.
    pub name: Option<At<String>>,
    /// The default values.
    pub axes: RawAxes,
    /// The placer of frames.
    pub backend: Option<At<String>>,
    /// Inheritance over fork.
    pub inherit_fork: Option<bool>,
    /// Inheritance over exec.
    pub inherit_exec: Option<bool>,
    /// Rules in order of precedence.
    pub rules: Vec<RawRule>,
}

impl RawPolicy {
    /// A policy without values.
    #[must_use]
    pub fn empty(place: &Place) -> RawPolicy {
        RawPolicy {
            place: place.clone(),
            name: None,
            axes: RawAxes::default(),
            backend: None,
            inherit_fork: None,
            inherit_exec: None,
            rules: Vec::new(),
        }
    }
}
