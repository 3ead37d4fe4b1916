//! A forked child's first call of the library, whose data are the parent's until then.
//!
//! Each room has one function that resets its data that are not the child's. All these functions are in one list
//! (`hooks::child`), which the first thread of the child that calls the library walks.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::boundary::arch::{self, PAGE};
use crate::boundary::own::{Fresh, Once, Published};
use crate::boundary::stack;
use crate::boundary::sys::{self, Errno, task};

/// The reset of one room in a forked child, where the calling thread is the only one that uses the library.
pub type Reset = fn();

/// The list, in its order; it is set before anything needs a reset.
static RESETS: Once<&'static [Reset]> = Once::empty();
/// Words in a page that the kernel clears in forked children. A fork does not copy the page, so that it costs nothing.
static CLEARED: Published<[AtomicU32; 3]> = Published::none();
/// The first is [`NEW`], [`ADOPTING`] or [`KNOWN`].
const ALIVE: usize = 0;
/// For `state::forks`: forks of libc that are under way, and whether a thread keeps them apart.
pub const FORKS: usize = 1;
/// As [`FORKS`].
pub const APART: usize = 2;
/// This process was forked and has not called the guest yet.
const NEW: u32 = 0;
/// A thread of this process, [`ADOPTER`], is setting the guest up.
const ADOPTING: u32 = 2;
const KNOWN: u32 = 1;
/// The thread pointer of the thread that does so.
static ADOPTER: AtomicUsize = AtomicUsize::new(0);

/// The process that the library works in; a child that shares its memory (vfork) has another id. 0: not known yet.
static HOME: AtomicU32 = AtomicU32::new(0);

/// From now on forked children are recognized. Called by the constructor, or before the first hint of a program that
/// was started under a filter; later calls change nothing.
pub fn watch() -> Result<(), Errno> {
    if CLEARED.get().is_some() {
        return Ok(());
    }
    let page = Fresh::map(PAGE)?;
    page.room().clear_in_children()?;
    let words = page.into_one::<[AtomicU32; 3]>().ok_or(Errno::ENOMEM)?;
    *words[ALIVE].get_mut() = KNOWN;
    HOME.store(sys::getpid(), Ordering::Relaxed);
    CLEARED.set(Some(words));
    Ok(())
}

/// From now on forked children walk `resets`.
pub fn know(resets: &'static [Reset]) {
    RESETS.set(resets);
}

/// One of the words, [`FORKS`] or [`APART`]; none before [`watch`].
pub fn cleared(word: usize) -> Option<&'static AtomicU32> {
    CLEARED.get()?.get(word)
}

fn word() -> Option<&'static AtomicU32> {
    cleared(ALIVE)
}

/// Whether the caller is a process of its own that works in this process's memory, as a child of vfork does.
pub fn is_guest() -> bool {
    let home = HOME.load(Ordering::Relaxed);
    home != 0 && !is_new() && home != sys::getpid()
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

/// Sets up the guest in a forked child that has not called it yet. A signal handler of a thread that does so would wait
/// for its own thread.
pub fn adopt() {
    if word().is_none_or(|word| word.load(Ordering::Acquire) == KNOWN) {
        return;
    }
    let mask = sys::signal_mask(u64::MAX);
    if claim() {
        set_up();
    }
    sys::signal_mask(mask);
}

/// Makes the first call of the guest in a forked child, by the thread that claimed it.
#[cold]
pub fn set_up() {
    let mask = sys::signal_mask(u64::MAX);
    for reset in RESETS.get().copied().unwrap_or_default() {
        reset();
    }
    HOME.store(sys::getpid(), Ordering::Relaxed);
    if let Some(word) = word() {
        ADOPTER.store(0, Ordering::Release);
        word.store(KNOWN, Ordering::Release);
        task::futex_wake_all(word);
    }
    sys::signal_mask(mask);
}
