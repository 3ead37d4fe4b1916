//! From readings to the record: decides which counts are plausible, and explains the others.

use super::Counted;
use super::announced::Tree;
use super::breakdown::Slot;
use super::counter_warnings;
use super::role::Role;
use super::session::{self, Session, Total};
use crate::sandbox;
use crate::warnings::{Kind, Severity, Warnings};
use pagelab_contract::record::{Counter, CounterStatus};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::io;

/// Counts from here on were seen to come from wrong umask bits; no run counts that many events.
pub(super) const ABSURD: u64 = 1 << 46;
/// No event happens more often than this in a nanosecond.
const MOST_A_NS: u64 = 64;
/// A counter that ran for this many thousandths of its enabled time ran all of the time, because reading is not
/// instantaneous.
const WHOLE: u64 = 998;

/// One role's result, before its message is made.
pub(super) struct Judged {
    pub counter: Counter,
    /// Factors by which raw counts of this role's parts are scaled, by part; one that is not here is not scaled.
    scales: HashMap<usize, f64>,
}

/// Judges all counters of a run.
pub fn judge(roles: &[Role], session: &Session, warnings: &mut Warnings) -> Counted {
    let totals = session::totals(&session.opened);
    let judged: Vec<Judged> =
        roles.iter().enumerate().map(|(number, role)| judge_role(number, role, session, &totals)).collect();
    counter_warnings::warn(roles, session, &judged, warnings);
    Counted {
        by_process: by_process(roles, session, &judged, &totals, warnings),
        announced: session.watch.as_ref().map(|watch| watch.family.processes.clone()).unwrap_or_default(),
        tree: tree(session),
        counters: judged.into_iter().map(|judged| judged.counter).collect(),
    }
}

fn tree(session: &Session) -> Tree {
    match (&session.watch, &session.unwatched) {
        (Some(watch), _) => watch.family.tree(),
        (None, Some(error)) => Tree::Unknown(counter_warnings::refusal(error)),
        (None, None) => Tree::Unknown(
            "an event on each of so many CPUs would slow down every fork; run it on fewer: --cpu LIST".to_owned(),
        ),
    }
}

fn judge_role(number: usize, role: &Role, session: &Session, totals: &HashMap<Slot, Option<Total>>) -> Judged {
    let parts: Vec<&super::session::Opened> =
        session.opened.iter().filter(|opened| opened.slot.0 == number).collect();
    let user_only = parts.iter().any(|opened| opened.user_only);
    let mut counter = Counter {
        name: role.name.clone(),
        code: if user_only { format!("{}:u", role.code) } else { role.code.clone() },
        count: None,
        enabled_ns: None,
        running_ns: None,
        status: CounterStatus::Unsupported,
        verified: role.verified,
        source: role.source.clone(),
    };
    if let Some((_, error)) = session.refused.iter().find(|refused| refused.0 == number) {
        counter.status = status_of(error);
        return Judged { counter, scales: HashMap::new() };
    }
    if role.parts.is_empty() {
        return Judged { counter, scales: HashMap::new() };
    }
    let readings: Option<Vec<(i64, Total)>> = parts
        .iter()
        .map(|opened| Some((role.parts.get(opened.slot.1)?.sign, (*totals.get(&opened.slot)?)?)))
        .collect();
    let Some(readings) = readings else {
        counter.status = CounterStatus::Implausible;
        return Judged { counter, scales: HashMap::new() };
    };
    let scales = fill(&mut counter, role, &readings);
    Judged { counter, scales: parts.iter().map(|opened| opened.slot.1).zip(scales).collect() }
}

