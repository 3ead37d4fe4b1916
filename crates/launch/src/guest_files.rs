//! Reads guest files from a directory that the program's user may write to. Each file is examined before it is opened;
//! only regular files of the right owner and size are read, and their number and bytes are bounded.
//!
//! Files of process images that have ended are read and removed during the run, so a run of tens of thousands of
//! processes needs no more space than the processes that live at a time.

use crate::guests::Guests;
use crate::rundir::RunDir;
use crate::sys::directory::{self, Directory, Status};
use crate::sys::{self, process};
use crate::windows;
use crate::words;
use pagelab_policy::guest::{
    FRAMES_SLOTS, FramesSlot, GuestFile, REGION_SLOTS, RESIDENCY_SLOTS, RegionSlot, Report, ResidencySlot, State,
};
use pagelab_policy::windows::{FILE_BYTES, SUFFIX};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Intervals between two readings of the directory: with few files in it, and with many.
const SELDOM_NS: u64 = 1_000_000_000;
const OFTEN_NS: u64 = 100_000_000;
/// The number of files from which on they are many.
const MANY: usize = 256;
/// Largest share of time that reading the directory may take.
const SHARE: u64 = 50;
/// Most directory entries that one reading examines while the run goes on, and at its end.
const MOST_ENTRIES: usize = 20_000;
const MOST_ENTRIES_AT_END: usize = 1_000_000;
/// Bytes that all reports may take up here; far more than a run of 100,000 processes needs.
const MOST_BYTES: usize = 1 << 30;
/// Unusable files that are named one by one.
const MOST_NAMED: usize = 16;
/// Most processes that are remembered because an image of theirs has no file.
const MOST_LOST: usize = 100_000;

/// The reports read so far.
#[derive(Debug)]
pub struct Intake {
    guests: Guests,
    windows: windows::Collection,
    /// The destination of windows files.
    windows_space: Vec<u8>,
    bytes: usize,
    /// Buffer for reading files; all zeros between two of them.
    buffer: Vec<u8>,
    look_at_ns: u64,
    files: usize,
}

/// A name like `<pid>-<n>.<suffix>`.
struct Name {
    pid: i32,
    number: u32,
    kind: Suffix,
}

