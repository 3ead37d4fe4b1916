//! The pool's memory in chunks of 2 MiB: populated here, split, and given back.
//!
//! A chunk comes from a huge page, whose frames are contiguous, so that one system call moves a run of them. It is
//! split before use (moving one page out and back splits the huge page), because no fault should wait for that.

use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Advice, Errno, Result, c, task};
use crate::boundary::{mapping, meminfo};
use crate::frames::kernel::memory_nodes;
use crate::frames::kernel::pagemap::Pagemap;
use crate::frames::kernel::uffd::{Then, Uffd};
use crate::state::own_locks;
use pagelab_abi::plan::MAX_STRATEGIES;

/// Number of slots of a chunk.
pub const SLOTS: usize = PMD / PAGE;
/// Start of the chunks' addresses, below the heap and above the addresses that the kernel gives programs and their
/// break.
pub const BASE: usize = 0x65c0_0000_0000;
/// Most chunks (64 GiB).
const MOST: usize = 1 << 15;
/// All addresses that chunks can have.
pub const ROOM: Span = Span::new(BASE, BASE + MOST * PMD);

/// Addresses of chunks in use.
pub struct Addresses {
    taken: [u64; MOST / 64],
}

impl Addresses {
    /// No addresses in use.
    pub const fn new() -> Addresses {
        Addresses { taken: [0; MOST / 64] }
    }

    /// Takes the lowest free address.
    pub fn take(&mut self) -> Option<usize> {
        let (at, word) = self.taken.iter_mut().enumerate().find(|(_, word)| **word != u64::MAX)?;
        let bit = word.trailing_ones() as usize;
        *word |= 1 << bit;
        Some(BASE + (at * 64 + bit) * PMD)
    }

    /// Gives an address back.
    pub fn give_back(&mut self, address: usize) {
        let number = address.wrapping_sub(BASE) / PMD;
        if let Some(word) = self.taken.get_mut(number / 64) {
            *word &= !(1 << (number % 64));
        }
    }
}

/// Whether another chunk fits into the address space that the program may use (`ulimit -v`): the chunks get an eighth
/// of the part that the program leaves.
pub fn has_address_room(chunks: usize) -> bool {
    let limit = task::soft_limit(task::LIMIT_ADDRESSES).unwrap_or(u64::MAX);
    if limit == u64::MAX {
        return true;
    }
    let own = (chunks * PMD) as u64;
    let others = (meminfo::mapped_bytes().unwrap_or(0) as u64).saturating_sub(own);
    own + PMD as u64 <= limit.saturating_sub(others) / 8
}

/// The tools for populating; copied to the thread that does it.
#[derive(Clone, Copy)]
pub struct Tools {
    /// The userfaultfd.
    pub uffd: Uffd,
    /// The file of frame numbers.
    pub pagemap: Pagemap,
    /// A registered page of its own for each thread, and next to it one that is locked like pinned chunks.
    pub landing: usize,
    /// Registered pages to which pages of the program are moved for a moment, and as many locked ones.
    pub transit: usize,
}

/// An order for a chunk, to be populated outside the lock.
#[derive(Clone, Copy)]
pub struct Order {
    /// The pool that it is for.
    pub pool: usize,
    /// The chunk's address.
    pub address: usize,
    /// Whether the chunk is locked in memory.
    pub pinned: bool,
    /// Number of its pages to populate.
    pub pages: usize,
    /// Whether its pages may be reclaimed soon.
    pub frugal: bool,
}

impl Order {
    /// The node from which its pages should come; `None`: there is only one.
    pub fn node(&self) -> Option<usize> {
        memory_nodes::are_several().then_some(self.pool / MAX_STRATEGIES)
    }
}

/// A populated chunk.
pub struct Made {
    /// The memory node that its pages are on; `None`: there is only one, or it is unknown.
    pub node: Option<usize>,
    /// Whether a huge page is behind it.
    pub huge: bool,
    /// Number of populated pages, at the chunk's beginning.
    pub pages: usize,
    /// Time that splitting took.
    pub split_ns: u64,
}

fn span_at(address: usize) -> Span {
    Span::new(address, address + PMD)
}

/// Gives the memory of a chunk back to the kernel.
pub fn unmap(address: usize) {
    // SAFETY: the chunk belongs to the pool, and nobody uses its pages.
    let _ = unsafe { sys::munmap(address, PMD) };
}

