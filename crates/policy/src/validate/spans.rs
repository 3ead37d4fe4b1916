//! Values by page as one text: `0-63 .*3 5` is 0, 1, 2 … 63, three pages that may lie anywhere, and 5.

use crate::error::{Place, PolicyError};
use crate::framemap::MOST_PAGES;
use crate::frames::Span;
use crate::raw::At;
use crate::units::Address;

/// Forms of the text's words, for messages.
const FORMS: [&str; 4] = ["a number", "FIRST-LAST (one more each page)", ". (anywhere)", ".*COUNT"];

/// Reads spans from texts: address, values, address, values …
pub(super) fn read<T>(
    texts: &[At<String>],
    place: &Place,
    most: u64,
    convert: impl Fn(u64) -> T,
) -> Result<Vec<Span<T>>, PolicyError> {
    let mut spans = Vec::new();
    let mut left = MOST_PAGES;
    for pair in texts.chunks(2) {
        let [start, values] = pair else {
            return Err(PolicyError::new(place, "an address of `spans` has no values"));
        };
        let start = Address(super::number(&start.value, &start.place, "address of a span")?);
        let mut pages = Vec::new();
        for word in values.value.split_ascii_whitespace() {
            let (run, count) = self::word(word, most).ok_or_else(|| {
                let message = format!("{word:?} are no values of pages (up to {most})");
                PolicyError::new(&values.place, message).allowed(FORMS)
            })?;
            left = left.checked_sub(count).ok_or_else(|| {
                PolicyError::new(&values.place, format!("`spans` have more than {MOST_PAGES} pages"))
            })?;
            pages.extend((0..count as u64).map(|index| run.map(|first| convert(first + index))));
        }
        spans.push(Span { start, values: pages });
    }
    Ok(spans)
}

/// Reads one word: the first value of a run and its length; no value: any frame or colour.
fn word(text: &str, most: u64) -> Option<(Option<u64>, usize)> {
    let number = |text: &str| text.parse::<u64>().ok().filter(|value| *value <= most);
    let (first, count) = match text.strip_prefix('.') {
        Some("") => (None, 1),
        Some(rest) => (None, rest.strip_prefix('*')?.parse().ok()?),
        None => match text.split_once('-') {
            None => (Some(number(text)?), 1),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                (Some(first), usize::try_from(last.checked_sub(first)?.checked_add(1)?).ok()?)
            }
        },
    };
    (count > 0 && count <= MOST_PAGES).then_some((first, count))
}

/// The text that [`read`] reads as these values.
pub(crate) fn write(values: &[Option<u64>]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(first) = values.get(at) {
        let follows = |(index, value): &(usize, &Option<u64>)| match (first, value) {
            (None, None) => true,
            (Some(first), Some(value)) => first.checked_add(*index as u64) == Some(*value),
            _ => false,
        };
        let count = values[at..].iter().enumerate().take_while(follows).count();
        words.push(match (first, count) {
            (None, 1) => ".".to_owned(),
            (None, _) => format!(".*{count}"),
            (Some(first), 1) => first.to_string(),
            (Some(first), _) => format!("{first}-{}", first + (count as u64 - 1)),
        });
        at += count;
    }
    words.join(" ")
}
