//! State: whether references count, and the data of each vCPU.
//!
//! A vCPU of a user-mode guest is a thread. Its references wait in a ring that it alone fills; whoever holds the
//! channel ([`channel::lock`]) may empty the rings of all threads, and does so as soon as one is full.
//!
//! # Order between threads
//! Each thread's references are in groups, and each group has a stamp: a number that was drawn from [`ORDER`] before
//! any reference of the group but the first. What is sent together is sorted by the stamps. A new group begins
//!
//! * at the first reference after the thread may have waited for another: a system call, an atomic instruction, a
//!   fence, a pause, a load that is repeated until its value changes ([`Thread::may_have_waited`]);
//! * at the first reference after another thread may have released this one, by a system call, an atomic instruction or
//!   a fence: each of these counts [`NOW`] up before it is executed ([`Thread::lets_go`]), and each reference reads it.
//!
//! Suppose that thread A makes reference a, then releases B, and B makes reference b. B's group begins after the
//! release, either because B waited (the first case) or because A's release counted [`NOW`] up (the second). So b's
//! group has a later stamp than a's group. A group whose stamp is not below the number drawn when sending began stays
//! for the next time, with all groups behind it: no reference that was sent can have waited for one that stays.

use crate::api::{CurrentVcpu, Data};
use crate::channel::{self, Channel};
use crate::config::{Mode, Window, shared};
use pagelab_trace::capture::protocol::{BlockKind, End, Segment};
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Whether references count (bit 0), and the number of releases by threads (the bits above); each access reads it.
static NOW: AtomicU64 = AtomicU64::new(0);
const ACTIVE: u64 = 1;
const LET_GO: u64 = 2;
/// [`NOW`] never has this value where references count: it makes a thread's next reference begin a group.
const STALE: u64 = u64::MAX - 1;
/// The next stamp.
static ORDER: AtomicU64 = AtomicU64::new(0);
/// Instructions executed so far, where a window needs them.
pub static INSTRUCTIONS: AtomicU64 = AtomicU64::new(0);
static THREADS: AtomicU32 = AtomicU32::new(0);
/// Threads now.
static ALIVE: AtomicU32 = AtomicU32::new(0);

/// Whether references count.
pub fn active() -> bool {
    NOW.load(Relaxed) & ACTIVE != 0
}

/// Makes references count from now on, or not; returns the earlier state.
pub fn set_active(on: bool) -> bool {
    let before = if on { NOW.fetch_or(ACTIVE, Relaxed) } else { NOW.fetch_and(!ACTIVE, Relaxed) };
    before & ACTIVE != 0
}

/// Words in a ring: references, or where runs are captured their addresses. With a quarter of them, a capture took a
/// tenth more processor time: whoever receives is woken each time that a ring is full.
const RING: usize = 32768;
/// Groups in a ring.
const GROUPS: usize = 1024;
/// Words after which a group ends while several threads live, which limits how coarsely they are interleaved in the
/// trace.
const GROUP_WORDS: u64 = 1024;

/// A vCPU's references that were not sent yet. Positions count words since the thread began, and never wrap.
struct Ring {
    thread: u32,
    /// Words written.
    written: AtomicU64,
    /// The position up to which the only thread that ever was may write without a further look; else 0.
    alone: AtomicU64,
    /// Groups begun: written before the first of their words.
    begun: AtomicU64,
    /// Words sent: room again.
    sent: AtomicU64,
    /// Groups whose beginning was sent: room again.
    passed: AtomicU64,
    sending: UnsafeCell<Sending>,
    /// Of each group its stamp, and the position of its first word.
    groups: [(AtomicU64, AtomicU64); GROUPS],
    words: [AtomicU64; RING],
}

/// Data of the channel's holder only.
#[derive(Default)]
struct Sending {
    /// Stamp of the group that the next word belongs to.
    stamp: u64,
}

/// Data of the vCPU's own thread only.
pub struct Own {
    /// The value of [`NOW`] when the present group began.
    seen: u64,
    /// The position at which work is due before a word is written: a new group, or a full ring.
    limit: u64,
    /// Words written at this thread's last release.
    released: u64,
    /// Address and description of the last access.
    last: (u64, u32),
    /// Descriptions of accesses, and kind and size that the emulator said they mean.
    pub known: [(u32, u8); 16],
}

