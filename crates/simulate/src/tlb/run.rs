//! The simulation of a trace in the translation hardware.

use std::collections::HashMap;

use pagelab_trace::{Reference, Run, Segment, number_bits};

use super::behind::BATCH;
use super::core::{Caches, Core, CoreCounts, LOADS, Machine};
use super::spec::TlbSpec;
use super::walk::PageTables;
use super::windows::{WINDOW_BITS, Window, Windows};
use crate::allocate::{History, Layout, Memory, PAGE_BITS, PlaceCounts, Strategy};
use crate::cache::{Counts, Hierarchy, HierarchySpec, MemoryCounts, SpecError, demand};

const NEAR_WINDOWS: usize = 256;
/// A window with pages of several sizes.
const MIXED: u32 = u32::MAX;

/// Counts of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// All cores together.
    pub counts: CoreCounts,
    /// Costs by window of 2 MiB, ordered by address space and address; windows without misses of the first level are
    /// left out.
    pub windows: Vec<Window>,
    /// Events of each level of the data caches, if they were simulated.
    pub levels: Vec<Counts>,
    /// Events at memory, likewise.
    pub memory: MemoryCounts,
    /// Placement of the pages; pages are placed only if that matters: for caches, guests, and coalescing.
    pub placed: PlaceCounts,
}

/// Page sizes by address, remembered by window.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    layout: Layout,
    uniform: Option<u32>,
    near: Vec<(u64, u32)>,
}

impl Sizes {
    fn new(layout: Layout) -> Sizes {
        Sizes { uniform: layout.uniform_bits(), near: vec![(u64::MAX, 0); NEAR_WINDOWS], layout }
    }

    #[inline(always)]
    pub(super) fn of(&mut self, address: u64) -> u32 {
        if let Some(bits) = self.uniform {
            return bits;
        }
        let window = address >> WINDOW_BITS;
        let (key, bits) = self.near[window as usize & (NEAR_WINDOWS - 1)];
        if key == window && bits != MIXED { bits } else { self.look_up(address, window) }
    }

    #[inline(never)]
    fn look_up(&mut self, address: u64, window: u64) -> u32 {
        if self.near[window as usize & (NEAR_WINDOWS - 1)].0 != window {
            let bits = self.layout.window(address, WINDOW_BITS).unwrap_or(MIXED);
            self.near[window as usize & (NEAR_WINDOWS - 1)] = (window, bits);
        }
        self.layout.page_bits(address)
    }
}

/// The simulation of translation hardware, and of the data caches from which walks read.
pub struct Simulation {
    cores: Vec<Core>,
    threads: HashMap<(u16, u32), usize>,
    machine: Machine,
    sizes: Sizes,
    windows: Windows,
    /// Whether references whose translation would change nothing are counted together.
    together: bool,
}

/// The host, for guests: its memory has the size and the history of the guest's.
fn host(spec: &TlbSpec, history: &History, seed: u64) -> Result<Option<(Memory, PageTables)>, SpecError> {
    let Some(nested) = &spec.nested else { return Ok(None) };
    let layout = Layout::new(vec![], nested.page_bytes.trailing_zeros()).map_err(SpecError)?;
    let memory = Memory::new(history, Strategy::KERNEL, layout, !seed);
    Ok(Some((memory, PageTables::new(nested.levels))))
}

impl Simulation {
    /// Empty arrays before the trace's first reference. `memory` places pages and tables, and knows the page sizes;
    /// `history` and `seed` are for the host's memory and for random replacement.
    ///
    /// # Errors
    /// Faults of the specifications.
    pub fn new(
        spec: &TlbSpec,
        caches: Option<&HierarchySpec>,
        memory: Memory,
        history: &History,
        seed: u64,
    ) -> Result<Simulation, SpecError> {
        spec.check()?;
        let caches = caches.map(|caches| build_caches(spec, caches, seed)).transpose()?;
        let mut cores: Vec<Core> = (0..spec.cores).map(|number| Core::new(spec, number, seed)).collect();
        // Otherwise walks read caches between references.
        if caches.is_none() {
            cores.iter_mut().for_each(Core::wait_behind);
        }
        Ok(Simulation {
            cores,
            threads: HashMap::new(),
            sizes: Sizes::new(memory.layout().clone()),
            machine: Machine {
                memory,
                tables: PageTables::new(spec.levels),
                host: host(spec, history, seed)?,
                caches,
                entry_cycles: spec.entry_cycles,
            },
            windows: Windows::new(),
            together: true,
        })
    }

