//! The run directory: the plan, guest files, and captured streams of one run.
//!
//! It belongs to the launcher's user, and the program cannot write to it: the plan, the broker's socket and captured
//! streams lie in it. Guest files have a directory of their own inside ([`pagelab_policy::guest::DIRECTORY`]), which
//! belongs to the program's user; nothing that is found there is trusted. All of it is done by descriptor, nothing by
//! path.
//!
//! Its path has the same length in every run (given the same root), so that the environment, and with it the stack,
//! has the same size in every condition.

use crate::error::{Error, Result};
use crate::sys;
use crate::sys::directory::{self, Directory};
use crate::sys::socket;
use pagelab_policy::guest::DIRECTORY;
use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Where run directories are made if the request names no place: in memory where possible.
const ROOTS: [&str; 2] = ["/dev/shm", "/tmp"];
/// Bytes in a pipe for captured output: what every user's may hold (`fs.pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;
/// How long removing a run directory may take, however much a program left there.
const REMOVE_NS: u64 = 20_000_000_000;

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

    /// The directory's name.
    pub fn name(self) -> String {
        format!("pagelab-{:016x}", self.0)
    }

    fn c_name(self) -> CString {
        CString::new(self.name()).unwrap_or_default()
    }
}

/// How the launcher makes its run directory: with a name that the guard knows, and so that the guard can remove it.
#[derive(Debug)]
pub struct Making {
    /// Its name.
    pub token: Token,
    to_guard: UnixStream,
}

/// What the guard knows of the run directory. The launcher sends the descriptors when it has made one: whatever has its
/// name by then, nothing else is emptied.
#[derive(Debug)]
pub struct Left {
    token: Token,
    made: UnixStream,
}

/// Both, before the launcher forks.
pub fn begin() -> Result<(Making, Left)> {
    let token = Token::fresh()?;
    let pair = UnixStream::pair().and_then(|(to_guard, made)| {
        made.set_nonblocking(true)?;
        Ok((Making { token, to_guard }, Left { token, made }))
    });
    pair.map_err(|error| Error::Internal(format!("cannot make a pair of sockets: {}", sys::errno_text(&error))))
}

impl Making {
    /// If this failed, the guard would leave the directory behind, and nothing else.
    fn tell(&self, path: &Path, parent: &Directory, dir: &Directory) {
        let _ = socket::send(&self.to_guard, path.as_os_str().as_bytes(), &[parent.as_fd(), dir.as_fd()]);
    }
}

impl Left {
    /// Removes the directory of a launcher that died, wherever it was made.
    pub fn remove(self, root: Option<&Path>) {
        while let Some((path, parent, dir)) = self.next() {
            // The launcher may have removed it itself.
            if !dir.is_removed() {
                remove(&parent, &self.token.c_name(), &dir, &path);
            }
        }
        // It may have died before it sent anything: then the directory is empty.
        for (_, parent) in roots(root).into_iter().filter_map(|root| open_root(root, None).ok()) {
            let _ = parent.remove(&self.token.c_name());
        }
    }

    /// A directory that was made: its path, its parent, and itself.
    fn next(&self) -> Option<(PathBuf, Directory, Directory)> {
        let (mut path, mut fds) = ([0; libc::PATH_MAX as usize], [-1; socket::DESCRIPTORS]);
        let (length, count) = socket::receive(&self.made, &mut path, &mut fds).ok()?;
        let mut given = fds.iter().take(count).filter_map(|&fd| sys::files::take_over(fd).ok());
        let (parent, dir) = (given.next()?, given.next()?);
        let path = Path::new(OsStr::from_bytes(path.get(..length)?)).to_owned();
        Some((path, Directory::from(parent), Directory::from(dir)))
    }
}

fn roots(asked: Option<&Path>) -> Vec<&Path> {
    asked.map_or_else(|| ROOTS.iter().map(Path::new).collect(), |root| vec![root])
}

/// Where a run directory would be: the first place that is there.
pub fn place(asked: Option<&Path>) -> PathBuf {
    let places = roots(asked);
    let found = places.iter().find(|root| root.is_dir()).or(places.first());
    found.map_or_else(|| PathBuf::from("/tmp"), |root| root.join("pagelab-run"))
}

/// Opens the place for run directories. For a program that runs as root (`Some`), nobody else may be able to put
/// anything in another's place on the way there: it finds the plan by its path. Others would deceive an ordinary user
/// at most, and the launcher itself uses no path.
fn open_root(root: &Path, program: Option<u32>) -> io::Result<(PathBuf, Directory)> {
    let path = fs::canonicalize(root)?;
    let (_, own) = sys::user::own_uids();
    // Whoever owns the root of all can replace everything anyway; in a user namespace that is not user 0.
    let above = fs::metadata("/")?.uid();
    let directory = Directory::walk(&path, |at, found| {
        let theirs = ![0, above, own].contains(&found.uid);
        let open = found.mode & 0o022 != 0 && found.mode & libc::S_ISVTX == 0;
        match (theirs, open) {
            _ if program != Some(0) => Ok(()),
            (true, _) => Err(io::Error::other(format!(
                "{} belongs to another user (id {}), who could replace the files that are put there",
                at.display(),
                found.uid
            ))),
            (_, true) => Err(io::Error::other(format!(
                "others may write to {} and replace what is put there; run: chmod go-w {}",
                at.display(),
                at.display()
            ))),
            _ => Ok(()),
        }
    })?;
    Ok((path, directory))
}