#[repr(C, align(128))]
struct Vcpu {
    own: UnsafeCell<Own>,
    ring: Ring,
}

impl Ring {
    /// Writes the word at a position, for which there is room.
    #[inline(always)]
    fn put(&self, at: u64, word: u64) {
        self.words[at as usize % RING].store(word, Relaxed);
        self.written.store(at + 1, Release);
    }
}

impl Vcpu {
    /// On the heap from the beginning, because the stack of an emulated thread has no place for it. Memory of the ring
    /// is used only when words are written.
    fn new() -> Box<Vcpu> {
        let layout = Layout::new::<Vcpu>();
        // SAFETY: the layout has bytes, and zeros are a vCPU: it consists of integers.
        let mut made = unsafe {
            let place = alloc_zeroed(layout);
            if place.is_null() {
                handle_alloc_error(layout);
            }
            Box::from_raw(place.cast::<Vcpu>())
        };
        *made.own.get_mut() = Own { seen: STALE, limit: 0, released: 0, last: (0, 0), known: [(u32::MAX, 0); 16] };
        made.ring.thread = THREADS.fetch_add(1, Relaxed);
        made
    }
}

/// A vCPU, as its own thread has it.
pub struct Thread<'a> {
    pub own: &'a mut Own,
    ring: &'a Ring,
}

impl Thread<'_> {
    /// Whether an access counts; if so, its group has begun. Called after each access, before it is written.
    #[inline(always)]
    pub fn counts(&mut self) -> bool {
        let now = NOW.load(Acquire);
        now == self.own.seen || now & ACTIVE != 0 && self.begin_group(now)
    }

    /// The effect of an access on the order of threads, whether it is kept or not: a load that repeats the last access
    /// waits for another thread.
    #[inline(always)]
    pub fn looks(&mut self, address: u64, info: u32, loads: impl FnOnce(&mut Own) -> bool) {
        if !several() {
            // A single thread waits for no other.
        } else if self.own.last != (address, info) {
            self.own.last = (address, info);
        } else if loads(self.own) {
            self.may_have_waited();
        }
    }

    /// Appends a reference, or its address.
    #[inline(always)]
    pub fn push(&mut self, word: u64) {
        let at = self.written();
        if at >= self.own.limit {
            self.make_room(1);
        }
        self.ring.put(at, word);
    }

    /// [`Thread::looks`], [`Thread::counts`] and [`Thread::push`] where they are short: no group begins, no room is
    /// made, and the access does not repeat the last. False: nothing was done.
    #[inline(always)]
    fn pushes_at_once(&mut self, address: u64, info: u32) -> bool {
        let at = self.written();
        let short = self.own.last != (address, info) && NOW.load(Acquire) == self.own.seen && at < self.own.limit;
        if short {
            self.own.last = (address, info);
            self.ring.put(at, address);
        }
        short
    }

    /// Words written; no other thread writes them.
    #[inline(always)]
    fn written(&self) -> u64 {
        self.ring.written.load(Relaxed)
    }

    /// Begins a group with what comes next. True, for [`Thread::counts`].
    #[cold]
    #[inline(never)]
    fn begin_group(&mut self, now: u64) -> bool {
        let begun = self.ring.begun.load(Relaxed);
        let passed = self.ring.passed.load(Acquire);
        let last = &self.ring.groups[begun.wrapping_sub(1) as usize % GROUPS];
        if begun > passed && last.1.load(Relaxed) == self.written() {
            // A group without words is not sent; it gets a new stamp.
            last.0.store(ORDER.fetch_add(1, AcqRel), Relaxed);
        } else {
            if begun - passed >= GROUPS as u64 {
                send_all(&mut channel::lock());
            }
            let (stamp, first) = &self.ring.groups[begun as usize % GROUPS];
            stamp.store(ORDER.fetch_add(1, AcqRel), Relaxed);
            first.store(self.written(), Relaxed);
            self.ring.begun.store(begun + 1, Release);
        }
        self.own.seen = now;
        self.limit();
        true
    }

    /// The limit is next checked where the group or the ring ends.
    fn limit(&mut self) {
        let full = self.ring.sent.load(Acquire) + RING as u64;
        self.own.limit = if several() { full.min(self.written() + GROUP_WORDS) } else { full };
        let alone = ptr::eq(self.ring, ALONE.load(Relaxed));
        self.ring.alone.store(if alone { full } else { 0 }, Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, words: u64) {
        if self.written() + words > self.ring.sent.load(Acquire) + RING as u64 {
            send_all(&mut channel::lock());
        }
        if several() {
            self.begin_group(self.own.seen);
        } else {
            self.limit();
        }
    }

    /// The thread may have waited for another: its next reference begins a group.
    pub fn may_have_waited(&mut self) {
        self.own.seen = STALE;
    }

    /// The thread is about to release other threads that wait for it: they begin a group with their next reference.
    /// Without references since its last release, nothing is counted.
    pub fn lets_go(&mut self) {
        if several() && self.written() != self.own.released {
            NOW.fetch_add(LET_GO, AcqRel);
            self.own.released = self.written();
        }
    }

    /// Since its last release, the thread has only tried the same atomic instruction again: no thread waits for that.
    pub fn only_tried_again(&mut self) {
        self.own.released = self.written();
    }

    /// Whether the last access had this address, too.
    pub fn again(&self, address: u64) -> bool {
        self.own.last.0 == address
    }

    /// The thread and the number of the next reference, as text for messages.
    pub fn next_record(&self) -> String {
        format!("thread {}, reference {}", self.ring.thread, self.written() + 1)
    }
}

