//! Writing plans (the launcher's side; allocates).

use alloc::vec::Vec;

use super::{
    Fetch, Flags, HEADER_BYTES, INTERVAL_BYTES, Interval, MAGIC, Memory, Plan, PlanError, SECTION_BYTES,
    STRATEGY_BYTES, Section, Span, Strategy, StrategyKind, VERSION, Via,
};

/// One section to be written, with its intervals (sorted, disjoint, aligned to their page sizes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionSpec {
    /// See [`Section::memory`].
    pub memory: Memory,
    /// See [`Section::at_least`].
    pub at_least: u64,
    /// See [`Section::pool_base`].
    pub pool_base: u64,
    /// See [`Section::otherwise`].
    pub otherwise: u64,
    /// See [`Section::otherwise_via`].
    pub otherwise_via: Via,
    /// See [`Section::fetch`].
    pub fetch: Fetch,
    /// See [`Section::rule`].
    pub rule: u16,
    /// See [`Section::frames`].
    pub frames: u16,
    /// See [`Section::range_start`]; `None` except for [`Memory::Range`].
    pub range: Option<(u64, u64)>,
    /// Its intervals.
    pub intervals: Vec<Interval>,
}

impl SectionSpec {
    /// A section that gives all memory of one kind one page size, without a pool, and leaves `fetch` to the kernel.
    pub fn uniform(memory: Memory, page_bytes: u64, via: Via) -> SectionSpec {
        let pool_base = match memory {
            Memory::Heap => super::HEAP_BASE,
            Memory::Anon | Memory::Arenas => super::ANON_BASE,
            _ => 0,
        };
        SectionSpec {
            memory,
            at_least: 0,
            pool_base,
            otherwise: page_bytes,
            otherwise_via: via,
            fetch: Fetch::Kernel,
            rule: 0,
            frames: 0,
            range: None,
            intervals: Vec::new(),
        }
    }

    /// Whether a reader sees the same contents in `section`.
    pub fn matches(&self, section: &Section) -> bool {
        section.memory == self.memory
            && section.at_least == self.at_least
            && section.pool_base == self.pool_base
            && section.otherwise == self.otherwise
            && section.otherwise_via == self.otherwise_via
            && section.fetch == self.fetch
            && section.rule == self.rule
            && section.frames == self.frames
            && (section.range_start, section.range_end) == self.range.unwrap_or((0, 0))
            && section.interval_count() as usize == self.intervals.len()
    }
}

/// One strategy to be written; see [`Strategy`] for the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategySpec {
    /// Its kind.
    pub kind: StrategyKind,
    /// Placed pages are locked in memory.
    pub pin: bool,
    /// Colours are turned by a hash of the process id.
    pub pid_hash: bool,
    /// Most pages placed for one fault; 0: the strategy decides.
    pub fault_around: u16,
    /// Number of colours.
    pub colours: u32,
    /// Colour of the first page.
    pub first: u32,
    /// Seed of the strategy's random draws.
    pub seed: u64,
    /// Bytes that the pool may hold besides the placed pages.
    pub budget_bytes: u64,
    /// Colour function, one mask a bit.
    pub masks: Vec<u64>,
    /// Values of pages: colours or frame numbers.
    pub values: Vec<u64>,
    /// Spans of pages with values, sorted and disjoint.
    pub spans: Vec<Span>,
    /// Path of a module.
    pub module: Vec<u8>,
    /// Argument of a module.
    pub argument: Vec<u8>,
}

impl StrategySpec {
    /// A strategy without lists, pins or seeds.
    pub fn new(kind: StrategyKind, colours: u32) -> StrategySpec {
        StrategySpec {
            kind,
            pin: false,
            pid_hash: false,
            fault_around: 0,
            colours,
            first: 0,
            seed: 0,
            budget_bytes: 0,
            masks: Vec::new(),
            values: Vec::new(),
            spans: Vec::new(),
            module: Vec::new(),
            argument: Vec::new(),
        }
    }

    /// Whether a reader sees the same in strategy `read` of `plan`.
    pub fn matches(&self, plan: &Plan<'_>, read: &Strategy) -> bool {
        let spans: Option<Vec<Span>> = (0..read.span_count()).map(|index| plan.span(read, index)).collect();
        (read.kind, read.pin, read.pid_hash, read.fault_around)
            == (self.kind, self.pin, self.pid_hash, self.fault_around)
            && (read.colours, read.first, read.seed, read.budget_bytes)
                == (self.colours, self.first, self.seed, self.budget_bytes)
            && plan.words(read.masks).iter().eq(self.masks.iter().copied())
            && plan.words(read.values).iter().eq(self.values.iter().copied())
            && spans.as_ref() == Some(&self.spans)
            && plan.module(read) == self.module
            && plan.argument(read) == self.argument
    }
}

/// A compiled policy: the part of a plan that is the same in every run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanSpec {
    /// See [`Flags`]; those that a run adds are in [`RunSpec`].
    pub flags: Flags,
    /// Its sections, in rule order.
    pub sections: Vec<SectionSpec>,
    /// Number of rules of the policy; sections with this [`SectionSpec::rule`] are its default's.
    pub rules: u16,
    /// The list that [`SectionSpec::frames`] indexes.
    pub strategies: Vec<StrategySpec>,
}

