//! State: what all share, written once, and what each vCPU has for itself.
//!
//! A vCPU of a user-mode guest is a thread. Its state is touched by that thread alone (and by whoever ends the process,
//! when the emulator has stopped all others): no locks, no sharing of cache lines.

use crate::channel;
use crate::config::{Config, Mode};
use pagelab_trace::Run;
use pagelab_trace::capture::protocol::BlockKind;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

/// What all share.
pub struct Shared {
    pub config: Config,
    pub target: String,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

/// References count now.
pub static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Instructions executed so far, where a window needs them.
pub static INSTRUCTIONS: AtomicU64 = AtomicU64::new(0);
static THREADS: AtomicU32 = AtomicU32::new(0);
/// Threads now; above 1, blocks are kept short.
static ALIVE: AtomicU32 = AtomicU32::new(0);

/// Sets what is shared, once.
pub fn set_shared(shared: Shared) {
    assert!(SHARED.set(shared).is_ok(), "installed twice");
}

/// What is shared.
#[inline]
pub fn shared() -> &'static Shared {
    SHARED.get().expect("installed")
}

/// Words (references, or halves of runs) in a full block.
const BLOCK_WORDS: usize = 8192;
/// Words in a block while several threads live: how finely they are interleaved in the trace.
const SHARED_WORDS: usize = 1024;

/// No page has this number.
const NO_PAGE: u64 = u64::MAX;

/// A vCPU's own.
#[repr(C, align(128))]
pub struct Vcpu {
    /// Page of the present run.
    pub page: u64,
    /// References of the present run so far.
    pub count: u64,
    length: usize,
    /// Words at which the block is sent.
    limit: usize,
    thread: u32,
    /// Descriptions of accesses, and kind and size that the emulator said they mean.
    pub known: [(u32, u8); 16],
    words: [u64; BLOCK_WORDS],
}

impl Vcpu {
    fn new() -> Box<UnsafeCell<Vcpu>> {
        let several = ALIVE.load(Relaxed) > 1;
        Box::new(UnsafeCell::new(Vcpu {
            page: NO_PAGE,
            count: 0,
            length: 0,
            limit: if several { SHARED_WORDS } else { BLOCK_WORDS },
            thread: THREADS.fetch_add(1, Relaxed),
            known: [(u32::MAX, 0); 16],
            words: [0; BLOCK_WORDS],
        }))
    }

    /// Appends a reference.
    #[inline]
    pub fn push(&mut self, word: u64) {
        self.words[self.length] = word;
        self.length += 1;
        if self.length >= self.limit {
            self.send();
        }
    }

    /// A reference to a page other than that of the present run.
    #[cold]
    #[inline(never)]
    pub fn turn(&mut self, page: u64) {
        self.close_run();
        (self.page, self.count) = (page, 1);
    }

    fn close_run(&mut self) {
        if self.count > 0 {
            let run = Run { page: self.page, count: self.count };
            self.words[self.length] = run.page;
            self.words[self.length + 1] = run.count;
            self.length += 2;
            if self.length + 1 >= self.limit {
                self.send();
            }
        }
        (self.page, self.count) = (NO_PAGE, 0);
    }

    /// Sends what is complete. The present run stays: cut short runs would say that other pages came between.
    #[cold]
    fn send(&mut self) {
        // SAFETY: words has at least `length` initialised elements.
        let bytes = unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast::<u8>(), self.length * 8) };
        let kind = match shared().config.mode {
            Mode::References => BlockKind::References,
            Mode::Runs => BlockKind::Runs,
        };
        if self.length > 0 {
            channel::send(kind, self.thread, bytes);
        }
        self.length = 0;
        self.limit = if ALIVE.load(Relaxed) > 1 { SHARED_WORDS } else { BLOCK_WORDS };
    }

    /// Sends everything.
    pub fn flush(&mut self) {
        self.close_run();
        self.send();
    }

    fn forget(&mut self) {
        (self.page, self.count, self.length) = (NO_PAGE, 0, 0);
    }
}

const VCPUS: usize = 1 << 15;
static TABLE: [AtomicPtr<UnsafeCell<Vcpu>>; VCPUS] = [const { AtomicPtr::new(ptr::null_mut()) }; VCPUS];

/// The state of a vCPU.
///
/// # Safety
/// The caller is the thread of that vCPU, or has stopped it, and holds no other reference to its state.
#[inline]
pub unsafe fn vcpu<'a>(index: u32) -> &'a mut Vcpu {
    let slot = TABLE[index as usize % VCPUS].load(Relaxed);
    let slot = if slot.is_null() { make(index) } else { slot };
    // SAFETY: the slot was made from a box that lives until the vCPU is dropped; the caller alone uses it.
    unsafe { &mut *(*slot).get() }
}

#[cold]
fn make(index: u32) -> *mut UnsafeCell<Vcpu> {
    if index as usize >= VCPUS {
        crate::fail(&format!("{VCPUS} threads at once are too many"));
    }
    let made = Box::into_raw(Vcpu::new());
    TABLE[index as usize].store(made, Relaxed);
    made
}

/// A thread begins. Its parent calls, before it runs.
pub fn begin(index: u32) {
    ALIVE.fetch_add(1, Relaxed);
    let old = TABLE[index as usize % VCPUS].swap(ptr::null_mut(), Relaxed);
    if !old.is_null() {
        // SAFETY: its thread has ended (the emulator gives a number to one thread at a time).
        drop(unsafe { Box::from_raw(old) });
    }
    make(index);
}

/// A thread ends.
///
/// # Safety
/// As for [`vcpu`].
pub unsafe fn end(index: u32) {
    // SAFETY: by the caller.
    unsafe { vcpu(index) }.flush();
    ALIVE.fetch_sub(1, Relaxed);
}

/// Several threads live: what a thread has done must be in the trace before it waits for another.
pub fn several() -> bool {
    ALIVE.load(Relaxed) > 1
}

/// Applies `change` to every vCPU.
///
/// # Safety
/// All other threads are stopped, or gone (a forked child).
unsafe fn each(change: impl Fn(&mut Vcpu)) {
    for slot in &TABLE {
        let slot = slot.load(Relaxed);
        if !slot.is_null() {
            // SAFETY: by the caller, nobody else uses it; it is alive while it is in the table.
            change(unsafe { &mut *(*slot).get() });
        }
    }
}

/// Sends what all threads have.
///
/// # Safety
/// As for [`each`].
pub unsafe fn flush_all() {
    // SAFETY: by the caller.
    unsafe { each(Vcpu::flush) };
}

/// In a forked child: what was waiting is the parent's to send, and the other threads are not here.
///
/// # Safety
/// The caller is the only thread of a process that has just been forked.
pub unsafe fn forget_all() {
    // SAFETY: by the caller.
    unsafe { each(Vcpu::forget) };
    ALIVE.store(1, Relaxed);
}
