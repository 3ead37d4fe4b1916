//! Frames placed by the kernel, where it allocates pages: hints on the program's process, set before its exec, one for
//! each strategy.
//!
//! Nothing is loaded into the program. It is traced only to see its end: its pages are examined from outside, while it
//! still has them. Processes that it forks and executes have its hints, but only its own pages are examined.

mod resident;
mod statistics;

use crate::elf;
use crate::error::{Error, Result};
use crate::settings::Held;
use crate::sys::process::End;
use crate::sys::{self, page_hints, procfs, trace};
use crate::warnings::{Kind, Severity, Warnings};
use page_hints::{Counters, FIRST, HASH_PID, Of, PIN};
use pagelab_contract::record::{Frames, FramesStrategy};
use pagelab_policy::hints::{Governed, Hint};
use pagelab_policy::plan::{FIRST_FROM_SEED, Memory, StrategySpec};
use resident::Resident;
use serde_json::json;
use statistics::Statistics;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Whether hints outlive an exec.
const EXEC: &str = "/proc/sys/vm/page_hints_exec";
/// How long the program may be held at its end.
const LOOK_NS: u64 = 20_000_000_000;
/// Interval between attempts to trace what another thread has executed, at least and at most.
const FOLLOW_NS: (u64, u64) = (1_000_000, 50_000_000);
const NEXT: &str = "build and boot such a kernel as kernel/README.md says, or use the library: --backend library";

/// What this kernel offers.
#[derive(Debug)]
pub struct Facts {
    /// Hints on processes.
    pub hints: io::Result<()>,
    /// The names of its strategies, those of modules that are loaded.
    pub strategies: Vec<String>,
    /// Its release, for messages.
    pub release: String,
}

impl Facts {
    /// Asks the kernel.
    pub fn gather() -> Facts {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Facts {
            hints: page_hints::there(),
            strategies: Statistics::read().names(),
            release: release.trim().to_owned(),
        }
    }

    /// Whether it has page placement at all.
    ///
    /// # Errors
    /// Exit code 3, with what to do.
    pub fn judge(&self) -> Result<()> {
        self.hints.as_ref().map(|_| ()).map_err(|error| {
            let why = match error.raw_os_error() {
                Some(libc::ENOENT) => "it was built without CONFIG_PAGE_PLACEMENT".to_owned(),
                _ => sys::errno_text(error),
            };
            Error::Cannot(format!(
                "this kernel ({}) has no page placement: /proc/self/page_hints: {why}; {NEXT}",
                self.release
            ))
        })
    }

    /// Whether it has page placement and this strategy.
    pub fn has(&self, strategy: &str) -> bool {
        self.hints.is_ok() && self.strategies.iter().any(|name| name == strategy)
    }
}

/// Tries whether the kernel takes these hints, by giving them to this process: for studies, before their first run.
///
/// # Errors
/// The first missing requirement, with the message of a run.
pub fn try_here(hints: &[Hint]) -> Result<()> {
    Facts::gather().judge()?;
    try_exec(Path::new(EXEC))?;
    ByKernel::begin(hints, std::process::id() as i32).map(drop)
}

/// Tries whether hints can be kept over an exec; changes nothing.
fn try_exec(setting: &Path) -> Result<()> {
    let is_kept = std::fs::read_to_string(setting).is_ok_and(|value| value.trim() == "1");
    match std::fs::File::options().write(true).open(setting) {
        Err(error) if !is_kept => Err(not_kept(&sys::errno_text(&error))),
        _ => Ok(()),
    }
}

fn not_kept(why: &str) -> Error {
    Error::Cannot(format!("cannot keep the program's hints over its exec: {EXEC}: {why}; run: sudo pagelab run …"))
}

/// Keeps the program's hints over its exec. The setting is for the whole machine, and matters to processes with hints
/// only.
///
/// # Errors
/// The setting cannot be changed.
pub fn set_up(held: &mut Held) -> Result<()> {
    match held.keep(EXEC, "1", "pagelab-launch hints") {
        None => Ok(()),
        Some(why) => Err(not_kept(&why)),
    }
}

