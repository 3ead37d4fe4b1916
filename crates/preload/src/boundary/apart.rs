//! Files that the library opens for a moment, while the program has other threads.
//!
//! Those threads may close descriptors that they do not know (closefrom, a daemon's loop), and then get the same number
//! for a file of the program. The library would read and close that file. So if there are other threads, a short-lived
//! thread with its own descriptor table does such work, and the caller waits for it. The table begins empty, so it
//! keeps none of the program's files open.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::boundary::sys::{Errno, Result, task};

use super::{libc, stack};

/// The work of the thread, and its result.
struct Job<F, R> {
    what: UnsafeCell<Option<F>>,
    result: UnsafeCell<MaybeUninit<Result<R>>>,
}

/// Runs `what`, which opens files and closes them again, where no other thread of the program can reach those files.
/// Fails if no such thread can be made (limits, kernels before Linux 5.9).
pub fn apart<R>(what: impl FnOnce() -> R) -> Result<R> {
    // The library's own threads have their own tables, and so does a thread that this function started.
    let Some(top) = stack::beside().filter(|_| !libc::is_alone()) else { return Ok(what()) };
    elsewhere(top, what)
}

fn elsewhere<F: FnOnce() -> R, R>(top: usize, what: F) -> Result<R> {
    let job = Job { what: UnsafeCell::new(Some(what)), result: UnsafeCell::new(MaybeUninit::uninit()) };
    let tid = AtomicU32::new(0);
    // SAFETY: the stack beside this thread's is reserved for it, and this thread waits; the entry uses no thread-local
    // storage.
    unsafe { task::start_thread_with_files(top, &tid, body::<F, R>, &raw const job as usize) }?;
    loop {
        match tid.load(Ordering::Acquire) {
            0 => break,
            running => task::futex_wait_for(&tid, running, 1_000_000_000),
        }
    }
    // SAFETY: the thread wrote the result before it ended, and it has ended.
    unsafe { job.result.into_inner().assume_init() }
}

extern "C" fn body<F: FnOnce() -> R, R>(job: usize) -> ! {
    // SAFETY: `elsewhere` passes a job of these types, and does not touch it until this thread has ended.
    let (what, result) = unsafe {
        let job = &*(job as *const Job<F, R>);
        (&mut *job.what.get(), &mut *job.result.get())
    };
    result.write(task::leave_files().and_then(|()| what.take().map(|what| what()).ok_or(Errno::EINVAL)));
    task::exit_thread()
}
