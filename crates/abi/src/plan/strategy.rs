//! Strategies of a plan, and the table of words that contains their lists.

use super::{BASE_PAGE, MAX_STRATEGIES, MOST_COLOURS, Parameter, Plan, PlanError, STRATEGY_BYTES, StrategyKind};
use super::{u16_at, u32_at, u64_at};

/// [`Strategy::first`]: the first colour is drawn from the seed.
pub const FIRST_FROM_SEED: u32 = u32::MAX;
/// An entry of [`Strategy::values`] for a page that may lie on any frame.
pub const ANYWHERE: u64 = u64::MAX;
/// Largest frame number: 52 bits of physical address.
const LARGEST_FRAME: u64 = (1 << 40) - 1;
/// One past the highest address that a program can have with five-level page tables.
const ADDRESS_END: u64 = 1 << 56;

/// Words `[first, first + count)` of the plan's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordRange {
    first: u32,
    count: u32,
}

/// A text: `bytes` bytes from word `first` on, followed by at least one zero byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    first: u32,
    bytes: u32,
}

/// The choice of frames for pages; its lists are read through the plan ([`Plan::words`], [`Plan::span`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Its kind.
    pub kind: StrategyKind,
    /// Placed pages are locked in memory, so that swap and compaction leave them.
    pub pin: bool,
    /// [`Parameter::Hash`]: colours are turned by a hash of the process id.
    pub pid_hash: bool,
    /// Most pages placed for one fault; 0: the strategy decides.
    pub fault_around: u16,
    /// Number of colours, 1 to [`MOST_COLOURS`].
    pub colours: u32,
    /// [`Parameter::First`]: colour of the first page, or [`FIRST_FROM_SEED`].
    pub first: u32,
    /// Seed of the strategy's random draws.
    pub seed: u64,
    /// Bytes that the pool may hold besides the placed pages; 0: as the strategy needs.
    pub budget_bytes: u64,
    /// Bit i of a frame's colour is the parity of `frame & masks[i]`; none: the colour is `frame % colours`.
    pub masks: WordRange,
    /// [`StrategyKind::Modulo`]: colours; [`StrategyKind::Exact`]: frame numbers; [`ANYWHERE`]: any frame.
    pub values: WordRange,
    spans: WordRange,
    module: Text,
    argument: Text,
}

/// Neighbouring pages that have entries in [`Strategy::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Address of the first page.
    pub start: u64,
    /// Number of pages.
    pub pages: u64,
    /// Index in `values` of the first page's entry; the others follow.
    pub first_value: u64,
}

/// Words read in place, little-endian, of any alignment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// The words in `bytes`; an incomplete last one does not count.
    pub const fn new(bytes: &'a [u8]) -> Words<'a> {
        Words(bytes)
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.0.len() / 8
    }

    /// Whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.0.len() < 8
    }

    /// Word `index`.
    pub fn get(&self, index: usize) -> Option<u64> {
        u64_at(self.0, index.checked_mul(8)?)
    }

    /// All words, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.0.chunks_exact(8).map(|raw| u64_at(raw, 0).unwrap_or(0))
    }
}

impl WordRange {
    /// Number of words.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Strategy {
    /// A strategy without lists, pins or seeds, for the program's own hints; no plan names it.
    pub fn plain(kind: StrategyKind, colours: u32) -> Strategy {
        Strategy {
            kind,
            pin: false,
            pid_hash: false,
            fault_around: 0,
            colours,
            first: 0,
            seed: 0,
            budget_bytes: 0,
            masks: WordRange::default(),
            values: WordRange::default(),
            spans: WordRange::default(),
            module: Text::default(),
            argument: Text::default(),
        }
    }

    /// Number of its spans; 0: `values` repeat over the virtual pages (page number modulo their count).
    pub fn span_count(&self) -> u32 {
        self.spans.count / 3
    }
}

impl<'a> Plan<'a> {
    /// Number of strategies.
    pub fn strategy_count(&self) -> u32 {
        self.strategies
    }

    /// Whether any section has a strategy: if not, the process needs nothing for frame placement.
    pub fn governs_frames(&self) -> bool {
        self.strategies > 0
            && (0..self.sections).any(|number| self.section(number).is_some_and(|section| section.governs_frames()))
    }

    /// Strategy `number`; see [`super::Section::strategy`].
    pub fn strategy(&self, number: u32) -> Option<Strategy> {
        if number >= self.strategies {
            return None;
        }
        let at = self.strategies_at() + number as usize * STRATEGY_BYTES;
        let raw = self.bytes.get(at..at + STRATEGY_BYTES)?;
        let switch = |at: usize| match raw.get(at) {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        };
        let range = |at| Some(WordRange { first: u32_at(raw, at)?, count: u32_at(raw, at + 4)? });
        let text = |at| Some(Text { first: u32_at(raw, at)?, bytes: u32_at(raw, at + 4)? });
        Some(Strategy {
            kind: StrategyKind::from_code(u64::from(*raw.first()?))?,
            pin: switch(1)?,
            pid_hash: switch(2)?,
            fault_around: u16_at(raw, 4)?,
            colours: u32_at(raw, 8)?,
            first: u32_at(raw, 12)?,
            seed: u64_at(raw, 16)?,
            budget_bytes: u64_at(raw, 24)?,
            masks: range(32)?,
            values: range(40)?,
            spans: range(48)?,
            module: text(56)?,
            argument: text(64)?,
        })
    }