/// Withdraws the hints that the waiting child has from whoever started the run, for instance a program under another
/// run's policy: an exec would keep them for all memory that this run's policy does not name.
pub fn disinherit(pid: i32, warnings: &mut Warnings) {
    let hints = procfs::text(pid, "page_hints").unwrap_or_default();
    if hints.lines().any(is_hint)
        && let Err(why) = withdraw(pid)
    {
        let message = format!(
            "memory that the policy leaves to the kernel may be placed by a hint from before the run: {why}; \
             run: cat /proc/self/page_hints"
        );
        warnings.warn(Kind::FramesNotPlaced, message, json!({"reason": "inherited-hints"}));
    }
}

/// A process that has withdrawn its hints has none of the boot parameter's either, nor has what it executes: on a kernel
/// with that parameter, hints are kept.
fn withdraw(pid: i32) -> std::result::Result<(), String> {
    let parameters = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    if has_boot_default(&parameters) {
        return Err("the kernel was started with page_color=, the default of all processes".to_owned());
    }
    page_hints::clear(pid).map_err(|error| format!("it cannot be withdrawn: {}", sys::errno_text(&error)))
}

fn has_boot_default(parameters: &str) -> bool {
    parameters.split_ascii_whitespace().any(|parameter| parameter.starts_with("page_color="))
}

/// Whether a line of a process's hints is one that an exec keeps, and not a range or a count.
fn is_hint(line: &str) -> bool {
    let strategy = line.strip_prefix("default ").or_else(|| line.strip_prefix("file "));
    strategy.is_some_and(|strategy| strategy.split(' ').next() != Some("usual"))
}

/// The kernel's placement of one run.
#[derive(Debug)]
pub struct ByKernel {
    hints: Vec<Hint>,
    pid: i32,
    before: Statistics,
    /// The program's pages, just before it freed them, by hints.
    seen: Option<Vec<(Counters, Resident)>>,
    unseen: Option<String>,
    /// How long its first thread was held for that, and whether others ran on meanwhile.
    looking_ns: u64,
    others_ran: bool,
    /// When its first thread ended before others.
    first_ended_ns: Option<u64>,
}

const LOOKS_FOR_LEAKS: &str = "LeakSanitizer is in it, which itself traces the program at its end (sanitizer)";
const EXECUTED: &str = "a thread other than the first executed the program, which ended before it could be traced";

impl ByKernel {
    /// Sets the hints on the child that waits for its exec.
    ///
    /// # Errors
    /// What the kernel refuses, with what to do.
    pub fn begin(hints: &[Hint], pid: i32) -> Result<ByKernel> {
        page_hints::counters(pid, Of::Files).map_err(|error| uncounted(&error))?;
        let before = Statistics::read();
        for hint in hints {
            page_hints::set(pid, &said(&hint.strategy), said_of(&hint.of))
                .map_err(|error| refused(&error, &hint.strategy))?;
        }
        Ok(ByKernel::new(hints.to_vec(), pid, before))
    }

    fn new(hints: Vec<Hint>, pid: i32, before: Statistics) -> ByKernel {
        let (looking_ns, others_ran, first_ended_ns) = (0, false, None);
        ByKernel { hints, pid, before, seen: None, unseen: None, looking_ns, others_ran, first_ended_ns }
    }

    /// Traces the program until its end. If another process traces it, or it will trace itself to look for leaks, its
    /// pages are not examined.
    pub fn watch(&mut self, looks_for_leaks: bool) {
        if looks_for_leaks {
            self.unseen = Some(LOOKS_FOR_LEAKS.to_owned());
        } else if let Err(error) = trace::seize(self.pid) {
            self.unseen = Some(format!("it could not be traced: {}", sys::errno_text(&error)));
        }
    }

    /// Looks at the program's pages where it is about to free them. Returns whether the whole program ends.
    pub fn stopped(&mut self, stopped: trace::Stopped) -> bool {
        if !stopped.at_exit() || stopped.pid != self.pid {
            return false;
        }
        let began = sys::monotonic_ns();
        self.others_ran = procfs::others_run(self.pid);
        self.first_ended_ns = self.others_ran.then_some(began);
        // The exec of another thread ends the first one by a signal. These are the pages of the program before.
        if self.others_ran && procfs::is_signalled(self.pid) {
            self.unseen = Some(EXECUTED.to_owned());
            return false;
        }
        match self.look(began + LOOK_NS) {
            Ok(each) => self.seen = Some(each),
            Err(error) => self.unseen = Some(why_unseen(&error)),
        }
        self.looking_ns = sys::monotonic_ns() - began;
        !self.others_ran
    }

