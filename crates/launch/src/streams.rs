//! The program's standard streams, and the files in which the launcher captures what it must read.
//!
//! Standard output that is read goes through a file where a large file has room, and through a pipe elsewhere.

use crate::error::{Error, Result, no_descriptor};
use crate::measurements::{Collected, Search};
use crate::request::Request;
use crate::room;
use crate::rundir::RunDir;
use crate::sys;
use crate::sys::child::Stream;
use crate::sys::files::Sink;
use crate::sys::signals;
use crate::warnings::Warnings;
use nix::sys::signalfd::SignalFd;
use regex::Regex;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

/// A file the program writes and the launcher reads. A file and not a pipe, so that the program never waits for the
/// launcher and the launcher never wakes for the program; a pipe where a file has too little room.
pub struct Capture {
    writer: OwnedFd,
    /// The launcher's descriptor, at the start of the file.
    pub reader: File,
}

impl Capture {
    /// Makes a capture file called `name` in the run directory.
    pub fn create(run_dir: &RunDir, name: &CStr) -> Result<Capture> {
        Capture::of(run_dir.capture(name)?)
    }

    fn of((writer, reader): (File, File)) -> Result<Capture> {
        let writer = sys::files::high_duplicate(&writer).map_err(no_descriptor)?;
        Ok(Capture { writer, reader })
    }

    /// Whether its file system has no room now: what the program writes may be refused.
    pub fn is_full(&self) -> bool {
        is_full(&self.reader)
    }

    /// The descriptor to be given to the program.
    pub fn fd(&self) -> i32 {
        self.writer.as_raw_fd()
    }
}

/// The streams as the request wants them.
pub struct Streams {
    /// For the child.
    pub setup: [Stream; 3],
    /// Standard output, when a regular expression reads it.
    pub stdout: Option<Output>,
}

/// Captured standard output as it grows: it is searched for measurements, and copied to the destination of the request.
/// What is done with gives its space back.
pub struct Output {
    source: Source,
    /// The program's descriptor: space is given back by who may write.
    writer: File,
    to: Option<Sink>,
    search: Search,
    copied: u64,
    buffer: Vec<u8>,
    /// The destination has no room now.
    is_full: bool,
    failed: Option<io::Error>,
}

/// Where the output is until it is done with.
enum Source {
    /// In a file with room for much: it is copied and searched by itself. `had_no_room`: at a visit it had none.
    File { file: File, searched: u64, freed: u64, had_no_room: bool },
    /// In a pipe; what was `taken` out of it was searched, and the `part` in the buffer is still to be copied.
    Pipe { pipe: File, taken: u64, part: Range<usize> },
}

/// Output that did not reach its destination.
#[derive(Debug)]
pub struct Lost {
    /// How much, at most: of holes nothing was to be copied. `None`: the program may not have been able to write some.
    pub bytes: Option<u64>,
    /// Why.
    pub why: String,
}

/// Most bytes that are copied or searched in one go while the program runs: time-out and signals are not to wait for
/// its output.
const MOST_AT_ONCE: u64 = 4 << 20;
/// Output is searched when it has ended; before, only if so much is there, so that short programs are not disturbed.
const SEARCHED_EARLY: u64 = 1 << 20;
/// What a pipe can hold, and the part that was taken out of it.
const MOST_IN_PIPE: u64 = (1 << 20) + (64 << 10);
/// Space is given back in blocks of so many bytes: pages of any size. A file system with less is full.
const BLOCK: u64 = 64 << 10;
/// Time between visits with a destination, and without.
const COPYING_NS: u64 = 100_000_000;
const SEARCHING_NS: u64 = 1_000_000_000;

fn is_full(file: &impl AsFd) -> bool {
    sys::files::free_bytes_beside(file).is_ok_and(|free| free < BLOCK)
}

impl Output {
    /// Takes a capture over; `to`: the destination, if it is to be copied.
    fn new(capture: Capture, is_pipe: bool, to: Option<File>, regex: Regex) -> Output {
        let reader = capture.reader;
        let source = match is_pipe {
            true => Source::Pipe { pipe: reader, taken: 0, part: 0..0 },
            false => Source::File { file: reader, searched: 0, freed: 0, had_no_room: false },
        };
        Output {
            source,
            writer: capture.writer.into(),
            to: to.map(Sink::new),
            search: Search::new(regex),
            copied: 0,
            buffer: vec![0; 64 << 10],
            is_full: false,
            failed: None,
        }
    }

    /// The program's descriptor.
    fn fd(&self) -> i32 {
        self.writer.as_raw_fd()
    }

