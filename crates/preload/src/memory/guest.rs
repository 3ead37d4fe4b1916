//! The guest in this process: the plan, the pools and the heap, behind one lock.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use pagelab_abi::guest::{DisabledReason, Started, State};
use pagelab_abi::plan::{ANON_BASE, Flags, HEAP_BASE, MAX_ANON_POOLS, Memory, POOL_BYTES, Plan, Section};

use crate::boundary::apart::apart;
use crate::boundary::arch::{self, PAGE};
use crate::boundary::span::Span;
use crate::boundary::stack;
use crate::boundary::sys::{self, Errno, c, task};
use crate::frames;
use crate::hooks::windows;
use crate::memory::heap::Heap;
use crate::memory::pool::Pool;
use crate::state::guest_file;
use crate::state::layout::Layout;
use crate::state::lock::{Guard, Locked};
use crate::state::seccomp;

/// All addresses that pools can have.
pub const POOLS: Span = Span::new(ANON_BASE as usize, ANON_BASE as usize + MAX_ANON_POOLS * POOL_BYTES as usize);

/// The heap's addresses.
pub const HEAP: Span = Span::new(HEAP_BASE as usize, (HEAP_BASE + POOL_BYTES) as usize);

/// Everything that changes.
pub struct Guest {
    /// The heap, if it is governed.
    pub heap: Option<Heap>,
    /// The anonymous pools, by their number.
    pub pools: [Option<Pool>; MAX_ANON_POOLS],
}

static GUEST: Locked<Guest> = Locked::new(Guest { heap: None, pools: [const { None }; MAX_ANON_POOLS] });

struct PlanCell(UnsafeCell<Option<Plan<'static>>>);

// SAFETY: written once, before `READY` is set and before there are threads; read-only afterwards.
unsafe impl Sync for PlanCell {}

static PLAN: PlanCell = PlanCell(UnsafeCell::new(None));
static READY: AtomicBool = AtomicBool::new(false);
static MUTED: AtomicBool = AtomicBool::new(false);
/// One word in a page that the kernel clears in forked children: [`NEW`], [`ADOPTING`] or [`KNOWN`].
static ALIVE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
/// This process was forked and has not met the guest yet.
const NEW: u32 = 0;
/// A thread of this process, [`ADOPTER`], is setting the guest up.
const ADOPTING: u32 = 2;
const KNOWN: u32 = 1;
/// The thread pointer of the thread that does so.
static ADOPTER: AtomicUsize = AtomicUsize::new(0);

/// The plan, once the guest governs.
pub fn plan() -> Option<Plan<'static>> {
    if !READY.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: not written any more after READY was set.
    unsafe { *PLAN.0.get() }
}

/// Whether the plan has this switch on.
pub fn has_flag(flag: Flags) -> bool {
    plan().is_some_and(|plan| plan.flags().contains(flag))
}

/// The plan's section for a new mapping; none in a child that does not inherit.
pub fn section_for(memory: Memory, len: usize) -> Option<Section> {
    if MUTED.load(Ordering::Relaxed) {
        return None;
    }
    plan()?.section_for(memory, len as u64)
}

/// The layout of the pool or heap around `addr`, read from the plan without a lock; `None`: no pool of the plan's.
pub fn layout_at(addr: usize) -> Option<Layout> {
    let plan = plan()?;
    let inside = |section: &Section| {
        let base = section.pool_base as usize;
        base != 0 && (base..base + POOL_BYTES as usize).contains(&addr)
    };
    let section = (0..plan.section_count()).filter_map(|number| plan.section(number)).find(inside)?;
    Some(Layout::new(plan, section, section.pool_base as usize, POOL_BYTES as usize))
}

/// Sets up heap and pools for `plan`. `calls`: memory calls will be made, which run on stacks of the library's own; where only the
/// end of the process is looked at, those are made then: each mapping costs every fork something.
///
/// # Safety
/// This is the first call, and no other is under way.
pub unsafe fn install(plan: Plan<'static>, calls: bool) -> Result<(), Errno> {
    let page = sys::mmap_own(PAGE)?;
    // SAFETY: a fresh page of our own.
    unsafe { sys::madvise(page, PAGE, c::MADV_WIPEONFORK) }?;
    let word = page as *mut AtomicU32;
    // SAFETY: the page is mapped, aligned and never unmapped.
    unsafe { (*word).store(KNOWN, Ordering::Relaxed) };
    if calls {
        stack::install()?;
    }
    let mut guest = GUEST.lock();
    for section in (0..plan.section_count()).filter_map(|number| plan.section(number)) {
        if section.governs_pages() || section.governs_frames() {
            guest.add(plan, section);
        }
    }
    drop(guest);
    // SAFETY: READY is not set yet, so nobody reads.
    unsafe { *PLAN.0.get() = Some(plan) };
    ALIVE.store(word, Ordering::Release);
    READY.store(true, Ordering::Release);
    Ok(())
}

impl Guest {
    fn add(&mut self, plan: Plan<'static>, section: Section) {
        let base = section.pool_base as usize;
        let layout = Layout::new(plan, section, base, POOL_BYTES as usize);
        match section.memory {
            Memory::Heap if HEAP.start == base && self.heap.is_none() => self.heap = Some(Heap::new(layout)),
            Memory::Anon | Memory::Arenas => {
                if let Some(slot @ None) = index_of(base).and_then(|index| self.pools.get_mut(index)) {
                    *slot = Some(Pool::new(layout));
                }
            }
            _ => {}
        }
    }

