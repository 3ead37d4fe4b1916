//! Page walks: the table entries that they read, their addresses, and the effect of walk caches.

use super::array::{Array, leaf};
use super::behind::Missed;
use super::spec::WalkCacheSpec;
use crate::allocate::{Memory, PAGE_BITS};
use crate::pages::{NONE, PageMap};

const ENTRY_BYTES: u64 = 8;
pub(super) const INDEX_BITS: u32 = 9;

/// The tables of all address spaces of one dimension. Tables get frames when they are first walked.
#[derive(Clone, Debug)]
pub(super) struct PageTables {
    levels: u32,
    frames: PageMap,
}

impl PageTables {
    pub(super) fn new(levels: u32) -> PageTables {
        PageTables { levels, frames: PageMap::default() }
    }

    /// Binary logarithm of the size that an entry of the top level maps.
    pub(super) const fn top(&self) -> u32 {
        PAGE_BITS + INDEX_BITS * (self.levels - 1)
    }

    /// Physical address of the entry that maps `1 << bits` bytes around `address`.
    #[inline(always)]
    pub(super) fn entry(&mut self, memory: &mut Memory, asid: u16, address: u64, bits: u32) -> u64 {
        let table = bits + INDEX_BITS;
        // A table spans at least 2 MiB: 35 bits of number, 12 of address space, and the level above them.
        let key = u64::from((bits - PAGE_BITS) / INDEX_BITS) << 48 | u64::from(asid) << 35 | address >> table;
        let frame = match self.frames.get(key) {
            NONE => {
                let frame = memory.table_frame();
                self.frames.set(key, frame);
                frame
            }
            frame => frame,
        };
        (frame << PAGE_BITS) + ((address >> bits) & ((1 << INDEX_BITS) - 1)) * ENTRY_BYTES
    }
}

/// The caches of the upper levels; those that save most come first.
#[derive(Clone, Debug)]
pub(super) struct WalkCaches {
    caches: Vec<(u32, Array)>,
    /// Number of walks that began below the top.
    pub(super) hits: u64,
}

impl WalkCaches {
    pub(super) fn new(specs: &[WalkCacheSpec], seed: u64) -> WalkCaches {
        let mut caches: Vec<(u32, Array)> =
            specs.iter().map(|spec| (spec.spans.trailing_zeros(), Array::of_walk_cache(spec, seed))).collect();
        caches.sort_by_key(|(bits, _)| *bits);
        WalkCaches { caches, hits: 0 }
    }

    /// Size that the first entry to be read maps, for a walk down to `leaf`: that of the top, or the one below a cached
    /// entry. The entries above `leaf` that the walk then reads are inserted into every cache that lacked one.
    #[inline(always)]
    pub(super) fn start(&mut self, asid: u16, address: u64, leaf: u32, top: u32) -> u32 {
        for (bits, cache) in self.caches.iter_mut().filter(|(bits, _)| *bits > leaf) {
            if cache.use_or_insert(asid, address, *bits) {
                self.hits += 1;
                return *bits - INDEX_BITS;
            }
        }
        top
    }

    /// [`WalkCaches::start`] of each of `walks`, in their order.
    #[inline(always)]
    pub(super) fn start_all(&mut self, asid: u16, walks: &mut [Missed], top: u32, asking: &mut [u16]) {
        let all_ask = self.caches.first().is_none_or(|(bits, _)| walks.iter().all(|walk| walk.leaf() < *bits));
        let mut length = walks.len();
        for (walk, (number, asking)) in walks.iter_mut().zip((0..).zip(asking.iter_mut())) {
            (walk.start, *asking) = (top as u8, number);
        }
        for (bits, cache) in &mut self.caches {
            // Some larger pages ask only a later cache.
            if !all_ask {
                length = 0;
                for (walk, number) in walks.iter().zip(0_u16..) {
                    asking[length] = number;
                    length += usize::from(walk.start == top as u8 && walk.leaf() < *bits);
                }
            }
            let left = cache.shorten(asid, walks, &mut asking[..length], (*bits, *bits - INDEX_BITS));
            self.hits += (length - left) as u64;
            length = left;
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.caches.iter().try_for_each(|(_, cache)| cache.check())
    }
}

/// Sizes that the entries read by a walk map, from the first to the last.
pub(super) fn steps(start: u32, page_bits: u32) -> impl Iterator<Item = u32> {
    let last = leaf(page_bits);
    (0..).map_while(move |step| start.checked_sub(step * INDEX_BITS).filter(|bits| *bits >= last))
}
