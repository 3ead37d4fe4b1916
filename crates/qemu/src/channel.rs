//! The connection to the collector, which each process image has for itself, from its first block on.
//!
//! The collector waits for whoever has a connection. So an image that is forked or executed keeps the one of the image
//! before it until it has its own: there is no time without one.

use crate::config::shared;
use pagelab_trace::capture::packed::Packer;
use pagelab_trace::capture::protocol::{BlockHeader, BlockKind, Hello, VERSION};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Pid, getppid};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, IoSlice, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held while threads' references are taken and sent, and across fork, so that a child never finds a block half sent.
static CHANNEL: Mutex<Channel> = Mutex::new(Channel { block: Vec::new(), packer: Packer::new() });

/// The state of the sender.
pub struct Channel {
    /// Room for a block, empty between uses.
    pub block: Vec<u8>,
    /// Makes runs of addresses.
    pub packer: Packer,
}

/// The socket, or -1.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
/// The socket of the image before, as long as this one has none; or -1.
static BEFORE: AtomicI32 = AtomicI32::new(-1);
/// Whether the collector knows of this image, or need not.
static ANNOUNCED: AtomicBool = AtomicBool::new(false);
/// See [`Hello::image`].
static IMAGE: AtomicU64 = AtomicU64::new(0);

/// Descriptor numbers that programs hardly use, if the limit allows so many.
const LEAST_DESCRIPTOR: RawFd = 960;

/// While this lives, no other thread sends, forks or replaces the image.
pub fn lock() -> MutexGuard<'static, Channel> {
    CHANNEL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new process image: an existing connection belongs to the image before. `handed_on`: its socket, where this image
/// was executed; or -1.
pub fn begin_image(handed_on: RawFd) {
    let before = DESCRIPTOR.swap(-1, Relaxed).max(handed_on);
    close(BEFORE.swap(before, Relaxed));
    ANNOUNCED.store(false, Relaxed);
    let time = clock_gettime(ClockId::Monotonic);
    let nanoseconds = (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64);
    IMAGE.store(nanoseconds.rotate_left(22) ^ u64::from(std::process::id()), Relaxed);
}

/// The socket's number, which the guest must not get for a file of its own; or -1.
pub fn descriptor() -> RawFd {
    DESCRIPTOR.load(Relaxed)
}

/// Whether the collector knows of this image, or need not.
pub fn is_announced() -> bool {
    ANNOUNCED.load(Relaxed)
}

/// Tells the collector of this image, if it does not know of it. A program that cannot be told of ends.
pub fn announce(_channel: &mut Channel) {
    let made = connection().map(drop).or_else(|_| {
        // There may be no other descriptor left.
        close(BEFORE.swap(-1, Relaxed));
        connection().map(drop)
    });
    if let Err(error) = made {
        fail(&format!("cannot send to {}: {error}", shared().config.socket));
    }
    close(BEFORE.swap(-1, Relaxed));
    ANNOUNCED.store(true, Relaxed);
}

/// The collector is not to know of this image.
pub fn stay_unknown() {
    drop_connection();
    close(BEFORE.swap(-1, Relaxed));
    ANNOUNCED.store(true, Relaxed);
}

/// Leaves the connection open for the program that is executed next; returns its socket, or -1.
pub fn hand_on() -> RawFd {
    let present = descriptor();
    if present < 0 {
        return -1;
    }
    // SAFETY: the descriptor is this module's, and open.
    let socket = unsafe { BorrowedFd::borrow_raw(present) };
    fcntl_setfd(socket, FdFlags::empty()).map_or(-1, |()| present)
}

/// Closes this process's end without a message to the collector. The next block that is translated, or the next send,
/// makes another.
pub fn drop_connection() {
    close(DESCRIPTOR.swap(-1, Relaxed));
    ANNOUNCED.store(false, Relaxed);
}

/// Closes a descriptor that was this module's; none where it is -1.
fn close(old: RawFd) {
    if old >= 0 {
        // SAFETY: the descriptor was this module's, and nobody else has it.
        drop(unsafe { OwnedFd::from_raw_fd(old) });
    }
}

/// Sends a block; if the collector has ended, the emulated program ends, because its trace is lost.
pub fn send(kind: BlockKind, payload: &[u8]) {
    send_locked(&mut lock(), kind, payload);
}

/// [`send`], by a caller that holds the lock.
pub fn send_locked(_channel: &mut Channel, kind: BlockKind, payload: &[u8]) {
    if connection().and_then(|mut stream| block(&mut stream, kind, payload)).is_err() {
        // If the guest closed the descriptor, the collector still runs: send again, on a new connection.
        drop_connection();
        if let Err(error) = connection().and_then(|mut stream| block(&mut stream, kind, payload)) {
            fail(&format!("cannot send to {}: {error}", shared().config.socket));
        }
    }
}

fn block(stream: &mut UnixStream, kind: BlockKind, payload: &[u8]) -> io::Result<()> {
    let header = BlockHeader { kind: kind as u32, version: VERSION, length: payload.len() as u64 };
    let header = header.encode();
    // In one call, where the socket takes all.
    let written = match stream.write_vectored(&[IoSlice::new(&header), IoSlice::new(payload)]) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
        other => other?,
    };
    stream.write_all(&header[written.min(header.len())..])?;
    stream.write_all(&payload[written.saturating_sub(header.len())..])
}

/// The connection, made where there is none.
fn connection() -> io::Result<ManuallyDrop<UnixStream>> {
    let present = descriptor();
    if present >= 0 {
        // SAFETY: the descriptor is this module's; ManuallyDrop leaves it open.
        return Ok(ManuallyDrop::new(unsafe { UnixStream::from_raw_fd(present) }));
    }
    let stream = raised(UnixStream::connect(&shared().config.socket)?)?;
    let mut stream = ManuallyDrop::new(stream);
    DESCRIPTOR.store(stream.as_raw_fd(), Relaxed);
    let parent = Pid::as_raw(getppid()) as u32;
    let hello = Hello { image: IMAGE.load(Relaxed), pid: std::process::id(), parent };
    let mut payload = hello.encode().to_vec();
    payload.extend(std::fs::read("/proc/self/cmdline").unwrap_or_default());
    block(&mut stream, BlockKind::Hello, &payload)?;
    Ok(stream)
}

/// The same connection under a high number, closed on exec; under its own where there are no high numbers.
fn raised(stream: UnixStream) -> io::Result<UnixStream> {
    Ok(fcntl_dupfd_cloexec(&stream, LEAST_DESCRIPTOR).map_or(stream, UnixStream::from))
}

/// Reports an error and ends the process.
pub fn fail(message: &str) -> ! {
    // Standard error may be closed; there is no other place for the message.
    let _ = writeln!(std::io::stderr(), "pagelab trace: {message}");
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(125) }
}
