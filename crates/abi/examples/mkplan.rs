//! Writes a plan by hand, for trying the library without the launcher.
//!
//! `mkplan RUN_DIR [KIND=SIZE[:START-END:SIZE…]]… [fetch:KIND=demand|prefault|willneed]
//! [frames:KIND=STRATEGY/COLOURS[/VALUE…]] [hugetlb] [nofork] [noexec]`
//! with KIND one of heap, anon, arenas, file, data, stack, pages (heap, anon and arenas); prints the environment to set. VALUEs
//! are the pattern of modulo, and the first colour of bin-hopping.

use std::process::exit;

use pagelab_abi::plan::{
    Fetch, Flags, Interval, Memory, PlanSpec, RunSpec, SectionSpec, StrategyKind, StrategySpec, Via,
};

fn size(text: &str) -> u64 {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        other => panic!("unknown unit {other}"),
    };
    digits.parse::<u64>().expect("a number") * unit
}

fn kinds(name: &str) -> Vec<Memory> {
    match name {
        "pages" => vec![Memory::Heap, Memory::Anon, Memory::Arenas],
        name => Memory::ALL.into_iter().filter(|memory| memory.name() == name).collect(),
    }
}

fn section(spec: &mut PlanSpec, memory: Memory) -> &mut SectionSpec {
    let at = spec.sections.iter().position(|section| section.memory == memory).unwrap_or_else(|| {
        spec.sections.push(SectionSpec::uniform(memory, 0, Via::Thp));
        spec.sections.len() - 1
    });
    &mut spec.sections[at]
}

fn strategy(text: &str) -> StrategySpec {
    let mut parts = text.split('/');
    let name = parts.next().unwrap_or_default();
    let kind = StrategyKind::ALL.iter().copied().find(|kind| kind.name() == name).expect("a strategy");
    let mut numbers = parts.map(|part| part.parse::<u64>().expect("a number"));
    let mut strategy = StrategySpec::new(kind, numbers.next().expect("a number of colours") as u32);
    match kind {
        StrategyKind::BinHopping => strategy.first = numbers.next().unwrap_or(0) as u32,
        _ => strategy.values = numbers.collect(),
    }
    strategy
}

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(run_dir) = args.next() else {
        eprintln!(
            "usage: mkplan RUN_DIR [KIND=SIZE[:START-END:SIZE]…]… [fetch:KIND=HOW] [frames:KIND=HOW] [hugetlb] [nofork] \
             [noexec]"
        );
        exit(2);
    };
    let args: Vec<String> = args.collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let via = if has("hugetlb") { Via::Hugetlb } else { Via::Thp };
    let mut spec = PlanSpec::default();
    if !has("nofork") {
        spec.flags = spec.flags | Flags::INHERIT_FORK;
    }
    if !has("noexec") {
        spec.flags = spec.flags | Flags::INHERIT_EXEC;
    }
    for arg in &args {
        let Some((key, value)) = arg.split_once('=') else { continue };
        if let Some(kind) = key.strip_prefix("fetch:") {
            let fetch = match value {
                "demand" => Fetch::Demand,
                "prefault" => Fetch::Prefault,
                _ => Fetch::WillNeed,
            };
            kinds(kind).into_iter().for_each(|memory| section(&mut spec, memory).fetch = fetch);
            continue;
        }
        if let Some(kind) = key.strip_prefix("frames:") {
            spec.strategies.push(strategy(value));
            let number = spec.strategies.len() as u16;
            kinds(kind).into_iter().for_each(|memory| section(&mut spec, memory).frames = number);
            continue;
        }
        let mut parts = value.split(':');
        let otherwise = size(parts.next().expect("a size"));
        let mut intervals = Vec::new();
        while let (Some(range), Some(bytes)) = (parts.next(), parts.next()) {
            let (start, end) = range.split_once('-').expect("START-END");
            intervals.push(Interval { start: size(start), end: size(end), page_bytes: size(bytes), via });
        }
        for memory in kinds(key) {
            let section = section(&mut spec, memory);
            (section.otherwise, section.otherwise_via) = (otherwise, via);
            section.intervals.clone_from(&intervals);
        }
    }
    std::fs::create_dir_all(&run_dir).expect("run directory");
    let flags = Flags::MEASURE | Flags::RESIDENCY;
    let run = RunSpec { run_dir: run_dir.clone().into_bytes(), flags, ..RunSpec::default() };
    std::fs::write(format!("{run_dir}/plan"), spec.encode(&run).expect("a valid plan")).expect("plan");
    println!("PAGELAB_PLAN={run_dir}/plan");
}
