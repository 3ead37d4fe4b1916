//! Axis `frames`: checks of strategies, their parameters, and the memory for which they are possible.

use std::collections::BTreeSet;

use crate::error::{Place, PolicyError};
use crate::framemap::{LARGEST_FRAME, check_masks, check_spans};
use crate::frames::{ByNumbers, ByPage, Colours, FirstBin, Frames, Strategy};
use crate::machine::Machine;
use crate::plan::{Parameter, StrategyKind};
use crate::raw::{At, RawFrames};
use crate::types::{Backend, Memory, Policy, Scope};
use crate::units::{Bytes, Colour, FrameNumber};

use super::parameters::{Parameters, narrow};

/// Words that `frames` accepts.
pub const FRAMES_WORDS: &[&str] = &words();

/// More colours than any cache has.
const MOST_COLOURS: u64 = crate::plan::MOST_COLOURS as u64;
/// Most pages that one fault may bring in: those of a huge page.
const MOST_FAULT_AROUND: u64 = 512;
/// Least budget: one chunk of the pool.
const LEAST_BUDGET: u64 = 2 << 20;
/// Parameters that every strategy has.
const COMMON: [&str; 6] = ["colors", "cache", "masks", "fault-around", "budget", "pin"];

pub(super) fn validate(
    written: &At<RawFrames>,
    scope: Scope,
    backend: Backend,
    machine: &Machine,
) -> Result<Frames, PolicyError> {
    let raw = &written.value;
    let kind = raw.kind.value.as_str();
    let parameters = Parameters { raw };
    if kind == "kernel" {
        parameters.check_names(&[])?;
        return Ok(Frames::default());
    }
    let Some(kind) = StrategyKind::from_name(kind) else {
        let message = format!("unknown value {kind:?} of `frames`");
        return Err(PolicyError::new(&raw.kind.place, message).allowed(FRAMES_WORDS));
    };
    let own = kind.facts().parameters.iter().map(|parameter| parameter.name());
    parameters.check_names(&own.chain(COMMON).collect::<Vec<_>>())?;
    let colours = colours(&parameters)?;
    let limit = colours.count(machine).unwrap_or(MOST_COLOURS).clamp(1, MOST_COLOURS) - 1;
    let strategy = strategy(kind, &parameters, limit)?;
    let frames = Frames {
        strategy,
        colours,
        fault_around: parameters.integer("fault-around", 1, MOST_FAULT_AROUND)?.map(|pages| pages as u16),
        budget: parameters.integer("budget", LEAST_BUDGET, 1 << 56)?.map(Bytes),
        pin: parameters.flag("pin")?,
    };
    check_scope(&frames, scope, backend, &written.place)?;
    Ok(frames)
}

/// Every word that `frames` accepts.
const fn words() -> [&'static str; StrategyKind::ALL.len() + 1] {
    let mut words = ["kernel"; StrategyKind::ALL.len() + 1];
    let mut number = 0;
    while number < StrategyKind::ALL.len() {
        words[number + 1] = StrategyKind::ALL[number].name();
        number += 1;
    }
    words
}

fn strategy(kind: StrategyKind, parameters: &Parameters<'_>, colour_limit: u64) -> Result<Strategy, PolicyError> {
    Ok(match kind {
        StrategyKind::Modulo => {
            let map = parameters.raw.map.as_ref().map(|map| map.value.page_colours.clone());
            let convert = |value| Colour(narrow(value));
            Strategy::Modulo {
                colours: by_page(parameters, "pattern", "a list of colours", colour_limit, map, convert)?,
            }
        }
        StrategyKind::Exact => {
            let map = parameters.raw.map.as_ref().map(|map| map.value.frames.clone());
            let what = "a list of frame numbers";
            let frames = by_page(parameters, "frames", what, LARGEST_FRAME, map, FrameNumber)?;
            check_distinct(parameters, &frames)?;
            Strategy::Exact { frames }
        }
        StrategyKind::Module => Strategy::Module {
            path: parameters
                .text("path")?
                .ok_or_else(|| parameters.missing("path", "the shared object to load"))?,
            argument: parameters.text("argument")?.unwrap_or_default(),
            seed: seed(parameters)?.unwrap_or(0),
        },
        // Parameters that a kind does not take are absent here.
        kind if kind.takes(Parameter::First) => {
            let (hash_pid, first) = (hash(parameters)?, first_bin(parameters, colour_limit)?);
            Strategy::ByNumbers(ByNumbers { hash_pid, first, ..ByNumbers::of(kind) })
        }
        kind => {
            let (hash_pid, seed) = (hash(parameters)?, seed(parameters)?.unwrap_or(0));
            Strategy::ByNumbers(ByNumbers { hash_pid, seed, ..ByNumbers::of(kind) })
        }
    })
}

fn seed(parameters: &Parameters<'_>) -> Result<Option<u64>, PolicyError> {
    parameters.integer("seed", 0, i64::MAX as u64)
}