    /// Copies a part of the new output, as far as there is room, and searches what has come together; returns whether
    /// there may be more now.
    pub fn forward(&mut self) -> bool {
        let copying = self.copy(MOST_AT_ONCE);
        let waits = match &self.source {
            Source::File { searched, .. } => self.length().saturating_sub(*searched) < SEARCHED_EARLY,
            Source::Pipe { .. } => false,
        };
        let searching = !waits && self.search(MOST_AT_ONCE);
        self.give_back();
        copying || searching
    }

    /// Does the rest: the program has ended, and what it left behind adds no more. A destination without room is waited
    /// for, until `signals` has one or the time is up.
    pub fn finish(mut self, signals: &SignalFd, until_ns: Option<u64>) -> (Collected, Option<Lost>) {
        self.look_for_room();
        // Somebody outside of the run may have got the descriptor, and write on.
        let end = match &self.source {
            Source::File { .. } => self.length(),
            Source::Pipe { taken, .. } => taken + MOST_IN_PIPE,
        };
        while self.to.is_some() && self.copied < end {
            if self.copy(MOST_AT_ONCE) {
                continue;
            }
            if !self.is_full {
                break;
            }
            let left = until_ns.map(|until| until.saturating_sub(sys::monotonic_ns()));
            if left == Some(0) {
                self.give_up("nobody read it until the time-out".to_owned());
                break;
            }
            let waited = signals::wait_for(&[signals.as_raw_fd()], self.writable(), left);
            let asked = std::iter::from_fn(|| signals::next(signals)).find(|&signal| signal != libc::SIGCHLD);
            match (waited, asked) {
                (Err(error), _) => self.give_up(sys::errno_text(&error)),
                (_, Some(signal)) => self.give_up(format!("{} came before it was read", signals::name(signal))),
                _ => {}
            }
        }
        self.search(end);
        let bytes = self.length().saturating_sub(self.copied);
        let not_copied = self.failed.take().map(|why| Lost { bytes: Some(bytes), why: why.to_string() });
        let not_written = matches!(self.source, Source::File { had_no_room: true, .. })
            .then(|| Lost { bytes: None, why: "the run directory was full while the program ran".to_owned() });
        (self.search.finish(), not_copied.or(not_written))
    }

    /// The pipe, while it is to be read.
    pub fn readable(&self) -> Option<RawFd> {
        match &self.source {
            Source::Pipe { pipe, .. } if !self.is_full => Some(pipe.as_raw_fd()),
            _ => None,
        }
    }

    /// The destination, while it has no room.
    pub fn writable(&self) -> Option<RawFd> {
        self.to.as_ref().filter(|_| self.is_full).map(Sink::fd)
    }

    /// The longest time between visits.
    pub fn interval_ns(&self) -> u64 {
        match (&self.source, &self.to) {
            (Source::Pipe { .. }, _) => u64::MAX,
            (_, Some(_)) => COPYING_NS,
            (_, None) => SEARCHING_NS,
        }
    }

    /// Bytes that have come so far.
    fn length(&self) -> u64 {
        match &self.source {
            Source::File { file, .. } => file.metadata().map_or(0, |data| data.len()),
            Source::Pipe { taken, .. } => *taken,
        }
    }

    fn give_up(&mut self, why: String) {
        self.to = None;
        self.failed = Some(io::Error::other(why));
    }

