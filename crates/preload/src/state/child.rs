//! A forked child's first call of the library, whose data are the parent's until then.
//!
//! Each room has one function that resets its data that are not the child's. All these functions are in one list
//! (`hooks::child`), which the first thread of the child that calls the library walks.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::boundary::arch::{self, PAGE};
use crate::boundary::own::{Fresh, Once, Published, Zeroed};
use crate::boundary::sys::{self, Errno, task};
use crate::boundary::{libc, stack};

/// The reset of one room in a forked child, where the calling thread is the only one that uses the library.
pub type Reset = fn();

/// The list, in its order; it is set before anything needs a reset.
static RESETS: Once<&'static [Reset]> = Once::empty();
/// Words in a page that the kernel clears in forked children. A fork does not copy the page, so that it costs nothing.
static CLEARED: Published<Cleared> = Published::none();

struct Cleared {
    words: [AtomicU32; 3],
    forks: AtomicU64,
}

// SAFETY: zero is a value of each word.
unsafe impl Zeroed for Cleared {}

/// The first is [`NEW`], [`ADOPTING`] or [`KNOWN`].
const ALIVE: usize = 0;
/// For `state::forks`: whether a thread keeps forks of libc apart.
pub const APART: usize = 1;
/// The process that the library works in; a child that shares its memory (vfork) has another id. 0: not known yet, in a
/// child that was made past libc's fork; after its first call of the library with [`PAST_LIBC`].
const HOME: usize = 2;
/// Added to the id, which has 22 bits.
const PAST_LIBC: u32 = 1 << 31;
/// This process was forked and has not called the guest yet.
const NEW: u32 = 0;
/// A thread of this process, [`ADOPTER`], is setting the guest up.
const ADOPTING: u32 = 2;
const KNOWN: u32 = 1;
/// The thread pointer of the thread that does so.
static ADOPTER: AtomicUsize = AtomicUsize::new(0);

/// From now on forked children are recognized. Called by the constructor, or before the first hint of a program that
/// was started under a filter, by several threads at once perhaps; later calls change nothing.
pub fn watch() -> Result<(), Errno> {
    if CLEARED.get().is_some() {
        return Ok(());
    }
    let page = Fresh::map(PAGE)?;
    page.room().clear_in_children()?;
    let begin = |cleared: &mut Cleared| {
        *cleared.words[ALIVE].get_mut() = KNOWN;
        *cleared.words[HOME].get_mut() = sys::getpid();
    };
    CLEARED.set_first_with(page, begin).map(drop).ok_or(Errno::ENOMEM)
}

/// From now on forked children walk `resets`.
pub fn know(resets: &'static [Reset]) {
    RESETS.set(resets);
}

/// One of the words; none before [`watch`].
pub fn cleared(word: usize) -> Option<&'static AtomicU32> {
    CLEARED.get()?.words.get(word)
}

/// For `state::forks`: the forks of libc that are under way; none before [`watch`].
pub fn forks() -> Option<&'static AtomicU64> {
    CLEARED.get().map(|cleared| &cleared.forks)
}

fn word() -> Option<&'static AtomicU32> {
    cleared(ALIVE)
}

/// Notes the process in a child of libc's fork, before anything else runs there. Later its own child by vfork may be the
/// first that calls the library. It makes no system call: the child may be under a filter.
pub fn came_by_fork() {
    if let (Some(home), Some(id)) = (cleared(HOME), libc::id_of_this_thread()) {
        home.store(id, Ordering::Relaxed);
    }
}

/// A process that the library works in.
#[derive(Clone, Copy)]
pub struct Home(u32);

impl Home {
    pub fn from_word(word: u32) -> Option<Home> {
        (word != 0).then_some(Home(word))
    }

    pub fn word(self) -> u32 {
        self.0
    }

    /// Its id, in its PID namespace.
    pub fn id(self) -> u32 {
        self.0 & !PAST_LIBC
    }

    /// Whether the caller belongs to it. In a PID namespace of its own the first child, which may share this process's
    /// memory, is 1, as this process itself may be in another one: that has libc's list of locks, unless it was made past
    /// libc.
    pub fn is_mine(self) -> bool {
        let id = self.id();
        id == sys::getpid() && (id != 1 || self.0 & PAST_LIBC != 0 || task::has_list_of_locks())
    }
}

/// The process that the library works in; the caller's, if that is not known.
pub fn home() -> Home {
    known_home().unwrap_or_else(|| Home(sys::getpid()))
}

fn known_home() -> Option<Home> {
    Home::from_word(cleared(HOME)?.load(Ordering::Relaxed))
}

/// Whether the caller is a process of its own that works in this process's memory, as a child of vfork does.
pub fn is_guest() -> bool {
    known_home().is_some_and(|home| !home.is_mine())
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
    let mask = sys::block_signals();
    if claim() {
        set_up();
    }
    sys::restore_signals(mask);
}

/// Makes the first call of the guest in a forked child, by the thread that claimed it.
#[cold]
pub fn set_up() {
    let mask = sys::block_signals();
    if let Some(word) = cleared(HOME) {
        let _ = word.compare_exchange(0, sys::getpid() | PAST_LIBC, Ordering::Relaxed, Ordering::Relaxed);
    }
    for reset in RESETS.get().copied().unwrap_or_default() {
        reset();
    }
    if let Some(word) = word() {
        ADOPTER.store(0, Ordering::Release);
        word.store(KNOWN, Ordering::Release);
        task::futex_wake_all(word);
    }
    sys::restore_signals(mask);
}
