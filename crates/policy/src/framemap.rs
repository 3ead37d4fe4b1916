//! Saved maps: the frames and colours of a process, as `pagelab map --save` writes them.
//!
//! ```json
//! {"schema": "pagelab.framemap/1", "pid": 4711, "colours": 64, "masks": [],
//!  "spans": [{"start": "0x600000000000", "pages": 3, "frames": [812, 813, null], "colours": [44, 45, null]}]}
//! ```
//! A span is a run of neighbouring virtual pages; `null` stands for a page that was not resident. Other keys are not
//! read, so a map may contain further facts about the process.

use serde::Deserialize;

use crate::error::{Place, PolicyError};
use crate::frames::{Colours, Span};
use crate::units::{Address, Colour, FrameNumber};

/// Value of a saved map's `schema`.
pub const SCHEMA: &str = "pagelab.framemap/1";
/// Largest file that is read, in bytes.
pub const LARGEST_FILE: u64 = 256 << 20;
/// Most pages that the spans of a policy may have: 64 GiB.
pub const MOST_PAGES: usize = 1 << 24;
/// Bytes of a page in a map.
const PAGE: u64 = 4096;
/// One past the highest address that a program can have with five-level page tables.
const ADDRESS_END: u64 = 1 << 56;

/// A saved map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameMap {
    /// Its definition of colours.
    pub colours: Colours,
    /// Frames by address.
    pub frames: Vec<Span<FrameNumber>>,
    /// Colours by address; the same pages.
    pub page_colours: Vec<Span<Colour>>,
}

#[derive(Deserialize)]
struct Document {
    schema: String,
    colours: u32,
    #[serde(default)]
    masks: Vec<Number>,
    spans: Vec<RawSpan>,
}

#[derive(Deserialize)]
struct RawSpan {
    start: Number,
    pages: usize,
    frames: Vec<Option<u64>>,
    colours: Vec<Option<u32>>,
}

/// A number, or a text of one such as `"0x600000000000"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(u64),
    Text(String),
}

impl Number {
    fn value(&self) -> Result<u64, String> {
        match self {
            Number::Number(value) => Ok(*value),
            Number::Text(text) => crate::size::parse(text).map_err(|error| format!("{text:?}: {}", error.reason())),
        }
    }
}

/// Reads a saved map; `path` is for messages only.
///
/// # Errors
/// The first part that differs from what `pagelab map --save` writes.
pub fn read(text: &str, path: &str) -> Result<FrameMap, PolicyError> {
    let refused = |place: &Place, message: String| {
        PolicyError::new(place, message).next("write one with: sudo pagelab map --save FILE PID")
    };
    let place = Place::whole(path);
    if text.len() as u64 > LARGEST_FILE {
        return Err(refused(&place, format!("the saved map is larger than {} MiB", LARGEST_FILE >> 20)));
    }
    let document: Document = serde_json::from_str(text).map_err(|error| {
        let line = u32::try_from(error.line()).ok().filter(|line| *line > 0);
        refused(&Place { line, ..place.clone() }, format!("not a saved map: {error}"))
    })?;
    build(&document).map_err(|message| refused(&place, message))
}

fn build(document: &Document) -> Result<FrameMap, String> {
    if document.schema != SCHEMA {
        return Err(format!("its schema is {:?}, not {SCHEMA:?}", document.schema));
    }
    let masks = document.masks.iter().map(Number::value).collect::<Result<Vec<_>, _>>()?;
    let colours = if masks.is_empty() { Colours::Count(document.colours) } else { Colours::Masks(masks) };
    check_colours(&colours, document.colours)?;
    let mut map = FrameMap { colours, frames: Vec::new(), page_colours: Vec::new() };
    for (number, raw) in document.spans.iter().enumerate() {
        let (frames, colours) = span(raw, document.colours).map_err(|why| format!("span {number}: {why}"))?;
        map.frames.push(frames);
        map.page_colours.push(colours);
    }
    check_spans(&map.frames)?;
    Ok(map)
}

