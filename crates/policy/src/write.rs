//! A policy as canonical TOML: equal policies give equal text, and reading it back gives the same policy.

use std::fmt::Write;

use crate::types::{Backing, Frames, Memory, Mosaic, Pages, Policy, Rule, Scope, Strategy};

/// The canonical TOML of a policy. Every default is written out; layouts stand in it as mosaics.
#[must_use]
pub fn to_toml(policy: &Policy) -> String {
    let mut out = String::new();
    key(&mut out, "name", &quoted(&policy.name));
    key(&mut out, "frames", &frames(&policy.frames));
    key(&mut out, "pages", &pages(&policy.pages));
    key(&mut out, "fetch", &quoted(policy.fetch.name()));
    key(&mut out, "via", &quoted(policy.via.name()));
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
    let colours = |count: &Option<u32>| count.map(|count| format!("colors = {count}"));
    match &frames.strategy {
        Strategy::Kernel => return quoted(frames.strategy.name()),
        Strategy::PageColoring { colors } => fields.extend(colours(colors)),
        Strategy::BinHopping { colors, first } => {
            fields.extend(colours(colors));
            fields.push(format!("first = {first}"));
        }
        Strategy::Modulo { colors, pattern } => {
            fields.extend(colours(colors));
            fields.push(format!("pattern = {}", list(pattern.iter().map(|colour| colour.0.to_string()))));
        }
        Strategy::Exact { frames } => {
            fields.push(format!("frames = {}", list(frames.iter().map(|frame| format!("{:#x}", frame.0)))));
        }
        Strategy::Random { seed } => fields.push(format!("seed = {seed}")),
    }
    if frames.pin {
        fields.push("pin = true".to_owned());
    }
    format!("{{ {} }}", fields.join(", "))
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
