//! One run, from request to record.

use crate::announce::Caller;
use crate::counters::{Counting, Handed};
use crate::elf;
use crate::error::{Error, Result};
use crate::frames::broker::Address;
use crate::frames::kernel::{self, ByKernel};
use crate::frames::{self, Placing};
use crate::guest_files::Intake;
use crate::measurements::Collected;
use crate::phase::Phase;
use crate::policy;
use crate::prepare::{self, Ready, prepare};
use crate::process_tree::reap::Companion;
use crate::record_build::{self, Observed};
use crate::request::{Preload, Request};
use crate::room::{self, Column};
use crate::rundir::{self, Making, RunDir};
use crate::say;
use crate::settings::{self, Held};
use crate::spawn::{self, Finished, Waiting};
use crate::streams::{self, Capture, Lost, Output, Streams};
use crate::sys::child::{Group, MemoryPolicy, Setup};
use crate::sys::directory::{self, Directory};
use crate::sys::files::UntilItsEnd;
use crate::sys::process::{self, CpuSet};
use crate::sys::trace::Stopped;
use crate::sys::{self};
use crate::user;
use crate::warnings::Warnings;
use crate::{aslr, flush, host_backing};
use pagelab_contract::record::{Fetch, Record};
use pagelab_policy::plan::{Flags, PlanSpec, RunSpec};
use pagelab_policy::windows::HANDED;
use std::ffi::CString;
use std::fs::File;
use std::io::BufReader;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes the run a request describes.
pub fn run(request: &Request, making: &Making) -> Result<Record> {
    let caller = Caller::take(request.announce_fd)?;
    let mut watcher = Caller::take(request.phase_fd)?;
    Phase::Prepare.begin(&mut watcher);
    let address = Address::take(making.token);
    let mut ready = prepare(request, making)?;
    if ready.runner.change {
        // What the caller has open is the caller's: sudo(8) gives another user no more than the standard streams.
        sys::files::close_all_at_exec(3);
    }
    let placing = write_plan(&mut ready, address)?;
    let streams = streams::prepare(request, ready.regex.as_ref(), &ready.run_dir, &mut ready.warnings)?;
    let measure = match request.measurements.fd {
        Some(_) => Some(Capture::create(&ready.run_dir, c"measure")?),
        None => None,
    };
    let mut held = Held::default();
    let plan = ready.preloaded.then_some(&ready.policy.plan);
    let (fetch, mut warnings) = set_up_machine(&ready, plan, &mut held);
    if let Some((plan, placing)) = plan.zip(placing.as_ref()) {
        frames::set_up(plan, placing, ready.real_time, &mut held, &mut warnings);
    }
    ready.warnings.0.extend(warnings.0);
    if !ready.policy.hints.is_empty() {
        kernel::set_up(&mut held)?;
    }
    // Last, so that the program gets the memory that is free now.
    ready.host_backed_bytes =
        host_backing::back(request.host_backed_bytes, policy::may_be(&ready.policy.plan), &mut ready.warnings);
    start(ready, streams, measure, Machine { held, fetch, placing }, caller, watcher)
}

/// Writes the plan where the library finds it, and loads the library; what placing frames needs is checked first.
fn write_plan(ready: &mut Ready<'_>, address: Address) -> Result<Option<Placing>> {
    let plan_path = ready.run_dir.path().join("plan");
    if ready.target.elf.needed.iter().any(|library| library.starts_with("libasan.so")) {
        ready.environment.allow_before_asan();
    }
    if !ready.preloaded {
        ready.environment.pad(&ready.library, &plan_path);
        return Ok(None);
    }
    tell_room(ready);
    let plan = &ready.policy.plan;
    let modules = frames::module::prepare(plan)?;
    let placing = Placing::prepare(plan, &ready.runner, (&ready.run_dir, address), &mut ready.warnings)?;
    let hints = if ready.policy.hints_by_kernel { Flags::HINTS_BY_KERNEL } else { Flags::default() };
    let added = RunSpec {
        run_dir: ready.run_dir.path().as_os_str().as_bytes().to_vec(),
        flags: Flags::MEASURE | Flags::RESIDENCY | hints,
        budgets: placing.as_ref().map(|placing| placing.budgets.clone()).unwrap_or_default(),
        modules: modules.by_strategy,
    };
    let bytes = plan.encode(&added).map_err(|error| Error::Internal(format!("cannot encode the plan: {error}")))?;
    ready.run_dir.write(c"plan", &bytes)?;
    ready.environment.preload(&ready.library, &modules.paths, &plan_path);
    Ok(placing)
}