    /// Copies up to so much; returns whether there may be more.
    fn copy(&mut self, most: u64) -> bool {
        self.is_full = false;
        let begun = self.copied;
        while self.to.is_some() && self.copied - begun < most {
            match self.copy_part() {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_full = true;
                    return false;
                }
                Err(error) => {
                    self.to = None;
                    // A reader that has ended wants no more.
                    let unwanted = error.kind() == io::ErrorKind::BrokenPipe;
                    self.failed = (!unwanted).then(|| io::Error::other(sys::errno_text(&error)));
                }
            }
        }
        self.to.is_some()
    }

    fn copy_part(&mut self) -> io::Result<bool> {
        let part = match &self.source {
            Source::File { file, .. } => {
                let Some((at, got)) = read(file, self.copied, &mut self.buffer)? else { return Ok(false) };
                self.copied = at;
                0..got
            }
            Source::Pipe { part, .. } if !part.is_empty() => part.clone(),
            Source::Pipe { .. } => match self.take_part() {
                0 => return Ok(false),
                got => 0..got,
            },
        };
        let Some(to) = &self.to else { return Ok(false) };
        let written = match to.write(self.buffer.get(part.clone()).unwrap_or(&[]))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => written,
        };
        self.copied += written as u64;
        if let Source::Pipe { part: left, .. } = &mut self.source {
            *left = part.start + written..part.end;
        }
        Ok(true)
    }

    /// Takes the next part out of the pipe and searches it; 0: there is none now.
    fn take_part(&mut self) -> usize {
        let Source::Pipe { pipe, taken, part } = &mut self.source else { return 0 };
        // An empty pipe would have to be waited for.
        let got = pipe.read(&mut self.buffer).unwrap_or(0);
        self.search.feed(self.buffer.get(..got).unwrap_or(&[]));
        *taken += got as u64;
        *part = 0..got;
        got
    }

    /// Searches up to so much; returns whether there may be more. (What comes through a pipe is searched when it is
    /// taken out, so only what nobody is to get is left.)
    fn search(&mut self, most: u64) -> bool {
        let mut done = 0;
        while done < most {
            let got = match &mut self.source {
                Source::File { file, searched, .. } => {
                    // What cannot be read contains no measurement.
                    let Ok(Some((at, got))) = read(file, *searched, &mut self.buffer) else { return false };
                    self.search.feed(self.buffer.get(..got).unwrap_or(&[]));
                    *searched = at + got as u64;
                    got
                }
                Source::Pipe { .. } if self.to.is_some() => return false,
                Source::Pipe { .. } => self.take_part(),
            };
            if got == 0 {
                return false;
            }
            done += got as u64;
        }
        true
    }

    fn give_back(&mut self) {
        self.look_for_room();
        let Source::File { searched, freed, .. } = &mut self.source else { return };
        let done = if self.to.is_some() { self.copied.min(*searched) } else { *searched };
        let end = done / BLOCK * BLOCK;
        if end > *freed {
            // A file system without holes keeps the space.
            let _ = sys::files::make_hole(&self.writer, *freed, end);
            *freed = end;
        }
    }

    /// Notes a file without room, at every visit.
    fn look_for_room(&mut self) {
        if let Source::File { file, had_no_room, .. } = &mut self.source {
            *had_no_room |= is_full(file);
        }
    }
}

/// The next part of a file from `at` on, in the buffer: its place and its length. (A program can lengthen its output by
/// a hole of any size, which contains nothing.)
fn read(file: &File, at: u64, buffer: &mut [u8]) -> io::Result<Option<(u64, usize)>> {
    let Some(at) = sys::files::next_data(file, at)? else { return Ok(None) };
    let got = file.read_at(buffer, at)?;
    Ok((got > 0).then_some((at, got)))
}

fn stream(text: &str) -> Result<Stream> {
    let path = match text {
        "inherit" => return Ok(Stream::Inherit),
        "null" => "/dev/null",
        path => path,
    };
    let path = CString::new(path).map_err(|_| Error::BadInput(format!("{text:?} contains a NUL byte")))?;
    Ok(Stream::Path(path))
}

/// The capture of standard output, and whether it is a pipe: in a full file system, or above a limit on file size,
/// output would be lost that the program can write to any pipe.
fn capture(run_dir: &RunDir, warnings: &mut Warnings) -> Result<(Capture, bool)> {
    if room::for_output(run_dir.path(), warnings) {
        return Ok((Capture::create(run_dir, c"stdout")?, false));
    }
    let ends = run_dir.pipe().map_err(|error| {
        Error::Internal(format!("cannot make a pipe for standard output: {}", sys::errno_text(&error)))
    })?;
    Ok((Capture::of(ends)?, true))
}

/// Prepares the streams. `regex`: the expression that finds measurements.
pub fn prepare(
    request: &Request,
    regex: Option<&Regex>,
    run_dir: &RunDir,
    warnings: &mut Warnings,
) -> Result<Streams> {
    let mut setup = [stream(&request.stdin)?, stream(&request.stdout)?, stream(&request.stderr)?];
    // A path needs no capture: the file itself is read afterwards.
    let regex = regex.filter(|_| matches!(request.stdout.as_str(), "inherit" | "null"));
    let Some(regex) = regex else { return Ok(Streams { setup, stdout: None }) };
    let (capture, is_pipe) = capture(run_dir, warnings)?;
    let to = match request.stdout.as_str() {
        "inherit" => Some(File::from(
            sys::files::high_duplicate(&io::stdout())
                .map_err(|error| Error::Internal(format!("cannot capture output: {}", sys::errno_text(&error))))?,
        )),
        _ => None,
    };
    let output = Output::new(capture, is_pipe, to, regex.clone());
    setup[1] = Stream::Fd(output.fd());
    Ok(Streams { setup, stdout: Some(output) })
}
