//! Memory for treap nodes: one growing mapping of the guest's own, indexed by number, with a free list.

use crate::boundary::own::store_for_forks;
use crate::boundary::sys::{self, c};

use super::Full;

/// Number that stands for no node.
pub const NIL: u32 = u32::MAX;

/// One interval, and the sums of its subtree.
#[derive(Clone, Copy)]
pub struct Node {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// Lowest start of the subtree.
    pub low: usize,
    /// Highest end of the subtree.
    pub high: usize,
    /// Largest gap between two intervals of the subtree.
    pub gap: usize,
    /// Subtree before it. In a free node: the next free one.
    pub left: u32,
    /// Subtree after it.
    pub right: u32,
    /// Heap order of the treap.
    pub priority: u32,
}

/// The nodes. (Aligned so that no page ends in it: a fork copies pages, each at another moment.)
#[repr(align(32))]
pub struct Slab {
    base: *mut Node,
    capacity: u32,
    used: u32,
    free: u32,
    live: u32,
}

// SAFETY: the mapping belongs to this value alone, and nothing in it depends on the thread.
unsafe impl Send for Slab {}

const FIRST_BYTES: usize = 64 << 10;
const MAX_NODES: usize = 1 << 22;

impl Slab {
    /// A slab without a mapping.
    pub const fn new() -> Slab {
        Slab { base: core::ptr::null_mut(), capacity: 0, used: 0, free: NIL, live: 0 }
    }

    /// Nodes in use.
    #[cfg(test)]
    pub fn live(&self) -> usize {
        self.live as usize
    }

    /// Makes sure that `count` more nodes can be taken.
    pub fn reserve(&mut self, count: u32) -> Result<(), Full> {
        if self.live + count <= self.capacity {
            return Ok(());
        }
        let bytes = self.capacity as usize * size_of::<Node>();
        let wanted = if bytes == 0 { FIRST_BYTES } else { bytes.next_power_of_two() * 2 };
        let nodes = wanted / size_of::<Node>();
        if nodes > MAX_NODES {
            return Err(Full);
        }
        let base = if bytes == 0 {
            sys::mmap_own(wanted)
        } else {
            let (old, capacity) = (bytes.next_power_of_two(), self.capacity);
            // A child of a fork at this moment has an address that may be somebody else's. It drops the slab, and sees
            // by this that it must not unmap it.
            store_for_forks(&mut self.capacity, 0);
            // SAFETY: the mapping is this value's alone, and `base` gets its new address before anyone uses it.
            let moved = unsafe { sys::mremap(self.base as usize, old, wanted, c::MREMAP_MAYMOVE, 0) };
            if moved.is_err() {
                store_for_forks(&mut self.capacity, capacity);
            }
            moved
        };
        store_for_forks(&mut self.base, base.map_err(|_| Full)? as *mut Node);
        store_for_forks(&mut self.capacity, nodes as u32);
        Ok(())
    }

    /// Takes a node, with stale contents; only after [`Slab::reserve`].
    pub fn take(&mut self) -> u32 {
        self.live += 1;
        if self.free != NIL {
            let at = self.free;
            self.free = self.get(at).left;
            return at;
        }
        self.used += 1;
        self.used - 1
    }

    /// Takes a node back.
    pub fn give_back(&mut self, at: u32) {
        self.live -= 1;
        let free = self.free;
        self.get_mut(at).left = free;
        self.free = at;
    }

    /// Node `at`.
    pub fn get(&self, at: u32) -> &Node {
        debug_assert!(at < self.used);
        // SAFETY: numbers come from `take`, and are below the capacity that `reserve` mapped.
        unsafe { &*self.base.add(at as usize) }
    }

    /// Node `at`.
    pub fn get_mut(&mut self, at: u32) -> &mut Node {
        debug_assert!(at < self.used);
        // SAFETY: as in `get`, and `self` is borrowed exclusively.
        unsafe { &mut *self.base.add(at as usize) }
    }
}

impl Drop for Slab {
    /// Unmaps the nodes. It walks none of them: a forked child drops what a thread of the parent was changing.
    fn drop(&mut self) {
        if self.capacity != 0 {
            let bytes = (self.capacity as usize * size_of::<Node>()).next_power_of_two();
            // SAFETY: nothing refers to the nodes any more.
            let _ = unsafe { sys::munmap(self.base as usize, bytes) };
        }
    }
}
