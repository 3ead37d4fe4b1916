//! The axis `frames` of a plan: one strategy for each rule that has one and is needed.

use crate::error::{Place, PolicyError};
use crate::frames::{ByPage, FirstBin, Frames, Span, Strategy};
use crate::machine::Machine;
use crate::plan::{
    ANYWHERE, BASE_PAGE, FIRST_FROM_SEED, MAX_STRATEGIES, MOST_COLOURS, Memory, SectionSpec, StrategyKind,
    StrategySpec,
};
use crate::types::Policy;

/// The strategies that `sections` need. On entry a section's `frames` is one more than the number of the deciding rule
/// (the default is one past the last rule); on return it is one more than the number of its strategy. 0 stays 0.
///
/// Each rule has its own strategy, even if two rules are equal: each has its own state and its own statistics.
pub(super) fn assign(
    sections: &mut [SectionSpec],
    policy: &Policy,
    machine: &Machine,
) -> Result<Vec<StrategySpec>, PolicyError> {
    let place = Place::whole(&format!("policy {:?}", policy.name));
    let mut rules: Vec<u16> = sections.iter().map(|section| section.frames).filter(|rule| *rule != 0).collect();
    rules.sort_unstable();
    rules.dedup();
    if rules.len() > MAX_STRATEGIES {
        let message = format!("{} rules name strategies for `frames`; the most is {MAX_STRATEGIES}", rules.len());
        return Err(PolicyError::new(&place, message).next("join rules that have the same strategy"));
    }
    let mut strategies = Vec::with_capacity(rules.len());
    for (number, rule) in (1_u16..).zip(&rules) {
        let frames = policy
            .rules
            .get(usize::from(*rule) - 1)
            .and_then(|rule| rule.frames.as_ref())
            .unwrap_or(&policy.frames);
        let governed: Vec<&SectionSpec> = sections.iter().filter(|section| section.frames == *rule).collect();
        strategies.push(strategy(frames, machine, &governed, &place)?);
        debug_assert!(number <= *rule, "numbers of strategies never pass those of rules still to be replaced");
        sections.iter_mut().filter(|section| section.frames == *rule).for_each(|section| section.frames = number);
    }
    Ok(strategies)
}

fn strategy(
    frames: &Frames,
    machine: &Machine,
    governed: &[&SectionSpec],
    place: &Place,
) -> Result<StrategySpec, PolicyError> {
    // A section whose frames are left to the kernel has no strategy.
    let kind = frames.strategy.kind().unwrap_or(StrategyKind::PageColoring);
    let mut spec = StrategySpec {
        pin: frames.pin,
        fault_around: frames.fault_around.unwrap_or(0),
        budget_bytes: frames.budget.map_or(0, |bytes| bytes.0),
        masks: frames.colours.masks().to_vec(),
        ..StrategySpec::new(kind, colours(frames, machine, place)?)
    };
    match &frames.strategy {
        Strategy::Kernel => {}
        Strategy::ByNumbers(numbers) => {
            spec.pid_hash = numbers.hash_pid;
            (spec.first, spec.seed) = match numbers.first {
                FirstBin::Colour(first) => (first, numbers.seed),
                FirstBin::Seed(seed) => (FIRST_FROM_SEED, seed),
            };
        }
        Strategy::Modulo { colours: ByPage::List(list) } => {
            spec.values = list.iter().map(|colour| u64::from(colour.0)).collect();
        }
        Strategy::Modulo { colours: ByPage::Spans(spans) } => add_spans(&mut spec, spans, |colour| colour.0.into()),
        Strategy::Exact { frames: ByPage::List(list) } => {
            let values = list.iter().map(|frame| Some(*frame)).collect();
            let start = crate::units::Address(list_base(governed, place)?);
            add_spans(&mut spec, &[Span { start, values }], |frame| frame.0);
        }
        Strategy::Exact { frames: ByPage::Spans(spans) } => add_spans(&mut spec, spans, |frame| frame.0),
        Strategy::Module { path, argument, seed } => {
            (spec.module, spec.argument) = (path.clone().into_bytes(), argument.clone().into_bytes());
            spec.seed = *seed;
        }
    }
    check_colours(&spec, place)?;
    Ok(spec)
}

fn colours(frames: &Frames, machine: &Machine, place: &Place) -> Result<u32, PolicyError> {
    let count = match frames.colours.count(machine) {
        Some(count) => count,
        // Exact frames need colours for statistics only.
        None if matches!(frames.strategy, Strategy::Exact { .. }) => 1,
        None => {
            let message = format!(
                "frames = {:?}: the machine description has no last-level cache that would say how many page colours \
                 there are",
                frames.strategy.name()
            );
            return Err(PolicyError::new(place, message).allowed([
                "colors = N",
                "cache = \"SIZE,WAYS\"",
                "masks = […]",
            ]));
        }
    };
    match u32::try_from(count) {
        Ok(count) if (1..=MOST_COLOURS).contains(&count) => Ok(count),
        _ => {
            let message = format!("{count} page colours; the most is {MOST_COLOURS}");
            Err(PolicyError::new(place, message).next("give colors = N"))
        }
    }
}

/// The origin of a list of exact frames: the start of its one pool or range.
fn list_base(governed: &[&SectionSpec], place: &Place) -> Result<u64, PolicyError> {
    let base = |section: &&SectionSpec| match (section.memory, section.range) {
        (Memory::Range, Some((start, _))) => start,
        _ => section.pool_base,
    };
    let mut bases: Vec<u64> = governed.iter().map(base).collect();
    bases.sort_unstable();
    bases.dedup();
    match bases[..] {
        [base] if base != 0 => Ok(base),
        _ => {
            let message = format!(
                "a list of exact frames counts from the start of one pool or range, and this one is for {}",
                bases.len()
            );
            let hint = "give the memory one rule for `pages`, or replay a saved map, which has addresses";
            Err(PolicyError::new(place, message).next(hint))
        }
    }
}

fn add_spans<T: Copy>(spec: &mut StrategySpec, spans: &[Span<T>], value: impl Fn(T) -> u64) {
    for span in spans {
        spec.spans.push(crate::plan::Span {
            start: span.start.0,
            pages: span.values.len() as u64,
            first_value: spec.values.len() as u64,
        });
        spec.values.extend(span.values.iter().map(|item| item.map_or(ANYWHERE, &value)));
    }
    debug_assert!(spec.spans.iter().all(|span| span.start.is_multiple_of(BASE_PAGE)));
}

/// Checks colours that could not be checked before, because the machine's cache was unknown then.
fn check_colours(spec: &StrategySpec, place: &Place) -> Result<(), PolicyError> {
    let limit = u64::from(spec.colours);
    let colours = if spec.kind == StrategyKind::Modulo { &spec.values[..] } else { &[] };
    let first = Some(u64::from(spec.first)).filter(|_| spec.first != FIRST_FROM_SEED);
    let used = colours.iter().copied().filter(|colour| *colour != ANYWHERE).chain(first);
    match used.max().filter(|colour| *colour >= limit) {
        None => Ok(()),
        Some(colour) => {
            let message = format!("frames = {:?} names colour {colour}, and there are {limit}", spec.kind.name());
            Err(PolicyError::new(place, message).allowed([format!("0 to {}", limit - 1)]))
        }
    }
}
