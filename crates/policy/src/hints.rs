//! From a validated [`Policy`] to the hint that a kernel with page placement takes (`kernel/`).
//!
//! The launcher sets the hint before the program's exec. What outlives an exec is one strategy for all of a process's
//! anonymous memory, and for that of what it executes, or one for the pages that it brings into the page cache: a policy
//! that says more than this is refused.

use crate::compile::compile_all;
use crate::error::{Place, PolicyError};
use crate::frames::Strategy;
use crate::machine::Machine;
use crate::plan::{self, PlanSpec, SectionSpec, StrategyKind, StrategySpec};
use crate::types::{Backend, Memory, Policy, Rule, Scope};

/// Memory whose pages the hint of a process's own memory places.
const PLACED: [plan::Memory; 5] =
    [plan::Memory::Heap, plan::Memory::Anon, plan::Memory::Arenas, plan::Memory::Data, plan::Memory::Stack];

/// Most masks that a hint takes.
const MOST_MASKS: usize = 16;
/// Longest list that a hint takes.
const MOST_VALUES: usize = 1 << 20;

/// What the kernel is to be told of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Hint {
    /// The strategy.
    pub strategy: StrategySpec,
    /// It is for the pages that the program brings into the page cache; else for all of its own memory.
    pub files: bool,
}

/// The hint that the kernel is to be given; `None`: the policy places no frames.
///
/// # Errors
/// What a hint cannot say: memory of different strategies, addresses, strategies in shared objects, pinned pages, several
/// pages for a fault, children that are not governed. Files beside the program's own memory, whose pages the kernel counts
/// together.
pub fn hints(policy: &Policy, machine: &Machine) -> Result<Option<Hint>, PolicyError> {
    if !policy.governs_frames() {
        return Ok(None);
    }
    let refused = |why: String| Err(refusal(policy, &why));
    if let Some(why) = policy.rules.iter().find_map(unsayable) {
        return refused(why);
    }
    let plan = compile_all(policy, machine)?;
    let number = match one_strategy(&plan) {
        Ok(number) => number,
        Err(why) => return refused(why),
    };
    let own = plan.strategies.get(usize::from(number).wrapping_sub(1));
    let of_files = of_files(policy, machine)?;
    let (strategy, files) = match (own, &of_files) {
        (None, None) => return Ok(None),
        (Some(own), None) => (own, false),
        (None, Some(of_files)) => (of_files, true),
        (Some(_), Some(_)) => return refused(BOTH.to_owned()),
    };
    if let Some(why) = obstacle(strategy) {
        return refused(why.to_owned());
    }
    if !policy.inherit.fork || !policy.inherit.exec {
        return refused(
            "its hints pass to what the program forks and executes, and `inherit` forbids that".to_owned(),
        );
    }
    Ok(Some(Hint { strategy: strategy.clone(), files }))
}

const BOTH: &str = "a process's pages and those that it brings into the page cache are counted together, and what was placed \
                    could not be told apart";

/// The strategy of the page cache; only a rule that names files speaks of it.
fn of_files(policy: &Policy, machine: &Machine) -> Result<Option<StrategySpec>, PolicyError> {
    let names_files = |rule: &&Rule| matches!(rule.scope, Scope::Memory(set) if set.contains(Memory::File));
    let Some(frames) = policy.rules.iter().filter(names_files).find_map(|rule| rule.frames.as_ref()) else {
        return Ok(None);
    };
    // As a policy of its own: the plan has no place for what only the kernel can place.
    let alone = Policy { frames: frames.clone(), inherit: policy.inherit, ..Policy::default() };
    Ok(compile_all(&alone, machine)?.strategies.first().cloned())
}

/// Whether an earlier rule of the policy asks for what no default hint says.
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

/// The number of the one strategy of all memory that can be placed, one more than its index; 0: all is left to the kernel.
fn one_strategy(plan: &PlanSpec) -> Result<u16, String> {
    let of = |memory| {
        let section = |section: &&SectionSpec| section.memory == memory && section.at_least == 0;
        plan.sections.iter().find(section).map_or(0, |section| section.frames)
    };
    let first = of(PLACED[0]);
    if PLACED.iter().all(|memory| of(*memory) == first) {
        return Ok(first);
    }
    let with = |wanted: u16| {
        let names: Vec<&str> =
            PLACED.into_iter().filter(|memory| of(*memory) == wanted).map(plan::Memory::name).collect();
        names.join(", ")
    };
    let mut numbers: Vec<u16> = PLACED.into_iter().map(of).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let who = |number: u16| {
        let strategy = plan.strategies.get(usize::from(number).wrapping_sub(1));
        format!("{} ({})", strategy.map_or("kernel", |strategy| strategy.kind.name()), with(number))
    };
    let each: Vec<String> = numbers.into_iter().map(who).collect();
    Err(format!(
        "the hint that a program keeps over its exec is for all of its memory, and the rules tell kinds apart: {}",
        each.join(", ")
    ))
}

fn obstacle(strategy: &StrategySpec) -> Option<&'static str> {
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
    if strategy.pin {
        return Some("it does not pin pages (`pin = true`)");
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
        .next("give all memory one strategy (--frames WHERE), or use the library: --backend library")
}