    /// Traces what a thread other than the first has executed: that thread then has the program's process id, and is
    /// not traced.
    pub fn follow(&mut self) {
        if self.first_ended_ns.is_none() {
            return;
        }
        // Of a first thread that has ended, /proc shows no file.
        let file = std::fs::File::open(format!("/proc/{}/exe", self.pid));
        let Some((executed, file)) = file.ok().and_then(|file| Some((elf::inspect(&file)?, file))) else { return };
        // Refused while the ended thread is still the one of this id, which is traced.
        let unseen = match elf::looks_for_leaks(&file, &executed) {
            true => Some(LOOKS_FOR_LEAKS.to_owned()),
            false if trace::seize(self.pid).is_ok() => None,
            false => return,
        };
        (self.seen, self.unseen) = (None, unseen);
        (self.looking_ns, self.others_ran, self.first_ended_ns) = (0, false, None);
    }

    /// The program was reaped: there is nothing to follow.
    pub fn ended(&mut self) {
        self.first_ended_ns = None;
    }

    /// The longest time until [`ByKernel::follow`] is to be tried; shorter, the sooner after the end of the first thread.
    pub fn interval_ns(&self) -> Option<u64> {
        let passed = sys::monotonic_ns().saturating_sub(self.first_ended_ns?);
        Some((passed / 8).clamp(FOLLOW_NS.0, FOLLOW_NS.1))
    }

    fn look(&self, deadline_ns: u64) -> io::Result<Vec<(Counters, Resident)>> {
        let counters = self.hints.iter().map(|hint| page_hints::counters(self.pid, said_of(&hint.of)));
        let counters: Vec<Counters> = counters.collect::<io::Result<_>>()?;
        // At the program's end it is not known which pages of the page cache are its own, so hints for files are not
        // examined.
        let kinds = |hint: &Hint| match &hint.of {
            Governed::Files => Vec::new(),
            Governed::Own(kinds) => kinds.clone(),
        };
        let kinds: Vec<Vec<Memory>> = self.hints.iter().map(kinds).collect();
        let strategies = self.hints.iter().zip(&kinds).map(|(hint, kinds)| (&hint.strategy, &kinds[..]));
        let resident = resident::look(self.pid, &strategies.collect::<Vec<_>>(), deadline_ns)?;
        Ok(counters.into_iter().zip(resident).collect())
    }

    /// How long its pages were looked at.
    pub fn looking_ns(&self) -> u64 {
        self.looking_ns
    }

    /// How long the whole program was held for that, which is not its own time. A program whose first thread ends
    /// before the others is not.
    pub fn held_ns(&self) -> u64 {
        if self.others_ran { 0 } else { self.looking_ns }
    }

    /// The block of the record.
    pub fn block(&self) -> Frames {
        let page_color = Statistics::read().since(&self.before);
        let seen = |at: usize| self.seen.as_ref().and_then(|seen| seen.get(at)).cloned().unwrap_or_default();
        let block = |(at, hint): (usize, &Hint)| strategy_block(at as u32 + 1, hint, &seen(at));
        let strategies: Vec<FramesStrategy> = self.hints.iter().enumerate().map(block).collect();
        let sum = |field: fn(&FramesStrategy) -> u64| strategies.iter().map(field).sum::<u64>();
        let fraction = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let (kept_pages, moved_pages) = (sum(|one| one.kept_pages), sum(|one| one.moved_pages));
        Frames {
            rights: Some("kernel"),
            placed_fraction: fraction(sum(|one| one.placed_pages), sum(|one| one.requested_pages)),
            kept_fraction: fraction(kept_pages, kept_pages + moved_pages),
            engines_started: 0,
            engines_failed: 0,
            engine: None,
            strategies,
            page_color: (!page_color.is_empty()).then_some(page_color),
        }
    }

