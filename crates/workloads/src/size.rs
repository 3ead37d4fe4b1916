//! Byte counts as people write them: `4096`, `64K`, `256M`, `1G`, also `MiB` and the like (all binary).

/// Parses a byte count; the error says what is allowed.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text[digits.len()..].trim();
    let number: usize = digits
        .parse()
        .map_err(|_| format!("'{text}' is no byte count; write for example 4096, 64K, 256M or 1G"))?;
    let factor: usize = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(format!("'{unit}' is no unit of bytes; allowed: K, M, G (powers of 1024)")),
    };
    number
        .checked_mul(factor)
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| format!("'{text}' must be more than 0 and fit into an address space"))
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn units_are_powers_of_1024() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64K"), Ok(65536));
        assert_eq!(parse_bytes("3 MiB"), Ok(3 << 20));
        assert_eq!(parse_bytes("1g"), Ok(1 << 30));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "K", "-1", "0", "1.5M", "12Q", "99999999999999999999", "18446744073709551615G"] {
            assert!(parse_bytes(text).is_err(), "{text:?} was accepted");
        }
    }
}
