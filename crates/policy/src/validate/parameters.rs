//! Parameters of a strategy by name, checked one by one.

use crate::error::PolicyError;
use crate::raw::{At, RawFrames};

use super::number;

/// Longest text of a parameter, in bytes: a path.
const LONGEST_TEXT: usize = 4095;

/// Converts a value that callers have checked against a limit of 32 bits.
pub(super) fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

pub(super) struct Parameters<'r> {
    pub(super) raw: &'r RawFrames,
}

impl Parameters<'_> {
    pub(super) fn check_names(&self, known: &[&str]) -> Result<(), PolicyError> {
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

    pub(super) fn get(&self, name: &str) -> Option<&(At<String>, Vec<At<String>>)> {
        self.raw.parameters.iter().find(|(key, _)| key.value == name)
    }

    pub(super) fn missing(&self, name: &str, what: &str) -> PolicyError {
        let kind = &self.raw.kind;
        PolicyError::new(&kind.place, format!("frames {:?} needs `{name}`, {what}", kind.value))
    }

    pub(super) fn single(&self, name: &str) -> Result<Option<&At<String>>, PolicyError> {
        match self.get(name) {
            None => Ok(None),
            Some((_, values)) if values.len() == 1 => Ok(values.first()),
            Some((key, _)) => Err(PolicyError::new(&key.place, format!("`{name}` takes one value"))),
        }
    }

    pub(super) fn integer(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>, PolicyError> {
        self.single(name)?.map(|value| bounded(value, name, least, most)).transpose()
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, PolicyError> {
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

    /// Reads a text without control characters that is not empty.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, PolicyError> {
        let Some(value) = self.single(name)? else { return Ok(None) };
        let fits = !value.value.is_empty()
            && value.value.len() <= LONGEST_TEXT
            && !value.value.chars().any(char::is_control);
        if fits {
            return Ok(Some(value.value.clone()));
        }
        let message = format!("`{name}` must have 1 to {LONGEST_TEXT} bytes, none of them a control character");
        Err(PolicyError::new(&value.place, message))
    }

    pub(super) fn list(&self, name: &str, what: &str, least: u64, most: u64) -> Result<Vec<u64>, PolicyError> {
        let values = self.get(name).map_or(&[][..], |(_, values)| values);
        if values.is_empty() {
            return Err(self.missing(name, what));
        }
        values.iter().map(|value| bounded(value, name, least, most)).collect()
    }
}

fn bounded(value: &At<String>, name: &str, least: u64, most: u64) -> Result<u64, PolicyError> {
    let shown = if name == "budget" {
        match number(&value.value, &value.place, name)? {
            number if (least..=most).contains(&number) => return Ok(number),
            number => number.to_string(),
        }
    } else {
        // Counts, colours and masks are no sizes, but are written in the same forms.
        match crate::size::parse(&value.value) {
            Ok(number) if (least..=most).contains(&number) => return Ok(number),
            Ok(number) => number.to_string(),
            Err(_) => format!("{:?}", value.value),
        }
    };
    Err(PolicyError::new(&value.place, format!("`{name}` is {shown}")).allowed([format!("{least} to {most}")]))
}
