//! Where rows make their files: a directory of their own, which goes also if this process is killed.

use std::ffi::CString;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::unistd::mkdtemp;

/// How the directory's name begins.
const PREFIX: &str = "pagelab-kernel-paths-";

/// What rows share.
pub struct Ground {
    pub directory: PathBuf,
    /// Bytes of files that are mapped and read, and of arrays.
    pub bytes: usize,
}

impl Ground {
    /// A new file of `bytes`, whose pages are in memory: each of its bytes is 1.
    pub fn file(&self) -> Result<fs::File, String> {
        let path = self.directory.join("file");
        let told = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
        fs::write(&path, vec![1_u8; self.bytes]).map_err(told)?;
        let file = fs::File::open(&path).map_err(told)?;
        fs::remove_file(&path).map_err(told)?;
        Ok(file)
    }

    /// The path of a file in the directory, for system calls.
    pub fn path(&self, name: &str) -> Result<CString, String> {
        CString::new(self.directory.join(name).into_os_string().into_vec())
            .map_err(|_| format!("{} contains a zero byte", self.directory.display()))
    }
}

/// The directory, and a process that removes it should this one not do so.
pub struct PrivateDirectory {
    path: PathBuf,
    remover: Child,
}

impl PrivateDirectory {
    /// Makes it below `parent`, for this user alone.
    pub fn new(parent: &Path) -> Result<PrivateDirectory, String> {
        let path = make_below(parent)?;
        let remover = start_remover(&path).inspect_err(|_| {
            let _ = fs::remove_dir(&path);
        })?;
        Ok(PrivateDirectory { path, remover })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        let _ = self.remover.wait();
    }
}

fn make_below(parent: &Path) -> Result<PathBuf, String> {
    mkdtemp(&parent.join(format!("{PREFIX}XXXXXX"))).map_err(|errno| {
        let error = std::io::Error::from(errno);
        format!("cannot make a directory in {}: {error}; name another one: --directory DIR", parent.display())
    })
}

/// Starts it in a process group of its own, so that a signal to this process's group does not end it.
fn start_remover(path: &Path) -> Result<Child, String> {
    let told = |error: std::io::Error| format!("cannot start the process that removes {}: {error}", path.display());
    let own = std::env::current_exe().map_err(told)?;
    Command::new(own)
        .args(["kernel-paths", "--remove"])
        .arg(path)
        .env_remove("PAGELAB_MEASURE_FD")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(told)
}

/// Waits for the end of standard input, then removes the directory with all that is in it.
pub fn remove_at_end(directory: &Path) -> Result<(), String> {
    let ours = directory.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes()));
    if !ours {
        return Err(format!("{} is no directory of kernel-paths", directory.display()));
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let mut removed = fs::remove_dir_all(directory);
    // A compiler that was at work may write one file more.
    for _ in 0..100 {
        match &removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                std::thread::sleep(Duration::from_millis(50));
                removed = fs::remove_dir_all(directory);
            }
            _ => return Ok(()),
        }
    }
    removed.map_err(|error| format!("cannot remove {}: {error}", directory.display()))
}