    /// Warns of pages that were not placed as the policy requests, in a program with this end.
    pub fn warn(&self, frames: &Frames, end: Option<End>, warnings: &mut Warnings) {
        if self.seen.is_none() {
            let by_its_end = match end {
                Some(End::Signalled(libc::SIGKILL)) => "it was killed, and a killed process cannot be held",
                _ => "its end was not seen",
            };
            let why = self.unseen.as_deref().unwrap_or(by_its_end);
            let message = format!(
                "whether the kernel placed the program's pages was not looked at: {why}; its counts for the whole machine \
                 are in the record (frames.page_color)"
            );
            warnings.warn(Kind::FramesNotPlaced, message, json!({"reason": "not-looked-at"}));
            return;
        }
        for (at, (strategy, hint)) in frames.strategies.iter().zip(&self.hints).enumerate() {
            let counters = self.seen.as_ref().and_then(|seen| seen.get(at)).map(|(counters, _)| *counters);
            let who = Who { hint, is_one_of_several: self.hints.len() > 1 };
            warn_placed(&who, strategy, counters.unwrap_or_default(), warnings);
            let migrated = migrated(frames.page_color.as_ref(), hint);
            warn_resident(&who, strategy, migrated, warnings);
        }
    }
}

/// The pages that a warning is about, as part of its sentence.
struct Who<'h> {
    hint: &'h Hint,
    is_one_of_several: bool,
}

impl std::fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_one_of_several { write!(f, "{}: ", named(self.hint)) } else { Ok(()) }
    }
}

/// Warns of pages that were not placed, or of none that were.
fn warn_placed(who: &Who<'_>, strategy: &FramesStrategy, counters: Counters, warnings: &mut Warnings) {
    let (missed, asked) = (strategy.fallback_pages, strategy.requested_pages);
    if missed > 0 {
        let Counters { absent, bound, watermark, .. } = counters;
        let message = format!(
            "{who}{missed} of {asked} pages are not placed as asked: for {absent} the kernel found no free page of the \
                 colour, for {bound} it ended the search (vm.page_placement_scan), for {watermark} memory was short, or \
                 (pages to be written to files) its nodes were at their limits of dirty pages"
        );
        let data = json!({"strategy": named(who.hint), "requested_pages": asked, "fallback_pages": missed,
                "absent": absent, "bound": bound, "watermark": watermark});
        warnings.add(Kind::FramesFallback, super::report::share_severity(missed, asked), message, data);
    }
    if asked == 0 {
        let why = if who.hint.of == Governed::Files {
            "all pages of the program's files were in the page cache before; drop them first (flush in a study)"
        } else {
            "the program asked for no page under the hint"
        };
        let message = format!("{who}the kernel placed nothing: {why}");
        // With several hints, this one may be for memory that the program does not use.
        let severity = if who.is_one_of_several { Severity::Info } else { Severity::Warning };
        let data = json!({"strategy": named(who.hint), "reason": "unused"});
        warnings.add(Kind::FramesNotPlaced, severity, message, data);
    }
}

/// Pages that the kernel migrated to another colour during the run, of all programs under the hint's strategy.
fn migrated(page_color: Option<&PageColor>, hint: &Hint) -> u64 {
    let counts = page_color.and_then(|counts| counts.get(hint.strategy.kind.name()));
    counts.and_then(|counts| counts.get("moved")).copied().unwrap_or(0)
}

/// Warns of pages that have other colours at the program's end. Whose work that is was not seen.
fn warn_resident(who: &Who<'_>, strategy: &FramesStrategy, migrated: u64, warnings: &mut Warnings) {
    if strategy.moved_pages > 0 {
        let (moved, resident) = (strategy.moved_pages, strategy.resident_pages);
        let by_itself =
            "the program moved them (mremap, as a large realloc does), or they came back by swap readahead";
        let why = match (migrated, who.hint.strategy.pin) {
            (0, _) => by_itself.to_owned(),
            (_, pin) => format!(
                "{by_itself}, or the kernel migrated them ({migrated} pages in the whole machine){}",
                if pin { "" } else { "; against the last: pin=true" }
            ),
        };
        let message = format!(
            "{who}{moved} of {resident} pages that were resident at exit have another colour than their address asks \
             for, beside those that fell back: {why}"
        );
        let data = json!({"strategy": named(who.hint), "moved_pages": moved, "resident_pages": resident,
                "migrated_pages": migrated});
        warnings.add(Kind::FramesMoved, super::report::share_severity(moved, resident), message, data);
    }
    let early = strategy.out_of_reach_bytes.values().sum::<u64>();
    if early > 0 {
        let message = format!("{who}out of reach of frame placement: {} KiB of the exec's own", early >> 10);
        let data = json!({"strategy": named(who.hint), "bytes": strategy.out_of_reach_bytes});
        warnings.add(Kind::FramesOutOfReach, Severity::Info, message, data);
    }
}

