//! Requests of the program's threads to the handler.
//!
//! The handler waits only for faults. So a thread stores its request here and touches a page that is always missing:
//! the fault wakes the handler. This needs no descriptor, which the program could close, and no lock for which the
//! handler would have to wait. The thread continues when the handler has filled the page.
//!
//! Others may bring the page in, too: a process that reads the program's memory, or `mlockall`. Then the touch is no
//! fault, and the handler does not know of the request. So the thread looks whether the handler has taken it. If not, it
//! removes the page and touches it again.

use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, Result, c, task};
use crate::state::lock::Turn;

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Register the span.
    Register = 1,
    /// Unregister the span.
    Unregister = 2,
    /// Place all of the span now. Answer: bytes placed.
    Eager = 3,
    /// Count where the span's pages are, into the guest file. Answer: resident pages.
    Census = 4,
    /// Unregister everything and end.
    Stop = 5,
    /// Move the span's pages (at most 512), with their contents, to the frames that their strategies want. Answer: how
    /// many are on them afterwards.
    Remap = 6,
    /// Count resident pages of tiles of larger pages, which the engine cannot reach.
    CensusTiled = 7,
    /// Take the shared hint as the strategy whose number is the span's start ([`crate::frames::hints`]).
    Hint = 8,
    /// Write the frames of the span's pages to the shared data. Answer: their number.
    Frames = 9,
    /// Replace the span, a private mapping of a file, with a placed copy. Answer: its pages.
    Replace = 10,
    /// Lock those parts of the pool's memory that must be locked, and unlock the rest.
    Relock = 11,
    /// Give memory of the pool back: the program is short of it.
    Shed = 12,
    /// Give up the span, which the program registers with its own userfaultfd.
    HandOver = 13,
    /// Release the pages that are held ([`crate::frames::pool::grip`]).
    LetGo = 14,
    /// A thread of the program has another priority ([`super::priority`]).
    Priority = 15,
}

impl Kind {
    fn from_code(code: u8) -> Option<Kind> {
        use Kind::{
            Census, CensusTiled, Eager, Frames, HandOver, Hint, LetGo, Priority, Register, Relock, Remap, Replace,
            Shed, Stop, Unregister,
        };
        let all = [
            Register,
            Unregister,
            Eager,
            Census,
            Stop,
            Remap,
            CensusTiled,
            Hint,
            Frames,
            Replace,
            Relock,
            Shed,
            HandOver,
            LetGo,
            Priority,
        ];
        all.into_iter().find(|kind| *kind as u8 == code)
    }
}

static TURN: Turn = Turn::new();
/// The page that is touched to send a request; 0: there is no handler.
static PAGE_OF_REQUESTS: AtomicUsize = AtomicUsize::new(0);
/// The request that the handler has not taken yet; 0: there is none.
static KIND: AtomicU8 = AtomicU8::new(0);
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
static ANSWER: AtomicI64 = AtomicI64::new(0);
/// Whether the answer is there.
static ANSWERED: AtomicU32 = AtomicU32::new(NO);
const NO: u32 = 0;
const YES: u32 = 1;
/// How often the page is touched for one request. Only a process that reads it over and over can bring it in between a
/// removal and the touch that follows.
const TOUCHES: usize = 1000;

/// Sets the page that is touched to send requests (0: there is no handler).
pub fn set_page(page: usize) {
    PAGE_OF_REQUESTS.store(page, Ordering::Release);
}

/// The page that is touched to send a request; 0: there is none.
pub fn page() -> usize {
    PAGE_OF_REQUESTS.load(Ordering::Acquire)
}

/// Resets the requests in a forked child: there is no handler, and nobody asks.
pub fn reset() {
    TURN.give();
    KIND.store(0, Ordering::Relaxed);
    set_page(0);
}

/// Sends a request, and waits for the answer. ESRCH: there is no handler.
pub fn ask(kind: Kind, span: Span) -> Result<usize> {
    let mask = sys::block_signals();
    TURN.take();
    let answer = match self::page() {
        0 => Err(Errno::ESRCH),
        page => send(page, kind, span),
    };
    TURN.give();
    sys::restore_signals(mask);
    answer
}

fn send(page: usize, kind: Kind, span: Span) -> Result<usize> {
    START.store(span.start, Ordering::Relaxed);
    END.store(span.end, Ordering::Relaxed);
    ANSWERED.store(NO, Ordering::Relaxed);
    for _ in 0..TOUCHES {
        KIND.store(kind as u8, Ordering::Release);
        // SAFETY: the page is the library's own; when it is missing, the handler fills it. Afterwards it must be missing
        // again. (The program may have locked it.)
        unsafe {
            core::ptr::read_volatile(page as *const u8);
            let _ = sys::madvise(page, PAGE, c::MADV_DONTNEED_LOCKED);
        }
        if KIND.swap(0, Ordering::AcqRel) == 0 {
            return awaited();
        }
        if self::page() == 0 {
            break;
        }
    }
    Err(Errno::ESRCH)
}

/// The answer to a request that the handler has taken. It is there already, unless the page was filled for another
/// process, and the handler met the request afterwards.
fn awaited() -> Result<usize> {
    const WHILE: u64 = 100_000;
    while ANSWERED.load(Ordering::Acquire) == NO {
        task::futex_wait_for(&ANSWERED, NO, WHILE);
    }
    let answer = ANSWER.load(Ordering::Relaxed);
    usize::try_from(answer).map_err(|_| Errno(answer.unsigned_abs() as i32))
}

/// The request for which the page was touched.
pub fn question() -> Option<(Kind, Span)> {
    let kind = Kind::from_code(KIND.swap(0, Ordering::Acquire))?;
    Some((kind, Span::new(START.load(Ordering::Relaxed), END.load(Ordering::Relaxed))))
}

/// Stores the answer, which the thread reads when it continues.
pub fn answer(result: Result<usize>) {
    let value = match result {
        Ok(value) => i64::try_from(value).unwrap_or(i64::MAX),
        Err(errno) => -i64::from(errno.0),
    };
    ANSWER.store(value, Ordering::Relaxed);
    ANSWERED.store(YES, Ordering::Release);
}
