//! Writes a policy as canonical TOML: equal policies give equal text, and reading it back gives the same policy.

use std::fmt::Write;

use crate::frames::{ByPage, Colours, FirstBin, Frames, Span, Strategy};
use crate::plan::Parameter;
use crate::types::{Backend, Backing, Memory, Mosaic, Pages, Policy, Rule, Scope};
use crate::validate::write_values;

/// The canonical TOML of a policy. Every default is written except that of `backend`; layouts appear as mosaics.
#[must_use]
pub fn to_toml(policy: &Policy) -> String {
    let mut out = String::new();
    key(&mut out, "name", &quoted(&policy.name));
    key(&mut out, "frames", &frames(&policy.frames));
    key(&mut out, "pages", &pages(&policy.pages));
    key(&mut out, "fetch", &quoted(policy.fetch.name()));
    key(&mut out, "via", &quoted(policy.via.name()));
    // Policies from before this choice existed keep their text, and so their digest.
    if policy.backend != Backend::default() {
        key(&mut out, "backend", &quoted(policy.backend.name()));
    }
    let inherit = policy.inherit;
    key(&mut out, "inherit", &format!("{{ fork = {}, exec = {} }}", inherit.fork, inherit.exec));
    for rule in &policy.rules {
        out.push_str("\n[[rule]]\n");
        write_rule(&mut out, rule);
    }
    out
}

fn write_rule(out: &mut String, rule: &Rule) {
    match rule.scope {
        Scope::All => key(out, "memory", &list([quoted("all")])),
        Scope::Memory(set) => key(out, "memory", &list(set.iter().map(Memory::name).map(quoted))),
        Scope::Range { start, end } => key(out, "range", &list([start, end].map(|at| quoted(&at.to_string())))),
    }
    if let Some(bytes) = rule.at_least {
        key(out, "at_least", &quoted(&bytes.to_string()));
    }
    if let Some(value) = &rule.frames {
        key(out, "frames", &frames(value));
    }
    if let Some(value) = &rule.pages {
        key(out, "pages", &pages(value));
    }
    if let Some(value) = rule.via {
        key(out, "via", &quoted(value.name()));
    }
    if let Some(value) = rule.fetch {
        key(out, "fetch", &quoted(value.name()));
    }
}

fn key(out: &mut String, name: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{name} = {value}");
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

/// A TOML basic string. Validation lets no control character through.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn frames(frames: &Frames) -> String {
    let mut fields = vec![format!("kind = {}", quoted(frames.strategy.name()))];
    fields.extend(colours(&frames.colours));
    match &frames.strategy {
        Strategy::Kernel => return quoted(frames.strategy.name()),
        Strategy::ByNumbers(numbers) => {
            // The first colour of a sequence is written even if it is the default.
            if numbers.kind.takes(Parameter::First) && numbers.first == FirstBin::Colour(0) {
                fields.push("first = 0".to_owned());
            }
            fields.extend(numbers.words().into_iter().map(|(parameter, value)| {
                let value = if parameter == Parameter::Hash { quoted(&value) } else { value };
                format!("{} = {value}", parameter.name())
            }));
        }
        Strategy::Modulo { colours } => fields.push(by_page("pattern", colours, |colour| colour.0.into())),
        Strategy::Exact { frames } => fields.push(by_page("frames", frames, |frame| frame.0)),
        Strategy::Module { path, argument, seed } => {
            fields.push(format!("path = {}", quoted(path)));
            if !argument.is_empty() {
                fields.push(format!("argument = {}", quoted(argument)));
            }
            if *seed != 0 {
                fields.push(format!("seed = {seed}"));
            }
        }
    }
    fields.extend(frames.fault_around.map(|pages| format!("fault-around = {pages}")));
    fields.extend(frames.budget.map(|bytes| format!("budget = {}", quoted(&bytes.to_string()))));
    if frames.pin {
        fields.push("pin = true".to_owned());
    }
    format!("{{ {} }}", fields.join(", "))
}

fn colours(colours: &Colours) -> Option<String> {
    match colours {
        Colours::Machine => None,
        Colours::Count(count) => Some(format!("colors = {count}")),
        Colours::Cache { bytes, ways } => Some(format!("cache = {}", quoted(&format!("{bytes},{ways}")))),
        Colours::Masks(masks) => {
            Some(format!("masks = {}", list(masks.iter().map(|mask| quoted(&format!("{mask:#x}"))))))
        }
    }
}

fn by_page<T>(name: &str, pages: &ByPage<T>, value: impl Fn(&T) -> u64) -> String {
    match pages {
        ByPage::List(values) => format!("{name} = {}", list(values.iter().map(|item| value(item).to_string()))),
        ByPage::Spans(spans) => {
            let span = |span: &Span<T>| {
                let values: Vec<Option<u64>> = span.values.iter().map(|item| item.as_ref().map(&value)).collect();
                list([quoted(&span.start.to_string()), quoted(&write_values(&values))])
            };
            format!("spans = [\n    {},\n]", spans.iter().map(span).collect::<Vec<_>>().join(",\n    "))
        }
    }
}

fn pages(pages: &Pages) -> String {
    match pages {
        Pages::Kernel => quoted("kernel"),
        Pages::Size(size) => quoted(&size.to_string()),
        Pages::Mosaic(written) => mosaic(written),
    }
}

fn mosaic(mosaic: &Mosaic) -> String {
    let otherwise = match mosaic.otherwise {
        Backing::Kernel => quoted("kernel"),
        Backing::Size(size) => quoted(&size.to_string()),
    };
    let tiles = mosaic.tiles.iter().map(|tile| {
        list([tile.start.to_string(), tile.end.to_string(), tile.size.to_string()].map(|text| quoted(&text)))
    });
    let tiles: Vec<String> = tiles.collect();
    let tiles = if tiles.len() <= 2 {
        format!("[{}]", tiles.join(", "))
    } else {
        format!("[\n    {},\n]", tiles.join(",\n    "))
    };
    format!("{{ mosaic = {tiles}, otherwise = {otherwise} }}")
}
