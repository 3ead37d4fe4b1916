//! The settings journal, shared with `pagelab doctor`: what was changed on this machine, so that it can be undone
//! after any crash. Format and meaning are defined in `src/pagelab/machine/journal.py`; this is its other writer.

use crate::sys;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the journal is without `PAGELAB_JOURNAL`.
const DEFAULT_PATH: &str = "/run/pagelab/journal.jsonl";

/// As in journal.py: a journal without active entries is emptied once it is larger than this.
const EMPTY_ABOVE_BYTES: u64 = 1 << 16;

/// State of a change.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Written down, perhaps not yet made.
    Intended,
    /// Made.
    Applied,
    /// Undone.
    Restored,
    /// Not made.
    Failed,
}

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "field by field as in docs/doctor.md")]
pub struct Entry {
    pub id: String,
    pub time: String,
    pub pid: i32,
    #[serde(default)]
    pub pid_start: Option<u64>,
    pub boot_id: String,
    pub path: String,
    pub old: String,
    pub new: String,
    pub state: State,
    pub by: String,
}

impl Entry {
    fn is_active(&self, boot: &str) -> bool {
        matches!(self.state, State::Intended | State::Applied) && self.boot_id == boot
    }
}

/// What undoing one change came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Undone {
    /// The old value is back, or a later owner will put it back.
    Restored,
    /// Somebody else changed the setting meanwhile; it is left, and the entry stays active.
    ChangedByOthers {
        /// Its present value.
        present: String,
    },
}

/// The journal, open and exclusively locked.
pub struct Journal {
    file: File,
    /// Bytes of whole lines.
    length: u64,
    boot: String,
    entries: Vec<Entry>,
}

/// The value in a setting's file: stripped, and of a choice like `always [madvise] never` the chosen word.
pub fn read_value(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    Ok(chosen.unwrap_or(text.trim()).to_owned())
}

fn write_value(path: &Path, value: &str) -> io::Result<()> {
    // Without O_CREAT and O_TRUNC: the files of sysfs exist, and others must not come into being.
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// The journal's path: `PAGELAB_JOURNAL`, or the default.
pub fn path() -> PathBuf {
    std::env::var_os("PAGELAB_JOURNAL").filter(|path| !path.is_empty()).map_or(DEFAULT_PATH.into(), PathBuf::from)
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().mode(0o755).recursive(true).create(directory)?;
    }
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the journal is not a regular file"));
    }
    // Restoring writes what the journal says, with root's rights: nobody else may be able to say it.
    if data.uid() != sys::user::own_uids().1 || data.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the journal belongs to, or is writable by, others",
        ));
    }
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(file)
}

/// Field 22 of a process's stat line: its start in clock ticks since boot.
fn pid_start(pid: i32) -> Option<u64> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    line.get(line.rfind(')')? + 1..)?.split_whitespace().nth(19)?.parse().ok()
}

/// How lines begin: those of journal.py and those written here.
const BEGINNINGS: [&[u8]; 2] = [b"{\"id\"", b"{\"boot_id\""];

/// What a whole line says. One that was cut short swallows the one behind it, which is read all the same.
fn entry(line: &[u8]) -> Option<Entry> {
    let line = line.strip_suffix(b"\n")?;
    let behind = || {
        let at = |beginning: &&[u8]| line.windows(beginning.len()).rposition(|part| part == *beginning);
        let last = BEGINNINGS.iter().filter_map(at).max()?;
        serde_json::from_slice(line.get(last..)?).ok()
    };
    serde_json::from_slice(line).ok().or_else(behind)
}

/// Whether nothing but the beginning of a first line is there. Anything else without a line is somebody else's file.
fn is_torn_beginning(content: &[u8]) -> bool {
    let begins = |beginning: &&[u8]| beginning.starts_with(content) || content.starts_with(beginning);
    !content.contains(&b'\n') && BEGINNINGS.iter().any(begins)
}

/// A change that is written down, or need not be made.
enum Planned {
    Nothing,
    Held(String),
    Change(Entry),
}

