//! Unix sockets: who is at the other end, and handing descriptors to it.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Most descriptors that are handed over at once.
pub const DESCRIPTORS: usize = 16;
/// Bytes of them.
const FD_BYTES: usize = DESCRIPTORS * size_of::<RawFd>();
/// Room for a header and the descriptors, aligned as a cmsghdr wants it.
type Control = [u64; 2 + FD_BYTES.div_ceil(8)];
/// Linux 6.5: a descriptor of the process that connected.
const SO_PEERPIDFD: libc::c_int = 77;

fn option<T>(stream: &UnixStream, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let into = (&raw mut value).cast();
    // SAFETY: `value` is alive and `length` is its size; both options give plain data.
    check(unsafe { libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, name, into, &mut length) })?;
    Ok(value)
}

/// The process that connected, by its id as this process sees it, and the user and group it then had.
pub fn peer(stream: &UnixStream) -> io::Result<libc::ucred> {
    option(stream, libc::SO_PEERCRED, libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX })
}

/// A pidfd of the process that connected: it tells whether the id still means the same process.
pub fn peer_pidfd(stream: &UnixStream) -> io::Result<OwnedFd> {
    let fd: RawFd = option(stream, SO_PEERPIDFD, -1)?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the process has not ended.
pub fn is_alive(pidfd: &OwnedFd) -> bool {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: signal 0 only asks; a null pointer stands for no information.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), 0, no_info, 0) == 0 }
}

/// Sends `payload`, and with it up to [`DESCRIPTORS`] descriptors, without waiting: a peer that does not read gets nothing.
pub fn send(stream: &impl AsRawFd, payload: &[u8], fds: &[RawFd]) -> io::Result<()> {
    if fds.len() > DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut control: Control = [0; _];
    let mut part = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
    // SAFETY: all-zero bytes are a valid `msghdr` (null pointers and zero lengths).
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        let bytes = size_of_val(fds) as u32;
        // SAFETY: CMSG_SPACE only computes; the buffer is alive, aligned, and has room for a header and as many descriptors;
        // CMSG_FIRSTHDR points into it because its length is set.
        unsafe {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as usize;
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            for (number, fd) in fds.iter().enumerate() {
                data.add(number).write_unaligned(*fd);
            }
        }
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message and everything it points to are alive.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &message, flags) };
    if sent == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives one message: the bytes of its payload, and into `fds` the descriptors that came with it, close-on-exec; how many. Does
/// not allocate. No bytes: the peer is gone.
pub fn receive(fd: RawFd, payload: &mut [u8], fds: &mut [RawFd; DESCRIPTORS]) -> io::Result<(usize, usize)> {
    let mut control: Control = [0; _];
    let mut part = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() };
    // SAFETY: all-zero bytes are a valid `msghdr` (null pointers and zero lengths).
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the message and everything it points to are alive.
    let got = unsafe { libc::recvmsg(fd, &mut message, libc::MSG_CMSG_CLOEXEC) };
    if got == -1 {
        return Err(io::Error::last_os_error());
    }
    let mut count = 0;
    // SAFETY: the kernel has written the control messages that `msg_controllen` says; a header's length says how many
    // descriptors follow it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            count = ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
            for (number, fd) in fds.iter_mut().enumerate().take(count) {
                *fd = data.add(number).read_unaligned();
            }
        }
    }
    Ok((got as usize, count.min(DESCRIPTORS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_come_with_what_was_sent() {
        let (one, other) = UnixStream::pair().expect("pair");
        let (first, second) = crate::sys::files::pipe().expect("pipe");
        let mut fds = [-1; DESCRIPTORS];
        let mut payload = [0; 8];
        for count in [0, 1, 2] {
            let sent = [first.as_raw_fd(), second.as_raw_fd()];
            send(&one, b"word", &sent[..count]).expect("sent");
            assert_eq!(receive(other.as_raw_fd(), &mut payload, &mut fds).expect("received"), (4, count));
            for fd in &fds[..count] {
                // SAFETY: the descriptor is new and owned by nobody else.
                drop(unsafe { OwnedFd::from_raw_fd(*fd) });
            }
        }
        assert!(send(&one, b"word", &[first.as_raw_fd(); DESCRIPTORS + 1]).is_err());
        drop(one);
        assert_eq!(receive(other.as_raw_fd(), &mut payload, &mut fds).expect("the end"), (0, 0));
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
