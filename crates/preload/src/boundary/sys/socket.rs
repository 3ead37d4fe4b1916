//! Unix sockets, as far as the library needs them to receive descriptors.

use linux_raw_sys::general::O_CLOEXEC;
use linux_raw_sys::net::{AF_UNIX, MSG_CMSG_CLOEXEC, SCM_RIGHTS, SO_RCVTIMEO, SOCK_STREAM, SOL_SOCKET};

use crate::boundary::arch::nr;

use super::call::{Errno, Plain, Result, calls};

/// How long to wait for an answer, in seconds.
const PATIENCE_S: u64 = 5;
/// Bytes of a path, with its NUL.
const PATH: usize = 108;

#[repr(C)]
struct Address {
    family: u16,
    path: [u8; PATH],
}

// SAFETY: it contains only numbers, so any bytes are a value.
unsafe impl Plain for Address {}

calls! {
    // SOCK_CLOEXEC is O_CLOEXEC.
    fn socket(family: u32, kind: u32) -> i32 { nr::SOCKET; family, kind, 0 }

    // A `timeval` has 16 bytes.
    fn receive_timeout(fd: i32, time: &[u64; 2]) -> () { nr::SETSOCKOPT; fd, SOL_SOCKET, SO_RCVTIMEO, time, 16 }
}

calls! { unsafe:
    fn connect_of(fd: i32, address: &Address, bytes: usize) -> () { nr::CONNECT; fd, address, bytes }

    fn recvmsg(fd: i32, header: usize, flags: u32) -> usize { nr::RECVMSG; fd, header, flags }
}

/// `struct msghdr` on 64-bit machines.
#[repr(C)]
struct Header {
    name: usize,
    name_bytes: u64,
    parts: usize,
    part_count: usize,
    control: usize,
    control_bytes: usize,
    flags: u64,
}

/// A control message with up to two descriptors.
#[repr(C, align(8))]
struct Control {
    bytes: u64,
    level: u32,
    kind: u32,
    descriptors: [i32; 2],
}

/// Connects to the socket at `path` (not NUL-terminated).
pub fn connect(path: &[u8]) -> Result<i32> {
    connect_to(path, 0)
}

/// Connects to the socket with the abstract address `name`.
pub fn connect_abstract(name: &[u8]) -> Result<i32> {
    connect_to(name, 1)
}

/// Connects to `name`; `skip` zero bytes come before it. With one, the address ends with the name.
fn connect_to(name: &[u8], skip: usize) -> Result<i32> {
    let mut address = Address { family: AF_UNIX as u16, path: [0; PATH] };
    let room = address.path.get_mut(skip..skip + name.len()).filter(|_| skip + name.len() < PATH);
    room.ok_or(Errno::EINVAL)?.copy_from_slice(name);
    let bytes = if skip > 0 { size_of::<u16>() + skip + name.len() } else { size_of::<Address>() };
    let fd = socket(AF_UNIX, SOCK_STREAM | O_CLOEXEC)?;
    let _ = receive_timeout(fd, &[PATIENCE_S, 0]);
    // SAFETY: the kernel reads the address, which has that many bytes.
    let connected = unsafe { connect_of(fd, &address, bytes) };
    if connected.is_err() {
        super::close(fd);
    }
    connected.map(|_| fd)
}

/// Receives one word and two descriptors (none: the message had none).
pub fn receive(fd: i32) -> Result<(u32, Option<[i32; 2]>)> {
    let mut word = 0u32;
    let part = [(&raw mut word) as usize, size_of::<u32>()];
    let mut control = Control { bytes: 0, level: 0, kind: 0, descriptors: [-1; 2] };
    let mut header = Header {
        name: 0,
        name_bytes: 0,
        parts: part.as_ptr() as usize,
        part_count: 1,
        control: (&raw mut control) as usize,
        control_bytes: size_of::<Control>(),
        flags: 0,
    };
    // SAFETY: the header describes `word` and `control`, which outlive the call.
    let used = unsafe { recvmsg(fd, &raw mut header as usize, MSG_CMSG_CLOEXEC) }?;
    if used != size_of::<u32>() {
        return Err(Errno::EPIPE);
    }
    let given = header.control_bytes >= size_of::<Control>()
        && control.level == SOL_SOCKET
        && control.kind == SCM_RIGHTS
        && control.bytes == size_of::<Control>() as u64;
    Ok((word, given.then_some(control.descriptors)))
}
