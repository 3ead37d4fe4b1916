//! System-wide settings that a run needs, written to the journal first and always put back.

use crate::sys;
use crate::warnings::{Kind, Severity, Warnings};
use pagelab_contract::record::Fetch;
use pagelab_settings::{Entry, Journal, Kernel, Outcome, Refusal, Snapshot, Unusable, Waiting};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Every device's readahead, network and overlay file systems included.
const BDI: &str = "/sys/class/bdi";
const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const FAULT_AROUND: &str = "/sys/kernel/debug/fault_around_bytes";

/// Settings changed for a run; put back by [`Held::restore`], or when dropped.
#[derive(Debug, Default)]
pub struct Held {
    made: Vec<Entry>,
    /// Settings that have the wanted values by changes of others, and could not be held: they may change meanwhile.
    lent: Vec<(PathBuf, String)>,
}

impl Held {
    /// Restores everything, the latest first; warns of what could not be restored.
    pub fn restore(mut self, warnings: &mut Warnings) {
        for (path, value) in std::mem::take(&mut self.lent) {
            if !has_value(&path, &value) {
                let message = format!(
                    "{} was {value} when the program started, and another program has changed it since; run it again",
                    path.display()
                );
                warnings.warn(Kind::NoisyMachine, message, json!({"path": path}));
            }
        }
        let undone = self.undo();
        for why in undone.failed {
            warnings.add(Kind::SettingNotRestored, Severity::Serious, why, json!({}));
        }
    }

    /// Sets one setting for the run; returns the reason if it cannot. A setting that already has the value, and that no
    /// other run holds, is left as it is.
    pub fn keep(&mut self, path: &str, value: &str, by: &str) -> Option<String> {
        let path = Path::new(path);
        if has_value(path, value) && !Known::read().holds(path) {
            return None;
        }
        self.set(&[(path, value)], by).pop().map(|(_, error)| sys::errno_text(&error))
    }

    fn undo(&mut self) -> UndoneAll {
        let made: Vec<Entry> = std::mem::take(&mut self.made).into_iter().rev().collect();
        if made.is_empty() { UndoneAll::default() } else { undo_all(&made) }
    }

    /// Changes several settings; the errors by number. One that has its value all the same is lent by who changed it.
    fn set(&mut self, wanted: &[(&Path, &str)], by: &str) -> Vec<(usize, io::Error)> {
        let refused = self.change(wanted, by);
        let is_lent = |number: usize| wanted.get(number).filter(|(path, value)| has_value(path, value));
        let (lent, refused) = refused.into_iter().partition::<Vec<_>, _>(|(number, _)| is_lent(*number).is_some());
        let lent = lent.into_iter().filter_map(|(number, _)| is_lent(number));
        self.lent.extend(lent.map(|(path, value)| (path.to_path_buf(), (*value).to_owned())));
        refused
    }

    fn change(&mut self, wanted: &[(&Path, &str)], by: &str) -> Vec<(usize, io::Error)> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut journal = match lock(Patience::UntilAsked) {
            Ok(journal) => journal,
            Err(why) => return (0..wanted.len()).map(|number| (number, unusable(&why))).collect(),
        };
        let names: Vec<String> = wanted.iter().map(|(path, _)| path.display().to_string()).collect();
        let changes: Vec<(&str, &str)> =
            names.iter().map(String::as_str).zip(wanted.iter().map(|(_, value)| *value)).collect();
        let results = journal.change(&mut Kernel, &changes, sys::process::own_pid(), by).unwrap_or_default();
        let mut refused = Vec::new();
        for (number, result) in results.into_iter().enumerate() {
            match result {
                Ok(made) => self.made.extend(made),
                Err(Refusal::Setting(error) | Refusal::Journal(error)) => refused.push((number, error)),
                Err(Refusal::Short { .. }) => {
                    refused.push((number, io::Error::other("the kernel did not take the value")));
                }
            }
        }
        refused
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for why in self.undo().failed {
            crate::say::say(&why);
        }
    }
}

/// The outcome of undoing several changes.
#[derive(Debug, Default)]
pub struct UndoneAll {
    /// Number of settings that were restored.
    pub restored: usize,
    /// Messages about the others.
    pub failed: Vec<String>,
}

/// The kernel's error, if that is the reason.
fn unusable(why: &Unusable) -> io::Error {
    match why {
        Unusable::Unopened(_, error) => {
            error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
        }
        other => io::Error::other(other.to_string()),
    }
}