/// Warns of limits before the program starts, because it may fail for lack of room only after hours.
fn tell_room(ready: &mut Ready<'_>) {
    let mut found = Warnings::default();
    room::warn(Column::of(&ready.policy.plan), ready.runner.identity.uid, ready.run_dir.path(), &mut found);
    if ready.request.tell_limits {
        found.0.iter().for_each(|warning| say::early(&warning.message));
    }
    ready.warnings.0.append(&mut found.0);
}

/// The limits that would leave a run of this request too little room.
pub fn scarce(request: &Request) -> Result<Warnings> {
    let mut warnings = Warnings::default();
    if request.preload == Preload::Never {
        return Ok(warnings);
    }
    let sudo = |name: &str| std::env::var(name).ok();
    let runner = user::decide(request.user.as_deref(), sudo("SUDO_UID").as_deref(), sudo("SUDO_GID").as_deref())?;
    let place = rundir::place(request.run_dir_root.as_deref());
    let plan = policy::prepare(request)?.plan;
    room::warn(Column::of(&plan), runner.identity.uid, &place, &mut warnings);
    Ok(warnings)
}

/// Tries whether frames can be placed here as the request's policy says, by whoever would place them in a run.
///
/// # Errors
/// The first missing requirement, with the message of a run.
pub fn try_frames(request: &Request) -> Result<()> {
    let policy = policy::prepare(request)?;
    prepare::check_preload(request, &policy)?;
    if !policy.hints.is_empty() {
        return kernel::try_here(&policy.hints);
    }
    if policy.governs_frames() { frames::try_here() } else { Ok(()) }
}

/// Everything that was changed and opened for the run.
struct Machine {
    held: Held,
    fetch: Fetch,
    placing: Option<Placing>,
}

/// Settings and page cache, as the policy and the request want them when the program starts.
fn set_up_machine(ready: &Ready<'_>, plan: Option<&PlanSpec>, held: &mut Held) -> (Fetch, Warnings) {
    let mut warnings = Warnings::default();
    let mut fetch = settings::observe();
    if ready.request.control_readahead && plan.is_some_and(policy::wants_demand) {
        settings::stop_readahead(held, &mut fetch, &mut warnings);
        settings::stop_fault_around(held, &mut fetch, &mut warnings);
    }
    let mthp = plan.map(policy::mthp_sizes).unwrap_or_default();
    if !mthp.is_empty() {
        settings::switch_mthp(held, &mthp, &mut warnings);
    }
    // Last, so that nothing that is done before comes back into the page cache.
    flush::flush(&ready.request.flush, &mut warnings);
    (fetch, warnings)
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Error::BadInput(format!("{:?} contains a NUL", String::from_utf8_lossy(bytes))))
}

fn setup(ready: &Ready<'_>, streams: Streams, measure: Option<&Capture>) -> Result<Setup> {
    let argv: Result<Vec<CString>> =
        ready.request.argv.iter().map(|argument| c_string(argument.as_bytes())).collect();
    let number = ready.request.measurements.fd;
    let enters = ready.request.cwd.is_some() || ready.runner.change;
    Ok(Setup {
        path: c_string(ready.target.path.as_os_str().as_bytes())?,
        argv: argv?,
        envp: ready.environment.to_c(),
        // Else the launcher's own is kept, which need not be reached by its path. Another user's program may be in no
        // directory that this user may not enter.
        cwd: enters.then(|| c_string(ready.cwd.as_os_str().as_bytes())).transpose()?,
        streams: streams.setup,
        measure: measure.zip(number).map(|(capture, number)| (capture.fd(), number)),
        cpus: ready.cpus.pinned.then(|| CpuSet::new(&ready.cpus.program)),
        real_time: ready.real_time,
        personality: aslr::personality(ready.request.aslr)?,
        memory: ready.request.node.map(|node| MemoryPolicy { node }),
        group: if ready.runner.no_terminal { Group::Session } else { spawn::group(is_interactive(ready)) },
        identity: ready.runner.change.then(|| ready.runner.identity.clone()),
        parent: process::own_pid(),
    })
}

