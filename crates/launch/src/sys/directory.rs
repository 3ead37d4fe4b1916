//! Directories held by descriptor. Names are looked up in the directory that was opened, whatever its path has come to
//! mean since, and no link is followed: a process of another user that owns a directory on the way can redirect nothing.

use super::{check, check_long};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// What is known of a file.
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
    pub fn of(file: &impl AsRawFd) -> io::Result<Status> {
        // SAFETY: all-zero bytes are a valid `stat`.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is alive.
        check(unsafe { libc::fstat(file.as_raw_fd(), &mut found) })?;
        Ok(Status {
            mode: found.st_mode,
            uid: found.st_uid,
            gid: found.st_gid,
            links: found.st_nlink as u64,
            size: found.st_size as u64,
        })
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
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

/// `struct open_how` of openat2(2).
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

const RESOLVE_NO_XDEV: u64 = 1;
const RESOLVE_NO_MAGICLINKS: u64 = 2;
const RESOLVE_NO_SYMLINKS: u64 = 4;
const RESOLVE_BENEATH: u64 = 8;

fn c_name(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass descriptors that a call has just made and nobody else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// An open directory.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl AsRawFd for Directory {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Directory {
    /// Opens an absolute path without links one directory after the other; `judge` is shown each and may refuse.
    pub fn walk(path: &Path, mut judge: impl FnMut(&Path, &Status) -> io::Result<()>) -> io::Result<Directory> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the path is NUL-terminated.
        let mut at = Directory(owned(check(unsafe { libc::open(c"/".as_ptr(), flags) })?));
        let mut so_far = std::path::PathBuf::from("/");
        judge(&so_far, &Status::of(&at)?)?;
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            so_far.push(name);
            let name = c_name(name.as_bytes())?;
            // SAFETY: the name is NUL-terminated and the descriptor open.
            let next = check(unsafe { libc::openat(at.as_raw_fd(), name.as_ptr(), flags | libc::O_NOFOLLOW) })?;
            at = Directory(owned(next));
            judge(&so_far, &Status::of(&at)?)?;
        }
        Ok(at)
    }

    /// Makes a directory for this process's user alone, and opens it.
    pub fn make(&self, name: &CStr) -> io::Result<Directory> {
        // SAFETY: the name is NUL-terminated and the descriptor open.
        check(unsafe { libc::mkdirat(self.as_raw_fd(), name.as_ptr(), 0o700) })?;
        let made = self.directory(name)?;
        // Who may write here can have put another in its place.
        let found = Status::of(&made)?;
        if found.uid != super::user::own_uids().1 || found.mode & 0o077 != 0 {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        Ok(made)
    }

    /// Opens a directory in this one, on the same file system.
    pub fn directory(&self, name: &CStr) -> io::Result<Directory> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        self.open_at(name, flags).map(Directory)
    }

    fn open_at(&self, name: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
        let resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
        let how = OpenHow { flags: flags as u64, mode: 0, resolve };
        let size = size_of::<OpenHow>();
        // SAFETY: the name is NUL-terminated, and `how` alive with the size given.
        let fd = unsafe { libc::syscall(libc::SYS_openat2, self.as_raw_fd(), name.as_ptr(), &raw const how, size) };
        match check_long(fd) {
            Ok(fd) => Ok(owned(fd as RawFd)),
            // Before Linux 5.6, or in a sandbox that does not know it: names here have no slash, so O_NOFOLLOW will do.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                // SAFETY: the name is NUL-terminated and the descriptor open.
                check(unsafe { libc::openat(self.as_raw_fd(), name.as_ptr(), flags) }).map(owned)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens what has this name, whatever it is, for [`Status::of`] alone: opening has no effect on it.
    pub fn look(&self, name: &CStr) -> io::Result<OwnedFd> {
        self.open_at(name, libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC)
    }

    /// A new file, open for reading and writing (or appending), that nobody else may open.
    pub fn create(&self, name: &CStr, append: bool) -> io::Result<File> {
        let access = if append { libc::O_WRONLY | libc::O_APPEND } else { libc::O_RDWR };
        let flags = access | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the name is NUL-terminated, the descriptor open, and the mode given.
        let fd = check(unsafe { libc::openat(self.as_raw_fd(), name.as_ptr(), flags, 0o600) })?;
        Ok(owned(fd).into())
    }

    /// Opens a file for reading.
    pub fn open(&self, name: &CStr) -> io::Result<File> {
        self.open_at(name, libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC).map(File::from)
    }

    /// Sets the permissions of the directory itself.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        // SAFETY: plain integers.
        check(unsafe { libc::fchmod(self.as_raw_fd(), mode) }).map(drop)
    }

    /// Gives an entry, not what it may link to, to a user.
    pub fn give(&self, name: &CStr, uid: u32, gid: u32) -> io::Result<()> {
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        // SAFETY: the name is NUL-terminated and the descriptor open.
        check(unsafe { libc::fchownat(self.as_raw_fd(), name.as_ptr(), uid, gid, flags) }).map(drop)
    }

    /// What a symbolic link says, up to 64 bytes.
    pub fn read_link(&self, name: &CStr) -> io::Result<Vec<u8>> {
        let mut text = vec![0; 64];
        let into = text.as_mut_ptr().cast();
        // SAFETY: the name is NUL-terminated, and the buffer has the length given.
        let used = unsafe { libc::readlinkat(self.as_raw_fd(), name.as_ptr(), into, text.len()) };
        let used = usize::try_from(used).map_err(|_| io::Error::last_os_error())?;
        text.truncate(used);
        Ok(text)
    }

    /// Removes an entry that is no directory.
    pub fn unlink(&self, name: &CStr) -> io::Result<()> {
        // SAFETY: the name is NUL-terminated and the descriptor open.
        check(unsafe { libc::unlinkat(self.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
    }

    /// Removes an empty directory.
    pub fn remove(&self, name: &CStr) -> io::Result<()> {
        // SAFETY: the name is NUL-terminated and the descriptor open.
        check(unsafe { libc::unlinkat(self.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) }).map(drop)
    }

    /// Moves an entry to another directory of the file system; nothing is replaced.
    pub fn move_to(&self, name: &CStr, to: &Directory, new: &CStr, replace: bool) -> io::Result<()> {
        let flags = if replace { 0 } else { libc::RENAME_NOREPLACE };
        let (from, to) = (self.as_raw_fd(), to.as_raw_fd());
        // SAFETY: both names are NUL-terminated and both descriptors open.
        check_long(unsafe { libc::syscall(libc::SYS_renameat2, from, name.as_ptr(), to, new.as_ptr(), flags) })
            .map(drop)
    }

    /// Calls `visit` with every entry but `.` and `..`, until it returns false. Entries may come and go meanwhile.
    pub fn each(&self, mut visit: impl FnMut(&CStr, Kind) -> bool) -> io::Result<()> {
        // SAFETY: plain integers; from the beginning again.
        unsafe { libc::lseek(self.as_raw_fd(), 0, libc::SEEK_SET) };
        let mut buffer = [0_u8; 16 * 1024];
        loop {
            let (into, room) = (buffer.as_mut_ptr(), buffer.len());
            // SAFETY: the buffer has the length given.
            let got = unsafe { libc::syscall(libc::SYS_getdents64, self.as_raw_fd(), into, room) };
            let mut rest = buffer.get(..check_long(got)? as usize).unwrap_or(&[]);
            if rest.is_empty() {
                return Ok(());
            }
            while let Some((entry, after)) = next_entry(rest) {
                rest = after;
                let (name, kind) = entry;
                if name != c"." && name != c".." && !visit(name, kind) {
                    return Ok(());
                }
            }
        }
    }

    /// Removes everything in it, until `deadline_ns` (CLOCK_MONOTONIC) at the latest. Contents of directories are moved up
    /// first, so that depth costs neither stack nor descriptors.
    pub fn empty(&self, deadline_ns: u64) -> io::Result<()> {
        let mut moved = 0_u64;
        loop {
            let mut found = false;
            let mut refused = None;
            self.each(|name, kind| {
                found = true;
                let done = match kind {
                    Kind::Directory => self.flatten(name, &mut moved),
                    Kind::Other => self.unlink(name).or_else(|error| self.unmount(name, error)),
                };
                // What another process has removed meanwhile is gone all the same.
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
    fn flatten(&self, name: &CStr, moved: &mut u64) -> io::Result<()> {
        let Ok(inner) = self.directory(name) else {
            // No right to look into, or something is mounted there: it may be empty underneath.
            return self.remove(name).or_else(|error| self.unmount(name, error));
        };
        // From here on only this process can add anything. (Who owns it already needs no permission to.)
        let _ = inner.take();
        let mut refused = None;
        inner.each(|child, kind| {
            let done = match kind {
                Kind::Other => inner.unlink(child),
                Kind::Directory => loop {
                    *moved += 1;
                    let fresh = format!(".{moved}");
                    let done = c_name(fresh.as_bytes()).and_then(|fresh| inner.move_to(child, self, &fresh, false));
                    if !done.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EEXIST)) {
                        break done;
                    }
                },
            };
            refused = refused.take().or(done.err());
            refused.is_none()
        })?;
        match refused {
            Some(error) => Err(error),
            None => match self.remove(name) {
                // More than one reading of the directory had: the next pass takes the rest.
                Err(error) if error.raw_os_error() == Some(libc::ENOTEMPTY) => Ok(()),
                done => done,
            },
        }
    }

    /// Makes the directory this process's user's own again, closed to everybody else.
    pub fn take(&self) -> io::Result<()> {
        let (uid, _) = super::user::own_uids();
        if Status::of(self)?.uid != uid {
            // SAFETY: plain integers.
            check(unsafe { libc::fchown(self.as_raw_fd(), uid, u32::MAX) })?;
        }
        self.set_mode(0o700)
    }

    /// What the user mounted on an entry (by FUSE, which takes no rights) keeps it from being removed.
    fn unmount(&self, name: &CStr, error: io::Error) -> io::Result<()> {
        if error.raw_os_error() != Some(libc::EBUSY) {
            return Err(error);
        }
        let path = c_name(&[format!("/proc/self/fd/{}/", self.as_raw_fd()).as_bytes(), name.to_bytes()].concat())?;
        // SAFETY: the path is NUL-terminated; the last component is not followed.
        check(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) }).map(drop)
    }
}

/// The first entry of a buffer that getdents64 filled, and the rest of it.
fn next_entry(buffer: &[u8]) -> Option<((&CStr, Kind), &[u8])> {
    const NAME: usize = 19;
    let length = u16::from_ne_bytes(*buffer.get(16..)?.first_chunk()?) as usize;
    let name = CStr::from_bytes_until_nul(buffer.get(NAME..length)?).ok()?;
    let kind = if *buffer.get(18)? == libc::DT_DIR { Kind::Directory } else { Kind::Other };
    Some(((name, kind), buffer.get(length..)?))
}

/// Gives an open file or directory to a user.
pub fn give_open(file: &impl AsRawFd, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::fchown(file.as_raw_fd(), uid, gid) }).map(drop)
}

/// Opens for reading what [`Directory::look`] found.
pub fn reopen(looked: &OwnedFd) -> io::Result<File> {
    let path = c_name(format!("/proc/self/fd/{}", looked.as_raw_fd()).as_bytes())?;
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the path is NUL-terminated.
    check(unsafe { libc::open(path.as_ptr(), flags) }).map(|fd| owned(fd).into())
}

/// Permissions that new files don't get.
pub fn umask() -> u32 {
    // SAFETY: umask cannot fail; the launcher has one thread.
    unsafe {
        let mask = libc::umask(0o077);
        libc::umask(mask);
        mask
    }
}

/// Runs `work` with permissions on newly made files limited to their owner.
pub fn for_owner_only<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: umask cannot fail; the launcher has one thread.
    let before = unsafe { libc::umask(0o177) };
    let done = work();
    // SAFETY: as above.
    unsafe { libc::umask(before) };
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
        (path, Directory(at.open_at(c".", libc::O_RDONLY | libc::O_DIRECTORY).expect("open")))
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