fn colours(parameters: &Parameters<'_>) -> Result<Colours, PolicyError> {
    let count = parameters.integer("colors", 1, MOST_COLOURS)?;
    let said: Vec<&At<String>> =
        ["colors", "cache"].iter().filter_map(|name| parameters.get(name)).map(|(name, _)| name).collect();
    if let Some(map) = &parameters.raw.map {
        let own = said.first().copied().or_else(|| parameters.get("masks").map(|(name, _)| name));
        return match own {
            None => Ok(map.value.colours.clone()),
            Some(name) => {
                let message = format!("the saved map says how frames have colours: leave `{}` out", name.value);
                Err(PolicyError::new(&name.place, message))
            }
        };
    }
    if let [_, second] = said[..] {
        let message = "`colors` and `cache` both say how many colours there are: give one of them";
        return Err(PolicyError::new(&second.place, message));
    }
    let cache = parameters.get("cache").map(|(name, values)| cache(&name.place, values)).transpose()?;
    let Some((name, values)) = parameters.get("masks") else {
        return Ok(cache.or(count.map(|count| Colours::Count(narrow(count)))).unwrap_or_default());
    };
    let masks = masks(parameters, &name.place, values)?;
    let wanted = 1_u64 << masks.len();
    let said_count = count.or(cache.and_then(|cache| cache.count(&Machine::generic_x86_64())));
    if let Some(said_count) = said_count.filter(|count| *count != wanted) {
        let (name, count) = (said[0], said_count);
        let power = if count.is_power_of_two() { "" } else { ", which is no power of two" };
        let message =
            format!("{} masks make {wanted} colours, and `{}` says {count}{power}", masks.len(), name.value);
        let hint = format!("leave `{}` out, or give {}", name.value, wanted_masks(count));
        return Err(PolicyError::new(&name.place, message).next(hint));
    }
    Ok(Colours::Masks(masks))
}

fn wanted_masks(count: u64) -> String {
    if count.is_power_of_two() {
        format!("{} masks", count.trailing_zeros())
    } else {
        "no masks: without them any number of colours will do".to_owned()
    }
}

fn masks(parameters: &Parameters<'_>, place: &Place, values: &[At<String>]) -> Result<Vec<u64>, PolicyError> {
    if values.is_empty() {
        let message = "`masks` is an empty list: give one mask of frame-number bits for each bit of the colour";
        return Err(PolicyError::new(place, message));
    }
    let most = MOST_COLOURS.trailing_zeros() as usize;
    if values.len() > most {
        return Err(
            PolicyError::new(place, format!("{} masks", values.len())).allowed([format!("1 to {most} masks")])
        );
    }
    let masks = parameters.list("masks", "masks of frame-number bits", 1, LARGEST_FRAME)?;
    check_masks(&masks).map_err(|why| PolicyError::new(place, why))?;
    Ok(masks)
}

/// `"SIZE,WAYS"`, or a list of the two.
fn cache(place: &Place, values: &[At<String>]) -> Result<Colours, PolicyError> {
    let texts: Vec<&str> = match values {
        [one] => one.value.split(',').collect(),
        more => more.iter().map(|value| value.value.as_str()).collect(),
    };
    let [size, ways] = texts[..] else {
        return Err(PolicyError::new(place, "`cache` is not a size and a number of ways").allowed(["\"1M,16\""]));
    };
    let (bytes, ways) =
        (super::number(size, place, "cache size")?, super::number(ways.trim(), place, "ways of the cache")?);
    let refused =
        |message: String| Err(PolicyError::new(place, message).allowed(["\"SIZE,WAYS\", such as \"1M,16\""]));
    if bytes == 0 || !(1..=4096).contains(&ways) {
        return refused(format!("no cache has {} and {ways} ways", crate::size::format(bytes)));
    }
    if bytes % ways != 0 || (bytes / ways) % 4096 != 0 {
        return refused(format!(
            "{} in {ways} ways: a way is no whole number of pages",
            crate::size::format(bytes)
        ));
    }
    if bytes / ways / 4096 > MOST_COLOURS {
        return refused(format!(
            "{} in {ways} ways has more than {MOST_COLOURS} colours",
            crate::size::format(bytes)
        ));
    }
    Ok(Colours::Cache { bytes: Bytes(bytes), ways: narrow(ways) })
}

fn hash(parameters: &Parameters<'_>) -> Result<bool, PolicyError> {
    match parameters.single("hash")? {
        None => Ok(false),
        Some(value) if value.value == "pid" => Ok(true),
        Some(value) => {
            let message = format!("unknown value {:?} of `hash`", value.value);
            Err(PolicyError::new(&value.place, message).allowed(["pid"]))
        }
    }
}

fn first_bin(parameters: &Parameters<'_>, colour_limit: u64) -> Result<FirstBin, PolicyError> {
    let seed = seed(parameters)?;
    let first = parameters.integer("first", 0, colour_limit)?;
    match (first, seed) {
        (Some(_), Some(_)) => {
            let place = parameters.get("seed").map_or(&parameters.raw.kind.place, |(name, _)| &name.place);
            let message = "`first` names the first colour and `seed` draws it: give one of them";
            Err(PolicyError::new(place, message))
        }
        (None, Some(seed)) => Ok(FirstBin::Seed(seed)),
        (first, None) => Ok(FirstBin::Colour(first.map_or(0, narrow))),
    }
}

