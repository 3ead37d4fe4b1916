//! One run, from request to record.

use crate::cpus::{self, Cpus};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::guests::{self, Guests};
use crate::launch::{self, Finished};
use crate::policy::{self, Prepared};
use crate::record::{
    self, Command, Faults, Fetch, Kind, Outcome, Record, Settings, Severity, Status, Times, Warnings,
};
use crate::request::{Preload, Request};
use crate::rundir::RunDir;
use crate::streams::{self, Capture, Copy, Streams};
use crate::sys::child::{MemoryPolicy, Setup};
use crate::sys::process::{CpuSet, End};
use crate::sys::{self, process};
use crate::target::{self, Target};
use crate::tree::{Companion, Cut, Story};
use crate::user::{self, Runner};
use crate::{aslr, cgroup, processes};
use serde_json::json;
use std::ffi::CString;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Everything decided before the program starts.
struct Ready<'r> {
    request: &'r Request,
    runner: Runner,
    cpus: Cpus,
    cwd: PathBuf,
    target: Target,
    policy: Prepared,
    preloaded: bool,
    environment: Environment,
    run_dir: RunDir,
    library: PathBuf,
    warnings: Warnings,
}

/// Makes the run a request describes.
pub fn run(request: &Request) -> Result<Record> {
    let mut ready = prepare(request)?;
    let plan_path = ready.run_dir.path().join("plan");
    if ready.preloaded {
        let plan = ready.policy.plan(ready.run_dir.path())?;
        let bytes = plan.encode().map_err(|error| Error::Internal(format!("cannot encode the plan: {error}")))?;
        ready.run_dir.write("plan", &bytes)?;
        ready.environment.preload(&ready.library, &plan_path);
    } else {
        ready.environment.pad(&ready.library, &plan_path);
    }
    let streams = streams::prepare(request, &ready.run_dir)?;
    let measure = match request.measurements.fd {
        Some(_) => Some(Capture::create(&ready.run_dir, "measure")?),
        None => None,
    };
    start(ready, streams, measure)
}

fn prepare(request: &Request) -> Result<Ready<'_>> {
    let mut warnings = Warnings::default();
    let sudo = |name: &str| std::env::var(name).ok();
    let runner = user::decide(request.user.as_deref(), sudo("SUDO_UID").as_deref(), sudo("SUDO_GID").as_deref())?;
    let cpus = cpus::choose(&request.cpus)?;
    let cwd = working_directory(request)?;
    let mut environment = Environment::new(&request.env);
    if runner.change {
        user::variables(&runner.identity).into_iter().for_each(|(name, value)| environment.set(name, value));
    }
    let target = target::resolve(&request.argv[0], environment.get("PATH"), &cwd)?;
    let policy = policy::prepare(request)?;
    let preloaded = decide_preload(request, &target, &policy, &mut warnings)?;
    let library = library(request, preloaded)?;
    let run_dir = RunDir::create(request.run_dir_root.as_deref(), runner.identity.uid, runner.identity.gid)?;
    if let Some(fd) = request.measurements.fd {
        environment.set("PAGELAB_MEASURE_FD", fd.to_string());
    }
    Ok(Ready { request, runner, cpus, cwd, target, policy, preloaded, environment, run_dir, library, warnings })
}

fn working_directory(request: &Request) -> Result<PathBuf> {
    let own = std::env::current_dir()
        .map_err(|error| Error::BadInput(format!("cannot find the working directory: {error}")))?;
    Ok(request.cwd.as_ref().map_or(own.clone(), |cwd| own.join(cwd)))
}

fn decide_preload(request: &Request, target: &Target, policy: &Prepared, warnings: &mut Warnings) -> Result<bool> {
    let asks = !policy.asks_nothing();
    if request.preload == Preload::Never {
        return if asks {
            Err(Error::BadInput(
                "the policy asks for something, and --no-preload forbids the library that would do it; \
                 drop one of the two"
                    .to_owned(),
            ))
        } else {
            Ok(false)
        };
    }
    let Some(obstacle) = target.obstacle else { return Ok(true) };
    let binary = target.binary.display();
    if asks || request.preload == Preload::Always {
        return Err(Error::Cannot(format!("cannot govern {binary}: {}; {}", obstacle.reason(), obstacle.advice())));
    }
    let message =
        format!("{binary} runs without the library: {}; its placement is not measured", obstacle.reason());
    warnings.warn(Kind::GuestNotLoaded, message, json!({"executable": target.binary, "reason": obstacle.reason()}));
    Ok(false)
}

