//! Rules: checks of their memory, and whether they can ever apply.

use crate::error::{Place, PolicyError};
use crate::machine::Machine;
use crate::raw::{At, RawLayout, RawPages, RawRule, RawScope};
use crate::types::{Backend, Fetch, Memory, MemorySet, Pages, Policy, Rule, Scope, Via};
use crate::units::{Address, Bytes};

use super::{frames, memory_words, number, pages};

/// One past the highest address that a program can have with five-level page tables.
const ADDRESS_END: u64 = 1 << 56;
/// Most rules in a policy: the plan numbers them with 16 bits.
const MOST_RULES: usize = 1000;

/// Checks rules. One that its own input leaves nothing to decide is refused; one that other inputs leave nothing (flags
/// are meant to override a file) is left out, since the policy as text has one input only.
pub(super) fn validate(
    raw: &[RawRule],
    via: Via,
    backend: Backend,
    machine: &Machine,
) -> Result<Vec<Rule>, PolicyError> {
    if let Some(surplus) = raw.get(MOST_RULES) {
        return Err(PolicyError::new(&surplus.place, format!("more than {MOST_RULES} rules")));
    }
    let mut kept: Vec<Rule> = Vec::new();
    let mut seen: Vec<(Rule, &Place)> = Vec::new();
    for rule in raw {
        // One, or those of a layout's pools.
        let parts = validate_one(rule, via, backend, machine)?;
        let all = seen.iter().map(|(other, at)| (other, *at));
        let own = all.clone().filter(|(_, at)| same_input(at, &rule.place));
        let earlier: Option<Vec<&Place>> = parts.iter().map(|part| shadowing(own.clone(), part)).collect();
        if let Some([.., earlier]) = earlier.as_deref() {
            let message = format!("the rule can never apply: earlier rules ({earlier}) already decide all it says");
            return Err(PolicyError::new(&rule.place, message));
        }
        kept.extend(parts.iter().filter(|part| shadowing(all.clone(), part).is_none()).cloned());
        seen.extend(parts.into_iter().map(|part| (part, &rule.place)));
    }
    Ok(kept)
}

/// Adds the rules of the layout that is the policy's default, but those that `rules` leave nothing to decide.
pub(super) fn add_layout(
    rules: &mut Vec<Rule>,
    layout: &RawLayout,
    place: &Place,
    via: Via,
    machine: &Machine,
) -> Result<(), PolicyError> {
    for rule in from_layout(layout, place, Scope::All, via, machine)? {
        if shadowing(rules.iter().map(|other| (other, place)), &rule).is_none() {
            rules.push(rule);
        }
    }
    Ok(())
}

fn validate_one(
    raw: &RawRule,
    default_via: Via,
    backend: Backend,
    machine: &Machine,
) -> Result<Vec<Rule>, PolicyError> {
    let scope = scope(&raw.scope, &raw.place)?;
    if raw.axes.is_empty() {
        let message = "the rule says nothing: give it at least one axis";
        return Err(PolicyError::new(&raw.place, message).allowed(["frames", "pages", "fetch"]));
    }
    let at_least = raw.at_least.as_ref().map(|written| at_least(written, scope)).transpose()?;
    let own_via = raw.axes.via.as_ref().map(super::via).transpose()?;
    if let (Some(via), None) = (&raw.axes.via, &raw.axes.pages) {
        let message = "`via` says how the tiles of `pages` are made: name `pages` in the same rule";
        return Err(PolicyError::new(&via.place, message));
    }
    let via = own_via.unwrap_or(default_via);
    let fetch = raw.axes.fetch.as_ref().map(|written| checked_fetch(written, scope)).transpose()?;
    let frames =
        raw.axes.frames.as_ref().map(|written| frames::validate(written, scope, backend, machine)).transpose()?;
    let rest = Rule { scope, at_least, frames, pages: None, via: own_via, fetch };
    match &raw.axes.pages {
        None => Ok(vec![rest]),
        Some(At { value: RawPages::Layout(layout), place }) => {
            let from_layout = from_layout(layout, place, scope, via, machine)?;
            let pages = from_layout.into_iter().map(|rule| Rule { at_least, via: own_via, ..rule });
            let other = Rule { via: None, ..rest };
            let other = (other.fetch.is_some() || other.frames.is_some()).then_some(other);
            Ok(pages.chain(other).collect())
        }
        Some(written) => {
            let checked = pages::validate(written, via, machine)?;
            pages::check_scope(&checked, scope, via, machine, &written.place)?;
            Ok(vec![Rule { pages: Some(checked), ..rest }])
        }
    }
}

