//! The run's counters, read at both ends of a window.
//!
//! They are the launcher's own counters, which count the whole tree of the run: a second set would need counters that
//! the processor may not have. The launcher leaves their descriptors open for the program, and a file names the
//! numbers. A program may close such a descriptor and open something else under its number, which the library must
//! never read. So before each reading it requests the event's id, which the kernel refuses for all other kinds of
//! files.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, AtomicUsize};

use pagelab_abi::windows::{
    DEPTH, EVENTS, HANDED, HANDED_BYTES, HANDED_MAGIC, HandedCounter, HandedFile, NOT_COUNTED, THREADS,
};

use crate::boundary::apart::apart;
use crate::boundary::own::{Fresh, Published};
use crate::boundary::sys::{self, c};
use crate::state::guest_file;

/// `PERF_EVENT_IOC_ID`, `_IOR('$', 7, __u64 *)`.
const IOC_ID: usize = 0x8008_2407;
/// Longest path of the file, with its NUL.
const PATH: usize = 512;

/// A reading: events, the time in which they should have been counted, the time in which they were.
type Reading = [u64; 3];
/// A reading that failed.
const UNREAD: Reading = [NOT_COUNTED; 3];

/// A counter's descriptor and its id.
struct Handed {
    descriptor: AtomicU64,
    id: AtomicU64,
}

static COUNTERS: [Handed; EVENTS] =
    [const { Handed { descriptor: AtomicU64::new(0), id: AtomicU64::new(0) } }; EVENTS];
/// Number of entries of [`COUNTERS`] in use; stored last.
static COUNT: AtomicUsize = AtomicUsize::new(0);

type Began = [[AtomicU64; 3]; EVENTS];
/// Readings at the begin of open windows, by thread slot and depth: the launcher does not need them. Published once
/// counters were found.
/// found.
static BEGAN: Published<[[Began; DEPTH]; THREADS]> = Published::none();

/// Forgets the counters: a forked child looks for them when it begins a window.
pub fn forget() {
    COUNT.store(0, Release);
}

/// Looks for counters that the launcher handed over; returns their number.
#[cold]
pub fn find(run_dir: &[u8]) -> usize {
    let mut words = [0_u64; HANDED_BYTES / 8];
    if apart(|| read_file(run_dir, &mut words)).ok().flatten().is_none() {
        return 0;
    }
    let [magic, count, counters @ ..] = &words;
    const { assert!(size_of::<HandedFile>() == 8 * (2 + 2 * EVENTS) && size_of::<HandedCounter>() == 16) };
    if *magic != HANDED_MAGIC {
        return 0;
    }
    let count = (*count as usize).min(EVENTS);
    if BEGAN.get().is_none() {
        let room = Fresh::map_sparse(size_of::<[[Began; DEPTH]; THREADS]>()).ok();
        if room.and_then(|room| BEGAN.set_first(room)).is_none() {
            return 0;
        }
    }
    for (handed, words) in COUNTERS.iter().zip(counters.chunks_exact(2)) {
        if let [descriptor, id] = words {
            guest_file::set(&handed.descriptor, *descriptor);
            guest_file::set(&handed.id, *id);
        }
    }
    COUNT.store(count, Release);
    count
}

/// Reads the launcher's file; `None`: there is none, or not a whole one.
fn read_file(run_dir: &[u8], into: &mut [u64; HANDED_BYTES / 8]) -> Option<()> {
    let mut path = [0_u8; PATH];
    let name = [b"/", HANDED.as_bytes()].into_iter().flatten();
    let length = run_dir.len() + 1 + HANDED.len();
    for (to, from) in path.get_mut(..length)?.iter_mut().zip(run_dir.iter().chain(name)) {
        *to = *from;
    }
    let path = core::ffi::CStr::from_bytes_until_nul(path.get(..=length)?).ok()?;
    let descriptor = sys::open(path, c::O_RDONLY | c::O_NOFOLLOW, 0).ok()?;
    let mut bytes = [0_u8; HANDED_BYTES];
    let read = sys::read(descriptor, &mut bytes);
    sys::close(descriptor);
    for (to, from) in into.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *to = u64::from_ne_bytes(*from);
    }
    (read == Ok(HANDED_BYTES)).then_some(())
}

/// Reads all counters.
pub fn read() -> [Reading; EVENTS] {
    let mut readings = [UNREAD; EVENTS];
    let counters = COUNTERS.iter().take(COUNT.load(Acquire));
    for (into, handed) in readings.iter_mut().zip(counters) {
        *into = read_one(handed.descriptor.load(Relaxed) as i32, handed.id.load(Relaxed)).unwrap_or(UNREAD);
    }
    readings
}

