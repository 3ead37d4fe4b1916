//! Whether others can put another file in the place of the journal. What it says is written with the rights of who
//! restores it: others must not be able to do so for root.

use crate::unusable::Unusable;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory of a journal.
pub(crate) fn of(journal: &Path) -> &Path {
    let directory = journal.parent().filter(|directory| !directory.as_os_str().is_empty());
    directory.unwrap_or(Path::new("."))
}

/// Judges the directory of a journal, as far as it is there, and all above it: for root, no other user may own one, or
/// write to it without its sticky bit.
pub(crate) fn judge(journal: &Path) -> Result<(), Unusable> {
    if rustix::process::geteuid().as_raw() != 0 {
        return Ok(());
    }
    let unopened = |error| Unusable::Unopened(journal.to_owned(), error);
    // Whoever owns the root of all can replace everything anyway; in a user namespace that is not user 0.
    let above = fs::metadata("/").map_err(unopened)?.uid();
    let place = there(of(journal)).map_err(unopened)?;
    // From the top: whatever lies in a directory that only root may change stays what it was found to be.
    for directory in place.ancestors().collect::<Vec<_>>().into_iter().rev() {
        let found = fs::symlink_metadata(directory).map_err(unopened)?;
        let (uid, mode) = (found.uid(), found.mode() & 0o7777);
        if ![0, above].contains(&uid) || mode & 0o022 != 0 && mode & 0o1000 == 0 {
            let (path, directory) = (journal.to_owned(), directory.to_owned());
            return Err(Unusable::Replaceable { path, directory, uid, mode });
        }
    }
    Ok(())
}

/// The path without links of the lowest of these directories that is there.
fn there(directory: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            directory.parent().map_or(Err(error), |above| there(if above == "" { Path::new(".") } else { above }))
        }
        done => done,
    }
}
