//! From a validated [`Policy`] to hints for a kernel with page placement (`kernel/`).
//!
//! The launcher sets the hints before the program's exec. Two kinds of hints survive an exec: a strategy for each kind
//! of a process's own memory, and one for the pages that it brings into the page cache. Programs that it executes have
//! them, too. A policy that needs more than this is refused.

use crate::compile::compile_all;
use crate::error::{Place, PolicyError};
use crate::frames::Strategy;
use crate::machine::Machine;
use crate::plan::{self, PlanSpec, SectionSpec, StrategyKind, StrategySpec};
use crate::types::{Backend, Memory, Policy, Rule, Scope};

/// Kinds of a process's own memory that the kernel distinguishes. For the kernel, an arena is a mapping like others.
pub const KINDS: [plan::Memory; 4] =
    [plan::Memory::Heap, plan::Memory::Anon, plan::Memory::Data, plan::Memory::Stack];

/// Most masks that a hint takes.
const MOST_MASKS: usize = 16;
/// Longest list that a hint takes.
const MOST_VALUES: usize = 1 << 20;

/// A hint for the kernel about some memory of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Hint {
    /// The strategy.
    pub strategy: StrategySpec,
    /// The memory that it is for.
    pub of: Governed,
}

/// The memory that a hint is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Governed {
    /// The pages that the program brings into the page cache.
    Files,
    /// The program's own memory of these of [`KINDS`].
    Own(Vec<plan::Memory>),
}

/// The hints for the kernel, one for each part of memory: first for the program's own memory, in the order of the
/// policy's rules, then for files. None: the policy places no frames.
///
/// # Errors
/// Requests that hints cannot express: arenas apart from other mappings, addresses, strategies in shared objects,
/// several pages for a fault, children that are not governed.
pub fn hints(policy: &Policy, machine: &Machine) -> Result<Vec<Hint>, PolicyError> {
    if !policy.governs_frames() {
        return Ok(Vec::new());
    }
    let refused = |why: String| Err(refusal(policy, &why));
    if let Some(why) = policy.rules.iter().find_map(unsayable) {
        return refused(why);
    }
    let plan = compile_all(policy, machine)?;
    if frames_of(&plan, plan::Memory::Anon) != frames_of(&plan, plan::Memory::Arenas) {
        return refused(ARENAS.to_owned());
    }
    let of_files = of_files(policy, machine)?.map(|strategy| Hint { strategy, of: Governed::Files });
    let hints: Vec<Hint> = own_hints(&plan).into_iter().chain(of_files).collect();
    if let Some(why) = hints.iter().find_map(obstacle) {
        return refused(why.to_owned());
    }
    if !hints.is_empty() && (!policy.inherit.fork || !policy.inherit.exec) {
        return refused(
            "its hints pass to what the program forks and executes, and `inherit` forbids that".to_owned(),
        );
    }
    Ok(hints)
}

/// The strategy of the page cache; only a rule that names files has one.
fn of_files(policy: &Policy, machine: &Machine) -> Result<Option<StrategySpec>, PolicyError> {
    let names_files = |rule: &&Rule| matches!(rule.scope, Scope::Memory(set) if set.contains(Memory::File));
    let Some(frames) = policy.rules.iter().filter(names_files).find_map(|rule| rule.frames.as_ref()) else {
        return Ok(None);
    };
    // Compiled as a separate policy: the plan has no place for memory that only the kernel can place.
    let alone = Policy { frames: frames.clone(), inherit: policy.inherit, ..Policy::default() };
    Ok(compile_all(&alone, machine)?.strategies.first().cloned())
}

/// Why no default hint can express an earlier rule of the policy, if none can.
fn unsayable(rule: &Rule) -> Option<String> {
    let frames = rule.frames.as_ref()?;
    if let Some(bytes) = rule.at_least {
        return Some(format!("it does not know how large a mapping is (`at_least = \"{bytes}\"`)"));
    }
    match (rule.scope, &frames.strategy) {
        (Scope::Range { start, end }, _) => {
            Some(format!("a hint for addresses ({start}-{end}) is cleared by the program's exec"))
        }
        (_, Strategy::Exact { .. }) => Some(EXACT.to_owned()),
        _ => None,
    }
}

const EXACT: &str =
    "frames = \"exact\" is for addresses, and a hint for addresses is cleared by the program's exec";

/// The number of the strategy for this memory; 0: the kernel's choice.
fn frames_of(plan: &PlanSpec, memory: plan::Memory) -> u16 {
    let section = |section: &&SectionSpec| section.memory == memory && section.at_least == 0;
    plan.sections.iter().find(section).map_or(0, |section| section.frames)
}

/// The strategies of the program's own memory, each with the kinds of memory that it is for.
fn own_hints(plan: &PlanSpec) -> Vec<Hint> {
    let numbered = (1..).zip(&plan.strategies);
    let hint = |(number, strategy): (u16, &StrategySpec)| {
        let kinds = KINDS.into_iter().filter(|&memory| frames_of(plan, memory) == number);
        Hint { strategy: strategy.clone(), of: Governed::Own(kinds.collect()) }
    };
    numbered.map(hint).filter(|hint| hint.of != Governed::Own(Vec::new())).collect()
}

const ARENAS: &str = "to it malloc's arenas are mappings like others; name both: memory = [\"anon\", \"arenas\"]";

fn obstacle(hint: &Hint) -> Option<&'static str> {
    let strategy = &hint.strategy;
    if strategy.kind == StrategyKind::Exact {
        return Some(EXACT);
    }
    if strategy.kind == StrategyKind::Module {
        return Some(
            "a strategy in a shared object runs in the program; in the kernel, strategies are its own modules",
        );
    }
    if !strategy.spans.is_empty() {
        return Some("a map has addresses, and a hint for addresses is cleared by the program's exec");
    }
    if strategy.pin && hint.of == Governed::Files {
        return Some("it does not pin pages of files (`pin = true`), which outlive the program");
    }
    if strategy.fault_around > 1 {
        return Some("it places one page for a fault (`fault-around`)");
    }
    if strategy.masks.len() > MOST_MASKS || strategy.values.len() > MOST_VALUES {
        return Some("a hint has at most 16 masks and 1048576 values");
    }
    None
}

fn refusal(policy: &Policy, why: &str) -> PolicyError {
    let place = Place::whole(&format!("policy {:?}", policy.name));
    let message = format!("backend = \"{}\" cannot place frames as asked: {why}", Backend::Kernel.name());
    PolicyError::new(&place, message)
        .next("name memory that the kernel tells apart (--frames heap=…, anon+arenas=…, file=…), or use the library: --backend library")
}
