//! Builds the record from the decisions before the run and the observations during it.

use crate::counters::{Counted, Tree};
use crate::frames::kernel::ByKernel;
use crate::frames::{Placing, report};
use crate::guests::Guests;
use crate::prepare::Ready;
use crate::process_tree::pid_namespaces;
use crate::process_tree::reap::{self, Cut, Story};
use crate::process_tree::record::{self as processes, Seen};
use crate::request::Request;
use crate::spawn::Finished;
use crate::streams::Lost;
use crate::sys;
use crate::sys::process::{self, End};
use crate::warnings::{Kind, Severity, Warnings};
use crate::{aslr, cgroup};
use pagelab_contract::record::{
    self, Command, Faults, Fetch, Measurement, Outcome, Record, Settings, Status, Times,
};
use serde_json::json;

/// What was seen of a run.
pub struct Observed {
    /// Wall-clock time of its start.
    pub started_at: String,
    /// The program's process id.
    pub pid: i32,
    /// The end of the program and its tree.
    pub finished: Finished,
    /// Time that a hypervisor took from the program's processors during the run.
    pub steal_ns: Option<u64>,
    /// The library's reports.
    pub guests: Guests,
    /// The counters' results.
    pub counted: Counted,
    /// State of prepaging.
    pub fetch: Fetch,
    /// What the run kept open for placing frames; None: the policy leaves them to the kernel.
    pub placing: Option<Placing>,
    /// Frames that the kernel placed.
    pub by_kernel: Option<ByKernel>,
    /// Output of the program that did not arrive.
    pub lost: Option<Lost>,
    /// The program's own measurements.
    pub measurements: Vec<Measurement>,
}

/// Puts the record together.
pub fn record(mut ready: Ready<'_>, mut seen: Observed) -> Record {
    // Where some of the kernel's reports are missing, a process without one need not be in another namespace.
    if seen.counted.tree == Tree::Known {
        pid_namespaces::resolve(&mut seen.guests, &seen.counted.announced, seen.pid);
    }
    let finished = &seen.finished;
    let mut outcome = outcome(finished, ready.request, &mut ready.warnings);
    if let Some(lost) = &seen.lost {
        warn_lost(lost, &mut outcome, &mut ready.warnings);
    }
    warn_not_loaded(&mut ready, &seen, outcome.status);
    report::warn(&seen.guests.reports, seen.placing.as_ref(), seen.pid, &mut ready.warnings);
    let by_kernel = seen.by_kernel.as_ref().map(|by_kernel| by_kernel.block());
    if let (Some(by_kernel), Some(block), true) =
        (&seen.by_kernel, &by_kernel, outcome.status != Status::NotStarted)
    {
        by_kernel.warn(block, finished.story.program.map(|program| program.end), &mut ready.warnings);
    }
    let limits = cgroup::limits();
    warn_limits(&limits, &mut ready.warnings);
    let usage = finished.story.usage();
    let measuring = seen.guests.measuring(None);
    let sources = Seen { guests: &seen.guests, counted: &seen.counted };
    let processes = processes::list(&finished.story, finished.started_ns, seen.pid, &ready.target, &sources);
    if ready.preloaded && ready.policy.inherits_exec() {
        processes::warn_ungoverned(&sources, seen.pid, &mut ready.warnings);
    }
    let placement = seen.guests.placement();
    processes::warn_short_placed(&placement, &processes, &mut ready.warnings);
    Record {
        schema: record::SCHEMA,
        id: None,
        started_at: seen.started_at.clone(),
        command: command(&ready),
        settings: settings(&ready, limits),
        policy: ready.policy.asked,
        outcome,
        time: times(&seen),
        peak_rss_bytes: usage.peak_rss_bytes,
        faults: Faults {
            minor: usage.minor_faults.saturating_sub(measuring.minor_faults),
            major: usage.major_faults.saturating_sub(measuring.major_faults),
        },
        processes,
        placement,
        frames: by_kernel.or_else(|| report::total(&seen.guests.reports, seen.placing.as_ref())),
        fetch: Fetch { residency_at_start: seen.guests.residency(ready.run_dir.path()), ..seen.fetch },
        counters: seen.counted.counters,
        measurements: seen.measurements,
        warnings: ready.warnings.0,
        machine: None,
        provenance: None,
    }
}

