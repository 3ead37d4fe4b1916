//! Changes of settings that can always be put back: the rules of `docs/doctor.md`, "The settings journal".

use crate::entry::{self, Entry, State};
use crate::journal::{Journal, utc_now};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};

/// The observer of the steps has forbidden further ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// Why a setting could not be read or written.
#[derive(Debug)]
pub enum Trouble {
    /// The kernel, or the file system, refused.
    Refused(io::Error),
    /// No further step is allowed, not even restoring.
    Stopped,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Refused(error)
    }
}

impl From<Stopped> for Trouble {
    fn from(Stopped: Stopped) -> Trouble {
        Trouble::Stopped
    }
}

/// The files that settings are read from and written to, by the kernel's names.
pub trait Settings {
    /// The whole text of a setting.
    ///
    /// # Errors
    ///
    /// The kernel's reason.
    fn text(&mut self, path: &str) -> Result<String, Trouble>;

    /// Writes a value to a setting that is there.
    ///
    /// # Errors
    ///
    /// The kernel's reason.
    fn write(&mut self, path: &str, value: &str) -> Result<(), Trouble>;

    /// Called after every durable step.
    ///
    /// # Errors
    ///
    /// Where nothing more may be done.
    fn step(&mut self, _name: &str) -> Result<(), Stopped> {
        Ok(())
    }

    /// Whether the owner of a change still runs.
    ///
    /// # Errors
    ///
    /// Where nothing more may be done.
    fn is_alive(&mut self, entry: &Entry) -> Result<bool, Stopped> {
        Ok(entry::is_alive(entry))
    }
}

/// The settings of the kernel, as files.
#[derive(Debug)]
pub struct Kernel;

impl Settings for Kernel {
    fn text(&mut self, path: &str) -> Result<String, Trouble> {
        Ok(fs::read_to_string(path)?)
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), Trouble> {
        // Without O_CREAT and O_TRUNC: the files of sysfs exist, and no other file must be created.
        Ok(OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())?)
    }
}

/// The value in a setting's text: of a choice like `always [madvise] never` the chosen word, else all words.
#[must_use]
pub fn normalise(text: &str) -> String {
    let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    chosen.map_or_else(|| text.split_whitespace().collect::<Vec<_>>().join(" "), ToOwned::to_owned)
}

/// Why a change was not made. The setting has its old value, if that could be restored.
#[derive(Debug)]
pub enum Refusal {
    /// The setting could not be read or written.
    Setting(io::Error),
    /// The journal could not be written: nothing was changed.
    Journal(io::Error),
    /// The kernel took the value and changed it.
    Short {
        /// The earlier value.
        old: String,
        /// The value that the kernel made of the wanted one.
        got: String,
    },
}

/// The outcome of undoing one change.
#[derive(Debug)]
pub enum Outcome {
    /// The old value is back; this many pages of a pool are in use beyond it, and go when they are freed.
    Restored {
        /// The pages.
        surplus: u64,
    },
    /// It had its old value.
    Already,
    /// It has its old value, but the journal could not be written: the entry stays active.
    Unrecorded(io::Error),
    /// A later owner of the setting will restore it.
    HandedOn {
        /// That owner.
        by: String,
    },
    /// Another program changed it before a later owner did, which will restore that value.
    Superseded {
        /// That owner.
        by: String,
        /// The value that it will restore.
        old: String,
    },
    /// Its owner still runs: left unchanged.
    Owned,
    /// Made before the machine was restarted, which undid it.
    Stale,
    /// Another program changed it meanwhile: left unchanged, and the entry stays active.
    Changed {
        /// Its present value.
        present: String,
    },
    /// The kernel did not take the old value: the entry stays active.
    Short {
        /// Its present value.
        present: String,
    },
    /// It could not be read or written: the entry stays active.
    Failed(io::Error),
    /// The setting no longer exists.
    Gone,
    /// The journal names a file that is no setting pagelab changes: not written.
    Forbidden,
}

/// One change and the outcome of undoing it.
#[derive(Debug)]
#[allow(missing_docs, reason = "two names that say it")]
pub struct Undone {
    pub entry: Entry,
    pub outcome: Outcome,
}

