//! The journal's file: its allowed owner, one lock, whole lines.

use crate::entry::{self, Entry, Snapshot, State};
use crate::lock::{Lock, OnWait};
use crate::place;
use crate::unusable::Unusable;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Of a journal that is larger than this only the open entries are kept; smaller ones are kept for people.
pub(crate) const SHORTEN_ABOVE_BYTES: u64 = 1 << 16;

/// What is read of a journal without its lock: it may be a file of others.
const READ_AT_MOST_BYTES: u64 = 1 << 24;

/// The path of the journal: `PAGELAB_JOURNAL`, or `/run/pagelab/journal.jsonl`.
#[must_use]
pub fn default_path() -> PathBuf {
    let set = std::env::var_os("PAGELAB_JOURNAL").filter(|path| !path.is_empty());
    set.map_or_else(|| "/run/pagelab/journal.jsonl".into(), PathBuf::from)
}

/// The journal as it stands; empty when there is none. Reading needs no lock.
///
/// # Errors
///
/// Where it is there and cannot be read.
pub fn read(path: &Path) -> Result<Snapshot, Unusable> {
    let unread = |error| Unusable::Unread(path.to_owned(), error);
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(without_waiting).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Snapshot::default()),
        Err(error) => return Err(unread(error)),
    };
    if !file.metadata().map_err(unread)?.is_file() {
        return Err(Unusable::NotRegular(path.to_owned()));
    }
    let mut content = Vec::new();
    file.take(READ_AT_MOST_BYTES).read_to_end(&mut content).map_err(unread)?;
    Ok(Snapshot::parse(&content))
}

/// The journal, open and exclusively locked.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Released when dropped.
    _lock: Lock,
    /// Bytes of whole lines.
    length: u64,
    pub(crate) boot: String,
    pub(crate) snapshot: Snapshot,
}

fn open(path: &Path) -> Result<File, Unusable> {
    let unopened = |error| Unusable::Unopened(path.to_owned(), error);
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o644).custom_flags(flags.bits().cast_signed());
    let file = options.open(path).map_err(unopened)?;
    let data = file.metadata().map_err(unopened)?;
    if !data.is_file() {
        return Err(Unusable::NotRegular(path.to_owned()));
    }
    if data.uid() != rustix::process::geteuid().as_raw() || data.mode() & 0o022 != 0 {
        return Err(Unusable::Foreign { path: path.to_owned(), uid: data.uid(), mode: data.mode() & 0o777 });
    }
    File::open(place::of(path)).and_then(|directory| directory.sync_all()).map_err(unopened)?;
    Ok(file)
}

impl Journal {
    /// Opens, locks and reads the journal, after other writers have finished; `on_wait` decides how long it waits for
    /// them.
    ///
    /// # Errors
    ///
    /// Where the file is not one that may be used, or the lock not had.
    pub fn lock(path: &Path, on_wait: OnWait<'_>) -> Result<Journal, Unusable> {
        Journal::lock_as(path, entry::boot_id(), on_wait)
    }

    /// As [`Journal::lock`], taking this for the present boot.
    ///
    /// # Errors
    ///
    /// As [`Journal::lock`].
    pub fn lock_as(path: &Path, boot: String, on_wait: OnWait<'_>) -> Result<Journal, Unusable> {
        let path = &place::resolved(path)?;
        // What cannot be used is told before the lock is waited for.
        drop(open(path)?);
        let unopened = |error| Unusable::Unopened(path.to_owned(), error);
        let lock = Lock::take(path, on_wait)?;
        // The writer before may have replaced the file.
        let file = open(path)?;
        let length = file.metadata().map_err(unopened)?.len();
        let mut content = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_exact_at(&mut content, 0).map_err(unopened)?;
        let snapshot = Snapshot::parse(&content);
        if snapshot.entries.is_empty() && !entry::is_torn_beginning(&content) {
            return Err(Unusable::NotJournal(path.to_owned()));
        }
        let whole = content.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1) as u64;
        if whole != length {
            // A last line without its newline was being written when its writer died.
            file.set_len(whole).map_err(unopened)?;
        }
        Ok(Journal { path: path.to_owned(), file, _lock: lock, length: whole, boot, snapshot })
    }

    /// Writes one line; whole, or not at all.
    pub(crate) fn append(&mut self, entry: Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        // This line would be appended to the half line of an interrupted write.
        if self.file.metadata()?.len() != self.length {
            self.file.set_len(self.length)?;
        }
        // One write call: the line is there or not. A torn line is cut off at once, or by the next writer.
        if self.file.write(&line)? != line.len() {
            self.file.set_len(self.length)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.length += line.len() as u64;
        self.snapshot.put(entry);
        Ok(())
    }

    /// From now on every append fails, as beyond a limit on file size.
    #[cfg(test)]
    pub(crate) fn cannot_be_written(&mut self) {
        self.file = File::open("/dev/null").expect("there");
        self.length = 0;
    }

    /// Appends the entry again, in another state.
    pub(crate) fn advance(&mut self, entry: &Entry, state: State) -> io::Result<Entry> {
        let entry = Entry { state, time: utc_now(), ..entry.clone() };
        self.append(entry.clone())?;
        Ok(entry)
    }

    /// Makes everything appended durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Removes what is closed from a large journal: empties it, or puts a file with the open entries in its place.
    pub(crate) fn shorten(&mut self) -> io::Result<()> {
        if self.length <= SHORTEN_ABOVE_BYTES {
            return Ok(());
        }
        if self.snapshot.active(&self.boot).next().is_none() {
            self.file.set_len(0)?;
            self.length = 0;
            self.snapshot = Snapshot::default();
            return Ok(());
        }
        let mut lines = Vec::new();
        for entry in self.snapshot.entries.iter().filter(|entry| entry.is_open()) {
            serde_json::to_writer(&mut lines, entry)?;
            lines.push(b'\n');
        }
        let length = lines.len() as u64;
        // Else a journal with many open entries would be written anew at each undo.
        if length <= self.length / 2 {
            self.file = replaced(&self.path, &lines)?;
            self.length = length;
            self.snapshot = Snapshot::parse(&lines);
        }
        Ok(())
    }

    /// Active changes of one process, the latest first. `start` is that of [`crate::process_start`]: changes of an
    /// earlier process with the same number are not its own.
    #[must_use]
    pub fn active_of(&self, pid: i32, start: Option<u64>) -> Vec<Entry> {
        let is_its = |entry: &&Entry| {
            entry.pid == pid && entry.pid_start.zip(start).is_none_or(|(known, start)| known == start)
        };
        self.snapshot.active(&self.boot).rev().filter(is_its).cloned().collect()
    }

    /// Whether another run or command holds this setting.
    #[must_use]
    pub fn holds(&self, path: &str) -> bool {
        self.snapshot.holds(path, &self.boot)
    }
}

/// Puts a file with this content in the place of the journal, by its lock's holder; readers see one or the other.
fn replaced(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // As a writer that died here left it.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o644).open(&new)?;
    // As the old one, whatever the umask: others may read it.
    let mode = fs::metadata(path).map_or(0o644, |old| old.permissions().mode() & 0o644);
    let as_before = file.set_permissions(Permissions::from_mode(mode));
    let written = as_before.and_then(|()| file.write_all(content)).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| fs::rename(&new, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&new);
    }
    renamed.map(|()| file)
}

/// The present time, RFC 3339, UTC.
pub(crate) fn utc_now() -> String {
    humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string()
}
