//! The journal's lines, and the state that they add up to.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;

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
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[allow(missing_docs, reason = "field by field in docs/doctor.md")]
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
    /// Whether the change was made, or begun, and never undone; in whatever boot.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Intended | State::Applied)
    }

    /// Whether it was made in this boot. Where one of the two is not known it counts as made in it: an undo looks at
    /// the setting before it writes.
    fn is_of(&self, boot: &str) -> bool {
        boot.is_empty() || self.boot_id.is_empty() || self.boot_id == boot
    }
}

/// The present state of every id, in the order of their first lines.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// One an id: its last line.
    pub entries: Vec<Entry>,
    /// Number of whole lines that are not valid.
    pub damaged_lines: usize,
    /// Index in `entries` by id.
    #[serde(skip)]
    places: HashMap<String, usize>,
}

impl Snapshot {
    /// Changes of this boot that have not been undone, the oldest first.
    pub fn active<'s>(&'s self, boot: &'s str) -> impl DoubleEndedIterator<Item = &'s Entry> + Clone {
        self.entries.iter().filter(move |entry| entry.is_open() && entry.is_of(boot))
    }

    /// Whether a change of this setting is active.
    #[must_use]
    pub fn holds(&self, path: &str, boot: &str) -> bool {
        self.active(boot).any(|entry| entry.path == path)
    }

    /// Changes of an earlier boot that were never undone: the restart undid them.
    pub fn stale<'s>(&'s self, boot: &'s str) -> impl Iterator<Item = &'s Entry> {
        self.entries.iter().filter(move |entry| entry.is_open() && !entry.is_of(boot))
    }

    pub(crate) fn put(&mut self, entry: Entry) {
        match self.places.get(&entry.id).and_then(|&place| self.entries.get_mut(place)) {
            Some(known) => *known = entry,
            None => {
                self.places.insert(entry.id.clone(), self.entries.len());
                self.entries.push(entry);
            }
        }
    }

    pub(crate) fn parse(content: &[u8]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for line in content.split_inclusive(|&byte| byte == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else { break };
            let entry = serde_json::from_slice(line).ok();
            snapshot.damaged_lines += usize::from(entry.is_none());
            if let Some(entry) = entry.or_else(|| behind_a_torn_one(line)) {
                snapshot.put(entry);
            }
        }
        snapshot
    }
}

/// Beginnings of lines: the present ones, and those of earlier launchers.
const BEGINNINGS: [&[u8]; 2] = [b"{\"id\"", b"{\"boot_id\""];

/// The entry of a whole line that was appended right behind another one, which had been cut short.
fn behind_a_torn_one(line: &[u8]) -> Option<Entry> {
    let at = |beginning: &&[u8]| line.windows(beginning.len()).rposition(|part| part == *beginning);
    let last = BEGINNINGS.iter().filter_map(at).max()?;
    serde_json::from_slice(line.get(last..)?).ok()
}

/// Whether there is nothing but the beginning of a first line. Any other content without a line belongs to another
/// program.
pub(crate) fn is_torn_beginning(content: &[u8]) -> bool {
    let begins = |beginning: &&[u8]| beginning.starts_with(content) || content.starts_with(beginning);
    !content.contains(&b'\n') && BEGINNINGS.iter().any(begins)
}

/// This boot's identity; empty if the kernel does not report it (then no entry belongs to another boot).
#[must_use]
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Start of a process in clock ticks since boot (field 22 of its stat line); None for a zombie, or no such process.
#[must_use]
pub fn process_start(pid: i32) -> Option<u64> {
    // The process that has the number by now may have a name that is not UTF-8.
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let line = String::from_utf8_lossy(&line);
    let mut fields = line.get(line.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

/// Whether the process that owns the entry still runs (a reused pid does not count).
#[must_use]
pub fn is_alive(entry: &Entry) -> bool {
    process_start(entry.pid).is_some_and(|start| entry.pid_start.is_none_or(|known| known == start))
}
