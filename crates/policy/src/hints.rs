//! From a validated [`Policy`] to the hint that a kernel with page placement takes (`kernel/`).
//!
//! The launcher sets the hint before the program's exec. What outlives an exec is one strategy for a process's own memory
//! or for some kinds of it, and for that of what it executes, or one for the pages that it brings into the page cache: a
//! policy that says more than this is refused.

use crate::compile::compile_all;
use crate::error::{Place, PolicyError};
use crate::frames::Strategy;
use crate::machine::Machine;
use crate::plan::{self, PlanSpec, SectionSpec, StrategyKind, StrategySpec};
use crate::types::{Backend, Memory, Policy, Rule, Scope};

/// Kinds of a process's own memory that the kernel tells apart. An arena is a mapping like others to it.
pub const KINDS: [plan::Memory; 4] =
    [plan::Memory::Heap, plan::Memory::Anon, plan::Memory::Data, plan::Memory::Stack];

/// Most masks that a hint takes.
const MOST_MASKS: usize = 16;
/// Longest list that a hint takes.
const MOST_VALUES: usize = 1 << 20;

/// What the kernel is to be told of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Hint {
    /// The strategy.
    pub strategy: StrategySpec,
    /// What it is for.
    pub of: Governed,
}

/// The memory that a hint is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Governed {
    /// The pages that the program brings into the page cache.
    Files,
    /// The program's own, of these of [`KINDS`].
    Own(Vec<plan::Memory>),
}

/// The hint that the kernel is to be given; `None`: the policy places no frames.
///
/// # Errors
/// What a hint cannot say: several strategies, arenas apart from other mappings, addresses, strategies in shared objects,
/// pinned pages, several pages for a fault, children that are not governed. Files beside the program's own memory, whose
/// pages the kernel counts together.
pub fn hints(policy: &Policy, machine: &Machine) -> Result<Option<Hint>, PolicyError> {
    if !policy.governs_frames() {
        return Ok(None);
    }
    let refused = |why: String| Err(refusal(policy, &why));
    if let Some(why) = policy.rules.iter().find_map(unsayable) {
        return refused(why);
    }
    let plan = compile_all(policy, machine)?;
    let own = match one_strategy(&plan) {
        Ok(own) => own,
        Err(why) => return refused(why),
    };
    let of_files = of_files(policy, machine)?;
    let (strategy, of) = match (own, &of_files) {
        (None, None) => return Ok(None),
        (Some((own, kinds)), None) => (own, Governed::Own(kinds)),
        (None, Some(of_files)) => (of_files, Governed::Files),
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
    Ok(Some(Hint { strategy: strategy.clone(), of }))
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

/// The one strategy of the program's own memory, and the kinds that it is for; `None`: all is left to the kernel.
fn one_strategy(plan: &PlanSpec) -> Result<Option<(&StrategySpec, Vec<plan::Memory>)>, String> {
    let of = |memory| {
        let section = |section: &&SectionSpec| section.memory == memory && section.at_least == 0;
        plan.sections.iter().find(section).map_or(0, |section| section.frames)
    };
    if of(plan::Memory::Anon) != of(plan::Memory::Arenas) {
        return Err(ARENAS.to_owned());
    }
    let mut numbers: Vec<u16> = KINDS.into_iter().map(of).filter(|&number| number != 0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let with = |wanted: u16| KINDS.into_iter().filter(move |&memory| of(memory) == wanted);
    let spec = |number: u16| plan.strategies.get(usize::from(number).wrapping_sub(1));
    match numbers[..] {
        [] => Ok(None),
        [number] => Ok(spec(number).map(|strategy| (strategy, with(number).collect()))),
        _ => {
            let who = |&number: &u16| {
                let names: Vec<&str> = with(number).map(plan::Memory::name).collect();
                format!("{} ({})", spec(number).map_or("kernel", |spec| spec.kind.name()), names.join(", "))
            };
            let each: Vec<String> = numbers.iter().map(who).collect();
            Err(format!(
                "the hint that a program keeps over its exec has one strategy, and the rules name several: {}",
                each.join(", ")
            ))
        }
    }
}

const ARENAS: &str = "to it malloc's arenas are mappings like others; name both: memory = [\"anon\", \"arenas\"]";

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
        .next("give the memory to be placed one strategy (--frames WHERE), or use the library: --backend library")
}