fn check_colours(colours: &Colours, count: u32) -> Result<(), String> {
    if count == 0 || count > crate::plan::MOST_COLOURS {
        return Err(format!("it has {count} colours; allowed: 1 to {}", crate::plan::MOST_COLOURS));
    }
    match colours {
        Colours::Masks(masks) => {
            check_masks(masks)?;
            match 1_u64.checked_shl(u32::try_from(masks.len()).unwrap_or(u32::MAX)) {
                Some(wanted) if wanted == u64::from(count) => Ok(()),
                _ => Err(format!("it has {count} colours, and {} masks give another number", masks.len())),
            }
        }
        _ => Ok(()),
    }
}

fn span(raw: &RawSpan, colours: u32) -> Result<(Span<FrameNumber>, Span<Colour>), String> {
    if raw.frames.len() != raw.pages || raw.colours.len() != raw.pages {
        let (frames, colours) = (raw.frames.len(), raw.colours.len());
        return Err(format!("{frames} frames and {colours} colours for {} pages", raw.pages));
    }
    let largest = raw.frames.iter().flatten().max().copied().unwrap_or(0);
    if largest > LARGEST_FRAME {
        return Err(format!("{largest:#x} is no frame number"));
    }
    if let Some(colour) = raw.colours.iter().flatten().find(|colour| **colour >= colours) {
        return Err(format!("colour {colour} of {colours} colours"));
    }
    let start = Address(raw.start.value()?);
    let frames = raw.frames.iter().map(|frame| frame.map(FrameNumber)).collect();
    let colours = raw.colours.iter().map(|colour| colour.map(Colour)).collect();
    Ok((Span { start, values: frames }, Span { start, values: colours }))
}

/// Largest frame number: 52 bits of physical address.
pub const LARGEST_FRAME: u64 = (1 << 40) - 1;

/// Checks that spans have the plan's form: aligned, sorted, disjoint, inside the address space, not empty, not too
/// many.
///
/// # Errors
/// The first span that does not.
pub fn check_spans<T>(spans: &[Span<T>]) -> Result<(), String> {
    let mut last = 0;
    let mut pages = 0_usize;
    for (number, span) in spans.iter().enumerate() {
        let start = span.start.0;
        let bytes = (span.values.len() as u64).saturating_mul(PAGE);
        let end = start.saturating_add(bytes);
        let why = if span.values.is_empty() {
            "it has no pages"
        } else if start % PAGE != 0 {
            "its start is no multiple of 4096"
        } else if start < last {
            "it overlaps the one before, or lies before it"
        } else if end > ADDRESS_END {
            "it ends where no program can be"
        } else {
            last = end;
            pages = pages.saturating_add(span.values.len());
            continue;
        };
        return Err(format!("span {number} at {}: {why}", span.start));
    }
    if pages == 0 {
        return Err("it has no pages".to_owned());
    }
    if pages > MOST_PAGES {
        return Err(format!("{pages} pages; the most is {MOST_PAGES}"));
    }
    Ok(())
}

/// Checks that all colours of the masks exist: no mask is zero, exceeds a frame number, or is a combination of others.
///
/// # Errors
/// The first mask of these kinds.
pub fn check_masks(masks: &[u64]) -> Result<(), String> {
    let mut basis: Vec<u64> = Vec::new();
    for mask in masks {
        if *mask == 0 || *mask > LARGEST_FRAME {
            return Err(format!("mask {mask:#x} has no bits of a frame number, or others"));
        }
        let rest = basis.iter().fold(*mask, |rest, vector| rest.min(rest ^ vector));
        if rest == 0 {
            return Err(format!(
                "mask {mask:#x} is a combination of those before: half of the colours do not exist"
            ));
        }
        basis.push(rest);
        basis.sort_unstable_by(|a, b| b.cmp(a));
    }
    Ok(())
}