    /// Where the heap's memory ends; where its addresses begin, if it is not governed.
    pub fn heap_end(&self) -> usize {
        self.heap.as_ref().map_or(HEAP.start, |heap| heap.mapped().end)
    }

    /// The pool around `addr`.
    pub fn pool(&mut self, addr: usize) -> Option<&mut Pool> {
        self.pools.get_mut(index_of(addr)?)?.as_mut()
    }

    /// Whether `addr` lies in the heap of a thread arena.
    pub fn is_arena(&self, addr: usize) -> bool {
        let pool = index_of(addr).and_then(|index| self.pools.get(index)?.as_ref());
        pool.is_some_and(|pool| pool.is_arena(addr))
    }

    /// Calls `visit` with every tile from a reserved pool, and whether its protection is anything but read and write.
    pub fn each_hugetlb(&self, visit: &mut dyn FnMut(Span, bool)) {
        if let Some(heap) = &self.heap {
            heap.each_hugetlb(visit);
        }
        self.pools.iter().flatten().for_each(|pool| pool.each_hugetlb(visit));
    }

    /// Makes normal memory of all reserved pages, as far as that can be done.
    pub fn demote_all(&mut self) -> Result<(), Errno> {
        let heap = self.heap.as_mut().map_or(Ok(()), Heap::settle);
        let pools = self.pools.iter_mut().flatten();
        pools.fold(heap, |result, pool| result.and(pool.demote_all(pool.bounds())))
    }

    /// None of them comes from a reserved pool any more.
    pub fn all_demoted(&mut self) {
        if let Some(heap) = &mut self.heap {
            heap.all_demoted();
        }
        self.pools.iter_mut().flatten().for_each(Pool::all_demoted);
    }

    fn mute(&mut self) {
        if let Some(heap) = &mut self.heap {
            let layout = heap.layout().muted();
            heap.set_layout(layout);
        }
        for pool in self.pools.iter_mut().flatten() {
            let layout = pool.layout().muted();
            pool.set_layout(layout);
        }
    }

    fn rebuild(&mut self) {
        if let Some(heap) = &mut self.heap {
            heap.rebuild();
        }
        self.pools.iter_mut().flatten().for_each(Pool::rebuild);
    }
}

/// Whether any of `span` comes from a reserved pool.
pub fn has_hugetlb(span: Span) -> bool {
    let mut guest = lock();
    guest.heap.as_ref().is_some_and(|heap| heap.has_hugetlb(span))
        || guest.pool(span.start).is_some_and(|pool| pool.has_hugetlb(span))
}

/// Whether the heap lives in its pool.
pub fn has_heap() -> bool {
    GUEST.lock().heap.is_some()
}

fn index_of(addr: usize) -> Option<usize> {
    let inside = (POOLS.start..POOLS.end).contains(&addr);
    inside.then(|| (addr - POOLS.start) / POOL_BYTES as usize)
}

/// Where the pool around `addr`, which lies in [`POOLS`], ends.
pub fn pool_end(addr: usize) -> usize {
    POOLS.start + ((addr - POOLS.start) / POOL_BYTES as usize + 1) * POOL_BYTES as usize
}

/// Whether `[addr, addr + len)` touches any address that a pool can have.
pub fn touches_pools(addr: usize, len: usize) -> bool {
    addr < POOLS.end && addr.saturating_add(len) > POOLS.start
}

/// The guest, locked; in a forked child set up anew first.
pub fn lock() -> Guard<'static, Guest> {
    adopt_child();
    GUEST.lock()
}

fn word() -> Option<&'static AtomicU32> {
    // SAFETY: null or the page of `install`, which is never unmapped.
    unsafe { ALIVE.load(Ordering::Acquire).as_ref() }
}

/// Whether this process was forked and has not met the guest yet.
pub fn is_new_child() -> bool {
    word().is_some_and(|word| word.load(Ordering::Relaxed) == NEW)
}

/// In a forked child that has not met the guest yet: true for one thread, which has to [`set_up_child`]. (Others, which the
/// child may have made past libc, wait until that is done.)
pub fn claim_child() -> bool {
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

/// In a forked child that has not met the guest yet: sets it up.
pub fn adopt_child() {
    if claim_child() {
        set_up_child();
    }
}

/// First call of the guest in a forked child, by the thread that claimed it.
#[cold]
pub fn set_up_child() {
    let mask = sys::signal_mask(u64::MAX);
    let torn = GUEST.reset_after_fork();
    guest_file::forget();
    windows::forget();
    if let Some(plan) = plan() {
        let start_ns = if seccomp::is_active() { 0 } else { sys::monotonic_ns() };
        // A child in another mount namespace or root cannot reach the run directory: it is governed, but silent.
        if !seccomp::is_active() {
            let _ = apart(|| guest_file::create(&plan, Started::Fork, start_ns));
        }
        let mut guest = GUEST.lock();
        if torn {
            guest.rebuild();
        }
        if plan.flags().contains(Flags::INHERIT_FORK) {
            guest_file::state(State::Active);
        } else {
            guest.mute();
            MUTED.store(true, Ordering::Relaxed);
            guest_file::disabled(DisabledReason::NotInherited, None);
        }
        drop(guest);
        frames::adopt_child(plan.flags().contains(Flags::INHERIT_FORK));
        if let Some(file) = guest_file::file() {
            guest_file::set(&file.ready_ns, sys::monotonic_ns());
        }
    }
    if let Some(word) = word() {
        ADOPTER.store(0, Ordering::Release);
        word.store(KNOWN, Ordering::Release);
        task::futex_wake_all(word);
    }
    sys::signal_mask(mask);
}
