//! From a validated [`Policy`] to the compiled [`plan`]: rules and defaults resolved for each kind of memory.
//!
//! The plan has one section for each kind of memory and each size threshold at which the answer changes, the highest
//! threshold first, so that the first section that fits a mapping is the right one.

mod strategies;

use crate::error::{Place, PolicyError};
use crate::machine::Machine;
use crate::plan::{self, BASE_PAGE, Flags, Interval, PlanSpec, SectionSpec};
use crate::types::{Backend, Backing, Fetch, Memory, Pages, Policy, Rule, Scope, Via};
use crate::units::PageSize;
use crate::validate::{applies_to, frames_obstacle};
use pagelab_contract::warning::{RunWarning, Severity, WarningKind};

/// Resolves `policy` for `machine`. The additions of a run have another type, [`crate::plan::RunSpec`], and are added
/// when the plan is written. Under [`Backend::Kernel`] the plan has no frames: [`crate::hints::hints`] returns those.
///
/// # Errors
/// More separate pools or strategies than the plan has room for, and colours without a number.
pub fn compile(policy: &Policy, machine: &Machine) -> Result<PlanSpec, PolicyError> {
    match policy.backend {
        Backend::Kernel => compile_all(&policy.without_frames(), machine),
        Backend::Library | Backend::Auto => compile_all(policy, machine),
    }
}

/// Compiles the plan with all strategies, whichever backend is to carry them out.
pub(crate) fn compile_all(policy: &Policy, machine: &Machine) -> Result<PlanSpec, PolicyError> {
    let compiler = Compiler { policy, machine };
    let mut sections = Vec::new();
    let governing = if policy.is_kernel() { &[][..] } else { &policy.rules[..] };
    for (number, rule) in governing.iter().enumerate() {
        if let Scope::Range { start, end } = rule.scope {
            sections.push(compiler.range_section(number, (start.0, end.0)));
        }
    }
    for memory in Memory::ALL {
        sections.extend(compiler.sections(memory));
    }
    assign_pools(&mut sections, policy)?;
    let strategies = strategies::assign(&mut sections, policy, machine)?;
    let switches = [
        (policy.inherit.fork, Flags::INHERIT_FORK),
        (policy.inherit.exec, Flags::INHERIT_EXEC),
        (sections.iter().any(|section| uses_mthp(section, machine)), Flags::MTHP_SWITCHES),
    ];
    let flags = switches.into_iter().filter(|(on, _)| *on).fold(Flags(0), |flags, (_, flag)| flags | flag);
    let rules = u16::try_from(policy.rules.len()).unwrap_or(u16::MAX);
    Ok(PlanSpec { flags, sections, rules, strategies })
}

fn uses_mthp(section: &SectionSpec, machine: &Machine) -> bool {
    let sizes = section.intervals.iter().map(|interval| interval.page_bytes).chain([section.otherwise]);
    sizes.filter_map(PageSize::new).any(|size| machine.mthp_bytes.contains(&size))
}

/// The source of an axis: a rule by number, or the default, which counts as one past the last rule.
struct Decision<T> {
    rule: usize,
    value: T,
}

struct Compiler<'p> {
    policy: &'p Policy,
    machine: &'p Machine,
}

impl<'p> Compiler<'p> {
    fn sections(&self, memory: Memory) -> Vec<SectionSpec> {
        let mut thresholds: Vec<u64> = vec![0];
        for rule in self.policy.rules.iter().filter(|rule| memory.has_mappings() && rule_covers(rule, memory)) {
            thresholds.extend(rule.at_least.map(|bytes| bytes.0));
        }
        thresholds.sort_unstable_by(|a, b| b.cmp(a));
        thresholds.dedup();
        let mut sections: Vec<_> = thresholds.into_iter().map(|least| self.section(memory, least)).collect();
        while sections.last().is_some_and(leaves_all_to_the_kernel) {
            sections.pop();
        }
        sections
    }

    /// The section for mappings of `memory` with at least `least` bytes, up to the next threshold.
    fn section(&self, memory: Memory, least: u64) -> SectionSpec {
        let pages = self.pages(memory, least);
        let fetch = self.fetch(memory, least);
        let frames = self.frames(memory, least);
        let (pages_value, via) = pages.value;
        let rule = match (pages_value, frames.value) {
            (Pages::Kernel, None) => fetch.rule,
            (Pages::Kernel, Some(_)) => frames.rule,
            _ => pages.rule,
        };
        let spec = self.spec(plan_memory(memory), pages_value, via, fetch.value, rule);
        SectionSpec { at_least: least, frames: frames.value.unwrap_or(0), ..spec }
    }

