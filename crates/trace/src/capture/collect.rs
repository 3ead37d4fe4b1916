//! Runs an emulator with the plugin, and writes the references of all its processes.

use super::descriptors::MoreDescriptors;
use super::protocol::{BlockHeader, BlockKind, HEADER_BYTES, MOST_BYTES, VERSION};
use super::sink::{Block, Sink, Totals};
use crate::error::TraceError;
use crate::format::{Header, Settings, TraceWriter};
use crate::source::Result;
use serde::Serialize;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Program, and settings of the trace.
#[derive(Clone, Debug)]
pub struct Request {
    /// The emulator with all its arguments, the plugin's and the program's.
    pub command: Vec<String>,
    /// The socket that the plugin connects to; must not exist yet.
    pub socket: PathBuf,
    /// How long processes may outlive the program before they are cut off.
    pub grace: Duration,
    /// Settings of writing.
    pub settings: Settings,
}

/// Result of a capture.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Exit code of the program, or minus the signal that ended it.
    pub status: i32,
    /// Seconds from start to end.
    pub wall_s: f64,
    /// Number of processes that outlived the program and were cut off.
    pub cut_off: usize,
    /// Contents of the trace.
    #[serde(flatten)]
    pub totals: Totals,
}

/// Bytes read from a socket at once: more than a socket holds.
const AT_ONCE: usize = 1 << 18;
const TICK: Duration = Duration::from_millis(10);

/// Runs the program and writes its trace to `out`. `begun` is called when the first process is there, not if none comes.
/// `go_on` is called repeatedly; if it returns false, the program is killed, and the trace ends there.
pub fn capture<W: Write + Send>(
    request: &Request,
    header: &Header,
    out: W,
    begun: impl FnOnce() -> Result<()> + Send + 'static,
    mut go_on: impl FnMut() -> bool,
) -> Result<Outcome> {
    let writer = TraceWriter::new(out, header, request.settings)?;
    let sink = Sink::new(writer, header.content, Box::new(begun));
    let shared = Shared { sink: Mutex::new(Ok(sink)), failed: AtomicBool::new(false) };
    let listener = UnixListener::bind(&request.socket).map_err(TraceError::io("make the collector's socket"))?;
    listener.set_nonblocking(true).map_err(TraceError::io("listen at the collector's socket"))?;
    let begin = Instant::now();
    let child = start(&request.command)?;
    // Only now, so that the program has its own limit.
    let _more = MoreDescriptors::allow();
    let watched = std::thread::scope(|scope| {
        let mut go_on = || go_on() && !shared.failed.load(Relaxed);
        watch(scope, child, &listener, &shared, request.grace, &mut go_on)
    });
    let (writer, totals) = shared.sink.into_inner().unwrap_or_else(PoisonError::into_inner)?.finish()?;
    let (status, cut_off) = match watched {
        Ok(ended) => ended,
        Err(error) => {
            // What came until then stays readable.
            writer.finish(&serde_json::json!({ "images": totals.images, "error": error.to_string() }))?;
            return Err(error);
        }
    };
    let outcome = Outcome { status, wall_s: begin.elapsed().as_secs_f64(), cut_off, totals };
    let ending = serde_json::to_value(&outcome).map_err(|error| TraceError::Invalid(error.to_string()))?;
    writer.finish(&ending)?;
    Ok(outcome)
}

/// Shared by the readers of all connections. The thread that has read a block also writes it; passing it to another
/// thread would cost more.
struct Shared<W: Write> {
    /// The trace, or why it ended early.
    sink: Mutex<Result<Sink<W>>>,
    /// It ended early.
    failed: AtomicBool,
}

impl<W: Write> Shared<W> {
    /// Writes a block; returns false if nothing more can be written.
    fn take(&self, block: &Block) -> bool {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = match &mut *sink {
            Ok(sink) => sink.take(block),
            Err(_) => return false,
        };
        taken
            .map_err(|error| {
                *sink = Err(error);
                self.failed.store(true, Relaxed);
            })
            .is_ok()
    }
}

fn start(command: &[String]) -> Result<Child> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| TraceError::Invalid("no emulator was named".into()))?;
    Command::new(program).args(arguments).spawn().map_err(TraceError::io("start the emulator"))
}

