//! Why the journal cannot be used, in sentences.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a journal cannot be used; the message names the file and what to do.
#[derive(Debug)]
pub enum Unusable {
    /// It cannot be read.
    Unread(PathBuf, io::Error),
    /// It cannot be opened for writing.
    Unopened(PathBuf, io::Error),
    /// Its lock, a file beside it, cannot be opened.
    NoLock(PathBuf, io::Error),
    /// It is no regular file.
    NotRegular(PathBuf),
    /// Restoring writes the journal's values with root's rights: no other user may be able to write the journal.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its mode's permission bits.
        mode: u32,
    },
    /// Others can put another file in its place.
    Replaceable {
        /// The file.
        path: PathBuf,
        /// A directory on the way to it.
        directory: PathBuf,
        /// The directory's owner.
        uid: u32,
        /// Its mode's permission bits.
        mode: u32,
    },
    /// It contains something else, and is left as it is.
    NotJournal(PathBuf),
    /// Another process held the lock until the caller gave up; the sentence names both.
    Locked(String),
}

impl Unusable {
    /// Whether nothing of this process's can be in it: it was never written by it.
    #[must_use]
    pub fn is_of_others(&self) -> bool {
        matches!(self, Unusable::NotRegular(_) | Unusable::Foreign { .. } | Unusable::NotJournal(_))
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Unread(path, error) => {
                write!(out, "cannot read the settings journal {}: {}", path.display(), reason(error))
            }
            Unusable::Unopened(path, error) => write!(
                out,
                "cannot open the settings journal {} for writing: {}; run as root, or set PAGELAB_JOURNAL to a file \
                 you may write",
                path.display(),
                reason(error)
            ),
            Unusable::NoLock(path, error) => write!(
                out,
                "cannot make the lock {} beside the settings journal: {}; set PAGELAB_JOURNAL to a file in a directory \
                 that you may write",
                path.display(),
                reason(error)
            ),
            Unusable::NotRegular(path) => {
                write!(out, "will not use the settings journal {}: it is not a regular file", path.display())
            }
            Unusable::Foreign { path, uid, mode } => write!(
                out,
                "will not use the settings journal {}: it belongs to uid {uid} with mode {mode:o}; look at it, then \
                 run: sudo rm {}",
                path.display(),
                path.display()
            ),
            Unusable::Replaceable { path, directory, uid, mode } => write!(
                out,
                "will not use the settings journal {}: others can replace it, because {} belongs to uid {uid} with \
                 mode {mode:o}; look at it, or set PAGELAB_JOURNAL to a file in a directory that only root may change",
                path.display(),
                directory.display()
            ),
            Unusable::NotJournal(path) => write!(
                out,
                "will not use the settings journal {}: the file is not one, and is left as it is; set PAGELAB_JOURNAL \
                 to another file, or to one that does not exist yet",
                path.display()
            ),
            Unusable::Locked(why) => write!(out, "cannot lock the settings journal: {why}"),
        }
    }
}

impl std::error::Error for Unusable {}

/// The kernel's message, without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