/// Undoes changes, in this order.
fn undo_all(entries: &[Entry]) -> UndoneAll {
    let mut all = UndoneAll::default();
    let mut journal = match lock(Patience::Long) {
        Ok(journal) => journal,
        Err(why) => {
            all.failed.push(format!("{why}; then run: sudo pagelab doctor --restore"));
            return all;
        }
    };
    let ids: Vec<String> = entries.iter().map(|entry| entry.id.clone()).collect();
    let undone = journal.undo(&mut Kernel, &ids, false).unwrap_or_default();
    for entry in entries {
        let (why, next) = match undone.iter().find(|one| one.entry.id == entry.id) {
            Some(one) => (why_not(&one.outcome), "sudo pagelab doctor --restore".to_owned()),
            // It is no longer active: undone by another process, or lost with the journal.
            None => {
                let is_lost = !is_back(entry) && !journal.holds(&entry.path);
                let why = is_lost.then(|| "the settings journal has no such entry any more".to_owned());
                (why, format!("echo {} | sudo tee {}", entry.old, entry.path))
            }
        };
        let Some(why) = why else {
            all.restored += 1;
            continue;
        };
        all.failed.push(format!(
            "{} could not be put back to {} (journal entry {}): {why}; run: {next}",
            entry.path, entry.old, entry.id
        ));
    }
    all
}

/// Why a setting was not put back, if so.
fn why_not(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Restored { .. }
        | Outcome::Already
        | Outcome::Unrecorded(_)
        | Outcome::HandedOn { .. }
        | Outcome::Superseded { .. }
        | Outcome::Owned
        | Outcome::Stale
        | Outcome::Gone => None,
        Outcome::Changed { present } => Some(format!("another program set it to {present}")),
        Outcome::Short { present } => Some(format!("the kernel made {present} of it")),
        Outcome::Failed(error) => Some(sys::errno_text(error)),
        Outcome::Forbidden => Some("it is not a setting pagelab changes".to_owned()),
    }
}

/// Whether a setting has its old value, or is gone.
fn is_back(entry: &Entry) -> bool {
    match read_value(entry.path.as_ref()) {
        Ok(value) => value == entry.old,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// A process whose changes are to be undone if it dies: its number, and its start, by which a later process with the
/// same number is told apart.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    pid: i32,
    start: Option<u64>,
}

impl Owner {
    /// A process that runs, or was not reaped yet.
    pub fn of(pid: i32) -> Owner {
        Owner { pid, start: pagelab_settings::process_start(pid) }
    }
}

/// Undoes what another process, now dead, had changed.
pub fn undo_of(owner: Owner) -> UndoneAll {
    // Most runs change no setting, and have no right to the journal's lock.
    if pagelab_settings::read(&pagelab_settings::default_path())
        .is_ok_and(|known| !known.entries.iter().any(|entry| entry.pid == owner.pid))
    {
        return UndoneAll::default();
    }
    match lock(Patience::Long) {
        // A journal that others own holds nothing of ours.
        Err(why) if why.is_of_others() => UndoneAll::default(),
        Err(why) => {
            UndoneAll { restored: 0, failed: vec![format!("{why}; then run: sudo pagelab doctor --restore")] }
        }
        Ok(journal) => {
            let made = journal.active_of(owner.pid, owner.start);
            drop(journal);
            if made.is_empty() { UndoneAll::default() } else { undo_all(&made) }
        }
    }
}

/// How long the journal's lock is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Until a signal asks the run to end.
    UntilAsked,
    /// The same, but settings are not left changed for a moment's delay: no signal counts at first.
    Long,
}

/// How long waiting for the lock is nothing to mention.
const QUIET: Duration = Duration::from_secs(3);
/// How long signals do not count where settings are to be put back.
const LONG: Duration = Duration::from_secs(10);

fn lock(patience: Patience) -> Result<Journal, Unusable> {
    let mut said = false;
    Journal::lock(&pagelab_settings::default_path(), &mut |waiting: &Waiting<'_>| {
        let waited = waiting.waited();
        if waited >= QUIET && !said {
            said = true;
            crate::say::early(&format!("waits for the settings journal: {}", waiting.sentence()));
        }
        (patience == Patience::Long && waited < LONG) || !sys::signals::is_asked_to_end()
    })
}

fn readahead_files() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(BDI).into_iter().flatten().flatten();
    let mut files: Vec<(String, PathBuf)> = entries
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path().join("read_ahead_kb")))
        .filter(|(_, path)| path.exists())
        .collect();
    files.sort();
    files
}

fn readahead_kb() -> BTreeMap<String, u64> {
    let values = readahead_files().into_iter();
    values.filter_map(|(name, path)| Some((name, read_value(&path).ok()?.parse().ok()?))).collect()
}

/// The state of prepaging, as it is without changing anything.
pub fn observe() -> Fetch {
    let before = readahead_kb();
    Fetch {
        readahead_kb_during: before.clone(),
        readahead_kb_before: before,
        fault_around_bytes: read_value(FAULT_AROUND.as_ref()).ok().and_then(|text| text.parse().ok()),
        residency_at_start: Vec::new(),
    }
}