/// A directory that is removed with everything in it when dropped.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    parent: Directory,
    name: CString,
    dir: Directory,
    guests: Directory,
    /// The program's user, and the group of the files that it gets; `None`: the launcher's own.
    owner: Option<(u32, u32)>,
    /// The owners that guest files may have.
    uid: u32,
}

impl RunDir {
    /// Makes a fresh directory, in it one for guest files that belongs to `uid`.
    pub fn create(root: Option<&Path>, making: &Making, uid: u32, gid: u32) -> Result<RunDir> {
        let mut last = None;
        for root in roots(root) {
            match RunDir::create_in(root, making, uid, gid) {
                Ok(made) => return Ok(made),
                Err(error) => last = Some((root, error)),
            }
        }
        let (root, error) = last.unwrap_or((Path::new("/tmp"), io::ErrorKind::NotFound.into()));
        Err(Error::Cannot(format!(
            "cannot make a run directory in {}: {}; name another place, in a directory that is yours: --run-dir DIR",
            root.display(),
            sys::errno_text(&error)
        )))
    }

    fn create_in(root: &Path, making: &Making, uid: u32, gid: u32) -> io::Result<RunDir> {
        let (root, parent) = open_root(root, Some(uid))?;
        let (name, path) = (making.token.c_name(), root.join(making.token.name()));
        let dir = parent.make(&name)?;
        making.tell(&path, &parent, &dir);
        let guests = dir.make(&CString::new(DIRECTORY).unwrap_or_default());
        let owner = (sys::user::own_uids().1 != uid).then_some((uid, gid));
        let made = guests.and_then(|guests| {
            if let Some((uid, gid)) = owner {
                directory::give_open(&guests, uid, gid)?;
                // Anybody may pass: a process of the run that has changed its user still finds the plan.
                dir.set_mode(0o711)?;
            }
            Ok(guests)
        });
        match made {
            Ok(guests) => Ok(RunDir { path, parent, name, dir, guests, owner, uid }),
            Err(error) => {
                remove(&parent, &name, &dir, &path);
                Err(error)
            }
        }
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of the guest files, and the user who may own them.
    pub fn guests(&self) -> (&Directory, u32) {
        (&self.guests, self.uid)
    }

    /// Writes a file that the program can read.
    pub fn write(&self, name: &CStr, content: &[u8]) -> Result<()> {
        let done = self.dir.create(name, false).and_then(|mut file| {
            file.write_all(content)?;
            let mode = if self.owner.is_some() { 0o444 } else { 0o400 };
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
        });
        done.map_err(|error| self.failed("write", name, &error))
    }

    /// An empty file, open for appending by the program, and open for reading.
    pub fn capture(&self, name: &CStr) -> Result<(File, File)> {
        let writer = self.dir.create(name, true).and_then(|writer| {
            // The program may open its own output once more, by way of /dev/stdout.
            self.owner.map_or(Ok(()), |(uid, gid)| directory::give_open(&writer, uid, gid)).map(|()| writer)
        });
        let writer = writer.map_err(|error| self.failed("create", name, &error))?;
        Ok((writer, self.open(name)?))
    }

    /// A pipe for the same: (the program's end, the launcher's end, which never waits).
    pub fn pipe(&self) -> io::Result<(File, File)> {
        let (reader, writer) = sys::files::pipe()?;
        sys::files::never_wait(&reader)?;
        sys::files::enlarge_pipe(&writer, PIPE_BYTES);
        self.owner.map_or(Ok(()), |(uid, gid)| directory::give_open(&writer, uid, gid))?;
        Ok((writer, reader))
    }

    /// Opens a captured file for reading.
    pub fn open(&self, name: &CStr) -> Result<File> {
        self.dir.open(name).map_err(|error| self.failed("open", name, &error))
    }

    /// A socket that the program's user alone may connect to.
    pub fn listen(&self, name: &str) -> io::Result<UnixListener> {
        let at = format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd());
        let listener = directory::for_owner_only(|| UnixListener::bind(at))?;
        if let Some((uid, gid)) = self.owner {
            self.dir.give(&CString::new(name)?, uid, gid)?;
        }
        Ok(listener)
    }

    fn failed(&self, operation: &str, name: &CStr, error: &io::Error) -> Error {
        let next = match error.kind() {
            io::ErrorKind::FileTooLarge => "run: ulimit -f unlimited",
            _ => "name another place with: --run-dir DIR",
        };
        Error::Cannot(format!(
            "cannot {operation} {}/{}: {}; {next}",
            self.path.display(),
            name.to_string_lossy(),
            sys::errno_text(error)
        ))
    }
}

/// Removes a run directory and everything in it, with the rights that this process's user has: file capabilities of
/// the launcher would be good for what others own, which the user may have moved there.
fn remove(parent: &Directory, name: &CStr, dir: &Directory, path: &Path) {
    let done = sys::user::with_the_users_rights(|| {
        // First the directory is closed, so that no process of the program's user can add to it.
        let _ = dir.take();
        dir.empty(sys::monotonic_ns() + REMOVE_NS).and_then(|()| parent.remove(name))
    });
    if let Err(error) = done {
        let path = path.display();
        let next = match error.raw_os_error() {
            Some(libc::EBUSY) => format!("unmount what is mounted in it (run: findmnt), then run: rm -r {path}"),
            _ => format!("look at what is in it, then run: rm -r {path}"),
        };
        crate::say::say(&format!("cannot remove {path}: {}; {next}", sys::errno_text(&error)));
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        remove(&self.parent, &self.name, &self.dir, &self.path);
    }
}
