//! Unix sockets: the process at the other end, and passing descriptors to it.

use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Most descriptors that are handed over at once.
pub const DESCRIPTORS: usize = 16;
/// Room for as many in a control message.
type Control = [MaybeUninit<u8>; rustix::cmsg_space!(ScmRights(DESCRIPTORS))];

/// The process that connected, by its id as this process sees it, and the user and group it then had.
pub fn peer(stream: &UnixStream) -> io::Result<libc::ucred> {
    Ok(getsockopt(stream, sockopt::PeerCredentials)?.into())
}

/// A pidfd of the process that connected (Linux 6.5), to check whether the id still means the same process.
pub fn peer_pidfd(stream: &UnixStream) -> io::Result<OwnedFd> {
    Ok(getsockopt(stream, sockopt::PeerPidfd)?)
}

/// Whether the process has not ended: its pidfd is readable from then on.
pub fn is_alive(pidfd: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready == 0)
}

/// Sends `payload`, and with it up to [`DESCRIPTORS`] descriptors, without waiting: a peer that does not read gets
/// nothing.
pub fn send(stream: &impl AsFd, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut room: Control = [MaybeUninit::uninit(); _];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let too_many = fds.len() > DESCRIPTORS; // alignment may leave room for one more
    if too_many || !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(stream, &[IoSlice::new(payload)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message: the bytes of its payload, and into `fds` the descriptors that came with it, close-on-exec;
/// returns the numbers of both. Does not allocate. No bytes: the peer is gone.
pub fn receive(
    socket: &impl AsFd,
    payload: &mut [u8],
    fds: &mut [RawFd; DESCRIPTORS],
) -> io::Result<(usize, usize)> {
    let mut room: Control = [MaybeUninit::uninit(); _];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let got = recvmsg(socket, &mut [IoSliceMut::new(payload)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let given = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(given) => Some(given),
        _ => None,
    });
    let mut count = 0;
    for (place, fd) in fds.iter_mut().zip(given.flatten()) {
        *place = fd.into_raw_fd();
        count += 1;
    }
    Ok((got.bytes, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    #[test]
    fn descriptors_come_with_what_was_sent() {
        let (one, other) = UnixStream::pair().expect("pair");
        let (first, second) = crate::sys::files::pipe().expect("pipe");
        let mut fds = [-1; DESCRIPTORS];
        let mut payload = [0; 8];
        for count in [0, 1, 2] {
            let sent = [first.as_fd(), second.as_fd()];
            send(&one, b"word", &sent[..count]).expect("sent");
            assert_eq!(receive(&other, &mut payload, &mut fds).expect("received"), (4, count));
            for fd in &fds[..count] {
                // SAFETY: the descriptor is new and owned by nobody else.
                drop(unsafe { OwnedFd::from_raw_fd(*fd) });
            }
        }
        assert!(send(&one, b"word", &[first.as_fd(); DESCRIPTORS + 1]).is_err());
        drop(one);
        assert_eq!(receive(&other, &mut payload, &mut fds).expect("the end"), (0, 0));
    }

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
