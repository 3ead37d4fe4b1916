//! The library's own stacks, on which it does its work.
//!
//! A program may call from any stack: a signal handler has an alternate stack of 8 KiB, a coroutine one of 4 KiB. So
//! all work of the library beyond the bare system call runs on a stack of its own. There are several, because calls may
//! wait in the kernel. All signals are blocked meanwhile: a handler would run on this stack, or jump away and leave it
//! taken. Calls that do not return (exit, exec), and calls that wait for the program itself, are not made on these
//! stacks.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::boundary::arch::{self, PAGE};
use crate::boundary::own::Fresh;
use crate::boundary::sys::{self, Result, c};

/// Number of stacks.
const COUNT: usize = 4;
/// Bytes of each: several times what is needed.
const BYTES: usize = 64 << 10;
/// Bytes of the whole area: all stacks, those for helpers, and a page below without access.
const LEN: usize = PAGE + 2 * COUNT * BYTES;
const ALL: u32 = (1 << COUNT) - 1;

/// Where the stacks lie, and above them as many for helpers ([`beside`]); 0: not made yet.
static AREA: AtomicUsize = AtomicUsize::new(0);
/// One bit for each stack in use; also the futex word at which threads wait.
static TAKEN: AtomicU32 = AtomicU32::new(0);
/// Threads that wait for a stack, or are about to. Each stack that becomes free wakes one of them: two may be given
/// back before the first waiting thread runs.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Makes the stacks, if there are none. Until then all work runs on the caller's stack.
pub fn install() -> Result<()> {
    if AREA.load(Ordering::Acquire) != 0 {
        return Ok(());
    }
    let mut area = Fresh::map(LEN)?.into_room();
    area.protect(PAGE, c::PROT_NONE)?;
    let first = area.span().start + PAGE;
    // Otherwise another thread was first.
    if AREA.compare_exchange(0, first, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        area.keep();
    }
    Ok(())
}

/// Whether the caller runs on one of these stacks, or on a helper's beside one, with signals blocked.
#[inline(never)]
pub fn is_own() -> bool {
    let here = 0u8;
    let area = AREA.load(Ordering::Relaxed);
    area != 0 && (&raw const here as usize).wrapping_sub(area) < 2 * COUNT * BYTES
}

/// End of the helper's stack beside the caller's, for a thread that works for the caller for a moment. `None`: the
/// caller is on none of the library's stacks, or is such a helper.
#[inline(never)]
pub fn beside() -> Option<usize> {
    let here = 0u8;
    let area = AREA.load(Ordering::Relaxed);
    let number = (&raw const here as usize).wrapping_sub(area) / BYTES;
    (area != 0 && number < COUNT).then(|| area + (COUNT + number + 1) * BYTES)
}

/// Whether a thread other than the caller, which is on one of the stacks, is on any of them.
pub fn has_others() -> bool {
    TAKEN.load(Ordering::Acquire).count_ones() > 1
}

/// In a forked child: frees the stacks of threads that do not exist there.
pub fn after_fork() {
    TAKEN.store(0, Ordering::Release);
    WAITING.store(0, Ordering::Release);
}

/// `len` bytes of writable memory without a system call, for a program under its own seccomp filter; `None`: there are
/// not so many. Several threads get different bytes.
pub fn scratch(len: usize) -> Option<usize> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed) as usize % COUNT;
    (len <= ROOM).then_some(SCRATCH.0.get() as usize + number * ROOM)
}

/// Bytes of such memory for each of the threads that need it at the same time.
const ROOM: usize = 32 << 10;

#[repr(align(16))]
struct Scratch(UnsafeCell<[u8; COUNT * ROOM]>);

// SAFETY: only its address is used, and `scratch` gives each thread another part.
unsafe impl Sync for Scratch {}

/// Not touched until it is needed.
static SCRATCH: Scratch = Scratch(UnsafeCell::new([0; COUNT * ROOM]));

fn take() -> usize {
    loop {
        let taken = TAKEN.load(Ordering::Relaxed);
        let number = taken.trailing_ones();
        if number as usize >= COUNT {
            WAITING.fetch_add(1, Ordering::SeqCst);
            sys::futex_wait(&TAKEN, ALL);
            WAITING.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let more = taken | 1 << number;
        if TAKEN.compare_exchange_weak(taken, more, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return number as usize;
        }
    }
}

fn give(number: usize) {
    TAKEN.fetch_and(!(1 << number), Ordering::SeqCst);
    if WAITING.load(Ordering::SeqCst) > 0 {
        sys::futex_wake(&TAKEN);
    }
}

struct Job<F, R> {
    what: MaybeUninit<F>,
    result: MaybeUninit<R>,
}

/// Never inlined: its frame, with all that is inlined into it, belongs on the other stack.
#[inline(never)]
extern "C" fn perform<F: FnOnce() -> R, R>(job: usize) {
    // SAFETY: `run` passes a job of these types once, and nobody else uses it.
    unsafe {
        let job = &mut *(job as *mut Job<F, R>);
        job.result.write(job.what.assume_init_read()());
    }
}

/// Runs `what` on one of the library's own stacks, with all signals blocked. `first` is asked before a stack is taken;
/// the function that it returns, if any, runs there before `what`.
pub fn run<F: FnOnce() -> R, R>(first: fn() -> Option<extern "C" fn(usize)>, what: F) -> R {
    let mut job = Job { what: MaybeUninit::new(what), result: MaybeUninit::uninit() };
    let address = &raw mut job as usize;
    let area = AREA.load(Ordering::Acquire);
    if area == 0 || is_own() {
        perform::<F, R>(address);
    } else {
        let mask = sys::block_signals();
        let first = first();
        let number = take();
        let top = area + (number + 1) * BYTES;
        // SAFETY: the stack is this thread's until it gives it back; the functions take such a word and return.
        unsafe {
            if let Some(first) = first {
                arch::call_on(top, first, 0);
            }
            arch::call_on(top, perform::<F, R>, address);
        }
        give(number);
        sys::restore_signals(mask);
    }
    // SAFETY: `perform` has written the result.
    unsafe { job.result.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<R>(what: impl FnOnce() -> R) -> R {
        super::run(|| None, what)
    }

    #[test]
    fn work_is_done_elsewhere_and_its_result_comes_back() {
        install().unwrap();
        let here = 0u8;
        let (there, own, nested) = run(|| {
            let local = 0u8;
            (&raw const local as usize, is_own(), run(is_own))
        });
        assert!((&raw const here as usize).abs_diff(there) > BYTES && own && nested && !is_own());
        let threads: Vec<_> = (0..2 * COUNT)
            .map(|thread| std::thread::spawn(move || (0..2000).map(|turn| run(|| turn + thread)).sum::<usize>()))
            .collect();
        let sums: Vec<usize> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let expected: Vec<usize> = (0..2 * COUNT).map(|thread| 1999 * 1000 + 2000 * thread).collect();
        assert_eq!(sums, expected);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }
}
