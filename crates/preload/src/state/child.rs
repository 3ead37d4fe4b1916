//! A forked child's first call of the library, whose data are the parent's until then.
//!
//! Each room has one function that resets its data that are not the child's. All these functions are in one list
//! (`hooks::child`), which the first thread of the child that calls the library walks.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::boundary::arch::{self, PAGE};
use crate::boundary::own::{Fresh, Once, Published};
use crate::boundary::stack;
use crate::boundary::sys::{self, Errno, task};

/// The reset of one room in a forked child, where the calling thread is the only one that uses the library.
pub type Reset = fn();

/// The list, in its order; it is set before [`ALIVE`] is published.
static RESETS: Once<&'static [Reset]> = Once::empty();
/// One word in a page that the kernel clears in forked children: [`NEW`], [`ADOPTING`] or [`KNOWN`].
static ALIVE: Published<AtomicU32> = Published::none();
/// This process was forked and has not called the guest yet.
const NEW: u32 = 0;
/// A thread of this process, [`ADOPTER`], is setting the guest up.
const ADOPTING: u32 = 2;
const KNOWN: u32 = 1;
/// The thread pointer of the thread that does so.
static ADOPTER: AtomicUsize = AtomicUsize::new(0);

/// Maps the word for [`know`]; it is [`KNOWN`] in this process.
pub fn new_word() -> Result<&'static AtomicU32, Errno> {
    let page = Fresh::map(PAGE)?;
    page.room().clear_in_children()?;
    let word = page.into_one::<AtomicU32>().ok_or(Errno::ENOMEM)?;
    *word.get_mut() = KNOWN;
    Ok(word)
}

/// From now on forked children are recognized by `word`, which comes from [`new_word`], and walk `resets`. There was no
/// word before.
pub fn know(word: &'static AtomicU32, resets: &'static [Reset]) {
    RESETS.set(resets);
    ALIVE.set(Some(word));
}

fn word() -> Option<&'static AtomicU32> {
    ALIVE.get()
}

/// Whether the child that is being set up was made by libc's fork.
static BY_LIBC: AtomicBool = AtomicBool::new(false);

/// Records, in a child that libc's fork has made, that it did; before the child's first call of the guest.
pub extern "C" fn made_by_libc() {
    BY_LIBC.store(true, Ordering::Relaxed);
}

/// Whether the child that is being set up was made by libc's fork, and not past it (clone, `_Fork`).
pub fn is_by_libc() -> bool {
    BY_LIBC.load(Ordering::Relaxed)
}

/// Whether this process was forked and has not called the guest yet.
pub fn is_new() -> bool {
    word().is_some_and(|word| word.load(Ordering::Relaxed) == NEW)
}

/// In a forked child that has not called the guest yet: true for one thread, which has to [`set_up`]. (Other threads,
/// which the child may have made past libc, wait until that is done.)
pub fn claim() -> bool {
    let Some(word) = word() else { return false };
    loop {
        match word.compare_exchange(NEW, ADOPTING, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                ADOPTER.store(arch::thread_pointer(), Ordering::Release);
                stack::after_fork();
                return true;
            }
            Err(KNOWN) => return false,
            Err(_) if ADOPTER.load(Ordering::Acquire) == arch::thread_pointer() => return false,
            Err(_) => task::futex_wait_for(word, ADOPTING, WAIT_NS),
        }
    }
}

const WAIT_NS: u64 = 1_000_000;

/// Sets up the guest in a forked child that has not called it yet.
pub fn adopt() {
    if claim() {
        set_up();
    }
}

/// Makes the first call of the guest in a forked child, by the thread that claimed it.
#[cold]
pub fn set_up() {
    let mask = sys::signal_mask(u64::MAX);
    for reset in RESETS.get().copied().unwrap_or_default() {
        reset();
    }
    BY_LIBC.store(false, Ordering::Relaxed);
    if let Some(word) = word() {
        ADOPTER.store(0, Ordering::Release);
        word.store(KNOWN, Ordering::Release);
        task::futex_wake_all(word);
    }
    sys::signal_mask(mask);
}