impl Name {
    /// Whether a guest file's image has ended, by its state and the newest image of each process.
    fn ended(&self, state: State, newest: &HashMap<i32, u32>) -> bool {
        match state {
            State::Exited => true,
            // Until the exec has succeeded the image may go on.
            State::Execed => {
                newest.get(&self.pid).is_some_and(|&newest| newest > self.number) || !process::exists(self.pid)
            }
            _ => false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Suffix {
    Guest,
    Lost,
    Windows,
}

fn parse(name: &CStr) -> Option<Name> {
    let (stem, suffix) = name.to_str().ok()?.rsplit_once('.')?;
    let (pid, number) = stem.split_once('-')?;
    let kind = match suffix {
        "guest" => Suffix::Guest,
        "lost" => Suffix::Lost,
        SUFFIX => Suffix::Windows,
        _ => return None,
    };
    Some(Name { pid: pid.parse().ok().filter(|&pid| pid > 0)?, number: number.parse().ok()?, kind })
}

impl Default for Intake {
    fn default() -> Intake {
        let buffer = vec![0; size_of::<GuestFile>()];
        let (guests, windows) = (Guests::default(), windows::Collection::default());
        Intake { guests, windows, windows_space: Vec::new(), bytes: 0, buffer, look_at_ns: 0, files: 0 }
    }
}

impl Intake {
    /// Time until the next reading.
    pub fn interval_ns(&self) -> u64 {
        if self.files > MANY { OFTEN_NS } else { SELDOM_NS }
    }

    /// Reads the files of images that have ended, if it is time for a reading.
    pub fn visit(&mut self, run_dir: &RunDir) {
        let begin = sys::monotonic_ns();
        if begin < self.look_at_ns {
            return;
        }
        let (directory, owner) = run_dir.guests();
        let mut names: Vec<CString> = Vec::new();
        let mut newest: HashMap<i32, u32> = HashMap::new();
        // A directory that cannot be read now is tried again at the end, and reported then.
        let _ = directory.each(|name, _| {
            if let Some(Name { pid, number, kind: Suffix::Guest }) = parse(name) {
                let known = newest.entry(pid).or_default();
                *known = number.max(*known);
            }
            names.push(name.to_owned());
            names.len() < MOST_ENTRIES
        });
        self.files = names.len();
        for name in &names {
            let Some(parsed) = parse(name) else { continue };
            match parsed.kind {
                Suffix::Guest => self.take_in_ended(directory, name, owner, |state| parsed.ended(state, &newest)),
                Suffix::Lost => self.lost(directory, name, &parsed),
                // Read together with its guest file.
                Suffix::Windows => {}
            }
        }
        let took = sys::monotonic_ns().saturating_sub(begin);
        self.look_at_ns = begin + (OFTEN_NS / 2).max(took * SHARE);
    }

    /// Takes in and removes the guest file of an image that has `ended`, and its windows file. What cannot be read
    /// stays until the end, where it is reported once.
    fn take_in_ended(&mut self, directory: &Directory, name: &CStr, owner: u32, ended: impl Fn(State) -> bool) {
        let Ok(Some(report)) = self.read(directory, name, owner, ended) else { return };
        self.keep(report);
        if let Some(name) = beside(name)
            && self.read_windows(directory, &name, owner).is_ok()
        {
            let _ = directory.unlink(&name);
        }
        if directory.unlink(name).is_ok() {
            self.files -= 1;
        }
    }

    /// Takes in all that is left, and returns everything.
    pub fn finish(mut self, run_dir: &RunDir) -> (Guests, windows::Collection) {
        let (directory, owner) = run_dir.guests();
        let mut names: Vec<CString> = Vec::new();
        let mut others = 0_u64;
        let read = directory.each(|name, _| {
            if parse(name).is_some() && names.len() < MOST_ENTRIES_AT_END {
                names.push(name.to_owned());
            } else {
                others += 1;
            }
            others < MOST_ENTRIES_AT_END as u64
        });
        for name in &names {
            let Some(parsed) = parse(name) else { continue };
            let taken_in = match parsed.kind {
                Suffix::Guest => self
                    .read(directory, name, owner, |_| true)
                    .map(|report| report.into_iter().for_each(|report| self.keep(report))),
                Suffix::Lost => {
                    self.lost(directory, name, &parsed);
                    Ok(())
                }
                Suffix::Windows => self.read_windows(directory, name, owner),
            };
            if let Err(why) = taken_in {
                self.unusable(name, why);
            }
        }
        if let Err(error) = read {
            self.unusable(c"guests", sys::errno_text(&error));
        }
        self.guests.foreign = others;
        self.guests.reports.sort_by_key(|report| (report.start_ns, report.pid));
        (self.guests, self.windows)
    }

    /// Takes in a windows file, if there is one.
    fn read_windows(&mut self, directory: &Directory, name: &CStr, owner: u32) -> Result<(), String> {
        let Some(file) = open(directory, name, owner, FILE_BYTES)? else { return Ok(()) };
        match windows::read(&file, &mut self.windows_space) {
            Ok(Some(windows)) => self.windows.keep(windows),
            Ok(None) => return Err("it is not a finished windows file".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err("it was cut short".to_owned()),
            Err(error) => return Err(sys::errno_text(&error)),
        }
        Ok(())
    }

    fn unusable(&mut self, name: &CStr, why: String) {
        self.guests.unusable += 1;
        if self.guests.unreadable.len() < MOST_NAMED {
            self.guests.unreadable.push((words::plain(&name.to_string_lossy()).into_owned(), why));
        }
    }

    /// An image that has no file: it left a link whose target is the errno.
    fn lost(&mut self, directory: &Directory, name: &CStr, parsed: &Name) {
        let target = directory.read_link(name).ok();
        let errno = target.and_then(|text| String::from_utf8(text).ok()?.parse::<i32>().ok());
        if let Some(errno) = errno.filter(|errno| (1..4096).contains(errno))
            && directory.unlink(name).is_ok()
        {
            *self.guests.lost_by_errno.entry(errno).or_default() += 1;
            if self.guests.lost.len() < MOST_LOST {
                self.guests.lost.insert(parsed.pid);
            }
        }
    }

    fn keep(&mut self, mut report: Report) {
        let colours: usize = report.frames.iter().map(|frames| frames.by_colour.len() * 24).sum();
        let bytes = 1024 + report.regions.len() * 512 + report.residency.len() * 320 + colours;
        if self.bytes + bytes > MOST_BYTES {
            self.guests.left_out += 1;
            return;
        }
        self.bytes += bytes;
        report.exe = words::plain(&report.exe).into_owned();
        for file in &mut report.residency {
            file.path = words::plain(&file.path).into_owned();
        }
        self.guests.reports.push(report);
    }

    /// Reads a file; `None` when `wanted` refuses its state.
    fn read(
        &mut self,
        directory: &Directory,
        name: &CStr,
        owner: u32,
        wanted: impl Fn(State) -> bool,
    ) -> Result<Option<Report>, String> {
        let missing = || sys::errno_text(&io::Error::from_raw_os_error(libc::ENOENT));
        let file = open(directory, name, owner, size_of::<GuestFile>())?.ok_or_else(missing)?;
        let mut used = Vec::new();
        let read = fill(&file, &mut self.buffer, &mut used, wanted);
        let report = match read {
            Ok(true) => Report::decode(&self.buffer).map(Some).map_err(|error| error.to_string()),
            Ok(false) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err("it was cut short".to_owned()),
            Err(error) => Err(sys::errno_text(&error)),
        };
        for range in used {
            self.buffer.get_mut(range).unwrap_or(&mut []).fill(0);
        }
        report
    }
}

/// The name of the windows file that goes with a guest file.
fn beside(name: &CStr) -> Option<CString> {
    let (stem, _) = name.to_str().ok()?.rsplit_once('.')?;
    CString::new(format!("{stem}.{SUFFIX}")).ok()
}

/// Opens a guest file, after an examination: opening another kind of file can block (a FIFO) or have effects (a
/// device). `None`: there is no file.
fn open(directory: &Directory, name: &CStr, owner: u32, bytes: usize) -> Result<Option<File>, String> {
    let failed = |error: io::Error| sys::errno_text(&error);
    let looked = match directory.look(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        looked => looked.map_err(failed)?,
    };
    let status = Status::of(&looked).map_err(failed)?;
    let problem = match &status {
        _ if !status.is_file() => "it is not a regular file",
        _ if status.uid != owner => "it belongs to another user",
        _ if status.links != 1 => "it has other names, too",
        _ if status.size != bytes as u64 => "it has not the size of such a file",
        _ => return directory::reopen(&looked).map(Some).map_err(failed),
    };
    Err(problem.to_owned())
}

/// Reads the parts of a guest file that are in use: the ranges that were written to. False: `wanted` refuses its state.
fn fill(
    file: &File,
    buffer: &mut [u8],
    used: &mut Vec<Range<usize>>,
    wanted: impl Fn(State) -> bool,
) -> io::Result<bool> {
    let mut read = |buffer: &mut [u8], range: Range<usize>| {
        used.push(range.clone());
        let into = buffer.get_mut(range.clone()).ok_or(io::ErrorKind::InvalidData)?;
        file.read_exact_at(into, range.start as u64)
    };
    let word = |buffer: &[u8], at: usize| {
        buffer.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    };
    let regions = offset_of!(GuestFile, regions);
    read(buffer, 0..regions)?;
    let state = State::from_code(word(buffer, offset_of!(GuestFile, state))).unwrap_or(State::Starting);
    if !wanted(state) {
        return Ok(false);
    }
    let slots = |buffer: &[u8], count: usize, most: usize| word(buffer, count).min(most as u64) as usize;
    let count = slots(buffer, offset_of!(GuestFile, region_count), REGION_SLOTS);
    read(buffer, regions..regions + count * size_of::<RegionSlot>())?;
    let count = slots(buffer, offset_of!(GuestFile, residency_count), RESIDENCY_SLOTS);
    let residency = offset_of!(GuestFile, residency);
    read(buffer, residency..residency + count * size_of::<ResidencySlot>())?;
    for slot in 0..FRAMES_SLOTS {
        let at = offset_of!(GuestFile, frames) + slot * size_of::<FramesSlot>();
        let kind = at + offset_of!(FramesSlot, kind);
        read(buffer, kind..kind + size_of::<u64>())?;
        if word(buffer, kind) != 0 {
            read(buffer, at..at + size_of::<FramesSlot>())?;
        }
    }
    Ok(true)
}
