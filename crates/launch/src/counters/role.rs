//! What a request may name as an event, resolved for this machine.

use super::codes;
use super::pfm;
use super::processor::{self, Processor};
use super::table::{Microarchitecture, Row, SETS};
use crate::error::{Error, Result};
use crate::sys::perf::Code;
use perf_event_open_sys::bindings as abi;

/// One counted event of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What the kernel is asked for.
    pub code: Code,
    /// Added or subtracted.
    pub sign: i64,
}

impl Part {
    /// Whether it needs one of the processor's counters.
    pub fn is_hardware(&self) -> bool {
        self.code.kind != abi::PERF_TYPE_SOFTWARE
    }

    /// Whether it is an event of the processor core's own PMU.
    pub fn is_core_hardware(&self) -> bool {
        [abi::PERF_TYPE_HARDWARE, abi::PERF_TYPE_HW_CACHE, abi::PERF_TYPE_RAW].contains(&self.code.kind)
    }

    /// Whether it is a plain software event; the two clocks are PMUs of their own.
    pub fn is_plain_software(&self) -> bool {
        let clocks = [abi::PERF_COUNT_SW_CPU_CLOCK, abi::PERF_COUNT_SW_TASK_CLOCK].map(u64::from);
        self.code.kind == abi::PERF_TYPE_SOFTWARE && !clocks.contains(&self.code.config)
    }
}

/// One counter of the record.
#[derive(Clone, Debug)]
pub struct Role {
    /// Its name in the record.
    pub name: String,
    /// Its code, as it can be given again.
    pub code: String,
    /// What it adds up. Empty: this processor has no event for it.
    pub parts: Vec<Part>,
    /// Where the code is documented.
    pub source: String,
    /// The code was checked on hardware with a known answer.
    pub verified: bool,
    /// The vendor does not document the code.
    pub experimental: bool,
    /// More than zero whenever a program runs at all: a zero shows a counter that does not count.
    pub never_zero: bool,
}

const KERNEL: &str = "Linux, include/uapi/linux/perf_event.h";