/// A kernel without transparent huge pages has nothing to switch.
fn without_huge_pages(errno: Errno) -> Result<()> {
    if errno == Errno::EINVAL { Ok(()) } else { Err(errno) }
}

fn map(address: usize, pinned: bool) -> Result<()> {
    // The program may have locked all memory (`mlockall`), so this mapping may be locked, until it is unlocked.
    own_locks::for_a_moment(|| {
        mapping::map_at(Span::new(address, address + PMD), c::PROT_RW, c::MAP_NORESERVE)?;
        // SAFETY: a forked child has no use for the chunk, and shared pages could not be moved any more. A core file
        // needs no chunk either: it would be larger than the program's own.
        unsafe {
            sys::madvise(address, PMD, c::MADV_DONTFORK)?;
            sys::madvise(address, PMD, c::MADV_DONTDUMP)?;
        }
        // Beyond the limit on locked memory, pages are placed but not pinned.
        let _ = relock(address, pinned);
        Ok(())
    })
}

/// Locks the memory of a chunk, or unlocks it. (The program may have locked all memory, but it meant only its own.)
pub fn relock(address: usize, pinned: bool) -> Result<()> {
    if pinned { task::mlock(address, PMD, true) } else { task::munlock(address, PMD) }
}

/// Maps the chunk that `order` names and populates as many pages as it says; `small`: without a huge page. Afterwards
/// `frames` has the frame of each slot (0: no page), and the pages are zero.
pub fn populate(tools: &Tools, order: &Order, small: bool, frames: &mut [u64; SLOTS]) -> Result<Made> {
    let Order { address, pinned, pages, .. } = *order;
    let small = small || pages < SLOTS;
    let mut result = Err(Errno::EAGAIN);
    // A huge page that cannot be split is useless.
    for advice in [Advice::HugePages, Advice::BasePages].into_iter().skip(usize::from(small)) {
        map(address, pinned)?;
        if let Some(node) = order.node() {
            // If the program may not use that node, pages come from another one, as they would without the library.
            let _ = sys::nodes::prefer(address, PMD, node);
        }
        result = fill(tools, order, advice, frames);
        if result.is_ok() {
            break;
        }
        unmap(address);
        if !matches!(result, Err(Errno::EAGAIN)) {
            break;
        }
    }
    result
}

