//! Warnings about a run's counters. Facts about the machine rather than this run are information, marked by
//! `"scope": "machine"`, so that a study shows them once.

use super::role::Role;
use super::session::Session;
use super::verdict::Judged;
use crate::sandbox;
use crate::sys;
use crate::warnings::{Kind, SCOPE, SCOPE_MACHINE, Severity, Warnings};
use pagelab_contract::record::CounterStatus;
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The text of a refusal, with the command that helps.
pub fn refusal(error: &io::Error) -> String {
    format!("{}: {}", sys::errno_text(error), advice(error))
}

fn advice(error: &io::Error) -> String {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let hint = sandbox::hint(error);
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "kernel.perf_event_paranoid is {}{hint}; run: sudo sysctl kernel.perf_event_paranoid=1, or: sudo setcap \
             cap_perfmon+ep $(command -v pagelab-launch)",
            paranoid.trim()
        ),
        Some(libc::ENOSYS) => format!("the kernel has no perf_event_open{hint}"),
        Some(libc::EMFILE | libc::ENFILE) => "too many open files; run: ulimit -n 65536".to_owned(),
        _ => "the processor or the kernel has no such event; run: perf list".to_owned(),
    }
}

/// Whether the kernel knows of any performance-monitoring unit of the processor. If it knows of one, a missing event
/// has another cause: a wrong code, or missing rights.
fn machine_has_pmu(devices: &Path) -> bool {
    let names = std::fs::read_dir(devices).into_iter().flatten().flatten();
    let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.any(|name| matches!(name.as_str(), "cpu" | "cpu_core" | "cpu_atom") || name.starts_with("armv"))
}

/// Whether the error says that there is no such event (and not that access to it is denied).
fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::ENXIO))
}

fn names<'j>(judged: impl Iterator<Item = &'j Judged>) -> Vec<String> {
    judged.map(|judged| judged.counter.name.clone()).collect()
}

/// All warnings about the counters of a run.
pub fn warn(roles: &[Role], session: &Session, judged: &[Judged], warnings: &mut Warnings) {
    warn_refused(roles, session, warnings);
    warn_lying(session, warnings);
    warn_doubtful(judged, warnings);
    warn_experimental(roles, judged, warnings);
    warn_user_only(roles, session, warnings);
}

fn warn_refused(roles: &[Role], session: &Session, warnings: &mut Warnings) {
    let without_pmu = !machine_has_pmu(Path::new("/sys/bus/event_source/devices"));
    let mut by_reason: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut missing: Vec<&str> = Vec::new();
    for (number, role) in roles.iter().enumerate() {
        let error = session.refused.iter().find(|refused| refused.0 == number).map(|refused| &refused.1);
        let hardware = role.parts.iter().all(super::role::Part::is_hardware);
        match error {
            None if !role.parts.is_empty() => {}
            None if without_pmu => missing.push(&role.name),
            Some(error) if without_pmu && hardware && is_absent(error) => missing.push(&role.name),
            None => by_reason.entry(role.source.clone()).or_default().push(&role.name),
            Some(error) => by_reason.entry(refusal(error)).or_default().push(&role.name),
        }
    }
    for (reason, counters) in by_reason {
        let message = format!("not counted: {} ({reason})", counters.join(", "));
        warnings.warn(Kind::CounterUnavailable, message, json!({"counters": counters, "reason": reason}));
    }
    if !missing.is_empty() {
        let message = format!(
            "this machine shows no hardware counters (most virtual machines do not): {} not counted; software events \
             (faults, task-clock) do count",
            missing.join(", ")
        );
        let data = json!({"counters": missing, "reason": "no-pmu", SCOPE: SCOPE_MACHINE});
        warnings.add(Kind::CounterUnavailable, Severity::Info, message, data);
    }
}

fn warn_lying(session: &Session, warnings: &mut Warnings) {
    let Some((advertised, usable)) = session.lying else { return };
    let message = format!(
        "the processor shows {advertised} counters, of which {usable} count; no more than {usable} are used at once"
    );
    let data = json!({"advertised": advertised, "usable": usable, SCOPE: SCOPE_MACHINE});
    warnings.add(Kind::CounterImplausible, Severity::Info, message, data);
}

