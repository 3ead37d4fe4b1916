//! The program's standard streams, and the files in which the launcher captures what it must read.
//!
//! Standard output that is read goes through a file where a large file has room, and through a pipe elsewhere.

use crate::error::{Error, Result, no_descriptor};
use crate::measurements::{Collected, MOST_BYTES, Search};
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
use std::os::unix::fs::{FileExt, MetadataExt};

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
    /// What is beyond this place is not read yet.
    end: u64,
    /// Bytes that may still be copied.
    most: u64,
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
/// The least time for searching the rest.
const SEARCHED_LAST_NS: u64 = 20_000_000_000;
/// Time between visits with a destination, and without.
const COPYING_NS: u64 = 100_000_000;
const SEARCHING_NS: u64 = 1_000_000_000;

fn is_full(file: &impl AsFd) -> bool {
    sys::files::free_bytes_beside(file).is_ok_and(|free| free < BLOCK)
}

/// How long the rest of the output is dealt with.
struct Patience<'s> {
    signals: &'s SignalFd,
    until_ns: Option<u64>,
    /// The first signal that came.
    asked: Option<i32>,
}

impl Patience<'_> {
    /// Waits for room, as long as it lasts.
    fn wait(&self, writable: Option<RawFd>) -> io::Result<()> {
        let left = self.until_ns.map(|until| until.saturating_sub(sys::monotonic_ns()));
        signals::wait_for(&[self.signals.as_raw_fd()], writable, left).map(drop)
    }

    /// Why it is at its end, if so; `late`: because the time is up.
    fn is_over(&mut self, late: &str) -> Option<String> {
        let mut coming = std::iter::from_fn(|| signals::next(self.signals));
        self.asked = self.asked.or_else(|| coming.find(|&signal| signal != libc::SIGCHLD));
        match (self.asked, self.until_ns) {
            (Some(signal), _) => Some(format!("{} came before it was read", signals::name(signal))),
            (None, Some(until)) if sys::monotonic_ns() >= until => Some(late.to_owned()),
            _ => None,
        }
    }
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
            end: u64::MAX,
            most: u64::MAX,
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
        if matches!(self.source, Source::File { .. }) {
            self.end = self.length();
        }
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
    /// for, until `signals` has one or the time is up; both also end the copying and searching of what is there.
    pub fn finish(mut self, signals: &SignalFd, until_ns: Option<u64>) -> (Collected, Option<Lost>) {
        self.look_for_room();
        self.see_the_end();
        let mut patience = Patience { signals, until_ns, asked: None };
        self.copy_rest(&mut patience);
        self.search_rest(&mut patience);
        let bytes = self.length().saturating_sub(self.copied);
        let not_copied = self.failed.take().map(|why| Lost { bytes: Some(bytes), why: why.to_string() });
        let not_written = matches!(self.source, Source::File { had_no_room: true, .. })
            .then(|| Lost { bytes: None, why: "the run directory was full while the program ran".to_owned() });
        (self.search.finish(), not_copied.or(not_written))
    }

    /// Takes what is there now for all there is: somebody outside of the run may have got the descriptor, write on, and
    /// make holes of any size. Of a file with holes, no more is copied than has space, or than is searched.
    fn see_the_end(&mut self) {
        match &self.source {
            Source::File { file, .. } => {
                let blocks = file.metadata().map_or(0, |data| data.blocks());
                (self.end, self.most) = (self.length(), blocks.saturating_mul(512).max(MOST_BYTES));
            }
            Source::Pipe { taken, .. } => self.end = taken + MOST_IN_PIPE,
        }
    }

    fn copy_rest(&mut self, patience: &mut Patience<'_>) {
        while self.to.is_some() && self.copied < self.end {
            let more = self.copy(MOST_AT_ONCE);
            if self.most == 0 {
                self.give_up("another process made more of it while it was copied".to_owned());
            }
            if self.to.is_none() || self.copied >= self.end || !(more || self.is_full) {
                return;
            }
            let waited = if self.is_full { patience.wait(self.writable()) } else { Ok(()) };
            if let Err(error) = waited {
                self.give_up(sys::errno_text(&error));
            } else if let Some(why) = patience.is_over("it was not read to its end before the time-out") {
                self.give_up(why);
            }
        }
    }

    fn search_rest(&mut self, patience: &mut Patience<'_>) {
        // It takes the launcher's own time, and not a reader's.
        let least_ns = sys::monotonic_ns() + SEARCHED_LAST_NS;
        patience.until_ns = patience.until_ns.map(|until| until.max(least_ns));
        while self.search(MOST_AT_ONCE) {
            if let Some(why) = patience.is_over("it took longer than the time-out") {
                return self.search.stop(why);
            }
        }
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
        while self.to.is_some() && self.most > 0 && self.copied - begun < most {
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
                let part = read(file, self.copied, &mut self.end, &mut self.buffer)?;
                let Some((at, got)) = part else { return Ok(false) };
                self.copied = at;
                0..usize::try_from(self.most).map_or(got, |most| most.min(got))
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
        self.most = self.most.saturating_sub(written as u64);
        if let Source::Pipe { part: left, .. } = &mut self.source {
            *left = part.start + written..part.end;
        }
        Ok(true)
    }

    /// Takes the next part out of the pipe and searches it; 0: there is none now.
    fn take_part(&mut self) -> usize {
        let Source::Pipe { pipe, taken, part } = &mut self.source else { return 0 };
        if *taken >= self.end {
            return 0;
        }
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
                Source::File { searched, .. } if self.search.is_full() => {
                    if *searched < self.end {
                        self.search.leave_out();
                        *searched = self.end;
                    }
                    return false;
                }
                Source::File { file, searched, .. } => {
                    // What cannot be read contains no measurement.
                    let part = read(file, *searched, &mut self.end, &mut self.buffer);
                    let Ok(Some((at, got))) = part else { return false };
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

/// The next part of a file from `at` to `end`, in the buffer: its place and its length. (A program can lengthen its
/// output by a hole of any size, which contains nothing.) A file that has become shorter ends there.
fn read(file: &File, at: u64, end: &mut u64, buffer: &mut [u8]) -> io::Result<Option<(u64, usize)>> {
    let Some(at) = sys::files::next_data(file, at)?.filter(|at| at < end) else { return Ok(None) };
    let wanted = usize::try_from(*end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
    let got = file.read_at(buffer.get_mut(..wanted).unwrap_or_default(), at)?;
    if got < wanted {
        *end = at + got as u64;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rundir;
    use nix::sys::signal::{Signal, raise};
    use std::io::Write;

    /// Output of a program that has written so many MiB, and a number at their end.
    fn output(mib: usize) -> (RunDir, Output) {
        let (making, _left) = rundir::begin().expect("a name");
        let (uid, _) = sys::user::own_uids();
        let run_dir = RunDir::create(Some(&std::env::temp_dir()), &making, uid, 0).expect("run directory");
        let capture = Capture::create(&run_dir, c"stdout").expect("a file");
        let regex = Regex::new("took (?P<value>[0-9]+)").expect("an expression");
        let nowhere = File::options().write(true).open("/dev/null").expect("there");
        let output = Output::new(capture, false, Some(nowhere), regex);
        (&output.writer).write_all(&b"0123456789abcde\n".repeat(mib << 16)).expect("written");
        (&output.writer).write_all(b"took 7 s\n").expect("written");
        (run_dir, output)
    }

    fn values(found: &Collected) -> Vec<f64> {
        found.measurements.iter().map(|measurement| measurement.value).collect()
    }

    #[test]
    fn the_rest_of_the_output_is_copied_and_searched() {
        let (_run_dir, output) = output(9);
        let signals = signals::watch().expect("a descriptor");
        let (found, lost) = output.finish(&signals, None);
        assert_eq!((values(&found), lost.is_none()), (vec![7.0], true));
    }

    #[test]
    fn the_time_holds_while_there_is_output_to_copy() {
        let (_run_dir, output) = output(9);
        let signals = signals::watch().expect("a descriptor");
        let (found, lost) = output.finish(&signals, Some(0));
        let lost = lost.expect("not all was copied");
        assert_eq!(
            (lost.bytes, lost.why.as_str()),
            (Some((5 << 20) + 9), "it was not read to its end before the time-out")
        );
        assert_eq!(values(&found), [7.0], "searching has a time of its own");
    }

    #[test]
    fn a_signal_ends_copying_and_searching() {
        let (_run_dir, output) = output(9);
        let signals = signals::watch().expect("a descriptor");
        raise(Signal::SIGTERM).expect("raised");
        let (found, lost) = output.finish(&signals, None);
        assert_eq!(lost.expect("not all was copied").why, "SIGTERM came before it was read");
        assert_eq!(values(&found), [0.0; 0]);
        let mut warnings = Warnings::default();
        found.warn(&mut warnings);
        assert!(warnings.0[0].message.ends_with("SIGTERM came before it was read"), "{}", warnings.0[0].message);
    }

    #[test]
    fn of_a_file_that_is_all_holes_no_more_is_copied_than_had_space() {
        let (_run_dir, mut output) = output(1);
        output.see_the_end();
        assert_eq!((output.end, output.most), ((1 << 20) + 9, MOST_BYTES));
        output.most = 100;
        let (mut patience, signals) = (None, signals::watch().expect("a descriptor"));
        let patience = patience.insert(Patience { signals: &signals, until_ns: None, asked: None });
        output.copy_rest(patience);
        assert_eq!(output.copied, 100);
        assert!(output.failed.is_some());
    }
}