/// The rules that a Mosalloc layout stands for, within `scope`: brk → heap, mmap → anon and arenas, file → file.
fn from_layout(
    layout: &RawLayout,
    place: &Place,
    scope: Scope,
    via: Via,
    machine: &Machine,
) -> Result<Vec<Rule>, PolicyError> {
    let wanted = match scope {
        Scope::All => MemorySet::ALL,
        Scope::Memory(set) => set,
        Scope::Range { .. } => {
            return Err(PolicyError::new(place, "a layout is for pools, not for a range of addresses"));
        }
    };
    let pools: [(&Option<_>, &[Memory]); 3] = [
        (&layout.brk, &[Memory::Heap]),
        (&layout.mmap, &[Memory::Anon, Memory::Arenas]),
        (&layout.file, &[Memory::File]),
    ];
    let mut rules = Vec::new();
    for (mosaic, kinds) in pools {
        let set = wanted.and(kinds.iter().copied().collect());
        let Some(mosaic) = mosaic else { continue };
        if set.is_empty() {
            continue;
        }
        let mosaic = pages::mosaic(mosaic, place, via, machine)?;
        let pages = match (mosaic.tiles.is_empty(), mosaic.otherwise) {
            (true, crate::types::Backing::Size(size)) => Pages::Size(size),
            _ => Pages::Mosaic(mosaic),
        };
        let scope = Scope::Memory(set);
        pages::check_scope(&pages, scope, via, machine, place)?;
        rules.push(Rule { scope, at_least: None, frames: None, pages: Some(pages), via: None, fetch: None });
    }
    if rules.is_empty() {
        let message = "the layout has no pool for the memory that the rule names";
        return Err(PolicyError::new(place, message).allowed(["heap (brk)", "anon, arenas (mmap)", "file"]));
    }
    Ok(rules)
}

fn scope(raw: &RawScope, place: &Place) -> Result<Scope, PolicyError> {
    match raw {
        RawScope::Memory(words) => memory(words, place),
        RawScope::Range(start, end) => range(start, end),
    }
}

fn memory(words: &[At<String>], place: &Place) -> Result<Scope, PolicyError> {
    let mut set = MemorySet::default();
    if words.is_empty() {
        return Err(PolicyError::new(place, "`memory` is an empty list").allowed(memory_words()));
    }
    for word in words {
        if word.value == "all" && words.len() == 1 {
            return Ok(Scope::All);
        }
        if word.value == "all" {
            return Err(PolicyError::new(&word.place, "`all` stands alone: it names every kind already"));
        }
        let memory = Memory::from_name(&word.value).ok_or_else(|| {
            PolicyError::new(&word.place, format!("unknown memory {:?}", word.value)).allowed(memory_words())
        })?;
        if !set.insert(memory) {
            return Err(PolicyError::new(&word.place, format!("{:?} is named twice", word.value)));
        }
    }
    Ok(Scope::Memory(set))
}

fn range(start: &At<String>, end: &At<String>) -> Result<Scope, PolicyError> {
    let (first, last) = (number(&start.value, &start.place, "range")?, number(&end.value, &end.place, "range")?);
    if first >= last {
        let message = format!("range {first:#x}-{last:#x} is empty: its end must lie above its start");
        return Err(PolicyError::new(&end.place, message));
    }
    if last > ADDRESS_END {
        let message = format!("range {first:#x}-{last:#x} ends beyond {ADDRESS_END:#x}, where programs end");
        return Err(PolicyError::new(&end.place, message));
    }
    if first % 4096 != 0 || last % 4096 != 0 {
        let message = format!("range {first:#x}-{last:#x} is not aligned to 4K");
        return Err(PolicyError::new(&start.place, message));
    }
    Ok(Scope::Range { start: Address(first), end: Address(last) })
}

