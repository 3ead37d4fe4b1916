//! The tables of heap and pools, protected by one lock.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use pagelab_abi::guest::{DisabledReason, State};
use pagelab_abi::plan::{Flags, MAX_ANON_POOLS, Memory, POOL_BYTES, Plan, Section};

use crate::boundary::arch::PAGE;
use crate::boundary::span::{Span, align_up};
use crate::boundary::stack;
use crate::boundary::sys::{self, Errno, c};
use crate::memory::heap::Heap;
use crate::memory::pool::Pool;
use crate::state::child::{self, Reset};
use crate::state::layout::Layout;
use crate::state::lock::Guard;
use crate::state::plan::{self, HEAP, POOLS};
use crate::state::{guest_file, lock};

/// The tables: which parts of heap and pools belong to whom.
pub struct Tables {
    /// The heap, if it is governed.
    pub heap: Option<Heap>,
    /// The anonymous pools, by their number.
    pub pools: [Option<Pool>; MAX_ANON_POOLS],
}

struct Cell(UnsafeCell<Tables>);

// SAFETY: only `Held` reaches the value, and there is one at a time: it holds the lock.
unsafe impl Sync for Cell {}

static TABLES: Cell = Cell(UnsafeCell::new(Tables { heap: None, pools: [const { None }; MAX_ANON_POOLS] }));
/// In a forked child: whether a thread of the parent was changing the tables.
static TORN: AtomicBool = AtomicBool::new(false);

/// Proof that the lock is held.
pub struct Held {
    _lock: Guard<'static, ()>,
}

impl Deref for Held {
    type Target = Tables;
    fn deref(&self) -> &Tables {
        // SAFETY: the lock is held, so this is the only access.
        unsafe { &*TABLES.0.get() }
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Tables {
        // SAFETY: the lock is held, and the proof of that is borrowed exclusively.
        unsafe { &mut *TABLES.0.get() }
    }
}

/// Sets up heap and pools for `plan`; called once. `calls`: memory calls will be made; they run on the library's own
/// stacks. If only the end of the process is examined, the stacks are made then, because each mapping makes every fork
/// more expensive. `resets`: the functions that forked children run first.
pub fn install(plan: Plan<'static>, calls: bool, resets: &'static [Reset]) -> Result<(), Errno> {
    child::watch()?;
    if calls {
        stack::install()?;
    }
    let mut tables = Held { _lock: lock::hold_memory_at_once() };
    for section in (0..plan.section_count()).filter_map(|number| plan.section(number)) {
        if section.governs_pages() || section.governs_frames() {
            tables.add(plan, section);
        }
    }
    drop(tables);
    child::know(resets);
    plan::put(plan);
    Ok(())
}

impl Tables {
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

    /// End of the heap's memory; start of its addresses, if it is not governed.
    pub fn heap_end(&self) -> usize {
        self.heap.as_ref().map_or(HEAP.start, |heap| heap.mapped().end)
    }

    /// Unmaps memory that was mapped in advance, except parts of reserved pages; returns whether there was any.
    pub fn drop_spare(&mut self) -> bool {
        let heap = self.heap.as_mut().is_some_and(|heap| heap.drop_spare(HEAP));
        self.pools.iter_mut().flatten().fold(heap, |some, pool| pool.drop_all_spare() || some)
    }

    /// After the kernel has refused one mapping more: gives up memory mapped in advance that is a mapping of its own.
    /// Returns whether there was any.
    pub fn gives_up_mappings(&mut self) -> bool {
        let mut some = false;
        for pool in self.pools.iter_mut().flatten() {
            some |= pool.drop_lone_spare();
        }
        some
    }

    /// As [`Tables::drop_spare`], in `span` only.
    pub fn drop_spare_in(&mut self, span: Span) {
        if let Some(heap) = &mut self.heap {
            heap.drop_spare(span.and(HEAP));
        }
        for pool in self.pools.iter_mut().flatten() {
            pool.drop_spare_in(span.and(pool.bounds()));
        }
    }

    /// Bytes mapped in advance.
    fn spare_bytes(&self) -> usize {
        let heap = self.heap.as_ref().map_or(0, Heap::spare_bytes);
        self.pools.iter().flatten().fold(heap, |sum, pool| sum + pool.spare_bytes())
    }