fn command(ready: &Ready<'_>) -> Command {
    let arguments = &ready.request.argv;
    Command {
        argv: arguments.clone(),
        cwd: ready.cwd.display().to_string(),
        executable: ready.target.binary.display().to_string(),
        env: ready.environment.that_matters(&ready.request.env),
        env_bytes: ready.environment.bytes() + arguments.iter().map(|text| text.len() + 1).sum::<usize>(),
    }
}

fn settings(ready: &Ready<'_>, limits: cgroup::Limits) -> Settings {
    Settings {
        cpus: ready.cpus.program.clone(),
        aslr: aslr::in_force(ready.request.aslr),
        node: ready.request.node,
        uid: ready.runner.identity.uid,
        gid: ready.runner.identity.gid,
        timeout_s: ready.request.timeout_s,
        preloaded: ready.preloaded,
        flush: ready.request.flush.mode,
        scheduler: ready.real_time.map_or_else(process::scheduler, |what| what.to_string()),
        host_backed_bytes: ready.host_backed_bytes,
        cgroup: limits.files,
    }
}

fn times(seen: &Observed) -> Times {
    let finished = &seen.finished;
    let usage = finished.story.usage();
    let end_ns = finished.story.program.map_or(finished.started_ns, |program| program.at_ns);
    // Measuring takes longer with smaller pages. So it is left out; otherwise it would appear as an effect of the page
    // size.
    let held_ns = seen.by_kernel.as_ref().map_or(0, ByKernel::held_ns);
    let looking_ns = seen.by_kernel.as_ref().map(ByKernel::looking_ns);
    let own_measuring_ns = seen.guests.measuring_ns(Some(seen.pid)).unwrap_or(0) + held_ns;
    let measuring = seen.guests.measuring(None);
    let main_ns = seen.guests.program(seen.pid).and_then(|report| report.ready_ns);
    Times {
        wall_ns: end_ns.saturating_sub(finished.started_ns + own_measuring_ns),
        user_ns: usage.user_ns.saturating_sub(measuring.user_ns),
        system_ns: usage.system_ns.saturating_sub(measuring.system_ns),
        waiting_ns: finished
            .story
            .program
            .and_then(|program| program.waiting_ns)
            .zip(finished.waited_ns)
            .map(|(all, before)| all.saturating_sub(before)),
        steal_ns: seen.steal_ns,
        spawn_to_main_ns: main_ns.map(|ready_ns| ready_ns.saturating_sub(finished.started_ns)),
        measuring_ns: seen.guests.measuring_ns(None).into_iter().chain(looking_ns).reduce(|sum, one| sum + one),
    }
}

fn warn_not_loaded(ready: &mut Ready<'_>, seen: &Observed, status: Status) {
    let heard = seen.guests.program(seen.pid).is_some() || seen.guests.lost.contains(&seen.pid);
    if ready.preloaded && status != Status::NotStarted && !heard {
        let message = "the library was not loaded: the program resets LD_PRELOAD, or its user may not read the library; run: pagelab doctor";
        ready.warnings.add(Kind::GuestNotLoaded, Severity::Serious, message, json!({"pid": seen.pid}));
    }
}

fn warn_limits(limits: &cgroup::Limits, warnings: &mut Warnings) {
    if let Some(quota) = limits.cpu_quota {
        let message =
            format!("a control group limits the run to {quota:.2} CPUs' worth of time: it may be throttled");
        warnings.warn(Kind::CpuRestricted, message, json!({"cpus": quota}));
    }
    if let Some(bytes) = limits.memory_bytes {
        let message = format!("a control group limits the run to {} MiB of memory", bytes >> 20);
        warnings.add(Kind::MemoryLimited, Severity::Info, message, json!({"bytes": bytes}));
    }
}

