//! One core: its arrays, its walkers, and the cost of translation.

use pagelab_trace::{Reference, SIZES};

use super::array::{Array, Arrays, Seen, leaf};
use super::behind::{List, Missed};
use super::run::Sizes;
use super::settled::Settled;
use super::spec::{NestedSpec, Side, TlbSpec};
use super::walk::{INDEX_BITS, PageTables, WalkCaches, steps};
use super::windows::{Cost, Windows};
use crate::allocate::{Memory, PAGE_BITS};
use crate::cache::Hierarchy;
use crate::cpu::{self, Leveled};

/// Counts of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreCounts {
    /// Translations requested: one for each page that a reference touches (or each part of a page with its own entry).
    pub translations: u64,
    /// H, M and C by the last level of the table: 4 KiB, 2 MiB, 1 GiB.
    pub by_leaf: [Cost; 3],
    /// Table entries read by walks.
    pub reads: u64,
    /// Entries of the host's tables among these.
    pub host_reads: u64,
    /// Walks that begin further down because of a cache of the upper levels.
    pub shortened: u64,
    /// Entries that combine several base pages.
    pub coalesced: u64,
    /// Cycles with at least one walk under way.
    pub active_cycles: f64,
    /// Cycles for which references waited for a walker.
    pub queue_cycles: f64,
}

impl CoreCounts {
    /// H, M and C over all page sizes.
    #[must_use]
    pub fn cost(&self) -> Cost {
        let mut sum = Cost::default();
        self.by_leaf.iter().for_each(|cost| sum.add(cost));
        sum
    }

    /// Adds the counts of another core.
    pub fn add(&mut self, other: &CoreCounts) {
        self.by_leaf.iter_mut().zip(&other.by_leaf).for_each(|(sum, cost)| sum.add(cost));
        self.translations += other.translations;
        self.reads += other.reads;
        self.host_reads += other.host_reads;
        self.shortened += other.shortened;
        self.coalesced += other.coalesced;
        self.active_cycles += other.active_cycles;
        self.queue_cycles += other.queue_cycles;
    }
}

/// The number of a page size among the sizes at which tables end.
#[inline(always)]
pub(super) const fn leaf_number(page_bits: u32) -> usize {
    (page_bits >= 21) as usize + (page_bits >= 30) as usize
}

/// Data shared by all cores: memory, tables, data caches.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) memory: Memory,
    pub(super) tables: PageTables,
    /// The host's memory and its tables, if there is a host.
    pub(super) host: Option<(Memory, PageTables)>,
    pub(super) caches: Option<Caches>,
    pub(super) entry_cycles: u32,
}

/// The data caches, and the cost of a read by the depth at which it ends.
#[derive(Debug)]
pub(super) struct Caches {
    pub(super) hierarchy: Hierarchy,
    pub(super) cycles: Vec<u32>,
    pub(super) line_bits: u32,
    pub(super) enter: usize,
}

impl Machine {
    /// Cycles to read the table entry at a physical address.
    fn read(&mut self, core: usize, address: u64) -> u64 {
        match &mut self.caches {
            None => u64::from(self.entry_cycles),
            Some(caches) => {
                let depth = caches.hierarchy.walk(core, address >> caches.line_bits, caches.enter);
                u64::from(caches.cycles[depth])
            }
        }
    }

