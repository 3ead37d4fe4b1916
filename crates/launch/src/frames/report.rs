//! Frame placement of a run, as the library reported it: the record's block, and the warnings.

use super::Placing;
use super::Route;
use crate::warnings::{Kind, Severity, Warnings};
use pagelab_contract::record::{ColourTable, Frames, FramesEngine, FramesStrategy};
use pagelab_policy::guest::{
    COLOUR_SLOTS, ColourCounts, EngineFailure, EngineReport, EngineState, FramesCounts, FramesReport, NODE_SLOTS,
    Report, State,
};
use serde_json::json;
use std::collections::BTreeMap;

/// Pages placed by memory node, where there are several; the last has those of all nodes from 15 on.
const NODE_NAMES: [&str; NODE_SLOTS] = [
    "node_0_pages",
    "node_1_pages",
    "node_2_pages",
    "node_3_pages",
    "node_4_pages",
    "node_5_pages",
    "node_6_pages",
    "node_7_pages",
    "node_8_pages",
    "node_9_pages",
    "node_10_pages",
    "node_11_pages",
    "node_12_pages",
    "node_13_pages",
    "node_14_pages",
    "node_15_pages",
];

/// Number, kind and colours: the policy's strategies are the same in every process, the programs' own hints are not.
type Key = (u32, &'static str, u64);

/// Strategies and engines of several process images, added up.
#[derive(Debug, Default)]
pub struct Sum {
    strategies: BTreeMap<Key, Strategy>,
    engine: Option<Engine>,
    /// Images with an engine that was started.
    started: u64,
    /// Images that wanted one and had none.
    failed: u64,
}

#[derive(Debug)]
struct Strategy {
    kind: &'static str,
    colours: u64,
    counts: FramesCounts,
    out_of_reach: BTreeMap<&'static str, u64>,
    by_colour: Vec<ColourCounts>,
}

#[derive(Debug)]
struct Engine {
    state: &'static str,
    failure: Option<&'static str>,
    errno: Option<i32>,
    start_up_ns: u64,
    values: BTreeMap<&'static str, u64>,
}

impl Sum {
    /// Adds one image's report.
    pub fn add(&mut self, report: &Report) {
        for frames in &report.frames {
            self.add_strategy(frames);
        }
        let Some(engine) = &report.engine else { return };
        self.started += u64::from(engine.start_ns.is_some());
        self.failed += u64::from(engine.state == EngineState::Failed);
        let sum = self.engine.get_or_insert(Engine {
            state: engine.state.name(),
            failure: None,
            errno: None,
            start_up_ns: 0,
            values: BTreeMap::new(),
        });
        sum.add(engine);
    }

    fn add_strategy(&mut self, frames: &FramesReport) {
        let key = (frames.number, frames.kind.name(), frames.colours);
        let sum = self.strategies.entry(key).or_insert_with(|| Strategy {
            kind: frames.kind.name(),
            colours: frames.colours,
            counts: FramesCounts::default(),
            out_of_reach: BTreeMap::new(),
            by_colour: Vec::new(),
        });
        sum.counts.add(&frames.counts);
        for &(reason, bytes) in &frames.out_of_reach {
            *sum.out_of_reach.entry(reason.name()).or_default() += bytes;
        }
        if sum.by_colour.len() < frames.by_colour.len() {
            sum.by_colour.resize(frames.by_colour.len(), ColourCounts::default());
        }
        for (sum, one) in sum.by_colour.iter_mut().zip(&frames.by_colour) {
            sum.requests += one.requests;
            sum.placed += one.placed;
            sum.fallbacks += one.fallbacks;
        }
    }

    /// The block of the record; colour by colour only where asked, because a record can have many processes.
    pub fn block(&self, by_colour: bool, route: Option<Route>) -> Frames {
        let strategies: Vec<FramesStrategy> =
            self.strategies.iter().map(|(&(number, ..), strategy)| strategy.block(number, by_colour)).collect();
        let of = |field: fn(&FramesStrategy) -> u64| strategies.iter().map(field).sum::<u64>();
        let fraction = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let (kept, moved) = (of(|one| one.kept_pages), of(|one| one.moved_pages));
        Frames {
            rights: route.map(|route| if route == Route::Own { "own" } else { "broker" }),
            placed_fraction: fraction(of(|one| one.placed_pages), of(|one| one.requested_pages)),
            kept_fraction: fraction(kept, kept + moved),
            engines_started: self.started,
            engines_failed: self.failed,
            engine: self.engine.as_ref().map(Engine::block),
            strategies,
            page_color: None,
        }
    }
}

impl Strategy {
    fn block(&self, number: u32, by_colour: bool) -> FramesStrategy {
        let counts = &self.counts;
        let column = |value: fn(&ColourCounts) -> u64| self.by_colour.iter().map(value).collect();
        FramesStrategy {
            number,
            kind: self.kind,
            colours: self.colours,
            requested_pages: counts.requests,
            placed_pages: counts.placed,
            fallback_pages: counts.fallbacks,
            zero_pages: counts.zero_pages,
            demand_pages: counts.demand_pages,
            eager_pages: counts.eager_pages,
            faults: counts.faults,
            moves: counts.runs,
            remapped_pages: counts.remapped_pages,
            copied_pages: counts.copied_pages,
            harvested_pages: None,
            ahead_pages: counts.ahead_pages,
            ahead_zero_pages: counts.ahead_zero_pages,
            resident_pages: counts.resident_pages,
            kept_pages: counts.kept_pages,
            moved_pages: counts.moved_pages,
            unplaced_pages: counts.unplaced_pages,
            out_of_reach_bytes: self
                .out_of_reach
                .iter()
                .map(|(name, &bytes)| ((*name).to_owned(), bytes))
                .collect(),
            by_colour: by_colour.then(|| ColourTable {
                folded: self.colours > COLOUR_SLOTS as u64,
                requested_pages: column(|colour| colour.requests),
                placed_pages: column(|colour| colour.placed),
                fallback_pages: column(|colour| colour.fallbacks),
            }),
        }
    }
}

impl Engine {
    fn add(&mut self, engine: &EngineReport) {
        // If any engine failed, the sum has its failure.
        if engine.failure != EngineFailure::None {
            self.failure = Some(engine.failure.name());
            self.errno = engine.errno;
            self.state = engine.state.name();
        } else if self.failure.is_none() {
            self.state = engine.state.name();
        }
        if let (Some(start), Some(ready)) = (engine.start_ns, engine.ready_ns) {
            self.start_up_ns += ready.saturating_sub(start);
        }
        for (name, value) in engine.counts.named() {
            let sum = self.values.entry(name).or_default();
            if name == "other_node_pages" && engine.counts.nodes < 2 {
                continue;
            }
            // Of bounds the sum has the largest; everything else is added up.
            if matches!(name, "budget_bytes" | "nodes" | "pool_peak_bytes") {
                *sum = (*sum).max(value);
            } else {
                *sum += value;
            }
        }
        for (name, pages) in NODE_NAMES.iter().zip(engine.pages_by_node) {
            if pages > 0 {
                *self.values.entry(name).or_default() += pages;
            }
        }
    }

    fn block(&self) -> FramesEngine {
        FramesEngine {
            state: self.state,
            failure: self.failure,
            errno: self.errno,
            start_up_ns: self.start_up_ns,
            values: self.values.iter().map(|(name, &value)| ((*name).to_owned(), value)).collect(),
        }
    }
}

/// Frame placement of all processes; `None` where no policy was for frames, and no program had hints of its own.
pub fn total(reports: &[Report], placing: Option<&Placing>) -> Option<Frames> {
    let mut sum = Sum::default();
    reports.iter().for_each(|report| sum.add(report));
    (placing.is_some() || !sum.strategies.is_empty()).then(|| sum.block(true, placing.map(|placing| placing.route)))
}

/// Warns of pages that were not placed as the policy, or the program's hints, request.
pub fn warn(reports: &[Report], placing: Option<&Placing>, program: i32, warnings: &mut Warnings) {
    let mut sum = Sum::default();
    reports.iter().for_each(|report| sum.add(report));
    let mut counts = FramesCounts::default();
    sum.strategies.values().for_each(|strategy| counts.add(&strategy.counts));
    if let Some(placing) = placing {
        warn_failed(reports, placing, program, warnings);
        if !reports.is_empty() {
            warn_unused(&sum, warnings);
        }
    }
    warn_fallbacks(&sum, &counts, warnings);
    warn_out_of_reach(&sum, warnings);
    if counts.moved_pages > 0 {
        let placed = counts.kept_pages + counts.moved_pages;
        let message = format!(
            "{} of {placed} placed pages that were resident at exit had come to lie on other frames by then \
             (copy-on-write, swap, compaction, collapse); pin = true keeps them",
            counts.moved_pages
        );
        let data = json!({"moved_pages": counts.moved_pages, "placed_pages": placed});
        warnings.add(Kind::FramesMoved, share_severity(counts.moved_pages, placed), message, data);
    }
}

/// Up to one percent is information only; more may be as large as the effect that a study looks for.
pub(super) fn share_severity(part: u64, whole: u64) -> Severity {
    if part.saturating_mul(100) <= whole { Severity::Info } else { Severity::Warning }
}

/// Strategies whose memory no process used: perhaps the rule names a wrong range of addresses.
fn warn_unused(sum: &Sum, warnings: &mut Warnings) {
    let is_unused = |strategy: &Strategy| {
        strategy.counts.requests + strategy.counts.resident_pages == 0 && strategy.out_of_reach.is_empty()
    };
    let mut unused: Vec<String> = sum
        .strategies
        .iter()
        .filter(|(_, strategy)| is_unused(strategy))
        .map(|((number, kind, _), _)| format!("{kind} (strategy {number})"))
        .collect();
    // Without an engine, which the first governed page starts, nothing is listed.
    if sum.strategies.is_empty() {
        unused.push("the policy for frames".to_owned());
    }
    for who in unused.iter().filter(|_| sum.failed == 0) {
        let message = format!(
            "{who} placed nothing: no page of the memory that it is for was used; which addresses are used: pagelab map"
        );
        warnings.add(Kind::FramesNotPlaced, Severity::Info, message, json!({"strategy": who, "reason": "unused"}));
    }
}

fn warn_fallbacks(sum: &Sum, counts: &FramesCounts, warnings: &mut Warnings) {
    let missed = counts.fallbacks + counts.zero_pages;
    if missed == 0 {
        return;
    }
    let mut why = Vec::new();
    if counts.fallbacks > 0 {
        let frames = sum.strategies.values().any(|strategy| strategy.kind == "exact");
        let what = if frames { "colour or frame" } else { "colour" };
        why.push(format!(
            "for {} the pool had no page of the wanted {what} within its budget, so they got another (budget = \"…\" \
             raises it)",
            counts.fallbacks
        ));
    }
    if counts.zero_pages > 0 {
        let reason = "no page could be moved there (locked or read-only memory, or out of memory)";
        why.push(format!("{} were filled by the kernel, because {reason}", counts.zero_pages));
    }
    let message = format!("{missed} of {} pages are not placed as asked: {}", counts.requests, why.join("; "));
    let data = json!({
        "requested_pages": counts.requests, "fallback_pages": counts.fallbacks, "zero_pages": counts.zero_pages,
    });
    warnings.add(Kind::FramesFallback, share_severity(missed, counts.requests), message, data);
}

fn warn_out_of_reach(sum: &Sum, warnings: &mut Warnings) {
    let mut by_reason: BTreeMap<&str, u64> = BTreeMap::new();
    for (reason, bytes) in sum.strategies.values().flat_map(|strategy| &strategy.out_of_reach) {
        *by_reason.entry(reason).or_default() += bytes;
    }
    if by_reason.is_empty() {
        return;
    }
    let each: Vec<String> =
        by_reason.iter().map(|(reason, bytes)| format!("{} KiB {}", bytes >> 10, reach_text(reason))).collect();
    let message = format!("out of reach of frame placement: {}", each.join(", "));
    warnings.add(Kind::FramesOutOfReach, Severity::Info, message, json!({"bytes": by_reason}));
}

fn reach_text(reason: &str) -> String {
    let text = match reason {
        "larger-page" => "in tiles of larger pages",
        "file" => "of files' page cache",
        "shared" => "shared with other processes",
        "locked-readonly" => "locked or read-only",
        "stack-in-use" => "of the stack in use",
        "early" => "in use before the library",
        other => return format!("({other})"),
    };
    text.to_owned()
}

/// Processes whose frames should have been placed, and that had no engine.
fn warn_failed(reports: &[Report], placing: &Placing, program: i32, warnings: &mut Warnings) {
    let mut groups: BTreeMap<(&'static str, Option<i32>, bool), Vec<&Report>> = BTreeMap::new();
    for report in reports.iter().filter(|report| report.state != State::Disabled) {
        let Some(engine) = &report.engine else { continue };
        if engine.failure != EngineFailure::None {
            let own = report.pid as i32 == program;
            groups.entry((engine.failure.name(), engine.errno, own)).or_default().push(report);
        }
    }
    for ((failure, errno, own), reports) in groups {
        let first = reports[0];
        let who = match (own, reports.len()) {
            (true, _) => "the program".to_owned(),
            (false, 1) => "a child".to_owned(),
            (false, count) => format!("{count} children"),
        };
        let errno_text = errno.map(|errno| std::io::Error::from_raw_os_error(errno).to_string());
        let detail = errno_text.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
        let refused = match placing.refused() {
            Some((pid, why)) => format!("; the launcher refused process {pid}: {why}"),
            None => String::new(),
        };
        let message = format!(
            "{who} ({}, process {}) ran without frame placement: {}{detail}{refused}",
            first.exe,
            first.pid,
            failure_text(failure)
        );
        let pids: Vec<u32> = reports.iter().map(|report| report.pid).collect();
        let data = json!({"pids": pids, "reason": failure, "errno": errno});
        let severity = match (failure, own) {
            ("not-inherited" | "past-libc", _) => Severity::Info,
            (_, true) => Severity::Serious,
            (_, false) => Severity::Warning,
        };
        warnings.add(Kind::FramesNotPlaced, severity, message, data);
    }
}

fn failure_text(failure: &str) -> &str {
    match failure {
        "userfaultfd" => "it could not get a userfaultfd",
        "no-move" => "the kernel cannot move pages by userfaultfd",
        "frame-numbers" => "it could not read frame numbers",
        "no-memory" => "there was no memory for the pool",
        "threads" => "the engine's threads could not be started",
        "register" => "memory could not be registered",
        "sandbox" => "from the moment on when it restricted itself (seccomp or Landlock)",
        "namespaces" => "from the moment on when it entered other namespaces",
        "not-inherited" => "the policy is not inherited over fork",
        "past-libc" => {
            "it was forked past libc (clone), and may end in a way that the engine's threads would prevent"
        }
        "rights" => "it has capabilities, and may not give the engine's threads a user or group of their own",
        "module" => "its strategy module refused",
        "sanitizer" => "LeakSanitizer stops the engine's threads and then reads the program's memory",
        "handler-died" => "the engine's handler ended",
        other => other,
    }
}

#[cfg(test)]
pub(crate) mod tests;