/// Whether the program reads what its caller reads.
fn is_interactive(ready: &Ready<'_>) -> bool {
    ready.request.stdin == "inherit" && !ready.runner.no_terminal
}

/// Starts the program, waits for the end of its tree, and makes the record of what was seen.
fn start(
    mut ready: Ready<'_>,
    mut streams: Streams,
    measure: Option<Capture>,
    machine: Machine,
    caller: Caller,
    mut watcher: Caller,
) -> Result<Record> {
    let output = streams.stdout.take();
    let prepared = setup(&ready, streams, measure.as_ref())?;
    let measure_number = prepared.measure.map(|(_, number)| number);
    let started_at = sys::utc_now();
    let waiting = spawn::prepare(ready.request.timeout_s, &prepared)?;
    let pid = waiting.pid;
    let counting = Counting::open(&ready.events, pid, &ready.cpus, ready.request.per_process_counters);
    let handed = hand_over(&ready, &counting, pid, measure_number)?;
    kernel::disinherit(pid, &mut ready.warnings);
    let (waiting, by_kernel) = give_hints(&ready, waiting)?;
    if ready.cpus.pinned {
        // If this failed, the launcher would share a CPU with the program, and nothing else.
        let _ = CpuSet::new(&ready.cpus.launcher).apply();
    }
    Phase::Run { hands_on: machine.placing.is_some() || by_kernel.is_some() }.begin(&mut watcher);
    caller.announce(pid);
    let (intake, run_dir) = (Intake::default(), &ready.run_dir);
    let mut tending =
        Tending { output, has_more: false, counting, placing: machine.placing, by_kernel, intake, run_dir };
    let (finished, steal_ns) = watch(waiting, &ready, handed.as_ref(), &mut tending)?;
    Phase::Collect.begin(&mut watcher);
    machine.held.restore(&mut ready.warnings);
    let Tending { output, counting, placing, by_kernel, intake, .. } = tending;
    let (found, lost) = match output {
        Some(output) => output.finish(&finished.signals, last_ns(&ready, &finished)),
        None => (Collected::default(), None),
    };
    let ended = Ended { started_at, pid, finished, steal_ns, counting, handed, intake, placing, by_kernel, lost };
    Ok(conclude(ready, ended, machine.fetch, measure, found))
}

/// How long a reader of the program's output may take for the rest of it: as long as the program could have run, and a
/// moment more.
fn last_ns(ready: &Ready<'_>, finished: &Finished) -> Option<u64> {
    const LEAST_NS: u64 = 5_000_000_000;
    let limit_ns = (ready.request.timeout_s? * 1e9) as u64;
    Some(finished.started_ns.saturating_add(limit_ns).max(sys::monotonic_ns() + LEAST_NS))
}

/// Gives the waiting child the hints of a policy that the kernel places; a child that cannot have them is ended.
fn give_hints(ready: &Ready<'_>, waiting: Waiting) -> Result<(Waiting, Option<ByKernel>)> {
    let hints = &ready.policy.hints;
    let begun = (!hints.is_empty()).then(|| ByKernel::begin(hints, waiting.pid));
    match begun.transpose() {
        Ok(by_kernel) => Ok((waiting, by_kernel)),
        Err(error) => {
            waiting.abandon();
            Err(error)
        }
    }
}

/// Lets the program execute, and looks after the run until its tree has ended. Also returns the time that a hypervisor
/// took from the program's processors meanwhile.
fn watch(
    waiting: Waiting,
    ready: &Ready<'_>,
    handed: Option<&Handed>,
    tending: &mut Tending<'_>,
) -> Result<(Finished, Option<u64>)> {
    if let Some(by_kernel) = &mut tending.by_kernel {
        let binary = std::fs::File::open(&ready.target.binary);
        by_kernel.watch(binary.is_ok_and(|file| elf::looks_for_leaks(&file, &ready.target.elf)));
    }
    let stolen_before = process::steal_ns(&ready.cpus.program);
    let (first, descriptors) = handed.map_or((0, Vec::new()), |handed| (handed.first, handed.descriptors()));
    let given = (first, descriptors.as_slice());
    let finished = waiting.go(given, ready.request.timeout_s, is_interactive(ready), tending)?;
    let stolen = process::steal_ns(&ready.cpus.program).zip(stolen_before);
    tending.visit();
    Ok((finished, stolen.map(|(now, before)| now.saturating_sub(before))))
}