    /// From now on translates each reference singly: for tests that compare both ways.
    #[must_use]
    pub fn one_by_one(mut self) -> Simulation {
        self.together = false;
        self.cores.iter_mut().for_each(|core| core.missed = None);
        self
    }

    /// Simulates the next references of the trace.
    pub fn feed(&mut self, segment: &Segment<'_>) {
        let next = self.threads.len() % self.cores.len();
        let core = *self.threads.entry((segment.asid, segment.thread)).or_insert(next);
        if self.machine.caches.is_some() || !self.together {
            for reference in segment.references {
                let settled = match self.together {
                    true => self.cores[core].settled(segment.asid, std::slice::from_ref(reference)),
                    false => 0,
                };
                if settled == 0 {
                    self.reference(core, segment.asid, *reference);
                }
                if let Some(kind) = demand(reference.kind()) {
                    self.data(core, kind, segment.asid, *reference);
                }
            }
            return;
        }
        for references in segment.references.chunks(BATCH) {
            self.translate_batch(core, segment.asid, references);
            self.cores[core].go_behind(&mut self.machine, &mut self.windows, segment.asid);
        }
    }

    #[inline(always)]
    fn translate_batch(&mut self, core: usize, asid: u16, mut references: &[Reference]) {
        let often = self.cores[core].misses_often();
        if !often {
            self.cores[core].keep_places();
        }
        loop {
            let done = match often {
                true => self.cores[core].fresh(asid, references, &mut self.sizes),
                false => self.cores[core].settled(asid, references),
            };
            let Some((reference, rest)) = references[done..].split_first() else { return };
            self.reference(core, asid, *reference);
            references = rest;
        }
    }

    /// Simulates the next runs of the trace, in pages of 4 KiB. Each run is a number of data references to one page;
    /// all but the first find the entry where the first left it. H, M, C and the windows are those of the references
    /// from which the runs were made; a reference that crosses the end of a page is one reference to each page (which
    /// shows in pages that no array of the first level holds: there each misses).
    ///
    /// # Errors
    /// Facts that runs do not contain, if they would matter.
    pub fn feed_runs(&mut self, runs: &[Run]) -> Result<(), SpecError> {
        self.takes_runs()?;
        self.cores[0].keep_places();
        if let Some(run) = runs.iter().find(|run| run.number() >> number_bits(PAGE_BITS) != 0) {
            let page = run.number();
            return Err(SpecError(format!("page {page:#x} is at no address: page numbers have 44 bits here")));
        }
        for runs in runs.chunk_by(|one, next| one.asid() == next.asid()).flat_map(|runs| runs.chunks(BATCH)) {
            for run in runs {
                let (asid, address) = (run.asid(), run.number() << PAGE_BITS);
                if !self.cores[0].settled_page(LOADS, asid, address, run.count) {
                    self.address(0, LOADS, asid, address);
                    self.repeat(asid, address, run.count - 1);
                }
            }
            self.cores[0].go_behind(&mut self.machine, &mut self.windows, runs[0].asid());
        }
        Ok(())
    }

    /// Translates the page of a run that was translated just now so many more times: each time finds its entry, or
    /// misses if no array of the first level holds such pages.
    fn repeat(&mut self, asid: u16, address: u64, times: u64) {
        if self.cores[0].is_held(LOADS) {
            self.cores[0].add_translations(times);
            return;
        }
        for _ in 0..times {
            if self.cores[0].waiting() >= BATCH {
                self.cores[0].go_behind(&mut self.machine, &mut self.windows, asid);
            }
            self.address(0, LOADS, asid, address);
        }
    }

    fn takes_runs(&self) -> Result<(), SpecError> {
        let refuse = |why: &str| Err(SpecError(format!("page runs do not tell {why}: this needs full references")));
        match () {
            () if self.machine.caches.is_some() => refuse("lines, which data caches are made of"),
            () if self.cores.len() > 1 => refuse("threads, which are on several cores here"),
            () if self.cores[0].sides()[1] != Some(LOADS) => refuse("stores, which have entries of their own here"),
            () => Ok(()),
        }
    }