    fn range_section(&self, number: usize, range: (u64, u64)) -> SectionSpec {
        let inside = |rule: &&Rule| match rule.scope {
            Scope::Range { start, end } => start.0 <= range.0 && range.1 <= end.0,
            Scope::All => rule.at_least.is_none(),
            Scope::Memory(_) => false,
        };
        let rules = || self.policy.rules.iter().filter(inside);
        let pages = rules().find_map(|rule| Some((rule.pages.as_ref()?, rule.via.unwrap_or(self.policy.via))));
        let (pages, via) = pages.unwrap_or((&self.policy.pages, self.policy.via));
        // Offsets of a mosaic count in a pool, and a range has none; defaults that do not fit leave the range to the
        // kernel.
        let pages = match pages {
            Pages::Size(size) if self.fits_range(*size, via, range) => pages,
            _ => &Pages::Kernel,
        };
        let fetch = rules().find_map(|rule| rule.fetch).unwrap_or(self.policy.fetch);
        let named = self.policy.rules.iter().enumerate().filter(|(_, rule)| inside(rule));
        let frames = self.decide_frames(named).value.unwrap_or(0);
        SectionSpec { range: Some(range), frames, ..self.spec(plan::Memory::Range, pages, via, fetch, number) }
    }

    fn fits_range(&self, size: PageSize, via: Via, range: (u64, u64)) -> bool {
        self.machine.effective_via(size, via) == Via::Thp && size.aligns(range.0) && size.aligns(range.1)
    }

    fn spec(&self, memory: plan::Memory, pages: &Pages, via: Via, fetch: Fetch, rule: usize) -> SectionSpec {
        let plan_via = |size| plan_via(self.machine.effective_via(size, via));
        let (otherwise, intervals) = match pages {
            Pages::Kernel => (None, Vec::new()),
            Pages::Size(size) => (Some(*size), Vec::new()),
            Pages::Mosaic(mosaic) => {
                let interval = |tile: &crate::types::Tile| Interval {
                    start: tile.start.0,
                    end: tile.end.0,
                    page_bytes: tile.size.bytes(),
                    via: plan_via(tile.size),
                };
                let otherwise = match mosaic.otherwise {
                    Backing::Kernel => None,
                    Backing::Size(size) => Some(size),
                };
                (otherwise, mosaic.tiles.iter().map(interval).collect())
            }
        };
        SectionSpec {
            memory,
            at_least: 0,
            pool_base: 0,
            otherwise: otherwise.map_or(plan::KERNEL, PageSize::bytes),
            otherwise_via: otherwise.map_or(plan::Via::Thp, plan_via),
            fetch: plan_fetch(fetch),
            rule: u16::try_from(rule).unwrap_or(u16::MAX),
            frames: 0,
            range: None,
            intervals,
        }
    }

    /// Rules that apply to mappings of `memory` with `least` bytes, by number.
    fn matching(&self, memory: Memory, least: u64) -> impl Iterator<Item = (usize, &'p Rule)> + use<'p> {
        let fits = move |rule: &Rule| match rule.at_least {
            None => rule_covers(rule, memory),
            Some(bytes) => bytes.0 <= least && memory.has_mappings() && rule_covers(rule, memory),
        };
        self.policy.rules.iter().enumerate().filter(move |(_, rule)| fits(rule))
    }

    fn pages(&self, memory: Memory, least: u64) -> Decision<(&'p Pages, Via)> {
        let default = (self.policy.rules.len(), Scope::All, &self.policy.pages, self.policy.via);
        let named = self.matching(memory, least).filter_map(|(number, rule)| {
            Some((number, rule.scope, rule.pages.as_ref()?, rule.via.unwrap_or(self.policy.via)))
        });
        let fitting = named
            .chain([default])
            .find(|(_, scope, pages, via)| *scope != Scope::All || applies_to(pages, memory, *via, self.machine));
        match fitting {
            Some((rule, _, pages, via)) => Decision { rule, value: (pages, via) },
            None => Decision { rule: self.policy.rules.len(), value: (&Pages::Kernel, self.policy.via) },
        }
    }

    /// The number of a strategy in the form for [`strategies::assign`]; `None`: the kernel.
    fn frames(&self, memory: Memory, least: u64) -> Decision<Option<u16>> {
        if frames_obstacle(memory).is_some() {
            return Decision { rule: self.policy.rules.len(), value: None };
        }
        self.decide_frames(self.matching(memory, least))
    }

    fn decide_frames<'r>(&self, rules: impl Iterator<Item = (usize, &'r Rule)>) -> Decision<Option<u16>> {
        let mut named = rules.filter_map(|(number, rule)| Some((number, rule.frames.as_ref()?)));
        let (rule, frames) = named.next().unwrap_or((self.policy.rules.len(), &self.policy.frames));
        let number = u16::try_from(rule + 1).unwrap_or(u16::MAX);
        Decision { rule, value: (!frames.is_kernel()).then_some(number) }
    }

    fn fetch(&self, memory: Memory, least: u64) -> Decision<Fetch> {
        let named = self.matching(memory, least).filter_map(|(number, rule)| Some((number, rule.fetch?)));
        let default = (self.policy.rules.len(), self.policy.fetch);
        let from_file = matches!(memory, Memory::File | Memory::Data);
        let fitting = named.chain([default]).find(|(_, fetch)| from_file || *fetch != Fetch::Willneed);
        let (rule, value) = fitting.unwrap_or((self.policy.rules.len(), Fetch::Kernel));
        Decision { rule, value }
    }
}

