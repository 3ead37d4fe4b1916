//! Directories held by descriptor. Names are looked up in the directory that was opened, also if its path means another
//! one by now, and no link is followed. So a process of another user that owns a directory on the path can redirect
//! nothing.

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Names it has.
    pub links: u64,
    /// Bytes.
    pub size: u64,
}

impl Status {
    /// Of an open file.
    pub fn of(file: &impl AsFd) -> io::Result<Status> {
        let found = fs::fstat(file)?;
        Ok(Status {
            mode: found.st_mode,
            uid: found.st_uid,
            gid: found.st_gid,
            links: found.st_nlink,
            size: found.st_size as u64,
        })
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::RegularFile
    }
}

/// Type of a directory's entry, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

fn c_name(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// An open directory.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Directory {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

impl From<File> for Directory {
    fn from(file: File) -> Directory {
        Directory(file.into())
    }
}

impl Directory {
    /// Opens an absolute path without links, one directory after the other; `judge` gets each and may refuse it.
    pub fn walk(path: &Path, mut judge: impl FnMut(&Path, &Status) -> io::Result<()>) -> io::Result<Directory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = Directory(fs::open(c"/", flags, Mode::empty())?);
        let mut so_far = std::path::PathBuf::from("/");
        judge(&so_far, &Status::of(&at)?)?;
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            so_far.push(name);
            let name = c_name(name.as_bytes())?;
            at = Directory(fs::openat(&at, &*name, flags | OFlags::NOFOLLOW, Mode::empty())?);
            judge(&so_far, &Status::of(&at)?)?;
        }
        Ok(at)
    }

    /// Makes a directory for this process's user alone, and opens it. Who may rename entries here can put another in
    /// its place before it is opened: one that this process's user had before is refused.
    pub fn make(&self, name: &CStr) -> io::Result<Directory> {
        let since_ns = ClockOfFiles::now_ns();
        fs::mkdirat(self, name, Mode::RWXU)?;
        let made = self.directory(name)?;
        // The clock of a file server need not be this machine's.
        if made.is_fresh(if self.may_be_exchanged()? { since_ns } else { 0 })? {
            return Ok(made);
        }
        // Only an empty one goes, which whoever put it there could remove as well.
        let _ = self.remove(name);
        Err(io::Error::other("another process put a directory of its own in the place of the new one"))
    }

    /// Whether another user can give the names in it to something else.
    fn may_be_exchanged(&self) -> io::Result<bool> {
        let found = Status::of(self)?;
        let is_shared = found.mode & 0o022 != 0 && found.mode & 0o1000 == 0;
        Ok(is_shared || ![0, super::user::own_uids().1].contains(&found.uid))
    }

    /// Whether this process has made it, not before that time: it is its user's alone, and nothing is in it.
    fn is_fresh(&self, since_ns: u64) -> io::Result<bool> {
        let found = Status::of(self)?;
        let is_ours = found.uid == super::user::own_uids().1 && found.mode & 0o077 == 0;
        let mut is_empty = true;
        self.each(|_, _| {
            is_empty = false;
            false
        })?;
        Ok(is_ours && is_empty && ClockOfFiles::made_ns(self)? >= since_ns)
    }

    /// Whether it was removed while it was held open.
    pub fn is_removed(&self) -> bool {
        self.each(|_, _| false).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Opens a directory in this one, on the same file system.
    pub fn directory(&self, name: &CStr) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.open_at(name, flags).map(Directory)
    }

    fn open_at(&self, name: &CStr, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        match fs::openat2(self, name, flags, Mode::empty(), resolve) {
            // Before Linux 5.6, or in a sandbox that does not know it: names here have no slash, so O_NOFOLLOW will do.
            Err(Errno::NOSYS | Errno::PERM) => Ok(fs::openat(self, name, flags, Mode::empty())?),
            done => Ok(done?),
        }
    }

    /// Opens what has this name, whatever it is, for [`Status::of`] alone: opening has no effect on it.
    pub fn look(&self, name: &CStr) -> io::Result<OwnedFd> {
        self.open_at(name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)
    }

    /// A new file, open for reading and writing (or appending), that nobody else may open.
    pub fn create(&self, name: &CStr, append: bool) -> io::Result<File> {
        let access = if append { OFlags::WRONLY | OFlags::APPEND } else { OFlags::RDWR };
        let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(fs::openat(self, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Opens a file for reading.
    pub fn open(&self, name: &CStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        self.open_at(name, flags).map(File::from)
    }

    /// Sets the permissions of the directory itself.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fs::fchmod(self, Mode::from_raw_mode(mode))?)
    }

    /// Gives an entry, not what it may link to, to a user.
    pub fn give(&self, name: &CStr, uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(fs::chownat(self, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The target of a symbolic link, up to 64 bytes.
    pub fn read_link(&self, name: &CStr) -> io::Result<Vec<u8>> {
        let mut text = vec![0; 64];
        let used = fs::readlinkat_raw(self, name, text.as_mut_slice())?;
        text.truncate(used);
        Ok(text)
    }

    /// Removes an entry that is no directory.
    pub fn unlink(&self, name: &CStr) -> io::Result<()> {
        Ok(fs::unlinkat(self, name, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    pub fn remove(&self, name: &CStr) -> io::Result<()> {
        Ok(fs::unlinkat(self, name, AtFlags::REMOVEDIR)?)
    }

    /// Moves an entry to another directory of the file system; nothing is replaced.
    pub fn move_to(&self, name: &CStr, to: &Directory, new: &CStr, replace: bool) -> io::Result<()> {
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        Ok(fs::renameat_with(self, name, to, new, flags)?)
    }

    /// Calls `visit` with every entry but `.` and `..`, until it returns false. Entries may come and go meanwhile.
    pub fn each(&self, mut visit: impl FnMut(&CStr, Kind) -> bool) -> io::Result<()> {
        // From the beginning again.
        let _ = fs::seek(self, SeekFrom::Start(0));
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut entries = RawDir::new(self, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            let kind = if entry.file_type() == FileType::Directory { Kind::Directory } else { Kind::Other };
            if name != c"." && name != c".." && !visit(name, kind) {
                break;
            }
        }
        Ok(())
    }

    /// Removes everything in it, until `deadline_ns` (CLOCK_MONOTONIC) at the latest. Contents of directories are moved
    /// up first, so that depth costs neither stack nor descriptors. What is mounted in it stays, and prevents the
    /// removal of what it is mounted on: whoever put it there can have moved a mount of another user's there.
    pub fn empty(&self, deadline_ns: u64) -> io::Result<()> {
        let mut moved = 0_u64;
        loop {
            let mut found = false;
            let mut refused = None;
            self.each(|name, kind| {
                found = true;
                let done = match kind {
                    Kind::Directory => self.flatten(name, &mut moved, deadline_ns),
                    Kind::Other => self.unlink(name),
                };
                // An entry that another process has removed meanwhile needs no removing.
                refused = refused.take().or(done.err().filter(|error| error.kind() != io::ErrorKind::NotFound));
                super::monotonic_ns() < deadline_ns
            })?;
            match refused {
                _ if !found => return Ok(()),
                Some(error) => return Err(error),
                None if super::monotonic_ns() >= deadline_ns => return Err(io::ErrorKind::TimedOut.into()),
                None => {}
            }
        }
    }

    /// Takes a directory's contents up into this one, and removes it.
    fn flatten(&self, name: &CStr, moved: &mut u64, deadline_ns: u64) -> io::Result<()> {
        let Ok(inner) = self.directory(name) else {
            // No right to look into, or something is mounted there.
            return self.remove(name);
        };
        let owner = Status::of(&inner)?.uid;
        // From here on only this process can add to it. (The owner needs no permission to do so.)
        let _ = inner.take();
        loop {
            let (mut found, mut refused) = (false, None);
            inner.each(|child, kind| {
                found = true;
                let done = match kind {
                    Kind::Other => inner.unlink(child),
                    Kind::Directory => inner.lift(child, owner, self, moved),
                };
                refused = done.err().filter(|error| error.kind() != io::ErrorKind::NotFound);
                if super::monotonic_ns() >= deadline_ns {
                    refused.get_or_insert(io::ErrorKind::TimedOut.into());
                }
                refused.is_none()
            })?;
            match refused {
                Some(error) => return Err(error),
                None if !found => return self.remove(name),
                None => {}
            }
        }
    }

    /// Moves a directory of this one up, under a number as its name. One that is not `owner`'s, who had this one, is
    /// only removed, if it is empty: the owner could do no more, and may have moved it here.
    fn lift(&self, name: &CStr, owner: u32, to: &Directory, moved: &mut u64) -> io::Result<()> {
        let found = self.look(name).and_then(|found| Status::of(&found));
        if !found.as_ref().is_ok_and(|found| owner == 0 || found.uid == owner) {
            return self.remove(name).map_err(|error| match (error.raw_os_error(), found) {
                (Some(libc::ENOTEMPTY | libc::EEXIST), Ok(found)) => {
                    io::Error::other(format!("a directory of another user (id {}) is in it", found.uid))
                }
                _ => error,
            });
        }
        loop {
            *moved += 1;
            let fresh = c_name(format!(".{moved}").as_bytes())?;
            match self.move_to(name, to, &fresh, false) {
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                done => return done,
            }
        }
    }

    /// Makes the directory this process's user's own again, closed to everybody else.
    pub fn take(&self) -> io::Result<()> {
        let (uid, _) = super::user::own_uids();
        if Status::of(self)?.uid != uid {
            fs::fchown(self, Some(Uid::from_raw(uid)), None)?;
        }
        self.set_mode(0o700)
    }
}

/// The time that a file system notes for a new directory, in nanoseconds.
struct ClockOfFiles;

impl ClockOfFiles {
    /// The coarsest time of a file system that notes fractions of a second (FAT), and of one that does not (also FAT).
    const COARSE_NS: u64 = 10_000_000;
    const COARSEST_NS: u64 = 2_000_000_000;

    fn ns(seconds: i64, ns: u64) -> u64 {
        u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(ns)
    }

    /// The present time; no directory that is made from now on is older.
    fn now_ns() -> u64 {
        // The kernel's for files: CLOCK_REALTIME may be ahead of it.
        let now = clock_gettime(ClockId::RealtimeCoarse);
        ClockOfFiles::ns(now.tv_sec, now.tv_nsec as u64)
    }

    /// The latest time at which a directory can have been made: of its birth, or where the file system notes none, of
    /// its last change (which only who may write to it can set).
    fn made_ns(directory: &Directory) -> io::Result<u64> {
        let found = fs::statx(directory, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME);
        let born =
            found.ok().filter(|found| StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME));
        let (seconds, ns) = match born {
            Some(found) => (found.stx_btime.tv_sec, u64::from(found.stx_btime.tv_nsec)),
            None => fs::fstat(directory).map(|found| (found.st_mtime, found.st_mtime_nsec))?,
        };
        let coarse = if ns == 0 { ClockOfFiles::COARSEST_NS } else { ClockOfFiles::COARSE_NS };
        Ok(ClockOfFiles::ns(seconds, ns).saturating_add(coarse))
    }
}

/// Gives an open file or directory to a user.
pub fn give_open(file: &impl AsFd, uid: u32, gid: u32) -> io::Result<()> {
    Ok(fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

/// Opens for reading what [`Directory::look`] found.
pub fn reopen(looked: &OwnedFd) -> io::Result<File> {
    let path = c_name(format!("/proc/self/fd/{}", looked.as_raw_fd()).as_bytes())?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(fs::open(&*path, flags, Mode::empty())?.into())
}

/// Permissions that new files don't get. (The launcher has one thread: nothing is made meanwhile.)
pub fn umask() -> u32 {
    let mask = rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::umask(mask);
    mask.bits()
}

/// Runs `work` with permissions on newly made files limited to their owner.
pub fn for_owner_only<T>(work: impl FnOnce() -> T) -> T {
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let done = work();
    rustix::process::umask(before);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn place() -> (std::path::PathBuf, Directory) {
        let bytes = crate::sys::random::<8>().expect("random");
        let path = std::env::temp_dir().join(format!("directory-{:016x}", u64::from_ne_bytes(bytes)));
        std::fs::create_dir(&path).expect("made");
        let path = std::fs::canonicalize(path).expect("a path");
        let at = Directory::walk(&path, |_, _| Ok(())).expect("walked");
        (path, Directory(at.open_at(c".", OFlags::RDONLY | OFlags::DIRECTORY).expect("open")))
    }

    #[test]
    fn links_are_neither_followed_nor_replaced() {
        let (path, directory) = place();
        std::fs::write(path.join("precious"), "kept").expect("written");
        symlink("precious", path.join("plan")).expect("a link");
        assert!(directory.create(c"plan", false).is_err());
        assert!(directory.open(c"plan").is_err());
        symlink("/", path.join("up")).expect("a link");
        assert!(directory.directory(c"up").is_err() && directory.directory(c"..").is_err());
        assert_eq!(directory.read_link(c"plan").expect("a link"), b"precious");
        directory.empty(u64::MAX).expect("emptied");
        assert!(Path::new("/etc").exists() && std::fs::read_dir(&path).expect("there").next().is_none());
        std::fs::remove_dir(path).expect("empty");
    }

    #[test]
    fn deep_and_wide_directories_are_emptied_without_stack_or_descriptors() {
        let (path, directory) = place();
        let mut at = path.clone();
        for level in 0..120 {
            at = at.join(format!("level-with-a-long-name-{level}"));
            std::fs::create_dir(&at).expect("made");
            std::fs::write(at.join("file"), "").expect("written");
        }
        for number in 0..2000 {
            std::fs::write(path.join(format!("{number}")), "").expect("written");
        }
        directory.empty(u64::MAX).expect("emptied");
        std::fs::remove_dir(path).expect("empty");
    }

    /// Root can have an own directory in one of another user, who may rename it.
    #[test]
    fn a_directory_that_was_there_before_is_not_taken_for_the_new_one() {
        let (path, directory) = place();
        let other = Directory(directory.open_at(c".", OFlags::RDONLY | OFlags::DIRECTORY).expect("open"));
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .create(path.join("victim"))
            .expect("made");
        std::fs::write(path.join("victim/secret"), "").expect("written");
        let done = std::sync::atomic::AtomicBool::new(false);
        let taken = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = fs::renameat_with(&other, c"new", &other, c"victim", RenameFlags::EXCHANGE);
                }
            });
            let taken = (0..2000).any(|_| {
                let made = directory.make(c"new");
                let taken = made.is_ok_and(|made| made.open(c"secret").is_ok());
                // The one of them that is empty.
                let _ = directory.remove(c"new").or_else(|_| {
                    fs::renameat_with(&other, c"new", &other, c"victim", RenameFlags::EXCHANGE)?;
                    directory.remove(c"new")
                });
                taken
            });
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            taken
        });
        assert!(!taken, "the other directory was taken for the new one");
        std::fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn a_directory_that_is_old_or_open_to_others_is_not_fresh() {
        let (path, directory) = place();
        let made = directory.make(c"new").expect("a new one");
        assert!(made.is_fresh(0).expect("looked at"));
        let later_ns = ClockOfFiles::now_ns() + 2 * ClockOfFiles::COARSEST_NS;
        assert!(!made.is_fresh(later_ns).expect("looked at"), "it was there before");
        made.set_mode(0o711).expect("mode");
        assert!(!made.is_fresh(0).expect("looked at"), "others may pass");
        std::fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn the_time_for_emptying_holds_within_a_directory_too() {
        let (path, directory) = place();
        std::fs::create_dir(path.join("guests")).expect("made");
        for number in 0..1000 {
            std::fs::write(path.join(format!("guests/{number}")), "").expect("written");
        }
        let refused = directory.empty(0).expect_err("the time is up");
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        let left = std::fs::read_dir(path.join("guests")).map_or(0, Iterator::count);
        assert_eq!(left, 999);
        directory.empty(u64::MAX).expect("emptied");
        std::fs::remove_dir(path).expect("empty");
    }

    #[test]
    fn what_is_mounted_in_a_directory_stays() {
        let (path, directory) = place();
        let inner = path.join("inner");
        std::fs::create_dir(&inner).expect("made");
        let mount = |words: &[&str]| {
            let done = std::process::Command::new(words[0]).args(&words[1..]).arg(&inner).output();
            done.is_ok_and(|done| done.status.success())
        };
        if mount(&["mount", "-t", "tmpfs", "-o", "size=64k", "none"]) {
            std::fs::write(inner.join("kept"), "").expect("written");
            let refused = directory.empty(u64::MAX).expect_err("it is mounted");
            assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
            assert!(inner.join("kept").exists(), "it is still mounted");
            assert!(mount(&["umount"]));
        }
        std::fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn a_walk_can_be_refused_on_the_way() {
        let mut seen = Vec::new();
        let refused = Directory::walk(Path::new("/proc/self"), |path, _| {
            seen.push(path.to_owned());
            Ok(())
        });
        assert!(refused.is_err(), "/proc/self is a link");
        assert_eq!(seen, [Path::new("/"), Path::new("/proc")]);
    }
}