    /// Host-physical address of a guest-physical one; without a host, the same address.
    pub(super) fn physical(&mut self, address: u64) -> u64 {
        match &mut self.host {
            None => address,
            Some((memory, _)) => {
                memory.frame(0, address >> PAGE_BITS) << PAGE_BITS | address & ((1 << PAGE_BITS) - 1)
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Nested {
    tlb: Option<Array>,
    caches: WalkCaches,
    page_bits: u32,
}

impl Nested {
    fn new(spec: &NestedSpec, seed: u64) -> Nested {
        Nested {
            tlb: spec.tlb.as_ref().map(|tlb| Array::new(tlb, seed)),
            caches: WalkCaches::new(&spec.walk_caches, seed),
            page_bits: spec.page_bytes.trailing_zeros(),
        }
    }
}

/// The page translated last on a side: its entry stays as long as no other is looked up.
#[derive(Clone, Copy, Debug)]
struct Last {
    asid: u16,
    address: u64,
    grain: u32,
    seen: Seen,
}

/// The side of loads, and of stores without their own arrays.
pub(super) const LOADS: usize = 0;
/// The side of stores with their own arrays.
const STORES: usize = 2;
const PAGE_BYTES: u64 = 1 << PAGE_BITS;
/// By kind and size code: loads and stores that begin at lower offsets of a page lie within it; 0 for other kinds.
const WITHIN: [u16; 256] = {
    let mut within = [0; 256];
    let mut meta = 0;
    while meta < 256 {
        let size = SIZES[meta >> 2] as u64;
        if meta & 3 < 2 {
            within[meta] = (PAGE_BYTES + 1 - if size == 0 { 1 } else { size }) as u16;
        }
        meta += 1;
    }
    within
};

#[derive(Clone, Debug)]
pub(super) struct Core {
    number: usize,
    /// Arrays for data (only loads, if stores have their own), for instructions, and for stores that have their own.
    first: [Arrays; 3],
    /// The side of stores.
    stores: usize,
    last: [Last; 3],
    settled: [Settled; 3],
    pub(super) second: Arrays,
    /// Misses of the first level, if they are handled by batches.
    pub(super) missed: Option<List>,
    pub(super) caches: WalkCaches,
    nested: Option<Nested>,
    /// Time at which each walker is free.
    walkers: Vec<f64>,
    cycles_per_reference: f64,
    /// Cycles for which references have waited so far, and the end of the last cycle with a walk under way.
    waited: f64,
    covered: f64,
    /// Binary logarithm of the largest entry that the hardware makes of base pages by itself.
    coalesced_bits: Option<u32>,
    pub(super) counts: CoreCounts,
}

impl Core {
    pub(super) fn new(spec: &TlbSpec, number: usize, seed: u64) -> Core {
        let seed = seed ^ (number as u64) << 48;
        let side = |sides: &[Side]| {
            Arrays::new(spec.first.iter().filter(|array| sides.contains(&array.serves)), true, seed)
        };
        let first = [side(&[Side::Data, Side::Load]), side(&[Side::Instruction]), side(&[Side::Store])];
        let between = first[0].grain(20).filter(|grain| *grain > PAGE_BITS);
        Core {
            number,
            stores: if first[STORES].is_empty() { LOADS } else { STORES },
            first,
            last: [Last { asid: 0, address: u64::MAX, grain: 0, seen: Seen::NEVER }; 3],
            settled: [const { Settled::NONE }; 3],
            second: Arrays::new(spec.second.iter(), false, !seed),
            missed: None,
            caches: WalkCaches::new(&spec.walk_caches, seed),
            nested: spec.nested.as_ref().map(|nested| Nested::new(nested, seed)),
            walkers: vec![0.0; spec.walkers],
            cycles_per_reference: spec.cycles_per_reference,
            waited: 0.0,
            covered: 0.0,
            coalesced_bits: between.filter(|_| spec.coalesces),
            counts: CoreCounts::default(),
        }
    }

    /// From now on misses of the first level wait for [`Core::go_behind`], if nothing comes back from there.
    pub(super) fn wait_behind(&mut self) {
        self.missed = self.coalesced_bits.is_none().then(List::new);
    }

    /// The sides of loads, stores and fetches; none if no array serves them.
    pub(super) fn sides(&self) -> [Option<usize>; 3] {
        let own = |side: usize| (!self.first[side].is_empty()).then_some(side);
        [Some(LOADS), Some(self.stores), own(1)]
    }

    /// Translates these references, from the first on, as long as they are loads and stores within pages whose entries
    /// are where they were found. Returns their number.
    #[inline(always)]
    pub(super) fn settled(&mut self, asid: u16, references: &[Reference]) -> usize {
        let mut now = self.counts.translations;
        for reference in references {
            let (address, meta) = (reference.address(), usize::from(reference.meta()));
            let side = if meta & 1 == 0 { LOADS } else { self.stores };
            now += 1;
            if address & (PAGE_BYTES - 1) >= u64::from(WITHIN[meta])
                || !self.settled[side].use_again(&mut self.first[side], asid, address, now)
            {
                now -= 1;
                break;
            }
        }
        let settled = now - self.counts.translations;
        self.counts.translations = now;
        settled as usize
    }

    /// As [`Core::settled`], for any entries: they are not remembered, because they seldom stay.
    pub(super) fn fresh(&mut self, asid: u16, references: &[Reference], sizes: &mut Sizes) -> usize {
        let mut done = 0;
        self.first.iter_mut().for_each(Arrays::put_in_order);
        cpu::widest_level(Fresh { core: self, asid, references, sizes, done: &mut done });
        done
    }

    /// Whether the sets of the first level keep their order themselves now.
    #[inline(always)]
    pub(super) fn is_in_order(&self) -> bool {
        self.first[LOADS].is_in_order()
    }

    /// Arrays keep their entries in place again.
    #[inline(always)]
    pub(super) fn keep_places(&mut self) {
        let now = self.counts.translations;
        self.first.iter_mut().for_each(|arrays| arrays.keep_places(now));
    }

    #[inline(always)]
    fn fresh_at<const LEVEL: u8>(&mut self, asid: u16, references: &[Reference], sizes: &mut Sizes) -> usize {
        let Some(list) = &mut self.missed else { return 0 };
        let before = self.counts.translations;
        let mut now = before;
        let least = self.nested.as_ref().map_or(u32::MAX, |nested| nested.page_bits);
        let (missed, mut length) = list.free();
        for reference in references {
            let (address, meta) = (reference.address(), usize::from(reference.meta()));
            if address & (PAGE_BYTES - 1) >= u64::from(WITHIN[meta]) {
                break;
            }
            now += 1;
            let side = if meta & 1 == 0 { LOADS } else { self.stores };
            let page_bits = sizes.of(address);
            let entry_bits = page_bits.min(least);
            let was_there = self.first[side].use_fresh::<LEVEL>(asid, address, entry_bits, now);
            // There is no branch, because which of them miss is unpredictable.
            missed[length] = Missed::new(address, now, page_bits, entry_bits);
            length += usize::from(!was_there);
        }
        list.grow_to(length);
        self.counts.translations = now;
        self.last = [Last { asid: 0, address: u64::MAX, grain: 0, seen: Seen::NEVER }; 3];
        (now - before) as usize
    }

    /// Translates a page `times` times, if its entry is where it was found; returns whether it is.
    #[inline(always)]
    pub(super) fn settled_page(&mut self, side: usize, asid: u16, address: u64, times: u64) -> bool {
        let now = self.counts.translations + times;
        let settled = self.settled[side].use_again(&mut self.first[side], asid, address, now);
        self.counts.translations += if settled { times } else { 0 };
        settled
    }

    /// Whether an array of the first level holds the page translated last on this side.
    #[inline(always)]
    pub(super) fn is_held(&self, side: usize) -> bool {
        self.last[side].address != u64::MAX
    }

    /// Adds translations of the page translated last.
    #[inline]
    pub(super) fn add_translations(&mut self, translations: u64) {
        self.counts.translations += translations;
    }

    /// Whether the page translated last on this side contains `address`.
    #[inline(always)]
    pub(super) fn again(&mut self, side: usize, asid: u16, address: u64) -> bool {
        let last = self.last[side];
        let same = (address ^ last.address) >> last.grain == 0 && asid == last.asid;
        if same {
            self.counts.translations += 1;
            self.first[side].use_again(last.seen, self.counts.translations);
        }
        same
    }

    /// Binary logarithm of the size that one translation of a page of `1 << page_bits` bytes serves: that of an entry
    /// of the first level, or of the table if no array holds such pages.
    pub(super) fn entry_bits(&self, side: usize, page_bits: u32) -> u32 {
        let bits = self.nested.as_ref().map_or(page_bits, |nested| page_bits.min(nested.page_bits));
        self.first[side].grain(bits).unwrap_or_else(|| leaf(bits))
    }

    /// Translates an address of a page of `1 << page_bits` bytes; returns the cost if it missed in the first level.
    #[inline(always)]
    pub(super) fn translate(
        &mut self,
        machine: &mut Machine,
        side: usize,
        asid: u16,
        address: u64,
        page_bits: u32,
    ) -> Option<Cost> {
        self.counts.translations += 1;
        let now = self.counts.translations;
        // An entry maps no more than both dimensions do.
        let entry_bits = match &self.nested {
            Some(nested) => page_bits.min(nested.page_bits),
            None => page_bits,
        };
        if self.coalesced_bits.is_some() {
            return self.translate_together(machine, side, asid, address, [page_bits, entry_bits]);
        }
        let (was_there, seen) = self.first[side].use_or_insert(asid, address, entry_bits, now);
        self.remember(side, asid, address, entry_bits, seen);
        if was_there {
            return None;
        }
        let missed = Missed::new(address, now, page_bits, entry_bits);
        if let Some(list) = &mut self.missed {
            list.add(missed);
            return None;
        }
        let cost = match self.second.in_second(asid, &missed) {
            true => Cost { hits: 1, ..Cost::default() },
            false => Cost { misses: 1, walk_cycles: self.start_walk(machine, asid, missed), ..Cost::default() },
        };
        self.leaf_cost(page_bits).add(&cost);
        Some(cost)
    }

    /// The sums for pages of a size.
    #[inline(always)]
    pub(super) fn leaf_cost(&mut self, page_bits: u32) -> &mut Cost {
        &mut self.counts.by_leaf[leaf_number(page_bits)]
    }

    /// As [`Core::translate`], if an entry may stand for several pages: then its size is known only after the walk.
    #[inline(never)]
    fn translate_together(
        &mut self,
        machine: &mut Machine,
        side: usize,
        asid: u16,
        address: u64,
        bits: [u32; 2],
    ) -> Option<Cost> {
        let ([page_bits, entry_bits], now) = (bits, self.counts.translations);
        let together = self.coalesced_bits.filter(|_| entry_bits == PAGE_BITS);
        for bits in [Some(entry_bits), together].into_iter().flatten() {
            if let Some(seen) = self.first[side].touch(asid, address, bits, now) {
                self.remember(side, asid, address, bits, seen);
                return (bits != entry_bits).then(Cost::default);
            }
        }
        let sizes = [Some(entry_bits), together].into_iter().flatten();
        let found = sizes.into_iter().find(|bits| self.second.touch(asid, address, *bits, now).is_some());
        let (bits, cost) = match found {
            Some(bits) => (bits, Cost { hits: 1, ..Cost::default() }),
            None => {
                let walk_cycles = self.start_walk(machine, asid, Missed::new(address, now, page_bits, entry_bits));
                let bits = self.new_entry_bits(machine, asid, address, entry_bits);
                self.second.insert(asid, address, bits, now);
                (bits, Cost { misses: 1, walk_cycles, ..Cost::default() })
            }
        };
        let seen = self.first[side].insert(asid, address, bits, now);
        self.remember(side, asid, address, bits, seen);
        self.leaf_cost(page_bits).add(&cost);
        Some(cost)
    }

    #[inline(always)]
    fn remember(&mut self, side: usize, asid: u16, address: u64, page_bits: u32, seen: Seen) {
        self.settled[side].keep(asid, address, seen);
        // A size that no array holds is searched each time.
        self.last[side] = match self.first[side].grain(page_bits) {
            Some(grain) => Last { asid, address, grain, seen },
            None => Last { asid, address: u64::MAX, grain: 0, seen },
        };
    }

    /// The size for which the new entry stands: larger than the page's if the hardware finds contiguous neighbours.
    fn new_entry_bits(&mut self, machine: &mut Machine, asid: u16, address: u64, page_bits: u32) -> u32 {
        let Some(bits) = self.coalesced_bits.filter(|_| page_bits == PAGE_BITS) else { return page_bits };
        let vpn = address >> PAGE_BITS;
        machine.memory.frame(asid, vpn);
        if !machine.memory.is_contiguous(asid, vpn, bits - PAGE_BITS) {
            return page_bits;
        }
        self.counts.coalesced += 1;
        bits
    }

    /// Cycles of a walk from the point at which the caches let it begin.
    #[inline(always)]
    fn start_walk(&mut self, machine: &mut Machine, asid: u16, mut missed: Missed) -> u64 {
        let leaf = leaf(u32::from(missed.page_bits));
        missed.start = self.caches.start(asid, missed.address, leaf, machine.tables.top()) as u8;
        let cycles = self.walk_tables(machine, asid, &missed);
        self.wait_for_walker(&missed, cycles);
        cycles
    }

    /// Cycles of a walk of a batch, in the window that it knows.
    #[inline(always)]
    pub(super) fn walk(&mut self, machine: &mut Machine, windows: &mut Windows, asid: u16, walk: &Missed) -> u64 {
        let only_counts = self.nested.is_none() && machine.caches.is_none();
        let to_base_pages = walk.leaf() == PAGE_BITS;
        let cycles = match only_counts && to_base_pages && windows.had_tables(walk.window) {
            true => self.count_reads(machine, walk),
            false => self.walk_tables(machine, asid, walk),
        };
        self.wait_for_walker(walk, cycles);
        cycles
    }

    /// A walk waits for a walker, and references wait with it.
    #[inline(always)]
    fn wait_for_walker(&mut self, walk: &Missed, cycles: u64) {
        let now = walk.now as f64 * self.cycles_per_reference + self.waited;
        let first =
            self.walkers.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(walker, _)| walker);
        let start = now.max(self.walkers[first]);
        let end = start + cycles as f64;
        self.walkers[first] = end;
        self.waited += start - now;
        self.counts.queue_cycles += start - now;
        self.counts.active_cycles += end - start.max(self.covered).min(end);
        self.covered = self.covered.max(end);
    }

    /// Cycles of a walk whose reads all cost the same.
    #[inline(always)]
    fn count_reads(&mut self, machine: &Machine, walk: &Missed) -> u64 {
        let reads = u64::from((u32::from(walk.start) - walk.leaf()) / INDEX_BITS + 1);
        self.counts.reads += reads;
        reads * u64::from(machine.entry_cycles)
    }

    #[inline(always)]
    fn walk_tables(&mut self, machine: &mut Machine, asid: u16, walk: &Missed) -> u64 {
        let (address, page_bits, start) = (walk.address, u32::from(walk.page_bits), u32::from(walk.start));
        if self.nested.is_none() && machine.caches.is_none() {
            // A walk that hit a cached entry has the frame of the table below it.
            let known = start - if start == machine.tables.top() { 0 } else { INDEX_BITS };
            for bits in steps(known, page_bits) {
                machine.tables.entry(&mut machine.memory, asid, address, bits);
            }
            return self.count_reads(machine, walk);
        }
        let mut cycles = 0;
        for bits in steps(start, page_bits) {
            let entry = machine.tables.entry(&mut machine.memory, asid, address, bits);
            cycles += self.host_walk(machine, entry);
            let entry = machine.physical(entry);
            cycles += machine.read(self.number, entry);
            self.counts.reads += 1;
        }
        if self.nested.is_some() {
            // The page itself also has a guest-physical address.
            let frame = machine.memory.frame(asid, address >> PAGE_BITS);
            cycles += self.host_walk(machine, frame << PAGE_BITS);
        }
        cycles
    }

    /// Cycles to find the host address of a guest-physical address; none without a host, or if the entry is cached.
    fn host_walk(&mut self, machine: &mut Machine, address: u64) -> u64 {
        let Some(nested) = &mut self.nested else { return 0 };
        let page_bits = nested.page_bits;
        let held = nested.tlb.as_ref().and_then(|tlb| tlb.grain(page_bits));
        if let (Some(tlb), Some(grain)) = (&mut nested.tlb, held)
            && tlb.touch(0, address, grain)
        {
            return 0;
        }
        let Some((memory, tables)) = &mut machine.host else { return 0 };
        let leaf = leaf(page_bits);
        let start = nested.caches.start(0, address, leaf, tables.top());
        let entries: Vec<u64> =
            steps(start, page_bits).map(|bits| tables.entry(memory, 0, address, bits)).collect();
        if let (Some(tlb), Some(grain)) = (&mut nested.tlb, held) {
            tlb.insert(0, address, grain);
        }
        self.counts.reads += entries.len() as u64;
        self.counts.host_reads += entries.len() as u64;
        entries.into_iter().map(|entry| machine.read(self.number, entry)).sum()
    }

    /// The counts, including those that other parts keep.
    pub(super) fn finish(&self) -> CoreCounts {
        let nested = self.nested.as_ref().map_or(0, |nested| nested.caches.hits);
        CoreCounts { shortened: self.caches.hits + nested, ..self.counts }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.first.iter().try_for_each(Arrays::check)?;
        self.second.check()?;
        self.caches.check()
    }
}

/// The work of [`Core::fresh`].
struct Fresh<'a> {
    core: &'a mut Core,
    asid: u16,
    references: &'a [Reference],
    sizes: &'a mut Sizes,
    done: &'a mut usize,
}

impl Leveled for Fresh<'_> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        *self.done = self.core.fresh_at::<LEVEL>(self.asid, self.references, self.sizes);
    }
}