    /// Whether any memory is mapped in advance.
    pub fn has_spare(&self) -> bool {
        self.spare_bytes() > 0
    }

    /// After the kernel has refused `len` bytes (ENOMEM): gives up memory that was mapped in advance, if that is what they
    /// lack. Returns whether there may be room now.
    pub fn gives_up_spare_for(&mut self, len: usize) -> bool {
        let spare = self.spare_bytes();
        spare > 0
            && match () {
                // There are too many mappings.
                () if len > 0 && !has_room(PAGE) && self.gives_up_mappings() && has_room(len) => true,
                () => len.checked_sub(spare).is_none_or(has_room) && self.drop_spare(),
            }
    }

    /// After a call that was to replace or move `span` and failed: forgets what is not mapped there any more.
    pub fn recheck(&mut self, span: Span) {
        if let Some(heap) = &mut self.heap {
            heap.recheck(span);
        }
        self.pools.iter_mut().flatten().for_each(|pool| pool.recheck(span.and(pool.bounds())));
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

    /// Calls `visit` with every tile from a reserved pool, and whether its protection differs from read and write.
    pub fn each_hugetlb(&self, visit: &mut dyn FnMut(Span, bool)) {
        if let Some(heap) = &self.heap {
            heap.each_hugetlb(visit);
        }
        self.pools.iter().flatten().for_each(|pool| pool.each_hugetlb(visit));
    }

    /// Makes all reserved pages normal memory, as far as possible.
    pub fn demote_all(&mut self) -> Result<(), Errno> {
        let heap = self.heap.as_mut().map_or(Ok(()), Heap::settle);
        let pools = self.pools.iter_mut().flatten();
        pools.fold(heap, |result, pool| result.and(pool.demote_all(pool.bounds())))
    }

    /// Records that no memory comes from a reserved pool any more.
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

/// Whether the kernel maps `len` bytes somewhere: it also refuses more than the machine could ever hold. (Where it locks
/// all that is mapped, nothing is mapped in advance.)
pub fn has_room(len: usize) -> bool {
    let Some(len) = align_up(len, PAGE) else { return false };
    if len == 0 {
        return true;
    }
    let Ok(at) = sys::map_anywhere(len, c::PROT_RW, 0) else { return false };
    // SAFETY: the mapping was made just now, and nobody knows of it.
    unsafe { sys::munmap(at, len) }.is_ok()
}

/// Whether any of `span` comes from a reserved pool.
pub fn has_hugetlb(span: Span) -> bool {
    let mut tables = lock();
    tables.heap.as_ref().is_some_and(|heap| heap.has_hugetlb(span))
        || tables.pool(span.start).is_some_and(|pool| pool.has_hugetlb(span))
}

/// Whether the heap is governed, and so lies in its pool.
pub fn has_heap() -> bool {
    let tables = Held { _lock: lock::hold_memory_at_once() };
    tables.heap.is_some()
}

fn index_of(addr: usize) -> Option<usize> {
    let inside = (POOLS.start..POOLS.end).contains(&addr);
    inside.then(|| (addr - POOLS.start) / POOL_BYTES as usize)
}

/// The tables, locked; in a forked child set up anew first.
pub fn lock() -> Held {
    Held { _lock: lock::hold_memory() }
}

/// In a forked child, before anything else: frees the lock, which no thread there holds.
pub fn free_lock() {
    TORN.store(lock::free_memory_lock(), Ordering::Relaxed);
}

/// In a forked child: looks up anew what a thread of the parent was changing, and ends the governing in a child that
/// does not inherit the policy.
pub fn adopt_child() {
    let Some(plan) = plan::current() else { return };
    let mut tables = Held { _lock: lock::hold_memory_at_once() };
    if TORN.load(Ordering::Relaxed) {
        tables.rebuild();
    }
    if plan.flags().contains(Flags::INHERIT_FORK) {
        guest_file::state(State::Active);
    } else {
        tables.mute();
        plan::mute();
        guest_file::disabled(DisabledReason::NotInherited, None);
    }
}