/// A run whose program has ended, with all that is still to be read.
struct Ended {
    started_at: String,
    pid: i32,
    finished: Finished,
    steal_ns: Option<u64>,
    counting: Counting,
    handed: Option<Handed>,
    intake: Intake,
    placing: Option<Placing>,
    by_kernel: Option<ByKernel>,
    lost: Option<Lost>,
}

/// Reads counters, guest files and measurements, warns of what is wrong with them, and makes the record.
fn conclude(
    mut ready: Ready<'_>,
    ended: Ended,
    fetch: Fetch,
    measure: Option<Capture>,
    found: Collected,
) -> Record {
    let handed = ended.handed.as_ref();
    let counted = ended.counting.finish(&mut ready.warnings);
    let (guests, windows) = ended.intake.finish(&ready.run_dir);
    guests.warn(ended.pid, &mut ready.warnings);
    let in_windows = handed.map(|handed| handed.in_windows(&ready.events, &counted.counters));
    let withheld = if may_hand_over(&ready) { 0 } else { ready.events.len() };
    windows.warn([handed.map_or(0, Handed::left_out), withheld], &mut ready.warnings);
    let was_full = measure.as_ref().is_some_and(Capture::is_full);
    let mut measurements = collect(&ready, measure, found);
    if was_full {
        measurements.warn_full(&mut ready.warnings);
    }
    windows.measure(&in_windows.unwrap_or_default(), &mut measurements);
    measurements.warn(&mut ready.warnings);
    let seen = Observed {
        started_at: ended.started_at,
        pid: ended.pid,
        finished: ended.finished,
        steal_ns: ended.steal_ns,
        guests,
        counted,
        fetch,
        placing: ended.placing,
        by_kernel: ended.by_kernel,
        lost: ended.lost,
        measurements: measurements.measurements,
    };
    record_build::record(ready, seen)
}

/// Chooses counters that the library in the program can read, and writes the file that names them. A program of another
/// user gets none, and none gets some where the launcher's file capabilities let it count: it may have opened them with rights
/// that the program's user does not have.
fn hand_over(ready: &Ready<'_>, counting: &Counting, pid: i32, measure: Option<RawFd>) -> Result<Option<Handed>> {
    let allowed = ready.preloaded && may_hand_over(ready);
    let handed = allowed.then(|| counting.hand_over(pid, measure)).flatten();
    if let Some(handed) = &handed {
        ready.run_dir.write(&CString::new(HANDED).unwrap_or_default(), &handed.file())?;
    }
    Ok(handed)
}

/// Whether the program's user may read what the launcher counts.
fn may_hand_over(ready: &Ready<'_>) -> bool {
    !ready.runner.change && !sys::user::counts_by_capabilities_of_its_own()
}

/// The program's own measurements of its operations.
fn collect(ready: &Ready<'_>, measure: Option<Capture>, found: Collected) -> Collected {
    let mut collected = found;
    let mut problem = None;
    if let Some(capture) = measure {
        problem = collected.read_lines(BufReader::new(UntilItsEnd::new(capture.reader))).err();
    }
    if let Some(regex) = &ready.regex
        && !matches!(ready.request.stdout.as_str(), "inherit" | "null")
    {
        let output = written_by_program(ready);
        let output = output.map(|output| BufReader::new(UntilItsEnd::new(output)));
        let read = output.and_then(|output| collected.read_matches(output, regex));
        problem = problem.or(read.err());
    }
    if let Some(error) = problem {
        crate::say::say(&format!("cannot read the program's measurements: {}", sys::errno_text(&error)));
    }
    collected
}

/// The file that the program's standard output went to. The program may have put anything in its place: it is opened
/// with the program's rights, without waiting, and read if it is a regular file.
fn written_by_program(ready: &Ready<'_>) -> std::io::Result<File> {
    let open = || {
        let options = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).clone();
        options.open(ready.cwd.join(&ready.request.stdout))
    };
    let file = match ready.runner.change {
        true => sys::user::with_files_of(&ready.runner.identity, open)?,
        false => open()?,
    };
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(std::io::Error::other("standard output did not go to a regular file")),
    }
}