/// Switches readahead off everywhere: the program's own text and libraries come in before the library can advise the
/// kernel, and any file system may back them.
pub fn stop_readahead(held: &mut Held, fetch: &mut Fetch, warnings: &mut Warnings) {
    let (all, known) = (readahead_files(), Known::read());
    let off = |name: &str, path: &Path| fetch.readahead_kb_before.get(name) == Some(&0) && !known.holds(path);
    let wanted: Vec<&(String, PathBuf)> = all.iter().filter(|(name, path)| !off(name, path)).collect();
    let changes: Vec<(&Path, &str)> = wanted.iter().map(|(_, path)| (path.as_path(), "0")).collect();
    let mut refused: BTreeMap<String, String> = BTreeMap::new();
    for (number, error) in held.set(&changes, "pagelab-launch readahead") {
        if let Some((name, _)) = wanted.get(number) {
            refused.insert(name.clone(), sys::errno_text(&error));
        }
    }
    fetch.readahead_kb_during = readahead_kb();
    if let Some((name, why)) = refused.first_key_value() {
        let message = format!(
            "readahead stays on for {} of {} devices (first: {name}: {why}); the program's text and libraries are \
             prepaged as the kernel likes; run as root",
            refused.len(),
            fetch.readahead_kb_before.len()
        );
        warnings.warn(Kind::ReadaheadNotControlled, message, json!({"refused": refused}));
    }
}

/// What the journal says, read once for many settings.
struct Known {
    snapshot: Snapshot,
    boot: String,
}

impl Known {
    fn read() -> Known {
        let snapshot = pagelab_settings::read(&pagelab_settings::default_path()).unwrap_or_default();
        Known { snapshot, boot: pagelab_settings::boot_id() }
    }

    /// A setting that another run holds must be held too, even if it has the right value already.
    fn holds(&self, path: &Path) -> bool {
        path.to_str().is_some_and(|path| self.snapshot.holds(path, &self.boot))
    }
}

/// The present value of a setting.
fn read_value(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map(|text| pagelab_settings::normalise(&text))
}

fn has_value(path: &Path, value: &str) -> bool {
    read_value(path).is_ok_and(|now| now == value)
}

/// Fault-around maps neighbouring cached pages at a fault, whatever advice a mapping has; only this switch stops it.
pub fn stop_fault_around(held: &mut Held, fetch: &mut Fetch, warnings: &mut Warnings) {
    let page = sys::files::page_bytes().to_string();
    let path = Path::new(FAULT_AROUND);
    let why = match fetch.fault_around_bytes {
        Some(bytes) if bytes.to_string() == page && !Known::read().holds(path) => return,
        _ => match held.set(&[(path, &page)], "pagelab-launch fault-around").pop() {
            None => {
                fetch.fault_around_bytes = page.parse().ok();
                return;
            }
            Some((_, error)) => sys::errno_text(&error),
        },
    };
    let message = format!(
        "fault-around could not be switched off ({FAULT_AROUND}: {why}): a fault on a cached file page may map its \
         neighbours too"
    );
    warnings.add(Kind::FaultAroundNotControlled, Severity::Info, message, json!({"errno": why}));
}

/// Switches mTHP sizes so that memory that asks for huge pages gets the sizes a plan names. The switches are for the
/// whole machine, and of the sizes that are on the largest that fits wins, so every other size is switched off.
pub fn switch_mthp(held: &mut Held, sizes: &[u64], warnings: &mut Warnings) {
    let wish = |bytes: u64| if sizes.contains(&bytes) { "madvise" } else { "never" };
    let (all, known) = (mthp_files(), Known::read());
    let is_so = |path: &Path, wish: &str| has_value(path, wish) && !known.holds(path);
    let wanted: Vec<&(u64, PathBuf)> = all.iter().filter(|(bytes, path)| !is_so(path, wish(*bytes))).collect();
    let changes: Vec<(&Path, &str)> = wanted.iter().map(|(bytes, path)| (path.as_path(), wish(*bytes))).collect();
    for (number, error) in held.set(&changes, "pagelab-launch mTHP") {
        let Some((bytes, path)) = wanted.get(number) else { continue };
        let (size, why) = (crate::words::size(*bytes), sys::errno_text(&error));
        let message =
            format!("pages of {size} could not be switched to {:?}: {why}; mTHP sizes need root", wish(*bytes));
        warnings.warn(Kind::PlacementShortfall, message, json!({"path": path, "errno": why}));
    }
}

/// Switches by size: (bytes, file).
fn mthp_files() -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(THP).into_iter().flatten().flatten();
    let size = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok();
    let mut files: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            Some((size(&entry.file_name().to_string_lossy())? * 1024, entry.path().join("enabled")))
        })
        .filter(|(_, path)| path.exists())
        .collect();
    files.sort();
    files
}