/// Adds up the readings of a role and decides whether they are plausible; returns the factors by which they were scaled.
/// Parts of a role may take turns in different groups, and each is scaled by its own share of the time.
fn fill(counter: &mut Counter, role: &Role, readings: &[(i64, Total)]) -> Vec<f64> {
    let enabled = readings.iter().map(|reading| reading.1.enabled_ns).max().unwrap_or(0);
    let running = readings.iter().map(|reading| reading.1.running_ns).min().unwrap_or(0);
    (counter.enabled_ns, counter.running_ns) = (Some(enabled), Some(running));
    if enabled == 0 {
        // The program never ran.
        counter.status = CounterStatus::Ok;
        return Vec::new();
    }
    let impossible = |reading: &(i64, Total)| {
        let Total { count, running_ns, .. } = reading.1;
        count >= ABSURD || (running_ns > 0 && count / MOST_A_NS > running_ns.saturating_add(1000))
    };
    let is_hardware = role.parts.iter().any(super::role::Part::is_hardware);
    if running == 0 || (is_hardware && readings.iter().any(impossible)) {
        counter.status = CounterStatus::Implausible;
        return Vec::new();
    }
    let takes_turns = |total: &Total| total.running_ns < total.enabled_ns / 1000 * WHOLE;
    let shared = readings.iter().any(|(_, total)| takes_turns(total));
    let scale = |total: &Total| match takes_turns(total) {
        true => total.enabled_ns as f64 / total.running_ns as f64,
        false => 1.0,
    };
    let scales: Vec<f64> = readings.iter().map(|(_, total)| scale(total)).collect();
    let scaled = readings.iter().zip(&scales).map(|((sign, total), scale)| scaled(*sign, total.count, *scale));
    counter.count = u64::try_from(scaled.sum::<i128>()).ok();
    counter.status = match counter.count {
        None => CounterStatus::Implausible,
        Some(0) if role.never_zero => CounterStatus::Implausible,
        Some(_) if shared => CounterStatus::Multiplexed,
        Some(_) => CounterStatus::Ok,
    };
    if counter.status == CounterStatus::Implausible {
        counter.count = None;
    }
    scales
}

/// A part's count in a sum.
fn scaled(sign: i64, count: u64, scale: f64) -> i128 {
    // Counts that are not scaled stay exact.
    let count = if scale == 1.0 { count } else { (count as f64 * scale).round() as u64 };
    i128::from(sign) * i128::from(count)
}

fn status_of(error: &io::Error) -> CounterStatus {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM | libc::EMFILE | libc::ENFILE) => CounterStatus::Denied,
        Some(libc::ENOSYS) if sandbox::detect().seccomp => CounterStatus::Denied,
        _ => CounterStatus::Unsupported,
    }
}

fn by_process(
    roles: &[Role],
    session: &Session,
    judged: &[Judged],
    totals: &HashMap<Slot, Option<Total>>,
    warnings: &mut Warnings,
) -> BTreeMap<i32, BTreeMap<String, u64>> {
    let mut partial = |why: String| {
        let message = format!("counters are not (all) broken down by process: {why}; totals are not affected");
        warnings.add(Kind::ProcessBreakdownPartial, Severity::Info, message, json!({"reason": why}));
    };
    if let Some(why) = &session.no_breakdown {
        partial(why.clone());
    }
    let (Some(breakdown), Some(watch)) = (&session.breakdown, &session.watch) else { return BTreeMap::new() };
    let sums = session::totals(&breakdown.opened);
    let sums: HashMap<Slot, u64> = sums.iter().filter_map(|(slot, sum)| Some((*slot, (*sum)?.count))).collect();
    let odd =
        sums.iter().find(|(slot, sum)| !agree(**sum, totals.get(slot).copied().flatten().map(|total| total.count)));
    if let Some((slot, sum)) = odd {
        let name = roles.get(slot.0).map_or("?", |role| role.name.as_str());
        partial(format!("{name} came to {sum} in the second set of counters, which is not the total"));
        return BTreeMap::new();
    }
    if breakdown.heard.is_mute(&watch.family) {
        partial("this kernel does not report the counts of tasks that end".to_owned());
        return BTreeMap::new();
    }
    let Some(counts) = breakdown.heard.by_process(&watch.family, &sums) else {
        partial(format!(
            "{} of the kernel's reports were lost, as can happen when processes end at the same moment on two CPUs; \
             run it on one: --cpu 1",
            breakdown.heard.problems(&watch.family).max(1)
        ));
        return BTreeMap::new();
    };
    counts.iter().map(|(pid, counts)| (*pid, named(roles, judged, counts))).collect()
}

/// Two sets of counters start and stop a few instructions apart.
fn agree(second: u64, total: Option<u64>) -> bool {
    total.is_some_and(|total| second.abs_diff(total) <= total / 100 + 64)
}

