//! Messages between two processes of this machine, connections, and waiting for many descriptors.

use std::fs::File;
use std::io::{Error, Read, Write, pipe};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::select::{FdSet, select};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;

use super::ground::Ground;
use super::rounds::{Failure, Path};
use super::system::{Child, refused};

/// In a round: messages there and back, connections, and calls of select.
const ROUND_TRIPS: u64 = 500;
const CONNECTIONS: u64 = 100;
const SELECTS: u64 = 500;
/// Descriptors that select looks at.
const SELECTED: usize = 100;
/// A process that receives nothing for this time gives up.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));
const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// What a process reads from and writes to.
pub struct Ends {
    pub from: File,
    pub to: File,
}

impl Ends {
    /// Both of one socket.
    fn of(socket: impl Into<OwnedFd>) -> Result<Ends, Error> {
        let from = File::from(socket.into());
        Ok(Ends { to: from.try_clone()?, from })
    }
}

/// The ends of two processes that are connected.
pub type Connected = (Ends, Ends);

/// Two pipes.
pub fn pipes() -> Result<Connected, Failure> {
    let open = || pipe().map_err(|error| format!("pipe: {error}"));
    let ((here, to_here), (there, to_there)) = (open()?, open()?);
    let ends = |from: std::io::PipeReader, to: std::io::PipeWriter| Ends {
        from: File::from(OwnedFd::from(from)),
        to: File::from(OwnedFd::from(to)),
    };
    Ok((ends(here, to_there), ends(there, to_here)))
}

/// A pair of stream sockets of AF_UNIX.
pub fn unix_sockets() -> Result<Connected, Failure> {
    let pair = UnixStream::pair().and_then(|(here, there)| Ok((Ends::of(here)?, Ends::of(there)?)));
    pair.map_err(|error| Failure::Impossible(format!("no AF_UNIX here: {error}")))
}

/// Two UDP sockets of loopback, connected to each other.
fn udp_sockets() -> Result<Connected, Failure> {
    let made = || {
        let (here, there) = (UdpSocket::bind(LOOPBACK)?, UdpSocket::bind(LOOPBACK)?);
        here.connect(there.local_addr()?)?;
        there.connect(here.local_addr()?)?;
        here.set_read_timeout(PATIENCE)?;
        // A datagram that is not let through now would not be later.
        here.send(&[1])?;
        there.set_read_timeout(PATIENCE)?;
        there.recv(&mut [0])?;
        there.set_read_timeout(None)?;
        Ok((Ends::of(here)?, Ends::of(there)?))
    };
    made().map_err(|error: Error| Failure::Impossible(no_loopback("UDP", &error)))
}

/// Two TCP sockets of loopback, connected to each other, which send at once what they have.
pub fn tcp_sockets() -> Result<Connected, Failure> {
    let (here, there) = listener().and_then(|listener| connect(&listener)).map_err(no_tcp)?;
    let ready = |socket: TcpStream| {
        socket.set_nodelay(true)?;
        Ends::of(socket)
    };
    let both = ready(here).and_then(|here| Ok((here, ready(there)?)));
    Ok(both.map_err(|error| format!("cannot set up a connection: {error}"))?)
}

fn listener() -> Result<TcpListener, Error> {
    TcpListener::bind(LOOPBACK)
}

/// Both ends of a new connection, which leave nothing behind when they are closed: no port waits for late packets.
fn connect(listener: &TcpListener) -> Result<(TcpStream, TcpStream), Error> {
    let here = TcpStream::connect(listener.local_addr()?)?;
    let (there, _) = listener.accept()?;
    for socket in [&here, &there] {
        setsockopt(socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    }
    Ok((here, there))
}

fn no_tcp(error: Error) -> Failure {
    Failure::Impossible(no_loopback("TCP", &error))
}

fn no_loopback(protocol: &str, error: &Error) -> String {
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => format!("no {protocol} in this kernel ({error})"),
        _ => format!("no {protocol} over loopback here ({error}); run: ip link set lo up"),
    }
}

/// A byte there and back through pipes.
pub fn pipe_latency(_: &Ground) -> Result<Path, Failure> {
    round_trips(pipes()?)
}