impl Journal {
    /// Opens, locks and reads the journal, waiting for other writers.
    pub fn lock(path: &Path) -> io::Result<Journal> {
        let file = open(path)?;
        sys::files::lock(&file)?;
        let length = file.metadata()?.len();
        let mut content = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_exact_at(&mut content, 0)?;
        let entries: Vec<Entry> = content.split_inclusive(|&byte| byte == b'\n').filter_map(entry).collect();
        if entries.is_empty() && !is_torn_beginning(&content) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file is not a settings journal, and is left as it is",
            ));
        }
        let whole = content.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        if whole as u64 != length {
            // A last line without its newline was being written when its writer died.
            file.set_len(whole as u64)?;
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        let mut journal = Journal { file, length: whole as u64, boot, entries: Vec::new() };
        entries.into_iter().for_each(|entry| journal.put(entry));
        Ok(journal)
    }

    fn put(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|known| known.id == entry.id) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
    }

    fn append(&mut self, entry: Entry) -> io::Result<()> {
        let mut line = serde_json::to_value(&entry).map(|value: Value| value.to_string())?;
        line.push('\n');
        // What an earlier write left half done would swallow this line.
        if self.file.metadata()?.len() != self.length {
            self.file.set_len(self.length)?;
        }
        // One write: a line is there or not, and a torn one is cut off at once, or by the next writer.
        if self.file.write(line.as_bytes())? != line.len() {
            self.file.set_len(self.length)?;
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.length += line.len() as u64;
        self.put(entry);
        Ok(())
    }

    /// Makes everything appended durable.
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Empties a large journal that has nothing left to undo.
    fn empty_if_done(&mut self) -> io::Result<()> {
        let active = self.entries.iter().any(|entry| entry.is_active(&self.boot));
        if !active && self.file.metadata()?.len() > EMPTY_ABOVE_BYTES {
            self.file.set_len(0)?;
            self.length = 0;
            self.entries.clear();
        }
        Ok(())
    }

    fn advance(&mut self, entry: &Entry, state: State) -> io::Result<()> {
        self.append(Entry { state, time: sys::utc_now(), ..entry.clone() })
    }

    /// Ids left `intended` belong to a writer that died in the middle: finds out how far it came.
    fn settle(&mut self, path: &str) -> io::Result<()> {
        let boot = self.boot.clone();
        let open = |entry: &&Entry| entry.path == path && entry.state == State::Intended && entry.boot_id == boot;
        let unsettled: Vec<Entry> = self.entries.iter().filter(open).cloned().collect();
        for entry in unsettled {
            let present = read_value(Path::new(path))?;
            self.advance(&entry, if present == entry.old { State::Failed } else { State::Applied })?;
        }
        Ok(())
    }

    /// Changes settings: all are written down, then made. One result each: the id of the change, or None when nothing
    /// needed to be done.
    pub fn change(&mut self, wanted: &[(&Path, &str)], by: &str) -> Vec<io::Result<Option<String>>> {
        let planned: Vec<io::Result<Planned>> =
            wanted.iter().map(|(path, new)| self.intend(path, new, by)).collect();
        let synced = self.sync();
        let make = |planned: io::Result<Planned>| match planned? {
            Planned::Nothing => Ok(None),
            Planned::Held(id) => Ok(Some(id)),
            Planned::Change(entry) => match &synced {
                Ok(()) => self.make(&entry).map(|()| Some(entry.id)),
                Err(error) => Err(io::Error::other(error.to_string())),
            },
        };
        planned.into_iter().map(make).collect()
    }

    fn intend(&mut self, path: &Path, new: &str, by: &str) -> io::Result<Planned> {
        let name = path.display().to_string();
        self.settle(&name)?;
        let old = read_value(path)?;
        let pid = sys::process::own_pid();
        let entry = Entry {
            id: sys::random::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect(),
            time: sys::utc_now(),
            pid,
            pid_start: pid_start(pid),
            boot_id: self.boot.clone(),
            path: name.clone(),
            old: old.clone(),
            new: new.to_owned(),
            state: State::Intended,
            by: by.to_owned(),
        };
        if old != new {
            self.append(entry.clone())?;
            return Ok(Planned::Change(entry));
        }
        // Another run holds the setting at this value: hold it too, so that it stays when the other one leaves.
        if !self.entries.iter().any(|known| known.path == name && known.is_active(&self.boot)) {
            return Ok(Planned::Nothing);
        }
        let id = entry.id.clone();
        self.append(Entry { state: State::Applied, ..entry })?;
        Ok(Planned::Held(id))
    }

    fn make(&mut self, entry: &Entry) -> io::Result<()> {
        let path = Path::new(&entry.path);
        let done = write_value(path, &entry.new).and_then(|()| read_value(path));
        match done {
            Ok(present) if present == entry.new => self.advance(entry, State::Applied),
            other => {
                if read_value(path)? != entry.old {
                    write_value(path, &entry.old)?;
                }
                self.advance(entry, State::Failed)?;
                Err(other.err().unwrap_or_else(|| io::Error::other("the kernel did not take the value")))
            }
        }
    }

    /// Undoes changes, in the order given (an owner's latest first); one result each.
    pub fn undo(&mut self, ids: &[String]) -> Vec<io::Result<Undone>> {
        let done = ids.iter().map(|id| self.undo_one(id)).collect();
        // The settings are back whether or not people can read about it after a crash.
        let _ = self.sync().and_then(|()| self.empty_if_done());
        done
    }

    fn undo_one(&mut self, id: &str) -> io::Result<Undone> {
        let Some(found) = self.entries.iter().find(|entry| entry.id == id).cloned() else {
            return Ok(Undone::Restored);
        };
        self.settle(&found.path)?;
        let Some(at) = self.entries.iter().position(|entry| entry.id == id && entry.is_active(&self.boot)) else {
            return Ok(Undone::Restored);
        };
        let entry = self.entries[at].clone();
        let later =
            self.entries.iter().skip(at + 1).find(|other| other.path == entry.path && other.is_active(&self.boot));
        if let Some(later) = later.cloned() {
            // The later owner needs its value and will put back the right one.
            self.append(Entry { old: entry.old.clone(), time: sys::utc_now(), ..later })?;
            self.advance(&entry, State::Restored)?;
            return Ok(Undone::Restored);
        }
        let path = Path::new(&entry.path);
        let present = read_value(path)?;
        if present == entry.new && present != entry.old {
            write_value(path, &entry.old)?;
            if read_value(path)? != entry.old {
                return Err(io::Error::other("the kernel did not take the old value"));
            }
        } else if present != entry.old {
            return Ok(Undone::ChangedByOthers { present });
        }
        self.advance(&entry, State::Restored)?;
        Ok(Undone::Restored)
    }

    /// Active changes of one process, the latest first.
    pub fn active_of(&self, pid: i32) -> Vec<Entry> {
        let own = self.entries.iter().rev().filter(|entry| entry.pid == pid && entry.is_active(&self.boot));
        own.cloned().collect()
    }
}

#[cfg(test)]
mod tests;