/// One process's counts by name, without the roles whose total is not reported.
fn named(roles: &[Role], judged: &[Judged], counts: &HashMap<Slot, u64>) -> BTreeMap<String, u64> {
    let mut named = BTreeMap::new();
    for (number, (role, judged)) in roles.iter().zip(judged).enumerate() {
        let counted = (0..role.parts.len()).all(|part| counts.contains_key(&(number, part)));
        if judged.counter.count.is_none() || !counted {
            continue;
        }
        let part = |(index, part): (usize, &super::role::Part)| {
            let scale = judged.scales.get(&index).copied().unwrap_or(1.0);
            scaled(part.sign, counts.get(&(number, index)).copied().unwrap_or(0), scale)
        };
        let sum: i128 = role.parts.iter().enumerate().map(part).sum();
        if let Ok(sum) = u64::try_from(sum) {
            named.insert(role.name.clone(), sum);
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::role;

    fn judged(role_name: &str, readings: &[(i64, u64, u64, u64)]) -> Counter {
        let role = role::parse(&[role_name.to_owned()]).expect("known").remove(0);
        let mut counter = Counter {
            name: String::new(),
            code: String::new(),
            count: None,
            enabled_ns: None,
            running_ns: None,
            status: CounterStatus::Unsupported,
            verified: false,
            source: String::new(),
        };
        let total = |&(sign, count, enabled_ns, running_ns)| (sign, Total { count, enabled_ns, running_ns });
        fill(&mut counter, &role, &readings.iter().map(total).collect::<Vec<_>>());
        counter
    }

    #[test]
    fn a_counter_that_ran_all_the_time_is_taken_as_it_is() {
        let counter = judged("cycles", &[(1, 5_000_000, 1_000_000, 1_000_000)]);
        assert_eq!((counter.status, counter.count), (CounterStatus::Ok, Some(5_000_000)));
    }

    #[test]
    fn a_counter_that_took_turns_is_scaled_and_says_so() {
        let counter = judged("cycles", &[(1, 1_000_000, 1_000_000, 250_000)]);
        assert_eq!((counter.status, counter.count), (CounterStatus::Multiplexed, Some(4_000_000)));
    }

    #[test]
    fn what_cannot_be_is_left_out() {
        for (why, role, reading) in [
            ("2^47", "r1", (1, 1 << 47, 1_000_000, 1_000_000)),
            ("faster than any clock", "r1", (1, 1_000_000_000, 1_000_000, 1_000_000)),
            ("no cycles in a run", "cycles", (1, 0, 1_000_000, 1_000_000)),
            ("never on the hardware", "r1", (1, 0, 1_000_000, 0)),
            ("a negative difference", "r1", (-1, 5, 1_000_000, 1_000_000)),
        ] {
            let counter = judged(role, &[reading]);
            assert_eq!((counter.status, counter.count), (CounterStatus::Implausible, None), "{why}");
        }
    }

    #[test]
    fn sums_and_differences_of_events_are_formed() {
        let counter = judged("r1", &[(1, 100, 1_000_000, 1_000_000), (1, 20, 1_000_000, 1_000_000)]);
        assert_eq!(counter.count, Some(120));
        let counter = judged("r1", &[(1, 100, 1_000_000, 1_000_000), (-1, 20, 1_000_000, 1_000_000)]);
        assert_eq!(counter.count, Some(80));
    }

    #[test]
    fn parts_that_took_turns_in_different_groups_are_scaled_each_by_its_own_time() {
        let all = (1, 1_000_000, 1_000_000, 1_000_000);
        let half = (1, 500_000, 1_000_000, 500_000);
        let counter = judged("r1", &[all, half]);
        assert_eq!((counter.status, counter.count), (CounterStatus::Multiplexed, Some(2_000_000)));
        let counter = judged("r1", &[all, (-1, half.1, half.2, half.3)]);
        assert_eq!((counter.status, counter.count), (CounterStatus::Multiplexed, Some(0)));
        assert_eq!(judged("r1", &[half, all]).running_ns, Some(500_000));
    }

    #[test]
    fn no_faults_at_all_are_plausible() {
        let counter = judged("faults.major", &[(1, 0, 1_000_000, 1_000_000)]);
        assert_eq!((counter.status, counter.count), (CounterStatus::Ok, Some(0)));
    }
}
