//! Runs an emulator with the plugin, and writes the references of all its processes.

use super::protocol::{BlockHeader, BlockKind, HEADER_BYTES, MOST_BYTES, VERSION};
use super::sink::{Block, Sink, Totals};
use crate::error::TraceError;
use crate::format::{Header, Settings, TraceWriter};
use crate::source::Result;
use serde::Serialize;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Program, and settings of the trace.
#[derive(Clone, Debug)]
pub struct Request {
    /// The emulator with all its arguments, the plugin's and the program's.
    pub command: Vec<String>,
    /// The socket that the plugin was told of; must not exist yet.
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
    /// Processes that lived on after the program, and were cut off.
    pub cut_off: usize,
    /// Contents of the trace.
    #[serde(flatten)]
    pub totals: Totals,
}

/// Blocks between the readers of sockets and the writer; a full queue makes the program wait.
const QUEUE: usize = 64;
const TICK: Duration = Duration::from_millis(10);

/// Runs the program and writes its trace to `out`. `go_on` is asked all the time; where it says no, the program is killed,
/// and the trace ends there.
pub fn capture<W: Write + Send>(
    request: &Request,
    header: &Header,
    out: W,
    mut go_on: impl FnMut() -> bool,
) -> Result<Outcome> {
    let writer = TraceWriter::new(out, header, request.settings)?;
    let sink = Sink::new(writer, header.content);
    let listener = UnixListener::bind(&request.socket).map_err(TraceError::io("make the collector's socket"))?;
    listener.set_nonblocking(true).map_err(TraceError::io("listen at the collector's socket"))?;
    let begin = Instant::now();
    let child = start(&request.command)?;
    let (sender, receiver) = sync_channel(QUEUE);
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || write_all(sink, &receiver));
        let watched = watch(child, &listener, sender, request.grace, &mut || go_on() && !writing.is_finished());
        let written = writing.join().expect("the writer does not panic");
        let (writer, totals) = written?;
        let (status, cut_off) = watched?;
        let outcome = Outcome { status, wall_s: begin.elapsed().as_secs_f64(), cut_off, totals };
        let ending = serde_json::to_value(&outcome).map_err(|error| TraceError::Invalid(error.to_string()))?;
        writer.finish(&ending)?;
        Ok(outcome)
    })
}

fn start(command: &[String]) -> Result<Child> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| TraceError::Invalid("no emulator was named".into()))?;
    Command::new(program).args(arguments).spawn().map_err(TraceError::io("start the emulator"))
}

/// Writes blocks until no sender is left.
fn write_all<W: Write>(mut sink: Sink<W>, blocks: &Receiver<Block>) -> Result<(TraceWriter<W>, Totals)> {
    while let Ok(block) = blocks.recv() {
        sink.take(&block)?;
    }
    sink.finish()
}

/// A connection, and the thread that reads it.
struct Connection {
    stream: UnixStream,
    reader: JoinHandle<()>,
}

/// Accepts connections until the program has ended and all are closed; the status, and how many were cut off.
fn watch(
    mut child: Child,
    listener: &UnixListener,
    sender: SyncSender<Block>,
    grace: Duration,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(i32, usize)> {
    let mut connections: Vec<Connection> = Vec::new();
    let (mut status, mut ended, mut count) = (None, None, 0);
    loop {
        while let Some(stream) = accept(listener)? {
            count += 1;
            connections.push(connection(stream, count, sender.clone())?);
        }
        connections.retain(|connection| !connection.reader.is_finished());
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
        {
            if connections.is_empty() {
                return Ok((code(status), 0));
            }
            if ended.elapsed() > grace || !go_on() {
                return Ok((code(status), cut(connections)));
            }
        }
        std::thread::sleep(TICK);
    }
}

fn accept(listener: &UnixListener) -> Result<Option<UnixStream>> {
    match listener.accept() {
        Ok((stream, _)) => {
            stream.set_nonblocking(false).map_err(TraceError::io("accept a process"))?;
            Ok(Some(stream))
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(source) => Err(TraceError::Io { operation: "accept a process", source }),
    }
}

fn connection(stream: UnixStream, number: u64, sender: SyncSender<Block>) -> Result<Connection> {
    let input = stream.try_clone().map_err(TraceError::io("accept a process"))?;
    let reader = std::thread::spawn(move || receive(input, number, &sender));
    Ok(Connection { stream, reader })
}

/// Closes what is still open; how many there were.
fn cut(connections: Vec<Connection>) -> usize {
    let count = connections.len();
    for connection in connections {
        // Where it has just closed by itself, there is nothing to shut down.
        let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        let _ = connection.reader.join();
    }
    count
}

/// Reads one connection to its end; a block that is cut off by a kill is left out.
fn receive(mut input: UnixStream, connection: u64, sender: &SyncSender<Block>) {
    let mut header = [0; HEADER_BYTES];
    while input.read_exact(&mut header).is_ok() {
        let header = BlockHeader::decode(&header);
        let kind =
            BlockKind::from_code(header.kind).filter(|_| header.version == VERSION && header.length <= MOST_BYTES);
        let length = if kind.is_some() { header.length } else { 0 };
        // Not filled with zeros first.
        let mut payload = Vec::with_capacity(length as usize);
        if (&mut input).take(length).read_to_end(&mut payload).is_err() || payload.len() as u64 != length {
            return;
        }
        let malformed = kind.is_none();
        if sender.send(Block { connection, kind, payload }).is_err() || malformed {
            return;
        }
    }
}

fn code(status: std::process::ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
}