/// Reads the values of pages: a list, spans, or a saved map; exactly one of them.
fn by_page<T>(
    parameters: &Parameters<'_>,
    list: &str,
    what: &str,
    most: u64,
    map: Option<Vec<crate::frames::Span<T>>>,
    convert: impl Fn(u64) -> T,
) -> Result<ByPage<T>, PolicyError> {
    let given: Vec<_> = [list, "map", "spans"].iter().filter_map(|name| parameters.get(name)).collect();
    match (given.as_slice(), map) {
        ([], _) => Err(parameters.missing(list, &format!("{what}, or `map`, a saved map"))),
        ([_], Some(map)) => Ok(ByPage::Spans(map)),
        ([(name, values)], None) if name.value == "spans" => {
            let spans = super::spans::read(values, &name.place, most, convert)?;
            check_spans(&spans).map_err(|why| PolicyError::new(&name.place, why))?;
            Ok(ByPage::Spans(spans))
        }
        ([(name, _)], None) if name.value == list => {
            Ok(ByPage::List(parameters.list(list, what, 0, most)?.into_iter().map(convert).collect()))
        }
        ([(name, _)], None) => Err(PolicyError::new(&name.place, "`map` is the name of one saved map")),
        ([_, (second, _), ..], _) => {
            let message = format!("`{list}`, `map` and `spans` all say what each page gets: give one of them");
            Err(PolicyError::new(&second.place, message))
        }
    }
}

/// Refuses a frame that is named twice: a frame can hold one page. (Maps may repeat frames that pages share: there the
/// first page gets it.)
fn check_distinct(parameters: &Parameters<'_>, frames: &ByPage<FrameNumber>) -> Result<(), PolicyError> {
    let (ByPage::List(list), Some((name, _))) = (frames, parameters.get("frames")) else { return Ok(()) };
    let mut seen = BTreeSet::new();
    match list.iter().find(|frame| !seen.insert(**frame)) {
        None => Ok(()),
        Some(frame) => {
            let message = format!("frame {:#x} is named twice, and can hold one page only", frame.0);
            Err(PolicyError::new(&name.place, message))
        }
    }
}

/// Why the library cannot place the pages of `memory`, if it cannot.
#[must_use]
pub(crate) fn obstacle(memory: Memory) -> Option<&'static str> {
    match memory {
        Memory::File => Some(
            "its pages are the page cache's, which all processes share, and no system call chooses their frames",
        ),
        Memory::Heap | Memory::Anon | Memory::Arenas | Memory::Data | Memory::Stack => None,
    }
}

/// The refusal of a scope whose frames the library cannot place, if it cannot.
fn out_of_reach(scope: Scope, place: &Place) -> Option<PolicyError> {
    let Scope::Memory(set) = scope else { return None };
    let (memory, why) = set.iter().find_map(|memory| Some((memory, obstacle(memory)?)))?;
    let message = format!("the frames of `{}` cannot be chosen: {why}", memory.name());
    let possible = Memory::ALL.into_iter().filter(|memory| obstacle(*memory).is_none()).map(Memory::name);
    let next = "let a kernel with page placement do it: --backend kernel";
    Some(PolicyError::new(place, message).allowed(possible).next(next))
}

/// Why the library cannot place the frames of a policy, if it cannot: a policy under `backend = "auto"` that the kernel
/// cannot carry out here.
#[must_use]
pub fn beyond_the_library(policy: &Policy) -> Option<PolicyError> {
    let place = Place::whole(&format!("policy {:?}", policy.name));
    let placed = policy.rules.iter().filter(|rule| rule.frames.as_ref().is_some_and(|frames| !frames.is_kernel()));
    placed.into_iter().find_map(|rule| out_of_reach(rule.scope, &place))
}

fn check_scope(frames: &Frames, scope: Scope, backend: Backend, place: &Place) -> Result<(), PolicyError> {
    if backend == Backend::Library
        && let Some(error) = out_of_reach(scope, place)
    {
        return Err(error);
    }
    if !matches!(frames.strategy, Strategy::Exact { frames: ByPage::List(_) }) {
        return Ok(());
    }
    let fits = match scope {
        Scope::All => false,
        Scope::Range { .. } => true,
        Scope::Memory(set) => {
            let heap = set.contains(Memory::Heap);
            let others = set.iter().any(|memory| memory != Memory::Heap);
            set.iter().all(|memory| memory.pool_bytes().is_some()) && !(heap && others)
        }
    };
    if fits {
        return Ok(());
    }
    let message = "a list of exact frames counts from the start of one pool or range: name it in a rule";
    let allowed = ["heap", "anon, arenas or both", "a range", "or a saved map, which has addresses"];
    Err(PolicyError::new(place, message).allowed(allowed))
}