/// The settings that pagelab changes, those of `doctor --fix` and those of the launcher; `*` is a part of one name. A
/// journal that names any other file is not obeyed.
const KNOWN: [&str; 19] = [
    "/proc/sys/kernel/nmi_watchdog",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/vm/compact_unevictable_allowed",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/page_hints_exec",
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/unprivileged_userfaultfd",
    "/sys/class/bdi/*/read_ahead_kb",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/cpufreq/*/scaling_governor",
    "/sys/kernel/debug/fault_around_bytes",
    "/sys/kernel/mm/hugepages/hugepages-*kB/nr_hugepages",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled",
    "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
];

fn may_write(path: &str) -> bool {
    KNOWN.iter().any(|known| match known.split_once('*') {
        None => path == *known,
        Some((before, after)) => {
            let part = path.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            part.is_some_and(|part| !part.contains('/') && !["", ".", ".."].contains(&part))
        }
    })
}

/// Whether a setting that could not be reached has gone with its device. Any other may only be hidden, and come back with
/// its changed value: its file system is not mounted, its directory masked.
fn has_vanished(files: &mut dyn Settings, path: &str, error: &io::Error) -> Result<bool, Stopped> {
    const DEVICES: &str = "/sys/class/bdi";
    if error.kind() != io::ErrorKind::NotFound || !path.starts_with(DEVICES) {
        return Ok(false);
    }
    match files.text(DEVICES) {
        Ok(_) => Ok(true),
        // A directory that is there cannot be read as a file.
        Err(Trouble::Refused(error)) => Ok(error.kind() == io::ErrorKind::IsADirectory),
        Err(Trouble::Stopped) => Err(Stopped),
    }
}

/// Pool pages beyond the wanted number, in use: the kernel gives them back when their users do.
fn surplus(files: &mut dyn Settings, path: &str) -> Result<u64, Trouble> {
    let Some(directory) = path.strip_suffix("nr_hugepages") else { return Ok(0) };
    match files.text(&format!("{directory}surplus_hugepages")) {
        Ok(text) => Ok(text.trim().parse().unwrap_or(0)),
        Err(Trouble::Refused(_)) => Ok(0),
        Err(stopped) => Err(stopped),
    }
}

/// The present value; of a pool, the number the kernel keeps, without surplus pages.
fn value(files: &mut dyn Settings, path: &str) -> Result<String, Trouble> {
    let value = normalise(&files.text(path)?);
    let surplus = surplus(files, path)?;
    Ok(value
        .parse::<u64>()
        .ok()
        .filter(|_| surplus > 0)
        .map_or(value, |pages| (pages - surplus.min(pages)).to_string()))
}

/// Whether a pool's value lies between two others: the kernel stops part-way when the writer is killed.
fn is_between(path: &str, one: &str, other: &str, value: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    match (number(one), number(other), number(value)) {
        (Some(one), Some(other), Some(value)) if path.ends_with("/nr_hugepages") => {
            (one.min(other)..=one.max(other)).contains(&value)
        }
        _ => false,
    }
}

fn new_id() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A change that is written down, or need not be made.
enum Planned {
    Nothing,
    Held(Entry),
    Change(Entry),
}

/// What to do where a line cannot be written.
#[derive(Clone, Copy)]
enum Unwritten {
    /// Nothing is changed without it.
    Fails,
    /// Go on with what is known.
    InMemory,
}

/// The outcome of one change among several; the outer error ends all.
type Each<T> = Result<Result<T, Refusal>, Stopped>;

/// Separates errors that end this change from errors that end all.
fn each<T>(result: Result<T, Trouble>, refusal: fn(io::Error) -> Refusal) -> Each<T> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Trouble::Refused(error)) => Ok(Err(refusal(error))),
        Err(Trouble::Stopped) => Err(Stopped),
    }
}

impl Journal {
    /// Changes settings: all changes are written down, then made. Returns one result each: the change, or None if
    /// nothing had to be done.
    ///
    /// # Errors
    ///
    /// Where the watcher of the steps stopped it.
    pub fn change(
        &mut self,
        files: &mut dyn Settings,
        wanted: &[(&str, &str)],
        pid: i32,
        by: &str,
    ) -> Result<Vec<Result<Option<Entry>, Refusal>>, Stopped> {
        let mut planned = Vec::new();
        for (path, new) in wanted {
            planned.push(self.intend(files, path, new, pid, by)?);
        }
        let synced = self.sync();
        let mut results = Vec::new();
        for plan in planned {
            results.push(match (plan, &synced) {
                (Err(refusal), _) => Err(refusal),
                (Ok(Planned::Nothing), _) => Ok(None),
                (Ok(Planned::Held(entry)), _) => Ok(Some(entry)),
                (Ok(Planned::Change(entry)), Ok(())) => self.make(files, &entry)?.map(Some),
                (Ok(Planned::Change(_)), Err(error)) => Err(Refusal::Journal(io::Error::other(error.to_string()))),
            });
        }
        Ok(results)
    }

    fn intend(&mut self, files: &mut dyn Settings, path: &str, new: &str, pid: i32, by: &str) -> Each<Planned> {
        let read = self.settle(files, path, Unwritten::Fails).and_then(|()| value(files, path));
        let old = match each(read, Refusal::Setting)? {
            Ok(old) => old,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let written = self.write_down(files, path, (&old, new), pid, by);
        each(written, Refusal::Journal)
    }

    fn write_down(
        &mut self,
        files: &mut dyn Settings,
        path: &str,
        (old, new): (&str, &str),
        pid: i32,
        by: &str,
    ) -> Result<Planned, Trouble> {
        // Another run holds the setting at this value. This run holds it too, so that it stays when the other run ends.
        if old == new && !self.holds(path) {
            return Ok(Planned::Nothing);
        }
        let entry = Entry {
            id: new_id()?,
            time: utc_now(),
            pid,
            pid_start: entry::process_start(pid),
            boot_id: self.boot.clone(),
            path: path.to_owned(),
            old: old.to_owned(),
            new: new.to_owned(),
            state: if old == new { State::Applied } else { State::Intended },
            by: by.to_owned(),
        };
        self.append(entry.clone())?;
        if old == new {
            return Ok(Planned::Held(entry));
        }
        files.step("intended")?;
        Ok(Planned::Change(entry))
    }

    fn make(&mut self, files: &mut dyn Settings, entry: &Entry) -> Each<Entry> {
        let written = files.write(&entry.path, &entry.new);
        let refusal = match each(written, Refusal::Setting)? {
            Ok(()) => {
                files.step("written")?;
                match each(value(files, &entry.path), Refusal::Setting)? {
                    Ok(got) if got == entry.new => return self.confirm(files, entry),
                    Ok(got) => Refusal::Short { old: entry.old.clone(), got },
                    Err(refusal) => refusal,
                }
            }
            Err(refusal) => refusal,
        };
        match self.back_out(files, entry) {
            Err(Trouble::Stopped) => Err(Stopped),
            // A change that could not be restored, or not written down, stays active for `doctor --restore`.
            Ok(()) | Err(Trouble::Refused(_)) => Ok(Err(refusal)),
        }
    }

    fn confirm(&mut self, files: &mut dyn Settings, entry: &Entry) -> Each<Entry> {
        files.step("checked")?;
        // An entry that stays `intended` is undone all the same.
        let applied = self.advance(entry, State::Applied).unwrap_or_else(|_| entry.clone());
        files.step("applied")?;
        Ok(Ok(applied))
    }

    /// Writes the old value again, after a failed change.
    fn back_out(&mut self, files: &mut dyn Settings, entry: &Entry) -> Result<(), Trouble> {
        if value(files, &entry.path)? != entry.old {
            files.write(&entry.path, &entry.old)?;
        }
        files.step("backed-out")?;
        let present = value(files, &entry.path)?;
        if present == entry.old {
            self.advance(entry, State::Failed)?;
        } else {
            self.advance(&Entry { new: present, ..entry.clone() }, State::Applied)?;
        }
        Ok(())
    }

    /// Ids left `intended` belong to a writer that died in the middle: determines how far the change got.
    fn settle(&mut self, files: &mut dyn Settings, path: &str, unwritten: Unwritten) -> Result<(), Trouble> {
        let active = self.snapshot.active(&self.boot);
        let open = active.filter(|entry| entry.path == path && entry.state == State::Intended);
        for entry in open.cloned().collect::<Vec<Entry>>() {
            let present = value(files, path)?;
            let settled = if present == entry.old {
                Entry { state: State::Failed, ..entry }
            } else if is_between(path, &entry.old, &entry.new, &present) {
                Entry { state: State::Applied, new: present, ..entry }
            } else {
                Entry { state: State::Applied, ..entry }
            };
            match (self.advance(&settled, settled.state), unwritten) {
                (Ok(_), _) => files.step("settled")?,
                (Err(error), Unwritten::Fails) => return Err(error.into()),
                (Err(_), Unwritten::InMemory) => self.snapshot.put(settled),
            }
        }
        Ok(())
    }

    /// Undoes changes, in the order given (an owner's latest first); those that are active.
    ///
    /// # Errors
    ///
    /// Where the watcher of the steps stopped it.
    pub fn undo(&mut self, files: &mut dyn Settings, ids: &[String], force: bool) -> Result<Vec<Undone>, Stopped> {
        let mut done = Vec::new();
        for id in ids {
            done.extend(self.undo_one(files, id, force)?);
        }
        // The settings are restored whether or not the journal can be read after a crash.
        let _ = self.sync().and_then(|()| self.shorten());
        Ok(done)
    }

    /// Undoes every active change whose owner is dead, the latest first; those of an earlier boot are closed. `force`:
    /// also where another program changed the setting meanwhile.
    ///
    /// # Errors
    ///
    /// Where the watcher of the steps stopped it.
    pub fn restore(&mut self, files: &mut dyn Settings, force: bool) -> Result<Vec<Undone>, Stopped> {
        let mut done = Vec::new();
        for entry in self.snapshot.stale(&self.boot).cloned().collect::<Vec<Entry>>() {
            let closed = self.advance(&entry, State::Restored);
            done.push(Undone { entry, outcome: closed.map_or_else(Outcome::Failed, |_| Outcome::Stale) });
        }
        for entry in self.snapshot.active(&self.boot).rev().cloned().collect::<Vec<Entry>>() {
            if files.is_alive(&entry)? {
                done.push(Undone { entry, outcome: Outcome::Owned });
            } else {
                done.extend(self.undo_one(files, &entry.id, force)?);
            }
        }
        let _ = self.sync().and_then(|()| self.shorten());
        Ok(done)
    }

    fn active(&self, id: &str) -> Option<Entry> {
        self.snapshot.active(&self.boot).find(|entry| entry.id == id).cloned()
    }

    fn undo_one(&mut self, files: &mut dyn Settings, id: &str, force: bool) -> Result<Option<Undone>, Stopped> {
        let Some(entry) = self.active(id) else { return Ok(None) };
        if !may_write(&entry.path) {
            return Ok(Some(Undone { entry, outcome: Outcome::Forbidden }));
        }
        let outcome = match self.put_back(files, &entry, force) {
            Ok(outcome) => outcome,
            Err(Trouble::Stopped) => return Err(Stopped),
            Err(Trouble::Refused(error)) => match has_vanished(files, &entry.path, &error)? {
                true => self.advance(&entry, State::Restored).map_or_else(Outcome::Failed, |_| Outcome::Gone),
                false => Outcome::Failed(error),
            },
        };
        Ok(Some(Undone { entry, outcome }))
    }

    /// Settings go back also if the journal cannot be written: the lines are for who comes after.
    fn put_back(&mut self, files: &mut dyn Settings, entry: &Entry, force: bool) -> Result<Outcome, Trouble> {
        self.settle(files, &entry.path, Unwritten::InMemory)?;
        // Settling may have shown that it was never made, or how far it got.
        let Some(entry) = self.active(&entry.id) else { return Ok(Outcome::Already) };
        if let Some(later) = self.later_owner(&entry) {
            return self.hand_on(files, &entry, later);
        }
        let present = value(files, &entry.path)?;
        if present == entry.old {
            return self.close(files, &entry, Outcome::Already);
        }
        // An undo that raises a pool can be killed part-way, too.
        let raised = |one: &str, other: &str| one.parse::<u64>().ok() > other.parse::<u64>().ok();
        let part_way = is_between(&entry.path, &entry.new, &entry.old, &present) && raised(&entry.old, &entry.new);
        if present != entry.new && !part_way && !force {
            return Ok(Outcome::Changed { present });
        }
        files.write(&entry.path, &entry.old)?;
        files.step("put-back")?;
        let present = value(files, &entry.path)?;
        if present != entry.old {
            return Ok(Outcome::Short { present });
        }
        let surplus = surplus(files, &entry.path)?;
        self.close(files, &entry, Outcome::Restored { surplus })
    }

    /// Notes that a setting has its old value again.
    fn close(&mut self, files: &mut dyn Settings, entry: &Entry, outcome: Outcome) -> Result<Outcome, Trouble> {
        if let Err(error) = self.advance(entry, State::Restored) {
            return Ok(Outcome::Unrecorded(error));
        }
        files.step("restored")?;
        Ok(outcome)
    }

    fn later_owner(&self, entry: &Entry) -> Option<Entry> {
        let mut after = self.snapshot.active(&self.boot).skip_while(|other| other.id != entry.id).skip(1);
        after.find(|other| other.path == entry.path).cloned()
    }

    /// The later owner needs its value, and will restore the right one: what this one found, or what another program set
    /// between the two.
    fn hand_on(&mut self, files: &mut dyn Settings, entry: &Entry, later: Entry) -> Result<Outcome, Trouble> {
        let (by, state) = (later.by.clone(), later.state);
        if later.old != entry.new {
            return self.close(files, entry, Outcome::Superseded { by, old: later.old });
        }
        self.advance(&Entry { old: entry.old.clone(), ..later }, state)?;
        files.step("handed-on")?;
        self.advance(entry, State::Restored)?;
        files.step("restored")?;
        Ok(Outcome::HandedOn { by })
    }
}