/// The additions of one run to a compiled policy. They set what the policy leaves open, and change nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSpec {
    /// Absolute path of the run directory, where guests create their files.
    pub run_dir: Vec<u8>,
    /// [`Flags::MEASURE`] and [`Flags::RESIDENCY`], where the run wants them.
    pub flags: Flags,
    /// Most bytes that a strategy's pool may hold, by the strategy's number; used where the policy names none
    /// ([`Strategy`]).
    pub budgets: Vec<u64>,
    /// Path from which a strategy's module is loaded, by the strategy's number; empty: as the policy has it.
    pub modules: Vec<Vec<u8>>,
}

impl RunSpec {
    /// Bytes that strategy `number` of the plan may hold besides its placed pages; 0: the library decides.
    fn budget(&self, number: usize, strategy: &StrategySpec) -> u64 {
        match strategy.budget_bytes {
            0 => self.budgets.get(number).copied().unwrap_or(0),
            named => named,
        }
    }

    fn module<'s>(&'s self, number: usize, strategy: &'s StrategySpec) -> &'s [u8] {
        self.modules.get(number).filter(|path| !path.is_empty()).unwrap_or(&strategy.module)
    }
}

impl PlanSpec {
    /// The file's bytes for one run; they are read back and checked before they are returned.
    pub fn encode(&self, run: &RunSpec) -> Result<Vec<u8>, PlanError> {
        let intervals: usize = self.sections.iter().map(|section| section.intervals.len()).sum();
        let mut table = Vec::new();
        let mut strategies = Vec::with_capacity(self.strategies.len() * STRATEGY_BYTES);
        for (number, strategy) in self.strategies.iter().enumerate() {
            let (budget, module) = (run.budget(number, strategy), run.module(number, strategy));
            encode_strategy(&mut strategies, &mut table, strategy, budget, module)?;
        }
        let total = HEADER_BYTES
            + self.sections.len() * SECTION_BYTES
            + intervals * INTERVAL_BYTES
            + strategies.len()
            + table.len() * 8
            + run.run_dir.len()
            + 1;
        let mut out = Vec::with_capacity(total);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.flags | run.flags).0.to_le_bytes());
        out.extend((total as u64).to_le_bytes());
        let counts = [self.sections.len(), intervals, run.run_dir.len(), self.strategies.len(), table.len()];
        for count in counts {
            out.extend(counted(count)?.to_le_bytes());
        }
        out.extend(u32::from(self.rules).to_le_bytes());
        out.resize(HEADER_BYTES, 0);
        let mut first = 0;
        for section in &self.sections {
            encode_section(&mut out, section, first);
            first += section.intervals.len() as u32;
        }
        for interval in self.sections.iter().flat_map(|section| &section.intervals) {
            for word in [interval.start, interval.end, interval.page_bytes, interval.via as u64] {
                out.extend(word.to_le_bytes());
            }
        }
        out.extend(&strategies);
        out.extend(table.iter().flat_map(|word: &u64| word.to_le_bytes()));
        out.extend(&run.run_dir);
        out.push(0);
        Plan::parse(&out)?;
        Ok(out)
    }
}

fn counted(count: usize) -> Result<u32, PlanError> {
    u32::try_from(count).map_err(|_| PlanError::Invalid("count", u32::MAX))
}

fn encode_section(out: &mut Vec<u8>, section: &SectionSpec, first: u32) {
    let end = out.len() + SECTION_BYTES;
    out.extend([section.memory as u8, section.otherwise_via as u8, section.fetch as u8, 0]);
    out.extend(section.rule.to_le_bytes());
    out.extend(section.frames.to_le_bytes());
    let (range_start, range_end) = section.range.unwrap_or((0, 0));
    for word in [section.at_least, section.pool_base, section.otherwise, range_start, range_end] {
        out.extend(word.to_le_bytes());
    }
    out.extend(first.to_le_bytes());
    out.extend((section.intervals.len() as u32).to_le_bytes());
    out.resize(end, 0);
}

/// Writes the fixed part to `out`, and the lists and texts to the end of `table`.
fn encode_strategy(
    out: &mut Vec<u8>,
    table: &mut Vec<u64>,
    strategy: &StrategySpec,
    budget_bytes: u64,
    module: &[u8],
) -> Result<(), PlanError> {
    let end = out.len() + STRATEGY_BYTES;
    out.extend([strategy.kind as u8, u8::from(strategy.pin), u8::from(strategy.pid_hash), 0]);
    out.extend(strategy.fault_around.to_le_bytes());
    out.extend([0, 0]);
    out.extend(strategy.colours.to_le_bytes());
    out.extend(strategy.first.to_le_bytes());
    out.extend(strategy.seed.to_le_bytes());
    out.extend(budget_bytes.to_le_bytes());
    let spans: Vec<u64> =
        strategy.spans.iter().flat_map(|span| [span.start, span.pages, span.first_value]).collect();
    for words in [&strategy.masks, &strategy.values, &spans] {
        let first = if words.is_empty() { 0 } else { counted(table.len())? };
        out.extend(first.to_le_bytes());
        out.extend(counted(words.len())?.to_le_bytes());
        table.extend(words);
    }
    for text in [module, &strategy.argument] {
        let first = if text.is_empty() { 0 } else { counted(table.len())? };
        out.extend(first.to_le_bytes());
        out.extend(counted(text.len())?.to_le_bytes());
        if !text.is_empty() {
            let mut padded = text.to_vec();
            padded.resize((text.len() / 8 + 1) * 8, 0);
            table.extend(padded.chunks_exact(8).map(|raw| super::u64_at(raw, 0).unwrap_or(0)));
        }
    }
    out.resize(end, 0);
    Ok(())
}
