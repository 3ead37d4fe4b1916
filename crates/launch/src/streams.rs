//! The program's standard streams, and the files in which the launcher captures what it must read.

use crate::error::{Error, Result, no_descriptor};
use crate::measurements::{Collected, Search};
use crate::request::Request;
use crate::rundir::RunDir;
use crate::sys;
use crate::sys::child::Stream;
use crate::sys::files::Sink;
use crate::sys::signals;
use nix::sys::signalfd::SignalFd;
use regex::Regex;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

/// A file the program writes and the launcher reads. A file and not a pipe, so that the program never waits for the
/// launcher and the launcher never wakes for the program.
pub struct Capture {
    writer: OwnedFd,
    /// The launcher's descriptor, at the start of the file.
    pub reader: File,
}

impl Capture {
    /// Makes a capture file called `name` in the run directory.
    pub fn create(run_dir: &RunDir, name: &CStr) -> Result<Capture> {
        let (writer, reader) = run_dir.capture(name)?;
        let writer = sys::files::high_duplicate(&writer).map_err(no_descriptor)?;
        Ok(Capture { writer, reader })
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
    file: File,
    /// The program's descriptor: space is given back by who may write.
    writer: File,
    to: Option<Sink>,
    search: Search,
    copied: u64,
    searched: u64,
    freed: u64,
    buffer: Vec<u8>,
    /// The destination has no room now.
    is_full: bool,
    failed: Option<io::Error>,
}

/// Output that did not reach its destination.
#[derive(Debug)]
pub struct Lost {
    /// How much, at most: of holes nothing was to be copied.
    pub bytes: u64,
    /// Why.
    pub why: String,
}

/// Most bytes that are copied or searched in one go while the program runs: time-out and signals are not to wait for
/// its output.
const MOST_AT_ONCE: u64 = 4 << 20;
/// Output is searched when it has ended; before, only if so much is there, so that short programs are not disturbed.
const SEARCHED_EARLY: u64 = 1 << 20;
/// Space is given back in blocks of so many bytes: pages of any size.
const BLOCK: u64 = 64 << 10;
/// Time between visits with a destination, and without.
const COPYING_NS: u64 = 100_000_000;
const SEARCHING_NS: u64 = 1_000_000_000;

impl Output {
    /// Takes a capture over; `to`: the destination, if it is to be copied.
    fn new(capture: Capture, to: Option<File>, regex: Regex) -> Output {
        Output {
            file: capture.reader,
            writer: capture.writer.into(),
            to: to.map(Sink::new),
            search: Search::new(regex),
            copied: 0,
            searched: 0,
            freed: 0,
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
        let searching = self.length().saturating_sub(self.searched) >= SEARCHED_EARLY && self.search(MOST_AT_ONCE);
        self.give_back();
        copying || searching
    }

    /// Does the rest: the program has ended, and what it left behind adds no more. A destination without room is waited
    /// for, until `signals` has one or the time is up.
    pub fn finish(mut self, signals: &SignalFd, until_ns: Option<u64>) -> (Collected, Option<Lost>) {
        let end = self.length();
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
        while self.search(u64::MAX) {}
        let lost =
            self.failed.take().map(|why| Lost { bytes: end.saturating_sub(self.copied), why: why.to_string() });
        (self.search.finish(), lost)
    }

    /// The destination, while it has no room.
    pub fn writable(&self) -> Option<RawFd> {
        self.to.as_ref().filter(|_| self.is_full).map(Sink::fd)
    }

    /// The longest time between visits.
    pub fn interval_ns(&self) -> u64 {
        if self.to.is_some() { COPYING_NS } else { SEARCHING_NS }
    }

    fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |data| data.len())
    }

    fn give_up(&mut self, why: String) {
        self.to = None;
        self.failed = Some(io::Error::other(why));
    }

    /// The next part of the file from `at` on, in the buffer: its place and its length. (A program can lengthen its
    /// output by a hole of any size, which contains nothing.)
    fn read(&mut self, at: u64) -> io::Result<Option<(u64, usize)>> {
        let Some(at) = sys::files::next_data(&self.file, at)? else { return Ok(None) };
        let got = self.file.read_at(&mut self.buffer, at)?;
        Ok((got > 0).then_some((at, got)))
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
        let Some((at, got)) = self.read(self.copied)? else { return Ok(false) };
        let Some(to) = &self.to else { return Ok(false) };
        self.copied = at;
        match to.write(self.buffer.get(..got).unwrap_or(&[]))? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            written => {
                self.copied += written as u64;
                Ok(true)
            }
        }
    }

    /// Searches up to so much; returns whether there may be more.
    fn search(&mut self, most: u64) -> bool {
        let begun = self.searched;
        while self.searched - begun < most {
            // What cannot be read contains no measurement.
            let Ok(Some((at, got))) = self.read(self.searched) else { return false };
            self.search.feed(self.buffer.get(..got).unwrap_or(&[]));
            self.searched = at + got as u64;
        }
        true
    }

    fn give_back(&mut self) {
        let done = if self.to.is_some() { self.copied.min(self.searched) } else { self.searched };
        let end = done / BLOCK * BLOCK;
        if end > self.freed {
            // A file system without holes keeps the space.
            let _ = sys::files::make_hole(&self.writer, self.freed, end);
            self.freed = end;
        }
    }
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

/// Prepares the streams. `regex`: the expression that finds measurements.
pub fn prepare(request: &Request, regex: Option<&Regex>, run_dir: &RunDir) -> Result<Streams> {
    let mut setup = [stream(&request.stdin)?, stream(&request.stdout)?, stream(&request.stderr)?];
    // A path needs no capture: the file itself is read afterwards.
    let regex = regex.filter(|_| matches!(request.stdout.as_str(), "inherit" | "null"));
    let Some(regex) = regex else { return Ok(Streams { setup, stdout: None }) };
    let capture = Capture::create(run_dir, c"stdout")?;
    let to = match request.stdout.as_str() {
        "inherit" => Some(File::from(
            sys::files::high_duplicate(&io::stdout())
                .map_err(|error| Error::Internal(format!("cannot capture output: {}", sys::errno_text(&error))))?,
        )),
        _ => None,
    };
    let output = Output::new(capture, to, regex.clone());
    setup[1] = Stream::Fd(output.fd());
    Ok(Streams { setup, stdout: Some(output) })
}