/// One strategy's part of the record.
fn strategy_block(number: u32, hint: &Hint, (counters, resident): &(Counters, Resident)) -> FramesStrategy {
    let fallback_pages = counters.absent + counters.bound + counters.watermark;
    let requested_pages = counters.placed + fallback_pages;
    let moved_pages = resident.otherwise.saturating_sub(fallback_pages);
    FramesStrategy {
        number,
        kind: hint.strategy.kind.name(),
        colours: hint.strategy.colours.into(),
        requested_pages,
        placed_pages: counters.placed,
        fallback_pages,
        zero_pages: 0,
        // The kernel places only the page of the fault, and none ahead.
        demand_pages: requested_pages,
        eager_pages: 0,
        faults: requested_pages,
        moves: 0,
        remapped_pages: 0,
        copied_pages: 0,
        harvested_pages: None,
        ahead_pages: 0,
        ahead_zero_pages: 0,
        resident_pages: resident.pages,
        kept_pages: resident.as_asked,
        moved_pages,
        unplaced_pages: resident.otherwise - moved_pages,
        out_of_reach_bytes: resident.out_of_reach(),
        by_colour: (hint.of != Governed::Files).then(|| resident.by_colour()),
    }
}

/// A hint by its strategy and its memory, for messages.
fn named(hint: &Hint) -> String {
    let memory = match &hint.of {
        Governed::Files => "file".to_owned(),
        Governed::Own(kinds) => kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", "),
    };
    format!("{} ({memory})", hint.strategy.kind.name())
}

/// A strategy, in the form that the kernel takes.
fn said(strategy: &StrategySpec) -> page_hints::Hint<'_> {
    let takes_first = strategy.kind.takes(pagelab_policy::plan::Parameter::First);
    let first = (takes_first && strategy.first != FIRST_FROM_SEED).then_some(strategy.first);
    let flags = [(strategy.pid_hash, HASH_PID), (first.is_some(), FIRST), (strategy.pin, PIN)];
    page_hints::Hint {
        strategy: strategy.kind.name(),
        flags: flags.into_iter().filter(|(on, _)| *on).fold(0, |flags, (_, flag)| flags | flag),
        colours: strategy.colours,
        first: first.unwrap_or(0),
        seed: strategy.seed,
        masks: &strategy.masks,
        values: &strategy.values,
    }
}

/// The memory of a hint, in the form that the kernel takes.
fn said_of(of: &Governed) -> Of {
    match of {
        Governed::Files => Of::Files,
        Governed::Own(kinds) => Of::Own(kinds.iter().map(|&kind| number(kind)).sum()),
    }
}

fn number(kind: Memory) -> u32 {
    match kind {
        Memory::Heap => page_hints::HEAP,
        Memory::Anon => page_hints::ANON,
        Memory::Data => page_hints::DATA,
        Memory::Stack => page_hints::STACK,
        Memory::Arenas | Memory::File | Memory::Range => 0,
    }
}

fn why_unseen(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ETIMEDOUT) => format!("its memory is too large to be read in {} s", LOOK_NS / 1_000_000_000),
        _ => sys::errno_text(error),
    }
}

/// Why the kernel does not count by kinds of memory.
fn uncounted(error: &io::Error) -> Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOTTY) => "its series is older than strategies for kinds of memory".to_owned(),
        _ => sys::errno_text(error),
    };
    Error::Cannot(format!("cannot count what the kernel places: /proc/PID/page_hints: {why}; {NEXT}"))
}