/// The library's path; a run without it uses the path only for the size of the environment.
fn library(request: &Request, preloaded: bool) -> Result<PathBuf> {
    let library = request.library.clone().unwrap_or_default();
    if !preloaded {
        return Ok(library);
    }
    let library = std::fs::canonicalize(&library).map_err(|error| {
        Error::BadInput(format!("cannot find the library {}: {error}; run: pip install .", library.display()))
    })?;
    // LD_PRELOAD separates its entries by colons and blanks and has no way to quote them.
    if library.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
        return Err(Error::Cannot(format!(
            "cannot preload {}: LD_PRELOAD takes no path with blanks or colons; \
             copy the library and run: PAGELAB_LIBRARY=/tmp/libpagelab.so pagelab run …",
            library.display()
        )));
    }
    Ok(library)
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Error::BadInput(format!("{:?} contains a NUL", String::from_utf8_lossy(bytes))))
}

fn setup(ready: &Ready<'_>, streams: Streams, measure: Option<&Capture>) -> Result<Setup> {
    let argv: Result<Vec<CString>> =
        ready.request.argv.iter().map(|argument| c_string(argument.as_bytes())).collect();
    let number = ready.request.measurements.fd;
    Ok(Setup {
        path: c_string(ready.target.path.as_os_str().as_bytes())?,
        argv: argv?,
        envp: ready.environment.to_c(),
        cwd: Some(c_string(ready.cwd.as_os_str().as_bytes())?),
        streams: streams.setup,
        measure: measure.zip(number).map(|(capture, number)| (capture.fd(), number)),
        cpus: ready.cpus.pinned.then(|| CpuSet::new(&ready.cpus.program)),
        personality: aslr::personality(ready.request.aslr)?,
        memory: ready.request.node.map(|node| MemoryPolicy { node }),
        identity: ready.runner.change.then(|| ready.runner.identity.clone()),
        parent: process::own_pid(),
        go: -1,
        report: -1,
    })
}

fn start(mut ready: Ready<'_>, mut streams: Streams, measure: Option<Capture>) -> Result<Record> {
    let mut companion = Tending { copy: streams.copy_to.take() };
    let captured = streams.stdout.take();
    let mut prepared = setup(&ready, streams, measure.as_ref())?;
    let started_at = sys::utc_now();
    let waiting = launch::prepare(|go, report| {
        (prepared.go, prepared.report) = (go, report);
        prepared
    })?;
    if ready.cpus.pinned {
        // Failing would only mean that the launcher shares a CPU with the program.
        let _ = CpuSet::new(&ready.cpus.launcher).apply();
    }
    let pid = waiting.pid;
    let finished = waiting.go(ready.request.timeout_s, &mut companion)?;
    companion.visit();
    drop(captured);
    let guests = guests::read(ready.run_dir.path());
    guests.warn(pid, &mut ready.warnings);
    Ok(assemble(ready, &finished, pid, &guests, started_at))
}

/// Looks after captured output while the program runs.
struct Tending {
    copy: Option<Copy>,
}

impl Companion for Tending {
    fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn visit(&mut self) {
        if self.copy.as_mut().is_some_and(|copy| copy.forward().is_err()) {
            self.copy = None;
        }
    }

    fn interval_ns(&self) -> Option<u64> {
        self.copy.as_ref().map(|_| 100_000_000)
    }
}

