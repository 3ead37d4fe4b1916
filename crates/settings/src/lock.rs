//! The lock of the journal's writers. It is a file of its own that nobody else can open: whoever can open a file, if
//! only for reading, can hold its lock, and everybody may read the journal.

use crate::unusable::Unusable;
use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between attempts: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Called between attempts to get a lock that another process holds; false: do not wait any longer.
pub type OnWait<'w> = &'w mut dyn FnMut(&Waiting<'_>) -> bool;

/// A lock that another process holds.
#[derive(Debug)]
pub struct Waiting<'l> {
    path: &'l Path,
    file: &'l File,
    since: Instant,
}

impl Waiting<'_> {
    /// How long it has been waited for.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// Lock and holder, for a message.
    #[must_use]
    pub fn sentence(&self) -> String {
        let path = self.path.display();
        match holder(self.file) {
            Some(pid) => {
                let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
                let name = String::from_utf8_lossy(&name).trim().escape_debug().to_string();
                format!("process {pid} ({name}) holds {path}; to see it, run: ps -fp {pid}")
            }
            None => format!("another process holds {path}; to see which, run: lslocks"),
        }
    }
}

/// The process that holds a file's lock, as the kernel lists it. None also where the kernel lists another device than
/// the file's (btrfs, overlay).
fn holder(file: &File) -> Option<i32> {
    let data = file.metadata().ok()?;
    listed(&fs::read_to_string("/proc/locks").ok()?, data.dev(), data.ino())
}

/// In the text of `/proc/locks`, the holder of a lock on that file. Other devices have files of the same number.
fn listed(locks: &str, device: u64, inode: u64) -> Option<i32> {
    let at = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, "FLOCK", _, _, pid, place, ..] if *place == at => pid.parse().ok(),
            _ => None,
        }
    })
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a journal.
    pub(crate) fn take(journal: &Path, on_wait: OnWait<'_>) -> Result<Lock, Unusable> {
        let path = path_of(journal);
        let unopened = |error| Unusable::NoLock(path.clone(), error);
        let file = open(&path)?;
        let (since, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(unopened(error)),
            }
            let waiting = Waiting { path: &path, file: &file, since };
            if !on_wait(&waiting) {
                return Err(Unusable::Locked(waiting.sentence()));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn path_of(journal: &Path) -> PathBuf {
    let mut path = journal.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

fn open(path: &Path) -> Result<File, Unusable> {
    let unopened = |error| Unusable::NoLock(path.to_owned(), error);
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path).map_err(unopened)?;
    let data = file.metadata().map_err(unopened)?;
    if !data.is_file() {
        return Err(Unusable::NotRegular(path.to_owned()));
    }
    if data.uid() != rustix::process::geteuid().as_raw() {
        return Err(Unusable::Foreign { path: path.to_owned(), uid: data.uid(), mode: data.mode() & 0o777 });
    }
    if data.mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(unopened)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_inode_on_another_device_is_another_file() {
        let locks = "1: FLOCK  ADVISORY  WRITE 812 00:2d:7 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 999 00:18:7 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 813 00:18:7 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 4711 00:18:7 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 5 103:02:11 0 EOF\n";
        let device = |major, minor| rustix::fs::makedev(major, minor);
        assert_eq!(listed(locks, device(0, 0x18), 7), Some(4711));
        assert_eq!(listed(locks, device(0x103, 2), 11), Some(5));
        assert_eq!(listed(locks, device(8, 1), 7), None);
    }
}