fn refused(error: &io::Error, strategy: &StrategySpec) -> Error {
    let name = strategy.kind.name();
    let why = sys::errno_text(error);
    let next = match error.raw_os_error() {
        Some(libc::ENOENT) => {
            format!(
                "the kernel has no such strategy; run: sudo modprobe placement_{}; cat /proc/page_color",
                name.replace('-', "_")
            )
        }
        Some(libc::EPERM | libc::EACCES) => "hints need CAP_SYS_ADMIN; run: sudo pagelab run …".to_owned(),
        Some(libc::ERANGE) => "there are more colours than pages of memory; give fewer: colors=N".to_owned(),
        Some(libc::EINVAL) => {
            "the kernel's strategy does not take these parameters; run: --backend library".to_owned()
        }
        _ => "run: cat /proc/page_color".to_owned(),
    };
    Error::Cannot(format!(
        "cannot give the program the kernel's strategy {name:?} ({} colours): {why}; {next}",
        strategy.colours
    ))
}

/// Counts by the names of strategies.
pub type PageColor = BTreeMap<String, BTreeMap<String, u64>>;

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_policy::plan::StrategyKind;

    fn facts(errno: Option<i32>, strategies: &[&str]) -> Facts {
        Facts {
            hints: errno.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno))),
            strategies: strategies.iter().map(|&name| name.to_owned()).collect(),
            release: "6.12.0".to_owned(),
        }
    }

    #[test]
    fn a_kernel_without_the_series_is_refused_with_the_next_step() {
        let error = facts(Some(libc::ENOENT), &[]).judge().expect_err("no hints");
        assert_eq!(error.exit_code(), 3);
        let message = error.to_string();
        assert!(message.contains("this kernel (6.12.0) has no page placement"), "{message}");
        assert!(message.contains("kernel/README.md") && message.contains("--backend library"), "{message}");
        assert!(facts(None, &[]).judge().is_ok());
    }

    #[test]
    fn a_strategy_is_there_with_its_module_and_the_hints() {
        assert!(facts(None, &["random"]).has("random"));
        assert!(!facts(None, &["random"]).has("modulo"));
        assert!(!facts(Some(libc::ENOENT), &["random"]).has("random"));
    }

    #[test]
    fn a_series_without_kinds_is_told_with_the_next_step() {
        let error = uncounted(&io::Error::from_raw_os_error(libc::ENOTTY));
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains("older") && error.to_string().contains("--backend library"), "{error}");
    }

    #[test]
    fn strategies_are_told_by_the_memory_that_they_are_for() {
        let hint = |of| Hint { strategy: StrategySpec::new(StrategyKind::Random, 8), of };
        assert_eq!(named(&hint(Governed::Files)), "random (file)");
        let heap = hint(Governed::Own(vec![Memory::Heap, Memory::Stack]));
        assert_eq!(named(&heap), "random (heap, stack)");
        assert_eq!(said_of(&heap.of), Of::Own(page_hints::HEAP | page_hints::STACK));
        let pinned = StrategySpec { pin: true, ..heap.strategy };
        assert_eq!(said(&pinned).flags, PIN);
    }

    #[test]
    fn the_record_counts_each_strategy() {
        let counters = Counters { placed: 7, absent: 2, bound: 1, ..Counters::default() };
        let hint = Hint { strategy: StrategySpec::new(StrategyKind::Random, 8), of: Governed::Files };
        let block = strategy_block(2, &hint, &(counters, Resident::default()));
        assert_eq!((block.number, block.requested_pages, block.fallback_pages), (2, 10, 3));
        assert!(block.by_colour.is_none());
    }

    fn traced(pid: u32, hint: &Hint) -> ByKernel {
        ByKernel::new(vec![hint.clone()], pid as i32, Statistics::default())
    }

    fn stopped(pid: u32, hint: &Hint) -> ByKernel {
        let mut by_kernel = traced(pid, hint);
        let status = libc::PTRACE_EVENT_EXIT << 16 | libc::SIGTRAP << 8 | 0x7f;
        by_kernel.stopped(trace::Stopped::new(pid as i32, status));
        by_kernel
    }

    fn any_hint() -> Hint {
        Hint { strategy: StrategySpec::new(StrategyKind::Random, 8), of: Governed::Files }
    }

    /// Resumes a traced process until it stops at its exit; returns whether the whole program ends there.
    fn until_exit(by_kernel: &mut ByKernel) -> bool {
        let pid = rustix::process::Pid::from_raw(by_kernel.pid);
        loop {
            let changed = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
            let (_, status) = changed.expect("a child").expect("it was waited for");
            assert!(status.stopped(), "it ended before it was held: {status:?}");
            let stopped = trace::Stopped::new(by_kernel.pid, status.as_raw());
            let ends = by_kernel.stopped(stopped);
            stopped.resume().expect("it goes on");
            if stopped.at_exit() {
                return ends;
            }
        }
    }

    #[test]
    fn a_program_that_another_thread_executes_is_followed() {
        use std::io::Write;
        const EXECUTES: &str = "import os, signal, sys, threading
def execute(): sys.stdin.read(1); os.execlp('sh', 'sh', '-c', 'read line; exit 7')
threading.Thread(target=execute).start()
while True: signal.pause()";
        let mut command = std::process::Command::new("python3");
        command.args(["-c", EXECUTES]).stdin(std::process::Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let mut by_kernel = traced(child.id(), &any_hint());
        by_kernel.watch(false);
        assert_eq!(by_kernel.unseen, None);
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(b"x").expect("it reads");
        assert!(!until_exit(&mut by_kernel), "only the first thread ends");
        assert_eq!((by_kernel.unseen.as_deref(), by_kernel.looking_ns), (Some(EXECUTED), 0));
        let deadline = sys::monotonic_ns() + 10_000_000_000;
        while by_kernel.interval_ns().is_some() {
            assert!(sys::monotonic_ns() < deadline, "it is not traced again");
            std::thread::sleep(std::time::Duration::from_millis(1));
            by_kernel.follow();
        }
        assert_eq!((by_kernel.unseen.as_deref(), by_kernel.others_ran), (None, false));
        input.write_all(b"\n").expect("it reads");
        assert!(until_exit(&mut by_kernel), "the program ends");
        assert!(by_kernel.looking_ns > 0);
        assert_eq!(child.wait().expect("it ends").code(), Some(7));
    }

    #[test]
    fn a_program_that_looks_for_leaks_is_not_traced() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let mut by_kernel = traced(child.id(), &any_hint());
        by_kernel.watch(true);
        let status = procfs::text(child.id() as i32, "status").expect("its status");
        child.kill().and_then(|()| child.wait()).expect("the child ends");
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
        assert_eq!(by_kernel.unseen.as_deref(), Some(LOOKS_FOR_LEAKS));
    }

    #[test]
    fn only_a_killed_program_is_said_to_have_been_killed() {
        let told = |end| {
            let (by_kernel, mut warnings) = (traced(1, &any_hint()), Warnings::default());
            by_kernel.warn(&by_kernel.block(), end, &mut warnings);
            warnings.0.remove(0).message
        };
        assert!(told(Some(End::Signalled(libc::SIGKILL))).contains("killed"));
        for end in [Some(End::Exited(0)), Some(End::Signalled(libc::SIGTERM)), None] {
            let message = told(end);
            assert!(message.contains("its end was not seen") && !message.contains("killed"), "{message}");
        }
    }

    #[test]
    fn time_at_the_end_is_the_programs_only_where_some_of_it_runs() {
        let hint = any_hint();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        // Without the series its pages cannot be looked at, which takes its time, too.
        let alone = stopped(child.id(), &hint);
        child.kill().and_then(|()| child.wait()).expect("the child ends");
        assert!(alone.looking_ns() > 0);
        assert_eq!(alone.held_ns(), alone.looking_ns());

        // Tests run in threads of their own.
        let with_others = stopped(std::process::id(), &hint);
        assert!(with_others.looking_ns() > 0);
        assert_eq!(with_others.held_ns(), 0);
        let late = why_unseen(&io::Error::from_raw_os_error(libc::ETIMEDOUT));
        assert_eq!(late, "its memory is too large to be read in 20 s");
    }

    #[test]
    fn pages_of_another_colour_are_laid_to_the_kernel_only_where_it_migrated_some() {
        let told = |pin: bool, migrated| {
            let strategy = StrategySpec { pin, ..StrategySpec::new(StrategyKind::PageColoring, 16) };
            let hint = Hint { strategy, of: Governed::Own(vec![Memory::Anon]) };
            let mut resident = Resident::default();
            (resident.pages, resident.as_asked, resident.otherwise) = (9, 2, 7);
            let block = strategy_block(1, &hint, &(Counters { placed: 9, ..Counters::default() }, resident));
            let mut warnings = Warnings::default();
            warn_resident(&Who { hint: &hint, is_one_of_several: false }, &block, migrated, &mut warnings);
            warnings.0.remove(0).message
        };
        let alone = told(false, 0);
        assert!(alone.contains("7 of 9 pages") && alone.contains("mremap"), "{alone}");
        assert!(!alone.contains("pin=true") && !alone.contains("kernel"), "{alone}");
        let maybe = told(false, 3);
        assert!(maybe.contains("mremap") && maybe.contains("(3 pages in the whole machine)"), "{maybe}");
        assert!(maybe.ends_with("pin=true") && !told(true, 3).contains("pin=true"), "{maybe}");
    }

    #[test]
    fn migrations_are_those_of_the_hints_strategy() {
        let hint = Hint { strategy: StrategySpec::new(StrategyKind::Modulo, 8), of: Governed::Files };
        let counts = |name: &str| PageColor::from([(name.to_owned(), BTreeMap::from([("moved".to_owned(), 5)]))]);
        assert_eq!(migrated(Some(&counts("modulo")), &hint), 5);
        assert_eq!(migrated(Some(&counts("random")), &hint), 0);
        assert_eq!(migrated(None, &hint), 0);
    }

    #[test]
    fn a_node_at_its_dirty_limit_is_no_lack_of_memory() {
        let hint = Hint { strategy: StrategySpec::new(StrategyKind::BinHopping, 8), of: Governed::Files };
        let counters = Counters { placed: 1, watermark: 4, ..Counters::default() };
        let block = strategy_block(1, &hint, &(counters, Resident::default()));
        let mut warnings = Warnings::default();
        warn_placed(&Who { hint: &hint, is_one_of_several: false }, &block, counters, &mut warnings);
        let message = &warnings.0[0].message;
        assert!(message.contains("for 4 memory was short, or") && message.contains("dirty pages"), "{message}");
    }

    #[test]
    fn hints_from_before_the_run_are_known_from_counts_and_ranges() {
        assert!(is_hint("default page-coloring colors 16 for heap anon") && is_hint("file random colors 8 seed 0"));
        for other in
            ["default usual for stack", "7f0000003000-7f0000005000 random colors 8 seed 0", "placed 12", ""]
        {
            assert!(!is_hint(other), "{other}");
        }
    }

    #[test]
    fn hints_are_kept_where_the_machine_has_a_default() {
        assert!(has_boot_default("ro quiet page_color=512,8\n"));
        assert!(!has_boot_default("ro quiet nopage_color=1 root=/dev/vda1\n"));
        let mut warnings = Warnings::default();
        disinherit(std::process::id() as i32, &mut warnings);
        assert!(warnings.0.is_empty(), "this process has no hints: {:?}", warnings.0);
    }

    #[test]
    fn hints_that_no_exec_would_keep_are_refused_beforehand() {
        let setting = std::env::temp_dir().join(format!("pagelab-exec-{}", std::process::id()));
        std::fs::write(&setting, "0\n").expect("a temporary file");
        assert!(try_exec(&setting).is_ok());
        assert_eq!(std::fs::read_to_string(&setting).expect("the file"), "0\n");
        std::fs::remove_file(&setting).expect("the file");
        let error = try_exec(&setting).expect_err("no setting");
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains("sudo pagelab run"), "{error}");
    }

    #[test]
    fn what_the_kernel_refuses_is_told_with_the_next_command() {
        let strategy = StrategySpec::new(StrategyKind::PageColoring, 64);
        for (errno, next) in [
            (libc::ENOENT, "modprobe placement_page_coloring"),
            (libc::EPERM, "sudo pagelab run"),
            (libc::ERANGE, "colors=N"),
            (libc::EINVAL, "--backend library"),
        ] {
            let error = refused(&io::Error::from_raw_os_error(errno), &strategy);
            assert_eq!(error.exit_code(), 3);
            assert!(error.to_string().contains(next), "{error}");
        }
    }
}
