//! The broker passes two of the launcher's rights to processes of the run that lack them: it opens a process's own
//! frame numbers and the device that makes userfaultfds, and nothing else, for no other process.
//!
//! A process connects to [`SOCKET`] in the run directory, or, where it cannot reach that (it changed its root or its
//! user), to the abstract address made of the run directory's name, `/` and [`SOCKET`]. It gets one message: an errno
//! (4 bytes, little-endian; 0: granted) and, when granted, two descriptors: its own `/proc/PID/pagemap` and
//! `/dev/userfaultfd`. (A userfaultfd made here would be the launcher's: it belongs to the address space that makes
//! it.) The socket identifies the process. Only processes that descend from the launcher, and still have the user and
//! the program with which they connected, get anything.

use crate::error::{Error, Result};
use crate::rundir::{RunDir, Token};
use crate::sys::procfs;
use crate::sys::{self, process, socket, userfault};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

/// Name of the socket in the run directory.
pub const SOCKET: &str = "frames.sock";
/// Most requests answered at one visit: the rest of the launcher's work goes on in between.
const MOST_AT_ONCE: usize = 64;

/// The sockets, and the number and outcome of requests.
#[derive(Debug)]
pub struct Broker {
    listeners: Vec<UnixListener>,
    /// Number of processes that got their descriptors.
    pub granted: u64,
    /// The last refusal: process id and reason.
    pub refused: Option<(i32, String)>,
}

/// The abstract address of a run. It is bound before the run's directory exists: another process that saw the
/// directory's name could bind the address first, and pass descriptors of its own to the run's processes.
#[derive(Debug)]
pub struct Address(Option<UnixListener>);

impl Address {
    /// Binds it. A sandbox that forbids this affects only processes that give up their rights.
    pub fn take(token: Token) -> Address {
        let name = format!("{}/{SOCKET}", token.name());
        let hidden = SocketAddr::from_abstract_name(name).and_then(|at| UnixListener::bind_addr(&at));
        Address(hidden.ok())
    }
}

impl Broker {
    /// Listens for processes of the run. `in_directory`: also in the run directory, for its program's user.
    ///
    /// # Errors
    /// A socket that cannot be made.
    pub fn open(run_dir: &RunDir, hidden: Address, in_directory: bool) -> Result<Broker> {
        let mut listeners: Vec<UnixListener> = hidden.0.into_iter().collect();
        if in_directory {
            listeners.push(run_dir.listen(SOCKET).map_err(|error| cannot(run_dir.path(), &error))?);
        }
        for listener in &listeners {
            listener.set_nonblocking(true).map_err(|error| cannot(run_dir.path(), &error))?;
        }
        Ok(Broker { listeners, granted: 0, refused: None })
    }

    /// Become readable when a process asks.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.listeners.iter().map(AsRawFd::as_raw_fd)
    }

    /// Answers waiting requests.
    pub fn visit(&mut self) {
        for _ in 0..MOST_AT_ONCE {
            let Some(stream) = self.listeners.iter().find_map(|listener| listener.accept().ok()) else { return };
            match answer(&stream.0) {
                Ok(()) => self.granted += 1,
                Err((pid, error)) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EACCES);
                    // A peer that is gone needs no answer.
                    let _ = socket::send(&stream.0, &errno.to_le_bytes(), &[]);
                    self.refused = Some((pid, sys::errno_text(&error)));
                }
            }
        }
    }
}

fn cannot(path: &Path, error: &io::Error) -> Error {
    Error::Cannot(format!(
        "cannot make the socket {} that hands rights on to the program: {}; name a place with a short path: \
         --run-dir DIR",
        path.display(),
        sys::errno_text(error)
    ))
}

fn answer(stream: &UnixStream) -> std::result::Result<(), (i32, io::Error)> {
    let peer = socket::peer(stream).map_err(|error| (0, error))?;
    let pid = peer.pid;
    let failed = |error| (pid, error);
    let refused = || failed(io::Error::from_raw_os_error(libc::EPERM));
    if !procfs::descends(pid, process::own_pid()) {
        return Err(refused());
    }
    let pidfd: OwnedFd = socket::peer_pidfd(stream).map_err(failed)?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).map_err(failed)?;
    let device = File::options().read(true).write(true).open(userfault::DEVICE);
    // A process that may have a userfaultfd without the device ignores this.
    let device = device.or_else(|_| File::open("/dev/null")).map_err(failed)?;
    // After the pagemap is open: only now is it certain which process it belongs to.
    if !socket::is_alive(&pidfd) {
        return Err(failed(io::Error::from_raw_os_error(libc::ESRCH)));
    }
    // The process may have executed a program with more rights meanwhile, and given these rights up again; that
    // program's pages must not be revealed. A pagemap opened before the exec shows only the memory of the earlier
    // program.
    if procfs::effective_ids(pid) != Some((peer.uid, peer.gid)) || gains_rights(pid, peer.uid, peer.gid) {
        return Err(refused());
    }
    let fds = [pagemap.as_fd(), device.as_fd()];
    socket::send(stream, &0_i32.to_le_bytes(), &fds).map_err(failed)
}

/// Whether what a process executes is a program that gave this user more rights: set-user-ID, set-group-ID, or with
/// capabilities.
fn gains_rights(pid: i32, uid: u32, gid: u32) -> bool {
    let path = format!("/proc/{pid}/exe");
    let Ok(found) = std::fs::metadata(&path) else { return true };
    let by_mode = |bit: u32, owner: u32, own: u32| found.mode() & bit != 0 && owner != own;
    by_mode(libc::S_ISUID, found.uid(), uid)
        || by_mode(libc::S_ISGID, found.gid(), gid)
        || uid != 0 && sys::files::has_attribute(Path::new(&path), "security.capability")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn who_is_not_in_the_tree_of_the_run_gets_nothing() {
        let (uid, _) = sys::user::own_uids();
        let place = std::env::temp_dir();
        let (making, _left) = crate::rundir::begin().expect("a name");
        let run_dir = RunDir::create(Some(&place), &making, uid, 0).expect("run directory");
        let mut broker = Broker::open(&run_dir, Address::take(making.token), true).expect("sockets");
        let name = format!("{}/{SOCKET}", run_dir.path().file_name().expect("a name").to_string_lossy());
        let hidden = SocketAddr::from_abstract_name(name).expect("an address");
        let path = run_dir.path().join(SOCKET);
        for client in [UnixStream::connect(&path), UnixStream::connect_addr(&hidden)] {
            let mut client = client.expect("connects");
            broker.visit();
            let mut answer = [0; 4];
            client.read_exact(&mut answer).expect("an answer");
            assert_eq!(i32::from_le_bytes(answer), libc::EPERM, "this process is no child of itself");
        }
        assert_eq!((broker.granted, broker.refused.map(|(pid, _)| pid)), (0, Some(process::own_pid())));
        let mode = std::fs::metadata(path).expect("socket").permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    }
}
