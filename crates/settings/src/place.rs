//! Whether others can put another file in the place of the journal. What it says is written with the rights of who
//! restores it: others must not be able to do so for root.

use crate::unusable::Unusable;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The directory of a journal.
pub(crate) fn of(journal: &Path) -> &Path {
    let directory = journal.parent().filter(|directory| !directory.as_os_str().is_empty());
    directory.unwrap_or(Path::new("."))
}

/// The path by which a journal is used. Its directory is made if it is not there. For root, no other user may own it or
/// one above it, or write to one without its sticky bit; and the path has no links, so that it is the one judged.
pub(crate) fn resolved(journal: &Path) -> Result<PathBuf, Unusable> {
    let unopened = |error| Unusable::Unopened(journal.to_owned(), error);
    let (directory, name) =
        (of(journal), journal.file_name().ok_or_else(|| unopened(io::ErrorKind::IsADirectory.into()))?);
    let is_root = rustix::process::geteuid().as_raw() == 0;
    // Before it is made, since a link of others could lead elsewhere; and as it is then.
    if is_root {
        judge(journal, &there(directory).map_err(unopened)?)?;
    }
    fs::DirBuilder::new().mode(0o755).recursive(true).create(directory).map_err(unopened)?;
    if !is_root {
        return Ok(journal.to_owned());
    }
    let place = fs::canonicalize(directory).map_err(unopened)?;
    judge(journal, &place)?;
    Ok(place.join(name))
}

fn judge(journal: &Path, place: &Path) -> Result<(), Unusable> {
    let unopened = |error| Unusable::Unopened(journal.to_owned(), error);
    // Whoever owns the root of all can replace everything anyway; in a user namespace that is not user 0.
    let above = fs::metadata("/").map_err(unopened)?.uid();
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
