//! From a [`RawPolicy`] and a machine description to a [`Policy`]: every value is checked, with its place.

mod frames;
mod pages;
mod parameters;
mod rules;
mod spans;

pub(crate) use frames::obstacle as frames_obstacle;
pub use frames::{FRAMES_WORDS, beyond_the_library};
pub(crate) use pages::applies_to;
pub(crate) use spans::write as write_values;

use crate::error::{Place, PolicyError};
use crate::machine::Machine;
use crate::raw::{At, RawPages, RawPolicy};
use crate::types::{Backend, Fetch, Inherit, Memory, Pages, Policy, Scope, Via};

/// Longest name of a policy, in characters.
const LONGEST_NAME: usize = 100;

/// Checks every value of `raw` against the language and against what `machine` offers.
///
/// # Errors
/// The first value that is refused, with its place, the allowed values, and the command that would help.
pub fn validate(raw: &RawPolicy, machine: &Machine) -> Result<Policy, PolicyError> {
    let via = raw.axes.via.as_ref().map(self::via).transpose()?.unwrap_or_default();
    let backend = raw.backend.as_ref().map(self::backend).transpose()?.unwrap_or_default();
    let frames = raw
        .axes
        .frames
        .as_ref()
        .map(|written| frames::validate(written, Scope::All, backend, machine))
        .transpose()?
        .unwrap_or_default();
    let fetch = raw.axes.fetch.as_ref().map(self::fetch).transpose()?.unwrap_or_default();
    let mut rules = rules::validate(&raw.rules, via, backend, machine)?;
    let pages = match &raw.axes.pages {
        None => Pages::Kernel,
        Some(At { value: RawPages::Layout(layout), place }) => {
            rules::add_layout(&mut rules, layout, place, via, machine)?;
            Pages::Kernel
        }
        Some(written) => {
            let pages = pages::validate(written, via, machine)?;
            pages::check_scope(&pages, Scope::All, via, machine, &written.place)?;
            pages
        }
    };
    let mut policy = Policy {
        name: String::new(),
        inherit: Inherit { fork: raw.inherit_fork.unwrap_or(true), exec: raw.inherit_exec.unwrap_or(true) },
        frames,
        pages,
        via,
        fetch,
        backend,
        rules,
    };
    policy.name = match &raw.name {
        Some(name) => checked_name(name)?,
        None => describe(&policy),
    };
    rules::check_total(&policy, machine, &raw.place)?;
    Ok(policy)
}

/// Words that `memory` accepts.
#[must_use]
pub fn memory_words() -> Vec<&'static str> {
    Memory::ALL.into_iter().map(Memory::name).chain(["all"]).collect()
}

fn via(written: &At<String>) -> Result<Via, PolicyError> {
    word(written, "via", &Via::ALL, Via::name)
}

fn backend(written: &At<String>) -> Result<Backend, PolicyError> {
    word(written, "backend", &Backend::ALL, Backend::name)
}

fn fetch(written: &At<String>) -> Result<Fetch, PolicyError> {
    word(written, "fetch", &Fetch::ALL, Fetch::name)
}

fn word<T: Copy>(
    written: &At<String>,
    key: &str,
    values: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, PolicyError> {
    values.iter().copied().find(|value| name(*value) == written.value).ok_or_else(|| {
        PolicyError::new(&written.place, format!("unknown value {:?} of `{key}`", written.value))
            .allowed(values.iter().map(|value| name(*value)))
    })
}

fn checked_name(name: &At<String>) -> Result<String, PolicyError> {
    let fits = !name.value.trim().is_empty()
        && name.value.chars().count() <= LONGEST_NAME
        && !name.value.chars().any(char::is_control);
    if fits {
        return Ok(name.value.clone());
    }
    let message = format!("`name` must have 1 to {LONGEST_NAME} characters, none of them a control character");
    Err(PolicyError::new(&name.place, message))
}

/// A name for a policy that has none: its settings, such as `pages=2M fetch=demand`, or `kernel`.
fn describe(policy: &Policy) -> String {
    let mut parts = Vec::new();
    if !policy.frames.is_kernel() {
        parts.push(format!("frames={}", policy.frames.brief()));
    }
    if policy.pages != Pages::Kernel {
        parts.push(format!("pages={}", describe_pages(&policy.pages)));
    }
    for rule in &policy.rules {
        let scope = match rule.scope {
            Scope::All => "all".to_owned(),
            Scope::Memory(set) => set.iter().map(Memory::name).collect::<Vec<_>>().join("+"),
            Scope::Range { start, end } => format!("{start}-{end}"),
        };
        let pages = rule.pages.as_ref().map(|pages| format!("{scope}={}", describe_pages(pages)));
        let fetch = rule.fetch.map(|fetch| format!("fetch:{scope}={}", fetch.name()));
        let frames = rule.frames.as_ref().map(|frames| format!("frames:{scope}={}", frames.brief()));
        parts.extend([pages, fetch, frames].into_iter().flatten());
    }
    if policy.fetch != Fetch::Kernel {
        parts.push(format!("fetch={}", policy.fetch.name()));
    }
    if policy.via != Via::Thp {
        parts.push(format!("via={}", policy.via.name()));
    }
    if policy.backend != Backend::default() {
        parts.push(format!("backend={}", policy.backend.name()));
    }
    if parts.is_empty() {
        return "kernel".to_owned();
    }
    parts.join(" ").chars().take(LONGEST_NAME).collect()
}

fn describe_pages(pages: &Pages) -> String {
    match pages {
        Pages::Kernel => "kernel".to_owned(),
        Pages::Size(size) => size.to_string(),
        Pages::Mosaic(_) => "mosaic".to_owned(),
    }
}

/// Reads a size or address; an error lists its forms.
fn number(text: &str, place: &Place, what: &str) -> Result<u64, PolicyError> {
    crate::size::parse(text).map_err(|error| {
        PolicyError::new(place, format!("{what}: {text:?} is not a size: {}", error.reason()))
            .allowed(crate::size::FORMS)
    })
}
