//! Policies from command-line flags, alone or on top of a file.
//!
//! `--pages 2M` sets a whole axis: it is the default, and the values of the file's rules on that axis are dropped.
//! `--pages heap=2M` is a rule before all others. `SCOPE=` may name several kinds (`heap+anon=`) or a range
//! (`0x7000…-0x8000…=`). A mosaic is written `0-64M:2M,1G-2G:1G`, with `otherwise:SIZE` for the rest.

use serde::{Deserialize, Serialize};

use crate::error::{Place, PolicyError};
use crate::mosalloc;
use crate::raw::{At, RawAxes, RawFrames, RawMosaic, RawPages, RawPolicy, RawRule, RawScope, RawTile};
use crate::read::{Load, frames_with_files};
use crate::size;

/// A file that a flag names, read by the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Its path, for messages.
    pub path: String,
    /// Its contents.
    pub text: String,
}

/// Policy flags as they were typed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Flags {
    /// A name for the policy.
    pub name: Option<String>,
    /// Values of `--frames`.
    pub frames: Vec<String>,
    /// Values of `--pages`.
    pub pages: Vec<String>,
    /// Values of `--fetch`.
    pub fetch: Vec<String>,
    /// Value of `--via`.
    pub via: Option<String>,
    /// Value of `--backend`.
    pub backend: Option<String>,
    /// The file of `--layout`.
    pub layout: Option<Document>,
    /// Whether forked children keep the policy.
    pub inherit_fork: Option<bool>,
    /// Whether executed programs keep the policy.
    pub inherit_exec: Option<bool>,
}

/// Adds `flags` to `base`, which they override; `files` reads the files that values of `--frames` name.
///
/// # Errors
/// A flag of the wrong form, or one that contradicts another.
pub fn apply(base: Option<RawPolicy>, flags: &Flags, files: Load<'_>) -> Result<RawPolicy, PolicyError> {
    let mut policy = base.unwrap_or_else(|| RawPolicy::empty(&Place::whole("the flags")));
    rename(&mut policy, flags);
    let mut rules = Vec::new();
    let pages = collect("--pages", &flags.pages, pages, &mut rules, |axes| &mut axes.pages)?;
    let pages = with_layout(pages, flags)?;
    if let Some(pages) = pages {
        policy.axes.pages = Some(pages);
        policy.rules.iter_mut().for_each(|rule| {
            rule.axes.pages = None;
            rule.axes.via = None;
        });
    }
    if let Some(fetch) = collect("--fetch", &flags.fetch, word, &mut rules, |axes| &mut axes.fetch)? {
        policy.axes.fetch = Some(fetch);
        policy.rules.iter_mut().for_each(|rule| rule.axes.fetch = None);
    }
    if let Some(frames) = collect("--frames", &flags.frames, frames(files), &mut rules, |axes| &mut axes.frames)? {
        policy.axes.frames = Some(frames);
        policy.rules.iter_mut().for_each(|rule| rule.axes.frames = None);
    }
    if let Some(via) = &flags.via {
        policy.axes.via = Some(At::new(via.clone(), &Place::whole(&format!("--via {via}"))));
        policy.rules.iter_mut().for_each(|rule| rule.axes.via = None);
    }
    if let Some(backend) = &flags.backend {
        policy.backend = Some(At::new(backend.clone(), &Place::whole(&format!("--backend {backend}"))));
    }
    policy.inherit_fork = flags.inherit_fork.or(policy.inherit_fork);
    policy.inherit_exec = flags.inherit_exec.or(policy.inherit_exec);
    policy.rules.retain(|rule| !rule.axes.is_empty());
    rules.append(&mut policy.rules);
    policy.rules = rules;
    Ok(policy)
}

/// Adds the flags to the policy's name: once they change the policy, the file's name no longer identifies it.
fn rename(policy: &mut RawPolicy, flags: &Flags) {
    if let Some(name) = &flags.name {
        policy.name = Some(At::new(name.clone(), &Place::whole(&format!("--name {name}"))));
        return;
    }
    let Some(name) = &mut policy.name else { return };
    let axes = [("--pages", &flags.pages), ("--fetch", &flags.fetch), ("--frames", &flags.frames)];
    let mut changes: Vec<String> = axes
        .into_iter()
        .flat_map(|(flag, values)| values.iter().map(move |value| format!("{flag} {value}")))
        .collect();
    changes.extend(flags.via.iter().map(|via| format!("--via {via}")));
    changes.extend(flags.backend.iter().map(|backend| format!("--backend {backend}")));
    changes.extend(flags.layout.iter().map(|layout| format!("--layout {}", layout.path)));
    if !changes.is_empty() {
        name.value = format!("{} with {}", name.value, changes.join(" ")).chars().take(100).collect();
    }
}

fn with_layout(pages: Option<At<RawPages>>, flags: &Flags) -> Result<Option<At<RawPages>>, PolicyError> {
    let Some(layout) = &flags.layout else { return Ok(pages) };
    let place = Place::whole(&format!("--layout {}", layout.path));
    if let Some(pages) = pages {
        let message = format!("{} and --layout both set every page's size", pages.place);
        return Err(
            PolicyError::new(&place, message).next("give one of them, or --pages with the memory it is for")
        );
    }
    let read = mosalloc::read_layout(&layout.text, &layout.path)?;
    Ok(Some(At::new(RawPages::Layout(read), &place)))
}

