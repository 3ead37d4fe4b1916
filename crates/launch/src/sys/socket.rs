//! Unix sockets: who is at the other end, and handing descriptors to it.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Descriptors handed over at once.
const DESCRIPTORS: usize = 2;
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

/// Sends `payload`, and with it descriptors, without waiting: a peer that does not read gets nothing.
pub fn send(stream: &UnixStream, payload: &[u8], fds: Option<[RawFd; DESCRIPTORS]>) -> io::Result<()> {
    const FD_BYTES: u32 = (DESCRIPTORS * size_of::<RawFd>()) as u32;
    // Aligned as a cmsghdr wants it, and with room for one header and the descriptors.
    let mut control = [0_u64; 4];
    let mut part = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
    // SAFETY: all-zero bytes are a valid `msghdr` (null pointers and zero lengths).
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    if let Some(fds) = fds {
        // SAFETY: CMSG_SPACE only computes; the buffer is alive, aligned, and has 32 bytes, enough for a header (16)
        // and two descriptors (8); CMSG_FIRSTHDR points into it because its length is set.
        unsafe {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(FD_BYTES) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(FD_BYTES) as usize;
            libc::CMSG_DATA(header).cast::<[RawFd; DESCRIPTORS]>().write_unaligned(fds);
        }
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message and everything it points to are alive.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &message, flags) };
    if sent == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
        send(&one, b"none", None).expect("sent");
        drop(other);
        assert!(send(&one, b"gone", None).is_err(), "and no SIGPIPE");
    }
}
