//! Settings of the plugin: the arguments behind `-plugin FILE,`.

use pagelab_trace::{Kind, Kinds, PAGE_BITS};
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::OnceLock;

/// Records that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    References,
    Runs,
}

/// Condition under which references count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// All the time.
    Whole,
    /// From the instruction with this number, for so many.
    Instructions { first: u64, count: u64 },
    /// While the program's marker is on.
    Marker,
}

/// The argument that the plugin itself adds for a program that is executed.
pub const HANDED_ON: &str = "handed-on";

/// The settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of the collector's socket.
    pub socket: String,
    pub mode: Mode,
    pub page_bits: u32,
    pub kinds: Kinds,
    /// Only these addresses; all where empty.
    pub ranges: Vec<Range<u64>>,
    pub window: Window,
    /// End the program where the window ends.
    pub quit: bool,
    /// Follow processes that fork, and programs that they execute.
    pub children: bool,
    /// The socket that the program executed before has left open; or -1.
    pub handed_on: RawFd,
}

impl Config {
    /// Parses `key=value` arguments; an error names the argument.
    pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Config, String> {
        let mut config = Config {
            socket: String::new(),
            mode: Mode::Runs,
            page_bits: 12,
            kinds: Kinds::DATA,
            ranges: Vec::new(),
            window: Window::Whole,
            quit: false,
            children: true,
            handed_on: -1,
        };
        let (mut first, mut count) = (0, u64::MAX);
        for argument in arguments {
            let wrong = || format!("argument {argument}: not understood");
            let (key, value) = argument.split_once('=').ok_or_else(wrong)?;
            let number = || value.parse::<u64>().map_err(|_| wrong());
            match (key, value) {
                ("socket", path) => config.socket = path.to_owned(),
                ("mode", "references") => config.mode = Mode::References,
                ("mode", "runs") => config.mode = Mode::Runs,
                ("page-bits", _) => config.page_bits = number()? as u32,
                ("kinds", names) => config.kinds = kinds(names).ok_or_else(wrong)?,
                ("range", text) => config.ranges.push(range(text).ok_or_else(wrong)?),
                ("first", _) => first = number()?,
                ("count", _) => count = number()?,
                ("marker", "on") => config.window = Window::Marker,
                ("quit", "on") => config.quit = true,
                ("children", "on" | "off") => config.children = value == "on",
                (HANDED_ON, _) => config.handed_on = value.parse().map_err(|_| wrong())?,
                _ => return Err(wrong()),
            }
        }
        if (first, count) != (0, u64::MAX) {
            config.window = Window::Instructions { first, count };
        }
        if config.socket.is_empty() || !PAGE_BITS.contains(&config.page_bits) {
            return Err("socket=PATH and page-bits=4 to 40 are needed".into());
        }
        Ok(config)
    }

    /// Whether an address is to be kept.
    pub fn keeps(&self, address: u64) -> bool {
        self.ranges.is_empty() || self.ranges.iter().any(|range| range.contains(&address))
    }
}

/// Names of kinds, with `+` between them.
fn kinds(names: &str) -> Option<Kinds> {
    names.split('+').try_fold(Kinds::NONE, |kinds, name| {
        Kind::ALL.into_iter().find(|kind| kind.name() == name).map(|kind| kinds.with(kind))
    })
}

/// `LOW-HIGH` in hexadecimal, HIGH excluded.
fn range(text: &str) -> Option<Range<u64>> {
    let (low, high) = text.split_once('-')?;
    Some(u64::from_str_radix(low, 16).ok()?..u64::from_str_radix(high, 16).ok()?)
}

/// Settings that all parts share: written once, when the plugin is installed.
pub struct Shared {
    pub config: Config,
    pub target: String,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

/// Sets the shared settings, once.
pub fn set_shared(shared: Shared) {
    assert!(SHARED.set(shared).is_ok(), "installed twice");
}

/// The shared settings.
#[inline]
pub fn shared() -> &'static Shared {
    SHARED.get().expect("installed")
}
