//! Options that several workloads share, and byte counts in the forms that people write: `4096`, `64K`, `256M`, `1G`,
//! also `MiB` and the like (all binary), and those of this machine's caches: `L1`, `L2/2`, `L3*2`.

use std::fs;
use std::path::Path;

use clap::ValueEnum;

const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";

/// Options of every workload that works on memory.
#[derive(clap::Args)]
pub struct Memory {
    /// Bytes of the working set: 4096, 64K, 256M, 1G …
    #[arg(long, default_value = "256M", value_parser = parse_bytes)]
    pub bytes: usize,
    /// Repetitions, each reported as one measurement
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub repetitions: u64,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Order in which pages are visited.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// First to last
    Sequential,
    /// A seeded permutation
    Random,
}

/// Parses a byte count; the error lists the allowed forms.
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

/// Parses a byte count, or the size of a data cache of this machine, also divided or multiplied: `L1`, `L2/2`, `L3*2`.
pub fn parse_bytes_or_cache(text: &str) -> Result<usize, String> {
    parse_with_caches(text, Path::new(CACHES))
}

fn parse_with_caches(text: &str, caches: &Path) -> Result<usize, String> {
    let Some(rest) = text.trim().strip_prefix(['L', 'l']) else { return parse_bytes(text) };
    let wrong = || format!("'{text}' is no cache; write for example L1, L2/2 or L3*2");
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let level: u32 = rest[..digits].parse().map_err(|_| wrong())?;
    let (operator, number) = match rest[digits..].split_at_checked(1) {
        None => ("*", 1),
        Some((operator, number)) => (operator, number.trim().parse().map_err(|_| wrong())?),
    };
    let bytes = data_cache(level, caches).ok_or_else(|| {
        format!(
            "this machine has no cache L{level}, or does not tell its size ({}); give a number",
            caches.display()
        )
    })?;
    match operator {
        "*" => bytes.checked_mul(number).filter(|&bytes| bytes > 0),
        "/" => bytes.checked_div(number).filter(|&bytes| bytes > 0),
        _ => None,
    }
    .ok_or_else(wrong)
}

/// The size of CPU 0's cache of that level that holds data.
fn data_cache(level: u32, caches: &Path) -> Option<usize> {
    let indices = fs::read_dir(caches).ok()?.flatten().map(|entry| entry.path());
    indices
        .filter(|index| {
            let read = |name: &str| fs::read_to_string(index.join(name)).unwrap_or_default();
            read("level").trim() == level.to_string() && read("type").trim() != "Instruction"
        })
        .find_map(|index| parse_bytes(fs::read_to_string(index.join("size")).ok()?.trim()).ok())
}

#[cfg(test)]
mod tests {
    use super::{parse_bytes, parse_with_caches};

    #[test]
    fn caches_are_those_of_the_machine() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (index, level, kind, size) in
            [(0, "1", "Data", "32K"), (1, "1", "Instruction", "64K"), (2, "2", "Unified", "1024K")]
        {
            let index = folder.path().join(format!("index{index}"));
            std::fs::create_dir(&index).expect("a folder");
            for (name, content) in [("level", level), ("type", kind), ("size", size)] {
                std::fs::write(index.join(name), format!("{content}\n")).expect("a file");
            }
        }
        let parse = |text: &str| parse_with_caches(text, folder.path());
        assert_eq!(parse("L1"), Ok(32 << 10));
        assert_eq!(parse("L2/2"), Ok(512 << 10));
        assert_eq!(parse("L2*2"), Ok(2 << 20));
        assert_eq!(parse("64K"), Ok(64 << 10));
        for wrong in ["L", "L2/", "L2/0", "L2*0", "L2x2", "L2+1", "Lx"] {
            assert!(parse(wrong).is_err(), "{wrong:?} was accepted");
        }
        assert!(parse("L3").expect_err("there is none").contains("no cache L3"));
    }

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
