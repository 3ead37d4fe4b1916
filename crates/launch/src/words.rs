//! Text for people: page sizes, and a program's own words (names of processes, files and measurements).

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character controls a terminal, or the order of the text around it, instead of being printed.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The same text with every control character written as an escape (`\x1b`, `\u202e`), at most `most` characters long.
pub fn plain_up_to(text: &str, most: usize) -> Cow<'_, str> {
    let is_short = text.len() <= most || text.chars().nth(most).is_none();
    if is_short && !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for character in text.chars().take(most) {
        match u32::from(character) {
            _ if !is_control(character) => shown.push(character),
            // Writing to a String cannot fail.
            code @ 0..0x20 => drop(write!(shown, "\\x{code:02x}")),
            code => drop(write!(shown, "\\u{code:04x}")),
        }
    }
    if !is_short {
        shown.push('…');
    }
    Cow::Owned(shown)
}

/// As [`plain_up_to`], for names and paths.
pub fn plain(text: &str) -> Cow<'_, str> {
    plain_up_to(text, 4096)
}

/// Several lines for a terminal or a log: line ends stay, all else is as in [`plain`].
pub fn plain_lines(text: &str) -> String {
    let lines: Vec<Cow<'_, str>> = text.split('\n').map(|line| plain_up_to(line, 64 * 1024)).collect();
    lines.join("\n")
}

/// A page size as the policy language writes it.
pub fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) => format!("{}G", bytes >> 30),
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) && bytes != 1 << 20 => format!("{}M", bytes >> 20),
        _ => format!("{}K", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_cursor_or_turns_text_around_is_shown_instead_of_done() {
        assert_eq!(plain("a\u{1b}]0;title\u{7}b\r\n"), "a\\x1b]0;title\\x07b\\x0d\\x0a");
        assert_eq!(plain("\u{9b}2J \u{202e}gpj \u{2028} \u{feff}"), "\\u009b2J \\u202egpj \\u2028 \\ufeff");
        assert!(matches!(plain("größer, 大, 😀"), Cow::Borrowed(_)));
        assert_eq!(plain_up_to("abcdef", 3), "abc…");
        assert_eq!(plain_up_to("äöü", 3), "äöü");
        assert_eq!(plain_lines("one\n\u{1b}[2Jtwo"), "one\n\\x1b[2Jtwo");
    }

    #[test]
    fn sizes_are_written_as_policies_write_them() {
        let texts: Vec<String> = [4096, 65536, 1 << 20, 2 << 20, 1 << 30].into_iter().map(size).collect();
        assert_eq!(texts, ["4K", "64K", "1024K", "2M", "1G"]);
    }
}