/// Part of a ring, to be sent.
struct Piece<'a> {
    stamp: u64,
    ring: &'a Ring,
    first: u64,
    end: u64,
}

/// Sends the references of all threads, except groups that begin meanwhile.
pub fn send_all(channel: &mut Channel) {
    let limit = ORDER.fetch_add(1, AcqRel);
    let mut pieces = Vec::new();
    for slot in &TABLE[..SLOTS.load(Acquire)] {
        let slot = slot.load(Acquire);
        if !slot.is_null() {
            // SAFETY: what is in the table lives; it is taken out by holders of the channel only.
            pieces_of(unsafe { &(*slot).ring }, limit, &mut pieces);
        }
    }
    pieces.sort_unstable_by_key(|piece| piece.stamp);
    let runs = shared().config.mode == Mode::Runs;
    let kind = if runs { BlockKind::Runs } else { BlockKind::References };
    let mut block = std::mem::take(&mut channel.block);
    for together in pieces.chunk_by(|one, other| ptr::eq(one.ring, other.ring)) {
        let append = if runs { append_runs } else { append_references };
        append(together, &mut block, channel);
        together.iter().for_each(|piece| piece.ring.sent.store(piece.end, Release));
        if block.len() >= MOST_BLOCK {
            channel::send_locked(channel, kind, &block);
            block.clear();
        }
    }
    if !block.is_empty() {
        channel::send_locked(channel, kind, &block);
        block.clear();
    }
    channel.block = block;
}

/// Bytes above which a block is sent, if many threads have references.
const MOST_BLOCK: usize = 1 << 20;

/// The part of a ring in groups with stamps below `limit`, one piece a group.
fn pieces_of<'a>(ring: &'a Ring, limit: u64, pieces: &mut Vec<Piece<'a>>) {
    // SAFETY: the caller holds the channel.
    let sending = unsafe { &mut *ring.sending.get() };
    // In this order: the groups of all these words are seen.
    let written = ring.written.load(Acquire);
    let begun = ring.begun.load(Acquire);
    let mut first = ring.sent.load(Relaxed);
    let mut passed = ring.passed.load(Relaxed);
    loop {
        let next = (passed < begun).then(|| &ring.groups[passed as usize % GROUPS]);
        let end = next.map_or(written, |(_, first)| first.load(Relaxed).min(written));
        if first < end {
            pieces.push(Piece { stamp: sending.stamp, ring, first, end });
            first = end;
        }
        match next {
            Some((stamp, at)) if at.load(Relaxed) < written && stamp.load(Relaxed) < limit => {
                sending.stamp = stamp.load(Relaxed);
                passed += 1;
            }
            _ => break,
        }
    }
    ring.passed.store(passed, Release);
}