/// The same through sockets of AF_UNIX.
pub fn unix(_: &Ground) -> Result<Path, Failure> {
    round_trips(unix_sockets()?)
}

/// The same in UDP datagrams.
pub fn udp(_: &Ground) -> Result<Path, Failure> {
    round_trips(udp_sockets()?)
}

/// The same over a TCP connection.
pub fn tcp(_: &Ground) -> Result<Path, Failure> {
    round_trips(tcp_sockets()?)
}

fn round_trips((mut here, mut there): Connected) -> Result<Path, Failure> {
    let child = Child::fork(move || {
        let mut byte = [0];
        while there.from.read_exact(&mut byte).and_then(|()| there.to.write_all(&[byte[0].wrapping_add(1)])).is_ok()
        {
        }
        1
    })?;
    let expected = (0..ROUND_TRIPS).map(answer).sum();
    Ok(Path::new(ROUND_TRIPS, expected, move || {
        let _answers = &child;
        let mut sum = 0;
        for call in 0..ROUND_TRIPS {
            let mut byte = [call as u8];
            here.to
                .write_all(&byte)
                .and_then(|()| here.from.read_exact(&mut byte))
                .map_err(|error| format!("no answer: {error}"))?;
            sum += u64::from(byte[0]);
        }
        Ok(sum)
    }))
}

/// The other process's answer to a byte.
fn answer(call: u64) -> u64 {
    u64::from((call as u8).wrapping_add(1))
}

/// A connection made, accepted, and closed at both ends, which are of one process.
pub fn tcp_connect(_: &Ground) -> Result<Path, Failure> {
    let listener = listener().map_err(no_tcp)?;
    connect(&listener).map_err(no_tcp)?;
    Ok(Path::new(CONNECTIONS, CONNECTIONS, move || {
        for _ in 0..CONNECTIONS {
            connect(&listener).map_err(|error| format!("cannot connect: {error}"))?;
        }
        Ok(CONNECTIONS)
    }))
}

/// Select on both ends of fifty TCP connections, of which one can be read.
pub fn select_tcp(_: &Ground) -> Result<Path, Failure> {
    let listener = listener().map_err(no_tcp)?;
    let mut files = Vec::new();
    for _ in 0..SELECTED / 2 {
        let (here, there) = connect(&listener).map_err(no_tcp)?;
        files.extend([OwnedFd::from(here), OwnedFd::from(there)]);
    }
    let mut last = File::from(files[SELECTED - 2].try_clone().map_err(no_tcp)?);
    last.write_all(&[1]).map_err(no_tcp)?;
    selecting(files, Vec::new())
}

/// Select on the reading ends of a hundred pipes, of which one has a byte.
pub fn select_pipes(_: &Ground) -> Result<Path, Failure> {
    let (mut files, mut others) = (Vec::new(), Vec::new());
    for _ in 0..SELECTED {
        let (from, to) = pipe().map_err(|error| format!("pipe: {error}"))?;
        files.push(OwnedFd::from(from));
        others.push(OwnedFd::from(to));
    }
    let mut last = File::from(others[SELECTED - 1].try_clone().map_err(|error| format!("pipe: {error}"))?);
    last.write_all(&[1]).map_err(|error| format!("write: {error}"))?;
    selecting(files, others)
}

/// Calls of select, which find one of the files; `others` stay open meanwhile.
fn selecting(files: Vec<OwnedFd>, others: Vec<OwnedFd>) -> Result<Path, Failure> {
    let highest = files.iter().map(AsRawFd::as_raw_fd).max().unwrap_or(0);
    if highest as usize >= libc::FD_SETSIZE {
        return Err(Failure::Impossible(format!(
            "select does not know descriptors above 1023, and here is {highest}"
        )));
    }
    Ok(Path::new(SELECTS, SELECTS, move || {
        let _open = &others;
        let mut wanted = FdSet::new();
        files.iter().for_each(|file| wanted.insert(file.as_fd()));
        let mut ready = 0;
        for _ in 0..SELECTS {
            let (mut set, mut at_once) = (wanted, TimeVal::new(0, 0));
            ready += select(highest + 1, &mut set, None, None, &mut at_once).map_err(refused("select"))? as u64;
        }
        Ok(ready)
    }))
}