fn assemble(mut ready: Ready<'_>, finished: &Finished, pid: i32, guests: &Guests, started_at: String) -> Record {
    let outcome = outcome(finished, ready.request, &mut ready.warnings);
    let usage = finished.story.usage();
    let cgroup = cgroup::limits();
    let end_ns = finished.story.program.map_or(finished.started_ns, |program| program.at_ns);
    let main = guests.program(pid).and_then(|report| report.ready_ns);
    if ready.preloaded && guests.program(pid).is_none() && outcome.status != Status::NotStarted {
        let message = "the library was not loaded into the program; run: pagelab doctor";
        ready.warnings.add(Kind::GuestNotLoaded, Severity::Serious, message, json!({"pid": pid}));
    }
    Record {
        schema: record::SCHEMA,
        started_at,
        command: Command {
            argv: ready.request.argv.clone(),
            cwd: ready.cwd.display().to_string(),
            executable: ready.target.binary.display().to_string(),
            env: ready.environment.that_matters(&ready.request.env),
            env_bytes: ready.environment.bytes()
                + ready.request.argv.iter().map(|text| text.len() + 1).sum::<usize>(),
        },
        policy: ready.policy.asked,
        settings: Settings {
            cpus: ready.cpus.program,
            aslr: aslr::in_force(ready.request.aslr),
            node: ready.request.node,
            uid: ready.runner.identity.uid,
            gid: ready.runner.identity.gid,
            timeout_s: ready.request.timeout_s,
            preloaded: ready.preloaded,
            flush: ready.request.flush.mode,
            scheduler: process::scheduler(),
            cgroup: cgroup.files,
        },
        outcome,
        time: Times {
            wall_ns: end_ns.saturating_sub(finished.started_ns),
            user_ns: usage.user_ns,
            system_ns: usage.system_ns,
            spawn_to_main_ns: main.map(|ready_ns| ready_ns.saturating_sub(finished.started_ns)),
        },
        peak_rss_bytes: usage.peak_rss_bytes,
        faults: Faults { minor: usage.minor_faults, major: usage.major_faults },
        counters: Vec::new(),
        processes: processes::list(&finished.story, finished.started_ns, pid, &ready.target, guests),
        placement: guests.placement(),
        fetch: Fetch { residency_at_start: guests.residency(), ..Fetch::default() },
        measurements: Vec::new(),
        warnings: ready.warnings.0,
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
    let (exit_code, signal) = match story.program.map(|program| program.reaped.end) {
        Some(End::Exited(code)) => (Some(code), None),
        Some(End::Signalled(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let ended = story
        .program
        .map_or_else(|| "it could not be ended".to_owned(), |program| crate::tree::describe(program.reaped.end));
    let (status, message) = match story.cut {
        Some(Cut::TimedOut) => {
            let limit = request.timeout_s.unwrap_or_default();
            let message = format!("ended after the time-out of {limit} s ({ended})");
            warnings.add(Kind::TimedOut, Severity::Serious, message.clone(), json!({"timeout_s": limit}));
            (Status::TimedOut, Some(message))
        }
        Some(Cut::Interrupted(by)) => {
            (Status::Signalled, Some(format!("interrupted by {} ({ended})", sys::signals::name(by))))
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

fn warn_left(story: &Story, warnings: &mut Warnings) {
    if story.left.is_empty() {
        return;
    }
    let names: Vec<String> = story.left.iter().map(|(pid, name)| format!("{name} ({pid})")).collect();
    let message = format!(
        "{} processes were still running when the program had ended, and were ended too: {}",
        names.len(),
        names.join(", ")
    );
    let pids: Vec<i32> = story.left.iter().map(|left| left.0).collect();
    warnings.warn(Kind::ProcessesLeft, message, json!({"pids": pids}));
}

/// Writes a record: to a file by way of a temporary one and a rename, or to standard output.
pub fn write(record: &Record, path: Option<&Path>) -> Result<()> {
    let text = serde_json::to_vec(record)
        .map_err(|error| Error::Internal(format!("cannot encode the record: {error}")))?;
    let done = match path {
        None => std::io::Write::write_all(&mut std::io::stdout(), &[text, b"\n".to_vec()].concat()),
        Some(path) => {
            let temporary = path.with_extension("tmp");
            std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path))
        }
    };
    done.map_err(|error| Error::BadInput(format!("cannot write the record: {error}")))
}
