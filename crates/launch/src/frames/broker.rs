//! Hands the launcher's rights on to processes of the run that have fewer: the frame numbers of their own pages, and a
//! device that makes them a userfaultfd. Nothing else, and to nobody else.
//!
//! A process connects to [`SOCKET`] in the run directory and gets one message: an errno (4 bytes, little-endian; 0:
//! granted) and, when granted, two descriptors: its own `/proc/PID/pagemap` and `/dev/userfaultfd`. (A userfaultfd made
//! here would be the launcher's: it belongs to the address space that makes it.) Who asks is taken from the socket.

use crate::error::{Error, Result};
use crate::proctree;
use crate::rundir::RunDir;
use crate::sys::{self, process, socket, userfault};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

/// Name of the socket in the run directory.
pub const SOCKET: &str = "frames.sock";
/// Most requests answered at one visit: the rest of the launcher's work goes on in between.
const MOST_AT_ONCE: usize = 64;

/// The socket and what came of it.
#[derive(Debug)]
pub struct Broker {
    listener: UnixListener,
    uid: u32,
    /// Processes that got what they asked for.
    pub granted: u64,
    /// The last refusal: process id and reason.
    pub refused: Option<(i32, String)>,
}

impl Broker {
    /// Listens for processes of user `uid`.
    ///
    /// # Errors
    /// A socket that cannot be made.
    pub fn open(run_dir: &RunDir, uid: u32, gid: u32) -> Result<Broker> {
        let path = run_dir.path().join(SOCKET);
        let cannot = |error: io::Error| {
            Error::Cannot(format!(
                "cannot make the socket {} that hands rights on to the program: {}; name a place with a short path: \
                 --run-dir DIR",
                path.display(),
                sys::errno_text(&error)
            ))
        };
        let listener = UnixListener::bind(&path).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(cannot)?;
        if sys::user::own_uids().1 != uid {
            sys::files::give_to(&path, uid, gid).map_err(cannot)?;
        }
        Ok(Broker { listener, uid, granted: 0, refused: None })
    }

    /// Becomes readable when a process asks.
    pub fn fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// Answers who has asked.
    pub fn visit(&mut self) {
        for _ in 0..MOST_AT_ONCE {
            let Ok((stream, _)) = self.listener.accept() else { return };
            match self.answer(&stream) {
                Ok(()) => self.granted += 1,
                Err((pid, error)) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EACCES);
                    // A peer that is gone needs no answer.
                    let _ = socket::send(&stream, &errno.to_le_bytes(), None);
                    self.refused = Some((pid, sys::errno_text(&error)));
                }
            }
        }
    }

    fn answer(&self, stream: &UnixStream) -> std::result::Result<(), (i32, io::Error)> {
        let peer = socket::peer(stream).map_err(|error| (0, error))?;
        let failed = |error| (peer.pid, error);
        if peer.uid != self.uid || !proctree::descendants(process::own_pid()).contains(&peer.pid) {
            return Err(failed(io::Error::from_raw_os_error(libc::EPERM)));
        }
        let pidfd: OwnedFd = socket::peer_pidfd(stream).map_err(failed)?;
        let pagemap = super::rights::open_pagemap(peer.pid).map_err(failed)?;
        let device = File::options().read(true).write(true).open(userfault::DEVICE);
        let device = device.or_else(|_| File::open("/dev/null")).map_err(failed)?;
        // After the pagemap is open: only now is it sure whose it is.
        if !socket::is_alive(&pidfd) {
            return Err(failed(io::Error::from_raw_os_error(libc::ESRCH)));
        }
        let fds = [pagemap.as_raw_fd(), device.as_raw_fd()];
        socket::send(stream, &0_i32.to_le_bytes(), Some(fds)).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rundir::Token;
    use std::io::Read;

    #[test]
    fn who_is_not_in_the_tree_of_the_run_gets_nothing() {
        let (uid, _) = sys::user::own_uids();
        let place = std::env::temp_dir();
        let token = Token::fresh().expect("token");
        let run_dir = RunDir::create(Some(&place), token, uid, 0).expect("run directory");
        let mut broker = Broker::open(&run_dir, uid, 0).expect("socket");
        let mut client = UnixStream::connect(run_dir.path().join(SOCKET)).expect("connects");
        broker.visit();
        let mut answer = [0; 4];
        client.read_exact(&mut answer).expect("an answer");
        assert_eq!(i32::from_le_bytes(answer), libc::EPERM, "this process is no child of itself");
        assert_eq!((broker.granted, broker.refused.map(|(pid, _)| pid)), (0, Some(process::own_pid())));
        let mode = fs::metadata(run_dir.path().join(SOCKET)).expect("socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