fn fill(tools: &Tools, order: &Order, advice: Advice, frames: &mut [u64; SLOTS]) -> Result<Made> {
    let Order { address, pinned, pages, .. } = *order;
    let each_page = || (address..address + pages * PAGE).step_by(PAGE);
    sys::advise(address, PMD, advice).or_else(without_huge_pages)?;
    // The first touch brings in a huge page. Where the machine uses folios of sizes in between (mTHP), it may bring in
    // one of these: its pages cannot be moved one by one, so they are exchanged for small ones.
    // cannot be moved one by one, and they are exchanged for small ones.
    mark(address, 1);
    let mut huge = false;
    if matches!(advice, Advice::HugePages) {
        tools.pagemap.read(address, frames)?;
        huge = is_huge(frames);
        if !huge {
            sys::advise(address, PMD, Advice::BasePages).or_else(without_huge_pages)?;
            discard(span_at(address));
            mark(address, 1);
        }
    }
    // MADV_POPULATE_WRITE is faster for small pages, but it marks them as referenced, in addition to the processor's
    // own mark. The kernel treats such pages as active the first time it examines them. In a small control group, whose
    // counts lag behind, it may then find nothing to reclaim, and end the program (6.18).
    if !huge && !order.frugal && pages > 1 {
        match sys::advise(address, pages * PAGE, Advice::PopulateWrite) {
            // Before Linux 5.14 (which cannot move pages either), or if memory is short: then the touch reports that
            // again.
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    each_page().for_each(|page| mark(page, 1));
    if !huge {
        tools.pagemap.read(address, frames)?;
    }
    sys::advise(address, PMD, Advice::BasePages).or_else(without_huge_pages)?;
    tools.uffd.register(span_at(address))?;
    let begin = sys::monotonic_ns();
    if huge {
        split(tools, address, pinned)?;
    }
    let split_ns = sys::monotonic_ns() - begin;
    each_page().for_each(|page| mark(page, 0));
    let node = memory_nodes::are_several().then(|| one_node(address, frames)).flatten();
    Ok(Made { node, huge, pages, split_ns })
}

/// The node of the first page of the chunk at `address`. Pages on other nodes are removed from `frames`.
fn one_node(address: usize, frames: &mut [u64; SLOTS]) -> Option<usize> {
    let mut found = [-1i32; SLOTS];
    sys::nodes::of_pages(address, &mut found).ok()?;
    let [first, ..] = found;
    for (frame, _) in frames.iter_mut().zip(found).filter(|(_, node)| *node != first) {
        *frame = 0;
    }
    usize::try_from(first).ok()
}

/// Writes a byte into a page. If a huge page that contains zero pages is split, these become the shared zero page.
fn mark(page: usize, byte: u8) {
    // SAFETY: the pool's own memory, mapped read-write, and present (a registered page that is missing would block this
    // thread).
    unsafe { core::ptr::write_volatile(page as *mut u8, byte) };
}

/// Removes the referenced mark that a system call left on the pages of `span` (see [`fill`]).
pub fn unmark(span: Span) {
    // Locked pages are refused, but they are not reclaimed anyway.
    let _ = sys::advise(span.start, span.len(), Advice::Cold);
}

fn is_huge(frames: &[u64; SLOTS]) -> bool {
    let [first, ..] = *frames;
    first.is_multiple_of(SLOTS as u64) && frames.iter().zip(first..).all(|(frame, wanted)| *frame == wanted)
}

/// Splits the huge page at `address`: moves its first page out and back. EAGAIN: it cannot be split now.
fn split(tools: &Tools, address: usize, pinned: bool) -> Result<()> {
    let landing = tools.landing + if pinned { PAGE } else { 0 };
    let (out, back) = (Span::new(landing, landing + PAGE), Span::new(address, address + PAGE));
    // The program may have locked all memory, or a process may have read this page: either brings it in.
    discard(out);
    let one = |from, to| {
        // The kernel splits in steps, and requests another call.
        (0..100).any(|_| {
            // SAFETY: the chunk and the landing page belong to the pool; nobody else uses them now.
            unsafe { tools.uffd.shift(from, to, Then::Wait) }.1.is_none()
        })
    };
    let split = one(address, out) && one(landing, back);
    if !split {
        discard(out);
    }
    if split { Ok(()) } else { Err(Errno::EAGAIN) }
}

/// Gives pages of slots back to the kernel.
pub fn discard(span: Span) {
    // SAFETY: the slots belong to the pool, and nobody uses their pages. (Locked ones need the other advice.)
    unsafe {
        if sys::madvise(span.start, span.len(), c::MADV_DONTNEED).is_err() {
            let _ = sys::madvise(span.start, span.len(), c::MADV_DONTNEED_LOCKED);
        }
    }
}

/// What came of an attempt with other attributes.
pub struct Attempt {
    /// Whether it succeeded.
    pub done: bool,
    /// Whether the slot has its own attributes again. If not, no page can be moved from it like from others.
    pub restored: bool,
}

/// Runs `what` while the page at `slot` is locked (`pinned` slots: not locked), or has another protection.
pub fn with_attributes(slot: usize, pinned: bool, other: bool, prot: i32, what: impl FnOnce() -> bool) -> Attempt {
    own_locks::for_a_moment(|| with(slot, pinned, other, prot, what))
}

fn with(slot: usize, pinned: bool, other: bool, prot: i32, what: impl FnOnce() -> bool) -> Attempt {
    let lock = |locked| if locked { task::mlock(slot, PAGE, true) } else { task::munlock(slot, PAGE) };
    // SAFETY: the slot belongs to the pool alone, and is zero; it is made executable for a moment only.
    let protect = |prot| unsafe { sys::mprotect(slot, PAGE, prot) };
    let mut attempt = Attempt { done: false, restored: true };
    if other && lock(!pinned).is_err() {
        return attempt;
    }
    // Where no memory may become executable (PR_SET_MDWE, SELinux), this is refused; the lock must be undone all the same.
    if prot == c::PROT_RW || protect(prot).is_ok() {
        attempt.done = what();
        attempt.restored = prot == c::PROT_RW || protect(c::PROT_RW).is_ok();
    }
    if other {
        attempt.restored &= lock(pinned).is_ok();
    }
    attempt
}
