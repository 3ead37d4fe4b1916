//! Raw event codes: `r0F45`, and `PMU/term=value,…/` with the kernel's description of the PMU's fields.

use crate::error::{Error, Result};
use crate::sys::perf::Code;
use perf_event_open_sys::bindings as abi;
use std::fs;
use std::path::{Path, PathBuf};

const DEVICES: &str = "/sys/bus/event_source/devices";

/// Fields of x86 core PMUs, for machines whose kernel shows none (no PMU: the code can still be checked).
const X86_FIELDS: [(&str, &str); 7] = [
    ("event", "config:0-7,32-35"),
    ("umask", "config:8-15"),
    ("edge", "config:18"),
    ("any", "config:21"),
    ("inv", "config:23"),
    ("cmask", "config:24-31"),
    ("config", "config:0-63"),
];

fn bad(text: &str, why: &str) -> Error {
    Error::BadInput(format!("the event {text:?} {why}; write it as r0F45 or cpu/event=0x45,umask=0x0f/"))
}

/// Parses a raw code; None when the text is not of a raw code's form at all.
pub fn parse(text: &str) -> Result<Option<Code>> {
    if let Some(digits) = text.strip_prefix('r').filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit())) {
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let config = u64::from_str_radix(digits, 16).map_err(|_| bad(text, "has more than 16 digits"))?;
        return Ok(Some(Code { kind: abi::PERF_TYPE_RAW, config, ..Code::default() }));
    }
    let Some((pmu, terms)) = text.strip_suffix('/').and_then(|text| text.split_once('/')) else { return Ok(None) };
    if pmu.is_empty() || pmu.contains('.') {
        return Err(bad(text, "names no PMU"));
    }
    let place = Path::new(DEVICES).join(pmu);
    let mut code = Code { kind: kind(&place, pmu, text)?, ..Code::default() };
    for term in terms.split(',').map(str::trim).filter(|term| !term.is_empty()) {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        let value =
            number(value).ok_or_else(|| bad(text, &format!("has the value {value:?}, which is no number")))?;
        let field =
            field(&place, pmu, name).ok_or_else(|| bad(text, &format!("has the unknown field {name:?}")))?;
        deposit(&mut code, &field, value).map_err(|why| bad(text, &format!("has {name}={value:#x}, {why}")))?;
    }
    Ok(Some(code))
}

fn kind(place: &Path, pmu: &str, text: &str) -> Result<u32> {
    let known = fs::read_to_string(place.join("type")).ok().and_then(|kind| kind.trim().parse().ok());
    match known {
        Some(kind) => Ok(kind),
        None if pmu == "cpu" => Ok(abi::PERF_TYPE_RAW),
        None => {
            Err(bad(text, &format!("names the PMU {pmu:?}, which this machine does not have; run: ls {DEVICES}")))
        }
    }
}

fn field(place: &Path, pmu: &str, name: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.chars().all(allowed) {
        return None;
    }
    let path: PathBuf = place.join("format").join(name);
    let described = fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let builtin = || {
        let known = X86_FIELDS.iter().find(|field| field.0 == name)?;
        (name == "config" || (pmu == "cpu" && !place.exists())).then(|| known.1.to_owned())
    };
    described.or_else(builtin)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Spreads a value over the bits that a field's description names (`config:0-7,32-35`), lowest first.
fn deposit(code: &mut Code, field: &str, value: u64) -> std::result::Result<(), String> {
    let (word, ranges) = field.split_once(':').ok_or("a field the kernel describes in an unknown way")?;
    let word = match word {
        "config" => &mut code.config,
        "config1" => &mut code.config1,
        "config2" => &mut code.config2,
        other => return Err(format!("a field of {other}, which is not supported")),
    };
    let mut rest = value;
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (Ok(low), Ok(high)) = (low.parse::<u32>(), high.parse::<u32>()) else {
            return Err("a field the kernel describes in an unknown way".to_owned());
        };
        if low > high || high > 63 {
            return Err("a field the kernel describes in an unknown way".to_owned());
        }
        let width = high - low + 1;
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        *word |= (rest & mask) << low;
        rest = if width == 64 { 0 } else { rest >> width };
    }
    if rest == 0 { Ok(()) } else { Err("too large for its field".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> u64 {
        parse(text).expect("valid").expect("raw").config
    }

    #[test]
    fn both_forms_give_the_same_code() {
        assert_eq!(config("r0F45"), 0x0f45);
        assert_eq!(config("cpu/config=0x0f45/"), 0x0f45);
        let mut code = Code::default();
        deposit(&mut code, "config:0-7,32-35", 0x18e).expect("fits");
        deposit(&mut code, "config:8-15", 0x0f).expect("fits");
        deposit(&mut code, "config:24-31", 1).expect("fits");
        assert_eq!(code.config, 0x1_0100_0f8e);
    }

    #[test]
    fn values_that_do_not_fit_and_unknown_fields_are_refused() {
        assert!(deposit(&mut Code::default(), "config:0-7", 0x100).is_err());
        for text in
            ["cpu/nonsense=1/", "no-such-pmu/event=1/", "cpu/event=x/", "r11112222333344445", "../x/event=1/"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("cycles").expect("not raw"), None);
        assert_eq!(parse("retired").expect("not raw"), None);
    }
}