fn at_least(written: &At<String>, scope: Scope) -> Result<Bytes, PolicyError> {
    let bytes = number(&written.value, &written.place, "at_least")?;
    if bytes == 0 || bytes > ADDRESS_END {
        let message = format!("`at_least` is {:?}", written.value);
        return Err(PolicyError::new(&written.place, message).allowed(["1 to 65536T"]));
    }
    let without = match scope {
        Scope::All => None,
        Scope::Range { .. } => Some("a range".to_owned()),
        Scope::Memory(set) => {
            set.iter().find(|memory| !memory.has_mappings()).map(|memory| format!("`{}`", memory.name()))
        }
    };
    match without {
        None => Ok(Bytes(bytes)),
        Some(what) => {
            let message = format!("`at_least` compares the sizes of mappings, and {what} is not made of mappings");
            Err(PolicyError::new(&written.place, message).allowed(["anon", "arenas", "file"]))
        }
    }
}

fn checked_fetch(written: &At<String>, scope: Scope) -> Result<Fetch, PolicyError> {
    let fetch = super::fetch(written)?;
    let named = match scope {
        Scope::Memory(set) => set,
        Scope::All | Scope::Range { .. } => return Ok(fetch),
    };
    let unfit =
        named.iter().find(|memory| fetch == Fetch::Willneed && !matches!(memory, Memory::File | Memory::Data));
    match unfit {
        None => Ok(fetch),
        Some(memory) => {
            let message = format!("`willneed` reads files ahead, and `{}` is not read from a file", memory.name());
            Err(PolicyError::new(&written.place, message).allowed(["kernel", "demand", "prefault"]))
        }
    }
}

/// The place of the last of the earlier rules that decide it, if these leave `rule` nothing to decide.
fn shadowing<'r>(earlier: impl Iterator<Item = (&'r Rule, &'r Place)> + Clone, rule: &Rule) -> Option<&'r Place> {
    let axes: [fn(&Rule) -> bool; 3] =
        [|rule| rule.frames.is_some(), |rule| rule.pages.is_some(), |rule| rule.fetch.is_some()];
    let mut last = None;
    for axis in axes.into_iter().filter(|axis| axis(rule)) {
        let stronger = |(other, _): &(&Rule, &Place)| axis(other) && other.at_least <= rule.at_least;
        let mut rest = rule.scope;
        for (other, at) in earlier.clone().filter(stronger) {
            rest = remaining(rest, other.scope);
            last = Some(at);
        }
        if !matches!(rest, Scope::Memory(set) if set.is_empty()) {
            return None;
        }
    }
    last
}

/// Whether both lie in one file, or both are flags (which have no lines).
fn same_input(one: &Place, other: &Place) -> bool {
    match (one.line, other.line) {
        (None, None) => true,
        (Some(_), Some(_)) => one.source == other.source,
        _ => false,
    }
}

/// The part of `scope` without `other`; may be too large, never too small.
fn remaining(scope: Scope, other: Scope) -> Scope {
    let nothing = Scope::Memory(MemorySet::default());
    match (scope, other) {
        (Scope::Memory(set), Scope::Memory(taken)) => Scope::Memory(set.without(taken)),
        (Scope::All, Scope::All) => nothing,
        (Scope::Range { start, end }, Scope::Range { start: from, end: to }) if from <= start && end <= to => {
            nothing
        }
        (scope, _) => scope,
    }
}

/// Checks limits of the policy as a whole: mappings, and pools.
pub(super) fn check_total(policy: &Policy, machine: &Machine, place: &Place) -> Result<(), PolicyError> {
    let count = |pages: &Pages| match pages {
        Pages::Mosaic(mosaic) => mosaic.tiles.len() as u64,
        _ => 0,
    };
    let intervals: u64 =
        count(&policy.pages) + policy.rules.iter().filter_map(|rule| rule.pages.as_ref()).map(count).sum::<u64>();
    // Each interval and each gap can be a separate mapping; half of them are left to the program.
    let limit = machine.max_map_count.unwrap_or(65_530) / 4;
    if intervals > limit {
        let message = format!(
            "{intervals} intervals: each is a mapping of its own, and vm.max_map_count leaves room for {limit}"
        );
        let next = format!("run: sudo pagelab doctor --fix max_map_count={}", intervals.saturating_mul(8));
        return Err(PolicyError::new(place, message).next(next));
    }
    Ok(())
}