fn warn_doubtful(judged: &[Judged], warnings: &mut Warnings) {
    let with = |status| judged.iter().filter(move |judged| judged.counter.status == status);
    let implausible = names(with(CounterStatus::Implausible));
    if !implausible.is_empty() {
        let message =
            format!("the counts of these counters are impossible, and are left out: {}", implausible.join(", "));
        warnings.warn(Kind::CounterImplausible, message, json!({"counters": implausible}));
    }
    let shared = names(with(CounterStatus::Multiplexed));
    if !shared.is_empty() {
        let message = format!(
            "these counters ran only part of the time, and their counts are scaled up: {}; ask for fewer events",
            shared.join(", ")
        );
        warnings.warn(Kind::CounterMultiplexed, message, json!({"counters": shared}));
    }
}

fn warn_experimental(roles: &[Role], judged: &[Judged], warnings: &mut Warnings) {
    let experimental: Vec<String> = (roles.iter().zip(judged))
        .filter(|(role, judged)| role.experimental && judged.counter.count.is_some())
        .map(|(role, _)| role.name.clone())
        .collect();
    if !experimental.is_empty() {
        let message = format!("the vendor does not document these counters: {}", experimental.join(", "));
        let data = json!({"counters": experimental, SCOPE: SCOPE_MACHINE});
        warnings.add(Kind::CounterExperimental, Severity::Info, message, data);
    }
}

fn warn_user_only(roles: &[Role], session: &Session, warnings: &mut Warnings) {
    let user_only = session.opened.iter().filter(|opened| opened.user_only);
    let mut user_only: Vec<String> =
        user_only.filter_map(|opened| roles.get(opened.slot.0)).map(|role| role.name.clone()).collect();
    user_only.dedup();
    if !user_only.is_empty() {
        let message = format!(
            "these counters leave out the kernel (kernel.perf_event_paranoid): {}; run: sudo sysctl \
             kernel.perf_event_paranoid=1",
            user_only.join(", ")
        );
        let data = json!({"user_only": user_only, SCOPE: SCOPE_MACHINE});
        warnings.add(Kind::CounterUnavailable, Severity::Info, message, data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::role;
    use crate::warnings::Warning;

    fn warned(event: &str, errno: i32) -> Vec<Warning> {
        let roles = role::parse(&[event.to_owned()]).expect("known");
        let session = Session { refused: vec![(0, io::Error::from_raw_os_error(errno))], ..Session::default() };
        let mut warnings = Warnings::default();
        warn_refused(&roles, &session, &mut warnings);
        warnings.0
    }

    #[test]
    fn what_was_asked_for_and_refused_is_a_warning_on_every_machine() {
        for (event, errno) in [("cycles", libc::EACCES), ("cycles", libc::EMFILE), ("page-faults", libc::ENOENT)] {
            let [warning] = &warned(event, errno)[..] else { panic!("one warning") };
            assert_eq!((warning.severity, warning.data.get(SCOPE)), (Severity::Warning, None), "{event} {errno}");
        }
    }

    #[test]
    fn a_machine_without_a_pmu_is_information_about_the_machine() {
        let without = !machine_has_pmu(Path::new("/sys/bus/event_source/devices"));
        let [warning] = &warned("cycles", libc::ENOENT)[..] else { panic!("one warning") };
        let expected = if without { Severity::Info } else { Severity::Warning };
        assert_eq!((warning.severity, warning.data.contains_key(SCOPE)), (expected, without));
    }

    #[test]
    fn a_pmu_is_known_by_its_device() {
        let root = std::env::temp_dir().join(format!("pagelab-devices-{}", std::process::id()));
        for (device, expected) in [("software", false), ("cpu_core", true), ("armv8_pmuv3_0", true)] {
            std::fs::create_dir_all(root.join(device)).expect("a directory");
            assert_eq!(machine_has_pmu(&root), expected, "{device}");
            std::fs::remove_dir_all(&root).expect("removed");
        }
        assert!(!machine_has_pmu(&root));
    }
}