fn read_one(descriptor: i32, id: u64) -> Option<Reading> {
    let mut found = 0_u64;
    // SAFETY: for an event the call stores one word into `found`; for anything else it fails, as no other kind of file
    // has this number with this size.
    unsafe { sys::ioctl(descriptor, IOC_ID, (&raw mut found) as usize) }.ok()?;
    // Count, time enabled, time running, id.
    let mut bytes = [0_u8; 32];
    let read = (found == id).then(|| sys::read(descriptor, &mut bytes))?;
    // A pinned counter that the hardware could not keep returns no bytes.
    let (words, _) = bytes.as_chunks::<8>();
    let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
    (read == Ok(32)).then(|| [(); 3].map(|()| words.next().unwrap_or(0)))
}

fn began(thread: usize, depth: usize) -> Option<&'static Began> {
    BEGAN.get()?.get(thread)?.get(depth)
}

/// Remembers the readings at a window's begin.
pub fn begin(thread: usize, depth: usize) {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    let readings = read();
    for (into, from) in began(thread, depth).into_iter().flatten().zip(readings) {
        for (into, from) in into.iter().zip(from) {
            guest_file::set(into, from);
        }
    }
}

/// Stores the events counted since the window's begin.
pub fn end(thread: usize, depth: usize, ends: &[Reading; EVENTS], into: &[AtomicU64; EVENTS]) {
    let count = COUNT.load(Relaxed);
    let began = began(thread, depth).into_iter().flatten();
    for ((into, end), began) in into.iter().zip(ends).zip(began).take(count) {
        let begin = [0, 1, 2].map(|at| began.get(at).map_or(NOT_COUNTED, |word: &AtomicU64| word.load(Relaxed)));
        guest_file::set(into, counted(begin, *end));
    }
}

/// Takes the events counted since `before` out of the windows that the thread has open.
pub fn leave_out(thread: usize, depth: usize, before: &[Reading; EVENTS]) {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    let after = read();
    for level in 0..=depth {
        for ((began, before), after) in began(thread, level).into_iter().flatten().zip(before).zip(after) {
            for ((began, before), after) in began.iter().zip(before).zip(after) {
                let begin = began.load(Relaxed);
                let moved = [begin, *before, after].iter().all(|word| *word != NOT_COUNTED);
                let moved = if moved { begin + after.saturating_sub(*before) } else { NOT_COUNTED };
                guest_file::set(began, moved);
            }
        }
    }
}

/// The events counted between two readings. If the counter took turns, they are scaled, as the run's own counts are.
fn counted(begin: Reading, end: Reading) -> u64 {
    if begin == UNREAD || end == UNREAD {
        return NOT_COUNTED;
    }
    let [mut of, mut enabled, mut running] = [0; 3];
    for (into, (begin, end)) in [&mut of, &mut enabled, &mut running].into_iter().zip(begin.into_iter().zip(end)) {
        // Another processor may add time between the two halves of a reading; a negative difference counts as nothing.
        *into = end.saturating_sub(begin);
    }
    if running >= enabled {
        return of;
    }
    if running == 0 {
        return NOT_COUNTED;
    }
    u64::try_from(u128::from(of) * u128::from(enabled) / u128::from(running)).unwrap_or(NOT_COUNTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_is_the_difference() {
        assert_eq!(counted([5, 100, 100], [12, 200, 200]), 7);
        assert_eq!(counted([5, 100, 100], [5, 100, 100]), 0);
    }

    #[test]
    fn a_counter_that_took_turns_is_scaled() {
        assert_eq!(counted([1000, 400, 100], [2000, 800, 200]), 4000);
        assert_eq!(counted([0, 0, 0], [1 << 45, 1 << 40, 1 << 39]), 1 << 46);
    }

    #[test]
    fn what_was_not_on_the_hardware_has_no_count() {
        assert_eq!(counted([5, 100, 50], [5, 200, 50]), NOT_COUNTED);
        assert_eq!(counted(UNREAD, [5, 200, 50]), NOT_COUNTED);
        assert_eq!(counted([5, 200, 50], UNREAD), NOT_COUNTED);
    }

    #[test]
    fn other_files_are_not_read() {
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        std::io::Write::write_all(&mut writer, b"x").expect("written");
        assert_eq!(read_one(std::os::fd::AsRawFd::as_raw_fd(&reader), 0), None);
        drop(writer);
        let mut rest = std::vec::Vec::new();
        std::io::Read::read_to_end(&mut { reader }, &mut rest).expect("read");
        assert_eq!(rest, b"x", "nothing was taken out");
        assert_eq!(read_one(-1, 0), None);
    }
}
