//! Sizes in the forms that people write: `4096`, `64K`, `2M`, `2 MiB`, `4GB`, `0x200000`.
//!
//! Every unit is binary, also `KB` and `MB`, as in the kernel (`hugepages-2048kB`) and in Mosalloc (`4GB`).

/// Why a text is not a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeError {
    /// The text is empty.
    Empty,
    /// A minus sign.
    Negative,
    /// A decimal point or exponent: sizes are whole numbers.
    Fraction,
    /// The text after the number is no unit.
    Unit,
    /// No number at the start, or stray characters in it.
    Number,
    /// More than 2^64 − 1 bytes.
    TooLarge,
}

impl SizeError {
    /// The reason, to follow `«text» is not a size: `.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            SizeError::Empty => "it is empty",
            SizeError::Negative => "it is negative",
            SizeError::Fraction => "sizes are whole numbers, write 1536M instead of 1.5G",
            SizeError::Unit => "unknown unit",
            SizeError::Number => "it does not start with a number",
            SizeError::TooLarge => "it is larger than 2^64 - 1 bytes",
        }
    }
}

/// The forms that [`parse`] reads, for error messages.
pub const FORMS: &[&str] =
    &["bytes (4096)", "hexadecimal bytes (0x1000)", "K, M, G, T, also as KB or KiB (64M, 2 MiB)"];

/// Bytes in `text`.
///
/// # Errors
/// [`SizeError`], with the reason.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(SizeError::Empty);
    }
    if text.starts_with('-') {
        return Err(SizeError::Negative);
    }
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return parse_digits(digits, 16);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if unit.starts_with('.') {
        return Err(SizeError::Fraction);
    }
    let number = parse_digits(digits, 10)?;
    let factor = unit_factor(unit.trim_start()).ok_or(SizeError::Unit)?;
    number.checked_mul(factor).ok_or(SizeError::TooLarge)
}

fn parse_digits(digits: &str, radix: u32) -> Result<u64, SizeError> {
    let plain: String = digits.chars().filter(|&c| c != '_').collect();
    if plain.is_empty() || !plain.chars().all(|c| c.is_digit(radix)) {
        return Err(SizeError::Number);
    }
    u64::from_str_radix(&plain, radix).map_err(|_| SizeError::TooLarge)
}

fn unit_factor(unit: &str) -> Option<u64> {
    let lower = unit.to_ascii_lowercase();
    if lower.is_empty() || lower == "b" {
        return Some(1);
    }
    let (letter, rest) = lower.split_at_checked(1)?;
    let shift = match letter {
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    matches!(rest, "" | "b" | "ib").then_some(1 << shift)
}

/// `bytes` in the largest unit that divides it: `2M`, `1536M`, `4097`. [`parse`] reads it back to the same number.
#[must_use]
pub fn format(bytes: u64) -> String {
    for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_is_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4K", 4096),
            ("4k", 4096),
            ("4KB", 4096),
            ("2 MiB", 2 << 20),
            ("2mib", 2 << 20),
            ("4GB", 4 << 30),
            ("1T", 1 << 40),
            ("0x200000", 2 << 20),
            ("0X1_000", 4096),
            ("1_000", 1000),
            (" 64M ", 64 << 20),
            ("12B", 12),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_its_reason() {
        for (text, error) in [
            ("", SizeError::Empty),
            ("  ", SizeError::Empty),
            ("-1", SizeError::Negative),
            ("1.5G", SizeError::Fraction),
            ("2X", SizeError::Unit),
            ("2MM", SizeError::Unit),
            ("2M2", SizeError::Unit),
            ("M", SizeError::Number),
            ("0x", SizeError::Number),
            ("0xzz", SizeError::Number),
            ("18446744073709551616", SizeError::TooLarge),
            ("16777216T", SizeError::TooLarge),
            ("2µ", SizeError::Unit),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn formatting_is_exact(bytes: u64) {
            prop_assert_eq!(parse(&format(bytes)), Ok(bytes));
        }

        #[test]
        fn parsing_never_panics(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}
