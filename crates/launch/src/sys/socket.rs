//! Unix sockets: who is at the other end, and handing descriptors to it.

use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The process that connected, by its id as this process sees it, and the user and group it then had.
pub fn peer(stream: &UnixStream) -> io::Result<libc::ucred> {
    Ok(getsockopt(stream, sockopt::PeerCredentials)?.into())
}

/// A pidfd of the process that connected (Linux 6.5): it tells whether the id still means the same process.
pub fn peer_pidfd(stream: &UnixStream) -> io::Result<OwnedFd> {
    Ok(getsockopt(stream, sockopt::PeerPidfd)?)
}

/// Whether the process has not ended: its pidfd is readable from then on.
pub fn is_alive(pidfd: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready == 0)
}

/// Sends `payload`, and with it descriptors, without waiting: a peer that does not read gets nothing.
pub fn send(stream: &UnixStream, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(stream, &[IoSlice::new(payload)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_of_an_own_socket_is_this_process() {
        let (one, other) = UnixStream::pair().expect("pair");
        assert_eq!(peer(&one).expect("credentials").pid, std::process::id() as i32);
        if let Ok(pidfd) = peer_pidfd(&one) {
            assert!(is_alive(&pidfd));
        }
        send(&one, b"none", &[]).expect("sent");
        drop(other);
        assert!(send(&one, b"gone", &[]).is_err(), "and no SIGPIPE");
    }
}