/// Appends one thread's references.
fn append_references(pieces: &[Piece], block: &mut Vec<u8>, _: &mut Channel) {
    let words = pieces.iter().map(|piece| (piece.end - piece.first) as u32).sum();
    block.extend(Segment { thread: pieces[0].ring.thread, words }.encode());
    for words in pieces.iter().flat_map(Piece::parts) {
        words.iter().for_each(|word| block.extend_from_slice(&word.to_ne_bytes()));
    }
}

/// Appends the runs of one thread's addresses. Made only here, a run costs no branch at each access.
fn append_runs(pieces: &[Piece], block: &mut Vec<u8>, channel: &mut Channel) {
    for addresses in pieces.iter().flat_map(Piece::parts) {
        channel.packer.add(addresses, shared().config.page_bits);
    }
    channel.packer.finish(pieces[0].ring.thread, block);
}

impl<'a> Piece<'a> {
    /// Its words: in two parts where it goes around the ring's end.
    fn parts(&self) -> [&'a [u64]; 2] {
        let (first, end) = (self.first as usize % RING, self.end as usize % RING);
        let words = &self.ring.words;
        let parts = if first < end { [&words[first..end], &[]] } else { [&words[first..], &words[..end]] };
        // SAFETY: these words were written before `written` was, and will not be again before `sent` is.
        parts.map(|words| unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) })
    }
}

const VCPUS: usize = 1 << 15;
static TABLE: [AtomicPtr<Vcpu>; VCPUS] = [const { AtomicPtr::new(ptr::null_mut()) }; VCPUS];
/// One past the highest number that was ever in use.
static SLOTS: AtomicUsize = AtomicUsize::new(0);

/// [`Thread::pushes_at_once`] of the calling thread's vCPU; false where it has no state yet.
#[inline(always)]
pub fn pushes_at_once(vcpu: &mut CurrentVcpu, address: u64, info: u32) -> bool {
    let slot = TABLE[vcpu.number() as usize % VCPUS].load(Relaxed);
    // SAFETY: as in `thread`.
    !slot.is_null()
        && unsafe { Thread { own: &mut *(*slot).own.get(), ring: &(*slot).ring } }.pushes_at_once(address, info)
}

/// The state of the calling thread's vCPU.
#[inline(always)]
pub fn thread(vcpu: &mut CurrentVcpu) -> Thread<'_> {
    let index = vcpu.number();
    let slot = TABLE[index as usize % VCPUS].load(Relaxed);
    let slot = if slot.is_null() { make(index) } else { slot };
    // SAFETY: the slot was made from a box that lives until the vCPU is dropped; only its own thread uses `own`, and
    // there is one `CurrentVcpu` there, which is borrowed meanwhile.
    unsafe { Thread { own: &mut *(*slot).own.get(), ring: &(*slot).ring } }
}

#[cold]
fn make(index: u32) -> *mut Vcpu {
    if index as usize >= VCPUS {
        channel::fail(&format!("{VCPUS} threads at once are too many"));
    }
    let made = Box::into_raw(Vcpu::new());
    TABLE[index as usize].store(made, Release);
    SLOTS.fetch_max(index as usize + 1, AcqRel);
    made
}

/// The ring of the only thread that ever was in this process and its forked parents; null from the second thread on.
static ALONE: AtomicPtr<Ring> = AtomicPtr::new(ptr::null_mut());
/// The first vCPU, which is never dropped: translated blocks have [`ALONE`].
static FIRST: AtomicPtr<Vcpu> = AtomicPtr::new(ptr::null_mut());

/// What [`pushes_alone`] takes for blocks that are translated now; null where it may not be called: there was a second
/// thread, or a window may end.
pub fn alone() -> Data {
    if shared().config.window == Window::Whole { ALONE.load(Relaxed).cast() } else { ptr::null_mut() }
}