/// Reads the values of one flag: those with a scope become rules, the one without is returned.
fn collect<T>(
    flag: &str,
    values: &[String],
    read: impl Fn(&str, &Place) -> Result<T, PolicyError>,
    rules: &mut Vec<RawRule>,
    axis: fn(&mut RawAxes) -> &mut Option<At<T>>,
) -> Result<Option<At<T>>, PolicyError> {
    let mut whole: Option<At<T>> = None;
    for written in values {
        let place = Place::whole(&format!("{flag} {written}"));
        let (scope, value) = match written.split_once('=') {
            Some((scope, value)) if !scope.contains([':', ',']) => (Some(scope), value),
            _ => (None, written.as_str()),
        };
        let value = At::new(read(value, &place)?, &place);
        let Some(scope) = scope else {
            if let Some(earlier) = whole.replace(value) {
                let message = format!("{} was given already", earlier.place);
                return Err(PolicyError::new(&place, message).next("name the memory it is for: heap=…"));
            }
            continue;
        };
        let mut axes = RawAxes::default();
        *axis(&mut axes) = Some(value);
        rules.push(RawRule { scope: self::scope(scope, &place), place, at_least: None, axes });
    }
    Ok(whole)
}

fn scope(text: &str, place: &Place) -> RawScope {
    let at = |text: &str| At::new(text.trim().to_owned(), place);
    match text.split_once('-') {
        Some((start, end)) if start.trim_start().starts_with("0x") => RawScope::Range(at(start), at(end)),
        _ => RawScope::Memory(text.split('+').map(at).collect()),
    }
}

#[allow(clippy::unnecessary_wraps, reason = "one of the readers that `collect` takes")]
fn word(text: &str, _place: &Place) -> Result<String, PolicyError> {
    Ok(text.trim().to_owned())
}

fn pages(text: &str, place: &Place) -> Result<RawPages, PolicyError> {
    if !text.contains(':') {
        if text.trim_start_matches('-').contains('-') {
            return Err(not_an_interval(text, place));
        }
        if let Some(several) = several_sizes(text, place) {
            return Err(several);
        }
        return Ok(RawPages::Word(text.trim().to_owned()));
    }
    let mut mosaic = RawMosaic::default();
    for item in text.split(',') {
        let Some((interval, size)) = item.split_once(':') else {
            return Err(not_an_interval(item, place));
        };
        let size = size.trim().to_owned();
        if interval.trim() == "otherwise" {
            if mosaic.otherwise.replace(At::new(size, place)).is_some() {
                return Err(PolicyError::new(place, "`otherwise` is given twice"));
            }
            continue;
        }
        let Some((start, end)) = interval.split_once('-') else {
            return Err(not_an_interval(item, place));
        };
        let tile = RawTile { start: start.trim().to_owned(), end: end.trim().to_owned(), size };
        mosaic.tiles.push(At::new(tile, place));
    }
    Ok(RawPages::Mosaic(mosaic))
}

/// The error for `4K,2M`: sizes to compare, or for parts of the memory, instead of one.
fn several_sizes(text: &str, place: &Place) -> Option<PolicyError> {
    let sizes: Vec<&str> = text.split(',').map(str::trim).collect();
    if sizes.len() < 2 || sizes.iter().any(|part| size::parse(part).is_err()) {
        return None;
    }
    let scope = place.source.strip_suffix(text).unwrap_or("--pages ");
    let each: Vec<String> = sizes.iter().map(|part| format!("{scope}{part}")).collect();
    let message = format!("{text:?} is {} page sizes, and a run has one for the same memory", sizes.len());
    Some(PolicyError::new(place, message).next(format!(
        "to compare them, run: pagelab try {} -- …; for parts of the memory: --pages 'heap=0-64M:2M,otherwise:4K'",
        each.join(" ")
    )))
}

fn not_an_interval(item: &str, place: &Place) -> PolicyError {
    let forms = ["START-END:SIZE (0-64M:2M)", "otherwise:SIZE"];
    PolicyError::new(place, format!("{item:?} is not an interval of a mosaic")).allowed(forms)
}

/// Reads a value of `--frames`: `KIND`, or `KIND:PARAMETER=VALUE,PARAMETER=VALUE…`. Parameters are separated by `,` or
/// `:`; lists are written `1+2+3`, or `1,2,3`. A path reaches to the next separator, an argument to the end.
fn frames(files: Load<'_>) -> impl Fn(&str, &Place) -> Result<RawFrames, PolicyError> {
    move |text, place| {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let kind = At::new(kind.trim().to_owned(), place);
        let mut parameters: Vec<(At<String>, Vec<At<String>>)> = Vec::new();
        let mut rest = rest;
        while !rest.is_empty() {
            let end = if rest.starts_with("argument=") { None } else { rest.find([':', ',']) };
            let (part, left) = end.map_or((rest, ""), |end| (&rest[..end], &rest[end + 1..]));
            rest = left;
            match (part.split_once('='), parameters.last_mut()) {
                (Some((name, value)), _) => {
                    let name = At::new(name.trim().to_owned(), place);
                    let whole = matches!(name.value.as_str(), "map" | "path" | "argument");
                    let values = if whole { vec![value] } else { value.split('+').collect() };
                    let values = values.into_iter().map(|value| At::new(value.trim().to_owned(), place)).collect();
                    parameters.push((name, values));
                }
                (None, Some((_, values))) => values.push(At::new(part.trim().to_owned(), place)),
                (None, None) => {
                    let message = format!("{part:?} is not a parameter");
                    let forms = ["NAME=VALUE", "NAME=VALUE+VALUE+…"];
                    return Err(PolicyError::new(place, message).allowed(forms));
                }
            }
        }
        frames_with_files(kind, parameters, files)
    }
}