/// Gives each pair of rules that govern the pages and the frames of anonymous memory its own pool, in the order of the
/// rules: offsets of one rule's mosaic must not meet memory of another's, and a pool has one strategy.
fn assign_pools(sections: &mut [SectionSpec], policy: &Policy) -> Result<(), PolicyError> {
    let governs_pages = |section: &SectionSpec| section.otherwise != plan::KERNEL || !section.intervals.is_empty();
    let governs = |section: &SectionSpec| governs_pages(section) || section.frames != 0;
    let anonymous = |section: &SectionSpec| matches!(section.memory, plan::Memory::Anon | plan::Memory::Arenas);
    let owner = |section: &SectionSpec| (section.rule, section.frames, governs_pages(section));
    let mut owners: Vec<_> = sections.iter().filter(|s| anonymous(s) && governs(s)).map(owner).collect();
    owners.sort_unstable();
    owners.dedup();
    if owners.len() > plan::MAX_ANON_POOLS {
        let place = Place::whole(&format!("policy {:?}", policy.name));
        let message =
            format!("more than {} rules give `anon` or `arenas` a page size or frames", plan::MAX_ANON_POOLS);
        return Err(PolicyError::new(&place, message));
    }
    for section in sections.iter_mut().filter(|section| governs(section)) {
        if section.memory == plan::Memory::Heap {
            section.pool_base = plan::HEAP_BASE;
        } else if anonymous(section) {
            let index = owners.iter().position(|other| *other == owner(section)).unwrap_or(0);
            section.pool_base = plan::ANON_BASE + index as u64 * plan::POOL_BYTES;
        }
    }
    Ok(())
}

fn rule_covers(rule: &Rule, memory: Memory) -> bool {
    match rule.scope {
        Scope::All => true,
        Scope::Memory(set) => set.contains(memory),
        Scope::Range { .. } => false,
    }
}

fn leaves_all_to_the_kernel(section: &SectionSpec) -> bool {
    section.otherwise == plan::KERNEL
        && section.intervals.is_empty()
        && section.fetch == plan::Fetch::Kernel
        && section.frames == 0
}

fn plan_memory(memory: Memory) -> plan::Memory {
    match memory {
        Memory::Heap => plan::Memory::Heap,
        Memory::Anon => plan::Memory::Anon,
        Memory::Arenas => plan::Memory::Arenas,
        Memory::File => plan::Memory::File,
        Memory::Data => plan::Memory::Data,
        Memory::Stack => plan::Memory::Stack,
    }
}

fn plan_via(via: Via) -> plan::Via {
    match via {
        Via::Thp => plan::Via::Thp,
        Via::Hugetlb => plan::Via::Hugetlb,
    }
}

fn plan_fetch(fetch: Fetch) -> plan::Fetch {
    match fetch {
        Fetch::Kernel => plan::Fetch::Kernel,
        Fetch::Demand => plan::Fetch::Demand,
        Fetch::Prefault => plan::Fetch::Prefault,
        Fetch::Willneed => plan::Fetch::WillNeed,
    }
}

/// Remarks on a compiled plan before it runs; they are no errors.
#[must_use]
pub fn warnings(plan: &PlanSpec) -> Vec<RunWarning> {
    tiles_under_frames(plan).into_iter().collect()
}

/// Warns of tiles above the base page under a strategy: their frames are the kernel's choice.
fn tiles_under_frames(plan: &PlanSpec) -> Option<RunWarning> {
    let has_tiles = |section: &&SectionSpec| {
        section.frames != 0
            && (section.otherwise > BASE_PAGE || section.intervals.iter().any(|tile| tile.page_bytes > BASE_PAGE))
    };
    let mut kinds: Vec<&str> =
        plan.sections.iter().filter(has_tiles).map(|section| section.memory.name()).collect();
    kinds.dedup();
    if kinds.is_empty() {
        return None;
    }
    let message = format!(
        "`pages` gives tiles larger than 4K to memory that `frames` is for ({}): these tiles keep their size and are \
         not placed; a tile of contiguous frames has every colour in order all the same",
        kinds.join(", ")
    );
    let warning = RunWarning::new(WarningKind::FramesOutOfReach, Severity::Info, message);
    Some(warning.with("reason", "larger-page").with("memory", kinds))
}