/// A connection, and the thread that reads it. Both have the same descriptor.
struct Connection<'scope> {
    stream: Arc<UnixStream>,
    reader: ScopedJoinHandle<'scope, ()>,
}

/// Accepts connections until the program has ended and all are closed; returns the status, and how many were cut off.
/// After an error nothing is left that would wait for a reader.
fn watch<'scope, W: Write + Send>(
    scope: &'scope Scope<'scope, '_>,
    mut child: Child,
    listener: &UnixListener,
    shared: &'scope Shared<W>,
    grace: Duration,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(i32, usize)> {
    let mut connections = Vec::new();
    let watched = attend(scope, &mut child, &mut connections, listener, shared, grace, go_on);
    if watched.is_err() {
        // The first error is told. A program that has ended cannot be killed.
        let _ = child.kill();
        let _ = child.wait();
    }
    let left = cut(connections);
    watched.map(|status| (status, left))
}

/// Accepts connections until the program has ended and all are closed or are to be cut off; returns the status.
fn attend<'scope, W: Write + Send>(
    scope: &'scope Scope<'scope, '_>,
    child: &mut Child,
    connections: &mut Vec<Connection<'scope>>,
    listener: &UnixListener,
    shared: &'scope Shared<W>,
    grace: Duration,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<i32> {
    let (mut status, mut ended, mut count) = (None, None, 0);
    loop {
        // In this order: an image has a connection before the one that it was forked or executed from is closed.
        connections.retain(|connection| !connection.reader.is_finished());
        while let Some(stream) = accept(listener, connections.len())? {
            count += 1;
            connections.push(connection(scope, stream, count, shared));
        }
        if status.is_none() {
            if !go_on() {
                child.kill().map_err(TraceError::io("end the program"))?;
            }
            status = child.try_wait().map_err(TraceError::io("wait for the program"))?;
            ended = status.map(|_| Instant::now());
        }
        // One more look at the listener after the end: a process may have connected just before.
        if let (Some(status), Some(ended)) = (status, ended)
            && ended.elapsed() > TICK
            && (connections.is_empty() || ended.elapsed() > grace || !go_on())
        {
            return Ok(code(status));
        }
        std::thread::sleep(TICK);
    }
}

/// The next process that connects; `live` are connected.
fn accept(listener: &UnixListener, live: usize) -> Result<Option<UnixStream>> {
    match listener.accept() {
        Ok((stream, _)) => {
            stream.set_nonblocking(false).map_err(TraceError::io("accept a process"))?;
            Ok(Some(stream))
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            Err(TraceError::Invalid(format!(
                "cannot accept a process besides the {live} that run at once: {error}; raise the hard limit of descriptors \
             (ulimit -Hn; each process takes one), or: --no-children"
            )))
        }
        Err(source) => Err(TraceError::Io { operation: "accept a process", source }),
    }
}

fn connection<'scope, W: Write + Send>(
    scope: &'scope Scope<'scope, '_>,
    stream: UnixStream,
    number: u64,
    shared: &'scope Shared<W>,
) -> Connection<'scope> {
    let stream = Arc::new(stream);
    let input = Arc::clone(&stream);
    let reader = scope.spawn(move || receive(&input, number, shared));
    Connection { stream, reader }
}

/// Closes what is still open; returns how many there were.
fn cut(connections: Vec<Connection>) -> usize {
    let count = connections.len();
    for connection in connections {
        // A connection that has just closed by itself needs no shutdown.
        let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        let _ = connection.reader.join();
    }
    count
}

/// Reads one connection to its end; a block that is cut off by a kill is left out.
fn receive<W: Write>(input: &UnixStream, connection: u64, shared: &Shared<W>) {
    let mut input = BufReader::with_capacity(AT_ONCE, input);
    let (mut header, mut payload) = ([0; HEADER_BYTES], Vec::new());
    while input.read_exact(&mut header).is_ok() {
        let header = BlockHeader::decode(&header);
        let kind =
            BlockKind::from_code(header.kind).filter(|_| header.version == VERSION && header.length <= MOST_BYTES);
        let length = if kind.is_some() { header.length } else { 0 };
        payload.clear();
        if (&mut input).take(length).read_to_end(&mut payload).is_err() || payload.len() as u64 != length {
            return;
        }
        if !shared.take(&Block { connection, kind, payload: &payload }) || kind.is_none() {
            return;
        }
    }
}

fn code(status: std::process::ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
}
