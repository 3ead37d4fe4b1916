//! The run directory: the plan, guest files, and captured streams of one run.
//!
//! Its path has the same length in every run (given the same root), so that the environment, and with it the stack,
//! has the same size in every condition.

use crate::error::{Error, Result};
use crate::sys;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where run directories are made when the request does not say: in memory where possible.
const ROOTS: [&str; 2] = ["/dev/shm", "/tmp"];

/// The random part of a run directory's name; made before the launcher forks, so that the guard knows it too.
#[derive(Clone, Copy, Debug)]
pub struct Token(u64);

impl Token {
    /// A fresh one.
    pub fn fresh() -> Result<Token> {
        let bytes = sys::random::<8>()
            .map_err(|error| Error::Internal(format!("cannot get random bytes: {}", sys::errno_text(&error))))?;
        Ok(Token(u64::from_ne_bytes(bytes)))
    }

    fn name(self) -> String {
        format!("pagelab-{:016x}", self.0)
    }

    /// Removes the directory of a launcher that died, wherever it was made.
    pub fn remove(self, root: Option<&Path>) {
        for root in roots(root) {
            let path = root.join(self.name());
            if path.exists() {
                drop(RunDir { path });
            }
        }
    }
}

fn roots(asked: Option<&Path>) -> Vec<&Path> {
    asked.map_or_else(|| ROOTS.iter().map(Path::new).collect(), |root| vec![root])
}

/// A directory that is removed with everything in it when dropped.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Makes a fresh directory, readable and writable by `uid` alone (and by root).
    pub fn create(root: Option<&Path>, token: Token, uid: u32, gid: u32) -> Result<RunDir> {
        let mut last = None;
        for root in roots(root) {
            match RunDir::create_in(root, token, uid, gid) {
                Ok(made) => return Ok(made),
                Err(error) => last = Some((root, error)),
            }
        }
        let (root, error) = last.unwrap_or((Path::new("/tmp"), std::io::ErrorKind::NotFound.into()));
        Err(Error::Cannot(format!(
            "cannot make a run directory in {}: {}; name a writable place with: --run-dir DIR",
            root.display(),
            sys::errno_text(&error)
        )))
    }

    fn create_in(root: &Path, token: Token, uid: u32, gid: u32) -> std::io::Result<RunDir> {
        let path = fs::canonicalize(root)?.join(token.name());
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let made = RunDir { path };
        if sys::user::own_uids().1 != uid {
            sys::files::give_to(&made.path, uid, gid)?;
        }
        Ok(made)
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file that the program's user can read.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, content).map_err(|error| self.failed("write", name, &error))?;
        Ok(path)
    }

    /// An empty file, open for appending, and open for reading.
    pub fn capture(&self, name: &str) -> Result<(File, File)> {
        let path = self.path.join(name);
        let writer = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path);
        let writer = writer.map_err(|error| self.failed("create", name, &error))?;
        let reader = File::open(&path).map_err(|error| self.failed("open", name, &error))?;
        Ok((writer, reader))
    }

    fn failed(&self, operation: &str, name: &str, error: &std::io::Error) -> Error {
        Error::Cannot(format!(
            "cannot {operation} {}/{name}: {}; name another place with: --run-dir DIR",
            self.path.display(),
            sys::errno_text(error)
        ))
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            crate::say::say(&format!(
                "cannot remove {}: {error}; run: rm -r {}",
                self.path.display(),
                self.path.display()
            ));
        }
    }
}
