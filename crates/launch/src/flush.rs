//! Dropping files from the page cache before a run.

use crate::error::{Error, Result};
use crate::request::{Flush, FlushMode};
use crate::sys;
use crate::warnings::{Kind, Severity, Warnings};
use serde_json::json;
use std::io::ErrorKind;
use std::path::Path;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Refuses what cannot be dropped, before anything is changed: a warm run would stand for a cold one. A file that is not
/// there gets a warning later: a study's program may make it in its first run.
///
/// # Errors
/// The first of them.
pub fn check(flush: &Flush) -> Result<()> {
    flush.files.iter().try_for_each(|path| match sys::files::open_regular(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::BadInput(format!(
            "cannot drop {} from the page cache: {}; only regular files that may be read can be dropped; run: ls -ld \
             '{}'",
            path.display(),
            sys::errno_text(&error),
            path.display()
        ))),
        _ => Ok(()),
    })
}

/// Flushes as requested. Pages that stay cached cause a warning, since the run is then not the requested cold run.
pub fn flush(flush: &Flush, warnings: &mut Warnings) {
    match flush.mode {
        FlushMode::None => {}
        FlushMode::Files => flush.files.iter().for_each(|path| flush_file(path, warnings)),
        FlushMode::All => flush_all(warnings),
    }
}

fn flush_file(path: &Path, warnings: &mut Warnings) {
    let mut warn = |severity, why: String, data| {
        let message = format!("{} could not be dropped from the page cache: {why}", path.display());
        warnings.add(Kind::CacheNotFlushed, severity, message, data);
    };
    match drop_file(path) {
        Err(error) => {
            warn(Severity::Serious, sys::errno_text(&error), json!({"path": path}));
        }
        Ok((_, 0)) => {}
        Ok((pages, left)) => {
            // Pages that some process has mapped, or that are being written, stay.
            let severity = if left * 100 > pages { Severity::Warning } else { Severity::Info };
            let why = format!("{left} of {pages} pages stayed (mapped by a process, locked, or being written)");
            warn(severity, why, json!({"path": path, "pages": pages, "left": left}));
        }
    }
}

/// Writes back and drops one file; returns (its pages, those still cached).
fn drop_file(path: &Path) -> std::io::Result<(u64, u64)> {
    let file = sys::files::open_regular(path)?;
    let length = file.metadata()?.len();
    // Dirty pages cannot be dropped. Another user's file may be open for reading only: syncing it still works.
    file.sync_data()?;
    sys::files::drop_pages(&file)?;
    let pages = length.div_ceil(sys::files::page_bytes());
    Ok((pages, sys::files::resident_pages(&file, length)?))
}

fn flush_all(warnings: &mut Warnings) {
    sys::files::sync_all();
    // 1: the page cache. Dentries and inodes (2) are not pages of files, and other programs miss them longest.
    if let Err(error) = std::fs::OpenOptions::new()
        .write(true)
        .open(DROP_CACHES)
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"1\n"))
    {
        let message = format!(
            "the page cache could not be dropped ({DROP_CACHES}: {}); run as root, or flush by file: --flush FILE",
            sys::errno_text(&error)
        );
        warnings.add(Kind::CacheNotFlushed, Severity::Serious, message, json!({}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::PathBuf;

    #[test]
    fn a_written_file_leaves_the_page_cache() {
        // A real file system: on tmpfs the page cache is the file.
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("flush-test-{}", std::process::id()));
        std::fs::write(&path, vec![7; 1 << 20]).expect("write");
        let before = sys::files::resident_pages(&File::open(&path).expect("open"), 1 << 20).expect("residency");
        let dropped = drop_file(&path);
        std::fs::remove_file(&path).expect("remove");
        assert_eq!(before, 256);
        assert_eq!(dropped.expect("dropped"), (256, 0));
    }

    #[test]
    fn what_is_no_file_to_drop_is_refused() {
        assert!(
            check(&Flush { mode: FlushMode::Files, files: vec!["/no/such/file".into()] }).is_ok(),
            "told later"
        );
        for (path, why) in [("/tmp", "not a regular file"), ("/dev/null", "not a")] {
            let flush = Flush { mode: FlushMode::Files, files: vec![path.into()] };
            let message = check(&flush).expect_err(path).to_string();
            assert!(message.contains(path) && message.contains(why), "{message}");
        }
    }

    #[test]
    fn a_file_that_has_gone_meanwhile_is_a_serious_warning() {
        let mut warnings = Warnings::default();
        flush_file(Path::new("/no/such/file"), &mut warnings);
        assert_eq!(warnings.0[0].severity, Severity::Serious);
    }
}