    /// The words of one list; none where the range lies outside the table.
    pub fn words(&self, range: WordRange) -> Words<'a> {
        let at = self.words_at() + range.first as usize * 8;
        let inside = u64::from(range.first) + u64::from(range.count) <= u64::from(self.words);
        Words(self.bytes.get(at..at + range.count as usize * 8).filter(|_| inside).unwrap_or(&[]))
    }

    /// Span `index` of a strategy, in order of addresses.
    pub fn span(&self, strategy: &Strategy, index: u32) -> Option<Span> {
        let words = self.words(strategy.spans);
        let at = index as usize * 3;
        Some(Span { start: words.get(at)?, pages: words.get(at + 1)?, first_value: words.get(at + 2)? })
    }

    /// The spans of a strategy as words: of each one its start address, its pages, and the index of its first value.
    pub fn span_words(&self, strategy: &Strategy) -> Words<'a> {
        self.words(strategy.spans)
    }

    /// Path of the shared object that a [`StrategyKind::Module`] loads, without its NUL (which follows it in memory).
    pub fn module(&self, strategy: &Strategy) -> &'a [u8] {
        self.text(strategy.module)
    }

    /// The argument that the module gets, without its NUL (which follows it in memory).
    pub fn argument(&self, strategy: &Strategy) -> &'a [u8] {
        self.text(strategy.argument)
    }

    fn text(&self, text: Text) -> &'a [u8] {
        let words = WordRange { first: text.first, count: text.bytes / 8 + 1 };
        let raw: &'a [u8] = self.words(words).0;
        raw.get(..text.bytes as usize).unwrap_or(&[])
    }

    pub(super) fn check_strategies(&self) -> Result<(), PlanError> {
        if self.strategies as usize > MAX_STRATEGIES {
            return Err(PlanError::Invalid("number of strategies", self.strategies));
        }
        for number in 0..self.strategies {
            let invalid = |what| PlanError::Invalid(what, number);
            let strategy = self.strategy(number).ok_or(invalid("strategy"))?;
            if !(1..=MOST_COLOURS).contains(&strategy.colours) {
                return Err(invalid("number of colours"));
            }
            let drawn = strategy.kind.takes(Parameter::First) && strategy.first == FIRST_FROM_SEED;
            if strategy.first >= strategy.colours && !drawn {
                return Err(invalid("first colour"));
            }
            self.check_lists(&strategy).map_err(invalid)?;
            self.check_spans(&strategy).map_err(invalid)?;
            self.check_texts(&strategy).map_err(invalid)?;
        }
        Ok(())
    }

    fn check_lists(&self, strategy: &Strategy) -> Result<(), &'static str> {
        let (masks, values) = (self.words(strategy.masks), self.words(strategy.values));
        if masks.len() != strategy.masks.count as usize || values.len() != strategy.values.count as usize {
            return Err("word table");
        }
        let colours = u32::try_from(masks.len()).ok().and_then(|count| 1u32.checked_shl(count));
        if !masks.is_empty() && (colours != Some(strategy.colours) || masks.iter().any(|mask| mask == 0)) {
            return Err("colour masks");
        }
        let most = match strategy.kind {
            StrategyKind::Modulo => u64::from(strategy.colours) - 1,
            StrategyKind::Exact => LARGEST_FRAME,
            _ if values.is_empty() => return Ok(()),
            _ => return Err("values"),
        };
        if values.is_empty() || values.iter().any(|value| value > most && value != ANYWHERE) {
            return Err("values");
        }
        Ok(())
    }

    fn check_spans(&self, strategy: &Strategy) -> Result<(), &'static str> {
        let words = self.words(strategy.spans);
        if words.len() != strategy.spans.count as usize || !words.len().is_multiple_of(3) {
            return Err("span table");
        }
        if words.is_empty() {
            return if strategy.kind == StrategyKind::Exact { Err("span table") } else { Ok(()) };
        }
        if !matches!(strategy.kind, StrategyKind::Modulo | StrategyKind::Exact) {
            return Err("span table");
        }
        let mut last = 0;
        for index in 0..strategy.span_count() {
            let span = self.span(strategy, index).ok_or("span")?;
            let end = span.pages.checked_mul(BASE_PAGE).and_then(|bytes| bytes.checked_add(span.start));
            let last_value = span.first_value.checked_add(span.pages);
            if !span.start.is_multiple_of(BASE_PAGE)
                || span.start < last
                || span.pages == 0
                || end.is_none_or(|end| end > ADDRESS_END)
                || last_value.is_none_or(|end| end > u64::from(strategy.values.count))
            {
                return Err("span");
            }
            last = end.unwrap_or(ADDRESS_END);
        }
        Ok(())
    }

    fn check_texts(&self, strategy: &Strategy) -> Result<(), &'static str> {
        let is_module = strategy.kind == StrategyKind::Module;
        for (text, wanted) in [(strategy.module, is_module), (strategy.argument, false)] {
            let bytes = self.text(text);
            if bytes.len() != text.bytes as usize || bytes.contains(&0) || (wanted && bytes.is_empty()) {
                return Err("module");
            }
            let terminator = self.words(WordRange { first: text.first, count: text.bytes / 8 + 1 });
            let ended = text.bytes == 0 || terminator.0.get(text.bytes as usize) == Some(&0);
            if !ended || (!is_module && text != Text::default()) {
                return Err("module");
            }
        }
        Ok(())
    }
}