    #[inline(always)]
    fn reference(&mut self, core: usize, asid: u16, reference: Reference) {
        let side = demand(reference.kind()).and_then(|kind| self.cores[core].sides()[kind]);
        let Some(side) = side else { return };
        let first = reference.address();
        let last = reference.last_byte().max(first);
        self.address(core, side, asid, first);
        // At most 4096 bytes: two base pages, which one entry may map.
        if first >> PAGE_BITS != last >> PAGE_BITS {
            self.crossing(core, side, asid, [first, last]);
        }
    }

    #[cold]
    #[inline(never)]
    fn crossing(&mut self, core: usize, side: usize, asid: u16, [first, last]: [u64; 2]) {
        let entry = self.cores[core].entry_bits(side, self.sizes.of(first));
        if first >> entry != last >> entry {
            self.address(core, side, asid, last);
        }
    }

    #[inline(always)]
    fn address(&mut self, core: usize, side: usize, asid: u16, address: u64) {
        if self.cores[core].again(side, asid, address) {
            return;
        }
        let page_bits = self.sizes.of(address);
        self.translate_page(core, side, asid, address, page_bits);
    }

    #[inline(always)]
    fn translate_page(&mut self, core: usize, side: usize, asid: u16, address: u64, page_bits: u32) {
        if let Some(cost) = self.cores[core].translate(&mut self.machine, side, asid, address, page_bits) {
            let window = self.windows.number(asid, address);
            self.windows.cost(window).add(&cost);
        }
    }

    /// Sends the reference itself through the data caches.
    fn data(&mut self, core: usize, kind: usize, asid: u16, reference: Reference) {
        let Some(line_bits) = self.machine.caches.as_ref().map(|caches| caches.line_bits) else { return };
        let first = reference.address();
        for line in first >> line_bits..=reference.last_byte().max(first) >> line_bits {
            let address = line << line_bits;
            let frame = self.machine.memory.frame(asid, address >> PAGE_BITS);
            let physical = self.machine.physical(frame << PAGE_BITS | address & ((1 << PAGE_BITS) - 1));
            if let Some(caches) = &mut self.machine.caches {
                caches.hierarchy.access(core, kind, physical >> line_bits);
            }
        }
    }

    /// The results.
    #[must_use]
    pub fn finish(self) -> Outcome {
        let mut counts = CoreCounts::default();
        self.cores.iter().for_each(|core| counts.add(&core.finish()));
        let hierarchy = self.machine.caches.as_ref().map(|caches| &caches.hierarchy);
        Outcome {
            counts,
            windows: self.windows.finish(),
            levels: hierarchy.map_or_else(Vec::new, |hierarchy| hierarchy.counts().copied().collect()),
            memory: hierarchy.map_or_else(MemoryCounts::default, |hierarchy| *hierarchy.memory()),
            placed: self.machine.memory.counts(),
        }
    }

    /// Checks the invariants of every array, and of the data caches.
    ///
    /// # Errors
    /// The first invariant that is violated.
    pub fn check(&self) -> Result<(), String> {
        self.cores.iter().try_for_each(Core::check)?;
        self.machine.caches.as_ref().map_or(Ok(()), |caches| caches.hierarchy.check())
    }
}

fn build_caches(spec: &TlbSpec, caches: &HierarchySpec, seed: u64) -> Result<Caches, SpecError> {
    let caches = HierarchySpec { cores: spec.cores, ..caches.clone() };
    let path = caches.path(false);
    let enter = spec.walks_enter_level.checked_sub(1).filter(|enter| *enter < path.len());
    let enter = enter.ok_or_else(|| {
        SpecError(format!(
            "walks_enter_level = {}; the data caches have levels 1 to {}",
            spec.walks_enter_level,
            path.len()
        ))
    })?;
    let below = path.iter().map(|level| caches.levels[*level].cycles);
    Ok(Caches {
        hierarchy: Hierarchy::new(&caches, seed)?,
        cycles: below.chain([caches.memory_cycles]).collect(),
        line_bits: caches.line_bytes.trailing_zeros(),
        enter,
    })
}