const SOFTWARE: [(&str, &str, u32); 7] = [
    ("faults.minor", "minor-faults", abi::PERF_COUNT_SW_PAGE_FAULTS_MIN),
    ("faults.major", "major-faults", abi::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
    ("page-faults", "page-faults", abi::PERF_COUNT_SW_PAGE_FAULTS),
    ("task-clock", "task-clock", abi::PERF_COUNT_SW_TASK_CLOCK),
    ("context-switches", "context-switches", abi::PERF_COUNT_SW_CONTEXT_SWITCHES),
    ("cpu-migrations", "cpu-migrations", abi::PERF_COUNT_SW_CPU_MIGRATIONS),
    ("alignment-faults", "alignment-faults", abi::PERF_COUNT_SW_ALIGNMENT_FAULTS),
];

const HARDWARE: [(&str, u32); 6] = [
    ("cycles", abi::PERF_COUNT_HW_CPU_CYCLES),
    ("instructions", abi::PERF_COUNT_HW_INSTRUCTIONS),
    ("branches", abi::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    ("branch-misses", abi::PERF_COUNT_HW_BRANCH_MISSES),
    ("cache-references", abi::PERF_COUNT_HW_CACHE_REFERENCES),
    ("cache-misses", abi::PERF_COUNT_HW_CACHE_MISSES),
];

/// Cache events of the kernel's own naming: (name, cache, operation, result).
const CACHE: [(&str, u32, u32, u32); 6] = [
    ("dTLB-loads", 3, 0, 0),
    ("dTLB-load-misses", 3, 0, 1),
    ("dTLB-store-misses", 3, 1, 1),
    ("iTLB-load-misses", 4, 0, 1),
    ("L1-dcache-load-misses", 0, 0, 1),
    ("LLC-load-misses", 2, 0, 1),
];

/// Resolves everything a request names, in order and without duplicates.
pub fn parse(events: &[String]) -> Result<Vec<Role>> {
    let known = processor::own().as_ref().and_then(Processor::microarchitecture);
    let mut roles: Vec<Role> = Vec::new();
    for event in events.iter().flat_map(|text| split(text)) {
        for role in resolve(&event, known)? {
            if !roles.iter().any(|known| known.name == role.name) {
                roles.push(role);
            }
        }
    }
    Ok(roles)
}

/// Splits at commas outside `/…/`, as perf does.
fn split(text: &str) -> Vec<String> {
    let mut inside = false;
    let mut parts = vec![String::new()];
    for character in text.chars() {
        inside ^= character == '/';
        match (character, parts.last_mut()) {
            (',', _) if !inside => parts.push(String::new()),
            (_, Some(last)) => last.push(character),
            (_, None) => {}
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

fn resolve(event: &str, known: Option<&'static Microarchitecture>) -> Result<Vec<Role>> {
    if let Some((_, roles)) = SETS.iter().find(|(set, _)| *set == event) {
        return Ok(roles.iter().map(|role| named(role, known)).collect());
    }
    let (bare, exclude) = modifier(event);
    let found = kernel_event(bare).or_else(|| table_event(bare, known));
    let mut role = match found {
        Some(role) => role,
        None => match codes::parse(bare)? {
            Some(code) => raw(bare, code),
            None => return pfm::resolve(event).map(|role| vec![role]).map_err(|why| unknown(event, &why)),
        },
    };
    if let Some((exclude_kernel, exclude_user)) = exclude {
        event.clone_into(&mut role.name);
        for part in &mut role.parts {
            (part.code.exclude_kernel, part.code.exclude_user) = (exclude_kernel, exclude_user);
        }
    }
    Ok(vec![role])
}

/// `:u` counts user mode only, `:k` the kernel only.
fn modifier(event: &str) -> (&str, Option<(bool, bool)>) {
    match event.rsplit_once(':') {
        Some((bare, "u")) => (bare, Some((true, false))),
        Some((bare, "k")) => (bare, Some((false, true))),
        _ => (event, None),
    }
}

fn unknown(event: &str, why: &str) -> Error {
    let sets: Vec<&str> = SETS.iter().map(|set| set.0).collect();
    let hardware = HARDWARE.iter().map(|event| event.0).chain(CACHE.iter().map(|event| event.0));
    let software = SOFTWARE.iter().map(|event| event.0);
    Error::BadInput(format!(
        "unknown event {event:?}{why}; sets: {}; events: {}; raw codes: r0F45, cpu/event=0x45,umask=0x0f/",
        sets.join(", "),
        hardware.chain(software).collect::<Vec<_>>().join(", ")
    ))
}

fn named(role: &str, known: Option<&'static Microarchitecture>) -> Role {
    let missing = || Role {
        name: role.to_owned(),
        code: String::new(),
        parts: Vec::new(),
        source: match known {
            Some(known) => format!("{} has no event for it", known.name),
            None => "this processor is not in pagelab's event table".to_owned(),
        },
        verified: false,
        experimental: false,
        never_zero: false,
    };
    kernel_event(role).or_else(|| table_event(role, known)).unwrap_or_else(missing)
}

fn role(name: &str, code: String, parts: Vec<Part>, source: &str) -> Role {
    Role {
        name: name.to_owned(),
        code,
        parts,
        source: source.to_owned(),
        verified: false,
        experimental: false,
        never_zero: false,
    }
}

fn part(kind: u32, config: u64) -> Part {
    Part { code: Code { kind, config, ..Code::default() }, sign: 1 }
}

fn kernel_event(name: &str) -> Option<Role> {
    if let Some(&(role_name, code, config)) = SOFTWARE.iter().find(|known| known.0 == name || known.1 == name) {
        let parts = vec![part(abi::PERF_TYPE_SOFTWARE, config.into())];
        // The kernel's own counts, compared with wait4 in the tests.
        return Some(Role { verified: true, ..role(role_name, code.to_owned(), parts, KERNEL) });
    }
    if let Some(&(_, config)) = HARDWARE.iter().find(|known| known.0 == name) {
        let never_zero = matches!(name, "cycles" | "instructions" | "branches");
        let parts = vec![part(abi::PERF_TYPE_HARDWARE, config.into())];
        return Some(Role { never_zero, ..role(name, name.to_owned(), parts, KERNEL) });
    }
    let &(_, cache, operation, result) = CACHE.iter().find(|known| known.0 == name)?;
    let parts = vec![part(abi::PERF_TYPE_HW_CACHE, (cache | operation << 8 | result << 16).into())];
    Some(role(name, name.to_owned(), parts, KERNEL))
}

fn table_event(name: &str, known: Option<&'static Microarchitecture>) -> Option<Role> {
    let known = known?;
    let row = known.rows.iter().find(|row| row.role == name)?;
    Some(from_row(row, known))
}

fn from_row(row: &Row, known: &Microarchitecture) -> Role {
    let part = |event: &super::table::Event| Part {
        code: Code { kind: abi::PERF_TYPE_RAW, config: event.config, ..Code::default() },
        sign: event.sign,
    };
    let mut code = String::new();
    for event in row.events {
        code.push_str(if event.sign < 0 {
            "-"
        } else if code.is_empty() {
            ""
        } else {
            "+"
        });
        code.push_str(&format!("r{:04X}", event.config));
    }
    let names: Vec<&str> = row.events.iter().map(|event| event.name).collect();
    let checked = row.verified.map(|on| format!("; checked: {on}")).unwrap_or_default();
    Role {
        verified: row.verified.is_some(),
        experimental: row.experimental,
        // No exec without any. An emulated PMU takes every code and counts few (seen: Neoverse N1 in QEMU).
        never_zero: matches!(row.role, "tlb.hits" | "tlb.walks" | "tlb.walk_cycles" | "cache.l1_misses"),
        ..role(
            row.role,
            code,
            row.events.iter().map(part).collect(),
            &format!("{}: {}; {}{checked}", known.name, names.join(", "), row.source),
        )
    }
}

fn raw(name: &str, code: Code) -> Role {
    let part = Part { code, sign: 1 };
    role(name, name.to_owned(), vec![part], "given as a raw code")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::table;

    fn names(events: &[&str]) -> Vec<String> {
        let events: Vec<String> = events.iter().map(|event| (*event).to_owned()).collect();
        parse(&events).expect("known").into_iter().map(|role| role.name).collect()
    }

    #[test]
    fn a_program_without_any_translation_is_a_counter_that_does_not_count() {
        let known =
            crate::counters::table::ALL.into_iter().flatten().find(|one| one.name == "AMD Zen 3").expect("a table");
        for (name, expected) in [("tlb.walks", true), ("tlb.hits", true), ("cache.l2_misses", false)] {
            let role = table_event(name, Some(known)).expect("a row");
            assert_eq!(role.never_zero, expected, "{name}");
        }
    }

    #[test]
    fn sets_names_and_raw_codes_may_be_mixed_and_repeated() {
        assert_eq!(
            names(&["faults", "minor-faults,cycles", "r0F45", "cycles"]),
            ["faults.minor", "faults.major", "cycles", "r0F45"]
        );
        assert_eq!(names(&["tlb"]), ["tlb.hits", "tlb.walks", "tlb.walk_cycles"]);
        assert_eq!(names(&["cycles:u", "cycles:k"]), ["cycles:u", "cycles:k"]);
    }

    #[test]
    fn commas_inside_a_raw_code_do_not_split_it() {
        assert_eq!(split("cycles, cpu/event=0x45,umask=0x0f/ ,r1"), ["cycles", "cpu/event=0x45,umask=0x0f/", "r1"]);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let message = parse(&["no-such-event".to_owned()]).expect_err("unknown").to_string();
        assert!(message.contains("no-such-event") && message.contains("tlb, cache, faults"), "{message}");
    }

    #[test]
    fn a_role_of_two_events_says_both_codes() {
        let skylake =
            table::ALL.into_iter().flatten().find(|known| known.name.contains("Skylake")).expect("listed");
        let role = table_event("tlb.walks", Some(skylake)).expect("listed");
        assert_eq!(role.code, "r0E08+r0E49");
        assert!(role.source.contains("DTLB_LOAD_MISSES.WALK_COMPLETED") && !role.verified);
        let arm = table::ALL.into_iter().flatten().find(|known| known.name.contains("N1")).expect("listed");
        assert_eq!(table_event("tlb.hits", Some(arm)).expect("listed").code, "r002F-r002D");
    }
}