fn outcome(finished: &Finished, request: &Request, warnings: &mut Warnings) -> Outcome {
    let story = &finished.story;
    let interrupted = matches!(story.cut, Some(Cut::Interrupted(_)));
    if let Some((step, error)) = &finished.not_started {
        let message = format!("cannot execute {}: {} ({step:?})", request.argv[0], sys::errno_text(error));
        return Outcome {
            status: Status::NotStarted,
            exit_code: None,
            signal: None,
            message: Some(message),
            interrupted,
        };
    }
    warn_left(story, warnings);
    let (exit_code, signal) = match story.program.map(|program| program.end) {
        Some(End::Exited(code)) => (Some(code), None),
        Some(End::Signalled(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let ended = story.program.map(|program| reap::describe(program.end)).unwrap_or_default();
    let (status, message) = match story.cut {
        Some(Cut::TimedOut) => {
            let limit = request.timeout_s.unwrap_or_default();
            let cut = format!("the time-out of {limit} s");
            let message = not_by(&cut, story).unwrap_or_else(|| format!("ended after {cut} ({ended})"));
            warnings.add(Kind::TimedOut, Severity::Serious, message.clone(), json!({"timeout_s": limit}));
            (Status::TimedOut, Some(message))
        }
        Some(Cut::Interrupted(by)) => {
            let signal = sys::signals::name(by);
            let message = not_by(&signal, story).unwrap_or_else(|| format!("interrupted by {signal} ({ended})"));
            (Status::Signalled, Some(message))
        }
        None if exit_code == Some(0) => (Status::Ok, None),
        None if signal.is_some() => (Status::Signalled, Some(format!("ended by {ended}"))),
        None => (Status::Failed, Some(ended)),
    };
    if matches!(status, Status::Failed | Status::Signalled) {
        let text = message.clone().unwrap_or_default();
        warnings.add(Kind::ProgramFailed, Severity::Serious, format!("the program failed: {text}"), json!({}));
    }
    Outcome { status, exit_code, signal, message, interrupted }
}

/// That `cut`, a time-out or a signal, did not end the program, and why; None: it did.
fn not_by(cut: &str, story: &Story) -> Option<String> {
    let why = story.refused.as_ref().map(|error| {
        format!(": kill: {}, as it runs as a user whose processes pagelab may not signal", sys::errno_text(error))
    });
    match (why, story.program) {
        (None, Some(_)) => None,
        (Some(why), Some(program)) => {
            Some(format!("{cut} could not end it{why}; it ended by itself ({})", reap::describe(program.end)))
        }
        (why, None) => Some(format!("{cut} could not end it{}; it still runs", why.unwrap_or_default())),
    }
}

/// A run whose output was lost is no success: the program would have failed itself, had it written the output. (Whether
/// it wrote while a file system was full is not known.)
fn warn_lost(lost: &Lost, outcome: &mut Outcome, warnings: &mut Warnings) {
    let (message, next) = match lost.bytes {
        Some(bytes) => (
            format!("{bytes} bytes of the program's standard output did not reach it: {}", lost.why),
            "name a file for it: --stdout FILE",
        ),
        None => (
            format!("a part of the program's standard output may be missing: {}", lost.why),
            "run with another place that has more room: --run-dir DIR, or name a file for it: --stdout FILE",
        ),
    };
    if outcome.status == Status::Ok && lost.bytes.is_some() {
        outcome.status = Status::Failed;
        outcome.message = Some(message.clone());
    }
    let data = json!({"bytes": lost.bytes, "reason": lost.why});
    warnings.add(Kind::OutputLost, Severity::Serious, format!("{message}; {next}"), data);
}

fn warn_left(story: &Story, warnings: &mut Warnings) {
    if story.left.is_empty() {
        return;
    }
    let names: Vec<String> = story.left.iter().map(|(pid, name)| format!("{name} ({pid})")).collect();
    let pids: Vec<i32> = story.left.iter().map(|left| left.0).collect();
    let (number, names) = (names.len(), names.join(", "));
    let message = if story.gave_up {
        format!(
            "{number} processes of the run could not be ended, and still run: {names}; to see them, run: ps -ef"
        )
    } else {
        format!("{number} processes were still running when the program had ended, and were ended too: {names}")
    };
    warnings.warn(Kind::ProcessesLeft, message, json!({"pids": pids}));
}