/// Appends an address if the thread is still the only one that ever was, and its group has room. False: nothing was
/// done.
///
/// # Safety
/// `alone` is what [`alone`] returned.
#[inline(always)]
pub unsafe fn pushes_alone(alone: Data, address: u64) -> bool {
    // SAFETY: by the caller it is the first vCPU's ring, which is never dropped.
    let ring = unsafe { &*alone.cast::<Ring>() };
    let at = ring.written.load(Relaxed);
    let may = at < ring.alone.load(Relaxed);
    if may {
        ring.put(at, address);
    }
    may
}

/// A thread begins. Its parent calls, before it runs.
pub fn begin(index: u32) {
    ALIVE.fetch_add(1, Relaxed);
    // No thread reads the ring of the old one while this is held.
    let held = channel::lock();
    let old = TABLE[index as usize % VCPUS].swap(ptr::null_mut(), AcqRel);
    let made = make(index);
    alone_no_more_or_first(made);
    drop(held);
    if !old.is_null() && old != FIRST.load(Relaxed) {
        // SAFETY: its thread has ended (the emulator gives a number to one thread at a time).
        drop(unsafe { Box::from_raw(old) });
    }
}

/// Notes the ring of the first thread in [`ALONE`]; clears it when a second thread begins.
fn alone_no_more_or_first(made: *mut Vcpu) {
    if FIRST.compare_exchange(ptr::null_mut(), made, AcqRel, Relaxed).is_ok() {
        // SAFETY: it has just been made.
        ALONE.store(unsafe { &raw mut (*made).ring }, Release);
    } else if let Some(ring) = ptr::NonNull::new(ALONE.swap(ptr::null_mut(), AcqRel)) {
        // SAFETY: the first vCPU is never dropped.
        unsafe { ring.as_ref() }.alone.store(0, Release);
    }
}

/// A thread ends.
pub fn end() {
    send_all(&mut channel::lock());
    ALIVE.fetch_sub(1, Relaxed);
}

/// Several threads live.
pub fn several() -> bool {
    ALIVE.load(Relaxed) > 1
}

/// The window has ended, and the program with it.
pub fn quit() -> ! {
    // Other threads may still run: their further references are cut off with the window.
    send_all(&mut channel::lock());
    send_end();
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(0) }
}

/// The image has ended.
pub fn send_end() {
    let end = End { replaced: 0, instructions: INSTRUCTIONS.load(Relaxed) };
    channel::send(BlockKind::End, &end.encode());
}

/// In a forked child: the parent has sent the waiting references, and the other threads do not exist here. The thread
/// with the vCPU `caller` is the child's first.
///
/// # Safety
/// The caller is the only thread of a process that has just been forked.
pub unsafe fn forget_all(caller: u32) {
    THREADS.store(0, Relaxed);
    for (index, slot) in TABLE[..SLOTS.load(Acquire)].iter().enumerate() {
        let slot = slot.load(Relaxed);
        if !slot.is_null() {
            if index == caller as usize {
                // SAFETY: as below.
                unsafe { (*slot).ring.thread = THREADS.fetch_add(1, Relaxed) };
            }
            // SAFETY: by the caller, nobody else uses it; it is alive while it is in the table.
            let (own, ring) = unsafe { (&mut *(*slot).own.get(), &(*slot).ring) };
            // A thread that was about to write a word has not published it.
            let written = ring.written.load(Relaxed);
            own.seen = STALE;
            ring.alone.store(0, Relaxed);
            ring.sent.store(written, Relaxed);
            ring.passed.store(ring.begun.load(Relaxed), Relaxed);
        }
    }
    ALIVE.store(1, Relaxed);
    begin_windows();
}

/// Windows of instructions are counted anew in each image. Where the program marks them, a forked child is in the one
/// in which it was forked.
fn begin_windows() {
    INSTRUCTIONS.store(0, Relaxed);
    if matches!(shared().config.window, Window::Instructions { .. }) {
        // The next block opens the first.
        set_active(false);
    }
}