/// Looks after captured output, ring buffers and guest files while the program runs.
struct Tending<'r> {
    output: Option<Output>,
    /// Of the output.
    has_more: bool,
    counting: Counting,
    placing: Option<Placing>,
    by_kernel: Option<ByKernel>,
    intake: Intake,
    run_dir: &'r RunDir,
}

impl Companion for Tending<'_> {
    fn fds(&self) -> Vec<RawFd> {
        let broker = self.placing.iter().flat_map(Placing::fds);
        let output = self.output.as_ref().and_then(Output::readable);
        self.counting.fds().into_iter().chain(broker).chain(output).collect()
    }

    fn writable(&self) -> Option<RawFd> {
        self.output.as_ref().and_then(Output::writable)
    }

    fn visit(&mut self) {
        // First, because a process of the run waits for the answer.
        if let Some(placing) = &mut self.placing {
            placing.visit();
        }
        self.has_more = self.output.as_mut().is_some_and(Output::forward);
        self.counting.drain();
        self.intake.visit(self.run_dir);
        if let Some(by_kernel) = &mut self.by_kernel {
            by_kernel.follow();
        }
    }

    fn stopped(&mut self, stopped: Stopped) -> bool {
        let ends = self.by_kernel.as_mut().is_some_and(|by_kernel| by_kernel.stopped(stopped));
        // One that was killed meanwhile does not need it.
        let _ = stopped.resume();
        ends
    }

    fn program_ended(&mut self) {
        if let Some(by_kernel) = &mut self.by_kernel {
            by_kernel.ended();
        }
    }

    fn interval_ns(&self) -> Option<u64> {
        if self.has_more {
            return Some(0);
        }
        let output = self.output.as_ref().map(Output::interval_ns);
        let by_kernel = self.by_kernel.as_ref().and_then(ByKernel::interval_ns);
        [output, by_kernel, Some(self.intake.interval_ns())].into_iter().flatten().min()
    }
}

/// Replaces a file by a whole new one, in the directory as it is opened. An existing entry of that name, for instance a
/// link, is replaced and not written to.
fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = Directory::walk(&std::fs::canonicalize(parent)?, |_, _| Ok(()))?;
    let name = CString::new(path.file_name().unwrap_or_default().as_bytes())?;
    let random = sys::random::<8>()?;
    let temporary = CString::new(format!(".pagelab-{:016x}.tmp", u64::from_ne_bytes(random)))?;
    let mut file = place.create(&temporary, false)?;
    let done = std::io::Write::write_all(&mut file, content)
        .and_then(|()| {
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666 & !directory::umask()))
        })
        .and_then(|()| place.move_to(&temporary, &place, &name, true));
    if done.is_err() {
        // The first error is the one to report.
        let _ = place.unlink(&temporary);
    }
    done
}

/// Where a record goes.
pub enum Destination<'d> {
    /// Standard output.
    Output,
    /// A file, by way of a temporary one and a rename.
    Path(&'d Path),
    /// The caller's pipe.
    Caller(&'d File),
}

/// Writes a record.
pub fn write(record: &Record, to: Destination<'_>) -> Result<()> {
    let text = serde_json::to_vec(record)
        .map_err(|error| Error::Internal(format!("cannot encode the record: {error}")))?;
    let cannot = |to: String, next: String| {
        move |error| Error::Cannot(format!("cannot write the record to {to}: {}; {next}", sys::errno_text(&error)))
    };
    match to {
        Destination::Output => std::io::Write::write_all(&mut std::io::stdout(), &[text, b"\n".to_vec()].concat())
            .map_err(cannot("standard output".to_owned(), "name a file in the request: \"record\"".to_owned())),
        Destination::Path(path) => {
            let shown = path.display();
            replace(path, &text).map_err(cannot(shown.to_string(), format!("run: df -h {shown}; ulimit -f")))
        }
        Destination::Caller(mut file) => std::io::Write::write_all(&mut file, &text)
            .map_err(cannot("its caller".to_owned(), "run it again".to_owned())),
    }
}
