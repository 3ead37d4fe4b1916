//! Axis `frames`: strategies and their parameters.

use crate::error::PolicyError;
use crate::raw::{At, RawFrames};
use crate::types::{Frames, Strategy};
use crate::units::{Colour, FrameNumber};

use super::number;

/// Words that `frames` takes.
pub const FRAMES_WORDS: &[&str] = &["kernel", "page-coloring", "bin-hopping", "modulo", "exact", "random"];

/// More colours than any cache has.
const MOST_COLOURS: u64 = 65_536;
/// Largest frame number: 52 bits of physical address.
const LARGEST_FRAME: u64 = (1 << 40) - 1;

pub(super) fn validate(written: &At<RawFrames>) -> Result<Frames, PolicyError> {
    let raw = &written.value;
    let known: &[&str] = match raw.kind.value.as_str() {
        "kernel" => &[],
        "page-coloring" => &["colors", "pin"],
        "bin-hopping" => &["colors", "first", "pin"],
        "modulo" => &["colors", "pattern", "pin"],
        "exact" => &["frames", "pin"],
        "random" => &["seed", "pin"],
        _ => {
            let message = format!("unknown value {:?} of `frames`", raw.kind.value);
            return Err(PolicyError::new(&raw.kind.place, message).allowed(FRAMES_WORDS));
        }
    };
    let parameters = Parameters { raw };
    parameters.check_names(known)?;
    let colors = parameters.integer("colors", 1, MOST_COLOURS)?.map(narrow);
    let colour_limit = colors.map_or(MOST_COLOURS, u64::from) - 1;
    let strategy = match raw.kind.value.as_str() {
        "page-coloring" => Strategy::PageColoring { colors },
        "bin-hopping" => {
            let first = parameters.integer("first", 0, colour_limit)?.map_or(0, narrow);
            Strategy::BinHopping { colors, first }
        }
        "modulo" => {
            let pattern = parameters.list("pattern", "a list of colours", colour_limit)?;
            Strategy::Modulo { colors, pattern: pattern.into_iter().map(|colour| Colour(narrow(colour))).collect() }
        }
        "exact" => {
            let frames = parameters.list("frames", "a list of frame numbers", LARGEST_FRAME)?;
            Strategy::Exact { frames: frames.into_iter().map(FrameNumber).collect() }
        }
        "random" => Strategy::Random { seed: parameters.integer("seed", 0, i64::MAX as u64)?.unwrap_or(0) },
        _ => Strategy::Kernel,
    };
    Ok(Frames { strategy, pin: parameters.flag("pin")? })
}

/// Callers have checked the value against [`MOST_COLOURS`].
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

struct Parameters<'r> {
    raw: &'r RawFrames,
}

impl Parameters<'_> {
    fn check_names(&self, known: &[&str]) -> Result<(), PolicyError> {
        let kind = &self.raw.kind.value;
        let mut seen: Vec<&str> = Vec::new();
        for (name, _) in &self.raw.parameters {
            if !known.contains(&name.value.as_str()) {
                let message = format!("unknown parameter `{}` of frames {kind:?}", name.value);
                return Err(PolicyError::new(&name.place, message).allowed(known));
            }
            if seen.contains(&name.value.as_str()) {
                return Err(PolicyError::new(&name.place, format!("`{}` is given twice", name.value)));
            }
            seen.push(&name.value);
        }
        Ok(())
    }

    fn get(&self, name: &str) -> Option<&(At<String>, Vec<At<String>>)> {
        self.raw.parameters.iter().find(|(key, _)| key.value == name)
    }

    fn single(&self, name: &str) -> Result<Option<&At<String>>, PolicyError> {
        match self.get(name) {
            None => Ok(None),
            Some((_, values)) if values.len() == 1 => Ok(values.first()),
            Some((key, _)) => Err(PolicyError::new(&key.place, format!("`{name}` takes one value"))),
        }
    }

    fn integer(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>, PolicyError> {
        self.single(name)?.map(|value| bounded(value, name, least, most)).transpose()
    }

    fn flag(&self, name: &str) -> Result<bool, PolicyError> {
        match self.single(name)? {
            None => Ok(false),
            Some(value) => match value.value.as_str() {
                "true" => Ok(true),
                "false" => Ok(false),
                other => {
                    let message = format!("`{name}` is {other:?}");
                    Err(PolicyError::new(&value.place, message).allowed(["true", "false"]))
                }
            },
        }
    }

    fn list(&self, name: &str, what: &str, most: u64) -> Result<Vec<u64>, PolicyError> {
        let values = self.get(name).map_or(&[][..], |(_, values)| values);
        if values.is_empty() {
            let kind = &self.raw.kind;
            let message = format!("frames {:?} needs `{name}`, {what}", kind.value);
            return Err(PolicyError::new(&kind.place, message));
        }
        values.iter().map(|value| bounded(value, name, 0, most)).collect()
    }
}

fn bounded(value: &At<String>, name: &str, least: u64, most: u64) -> Result<u64, PolicyError> {
    let number = number(&value.value, &value.place, name)?;
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    let message = format!("`{name}` is {number}");
    Err(PolicyError::new(&value.place, message).allowed([format!("{least} to {most}")]))
}
