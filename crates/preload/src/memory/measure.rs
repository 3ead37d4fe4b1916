//! Placement at the end of the process: requested and actual page sizes by region.
//!
//! Measured with `PAGEMAP_SCAN` (Linux 6.7): exact, by page, without privileges. Older kernels: sums from smaps.

mod folios;
mod smaps;
mod tally;

use core::sync::atomic::{AtomicU64, Ordering};

use pagelab_abi::guest::{GuestFile, GuestWarning, PlacementMethod, REGION_OTHER};
use pagelab_abi::plan::{HEAP_BASE, Memory, POOL_BYTES, Plan, Section};

use crate::backing;
use crate::boundary::apart::apart;
use crate::boundary::maps::{self, Mapping};
use crate::boundary::span::Span;
use crate::boundary::sys;
use crate::given_back::regions::Place;
use crate::given_back::scan::{Pagemap, Sweep};
use crate::memory::pool::Pool;
use crate::state::guest_file;
use crate::state::layout::Layout;
use crate::state::plan::{self, HEAP, POOLS};

use super::tables;

pub use smaps::in_memory;
use tally::Tally;

/// Longest time for measuring, ns: the exit must not be delayed for longer, however much memory there is.
const LIMIT_NS: u64 = 3_000_000_000;

/// Measures this process and stores all results in the guest file, with the time that the measuring took.
pub fn all() {
    let Some(file) = guest_file::file() else { return };
    let done = apart(|| {
        let begun = begin();
        measure(file);
        end(begun);
    });
    if done.is_err() {
        guest_file::warn(GuestWarning::PlacementUnknown, done.err(), 0, 0);
    }
}

fn measure(file: &'static GuestFile) {
    let Some(plan) = plan::current() else { return };
    let begin = sys::monotonic_ns();
    guest_file::set(&file.end_ns, begin);
    usage();
    let mut tally = Tally::new(file);
    let method = match Pagemap::probe() {
        Ok(pagemap) => by_pages(&plan, &pagemap, &mut tally, begin),
        Err(_) => None,
    };
    for (tile, count) in tables::lock().pools.iter().flatten().filter_map(Pool::broken_in_use) {
        guest_file::warn_many(GuestWarning::TileSplit, tile.start, tile.len(), count);
    }
    let method = method.or_else(|| smaps::sums(&plan, &mut tally));
    if method.is_none() {
        guest_file::warn(GuestWarning::PlacementUnknown, None, 0, 0);
    }
    guest_file::set(&file.placement_method, method.unwrap_or(PlacementMethod::None) as u64);
    guest_file::set(&file.measured_ns, sys::monotonic_ns());
}

/// User time, system time, faults without I/O and with I/O.
#[derive(Clone, Copy)]
pub struct Used([u64; 4]);

fn used(words: &[u64; 18]) -> Used {
    let [user_s, user_us, system_s, system_us, _, _, _, _, minor, major, ..] = *words;
    let ns = |seconds: u64, micros: u64| seconds * 1_000_000_000 + micros * 1000;
    Used([ns(user_s, user_us), ns(system_s, system_us), minor, major])
}

fn slots(file: &GuestFile) -> [&AtomicU64; 4] {
    let slot = &file.measuring;
    [&slot.user_ns, &slot.system_ns, &slot.minor_faults, &slot.major_faults]
}

/// Usage of the process or the thread so far: user and system time in nanoseconds, faults without I/O and with I/O.
pub fn used_by(whose: usize) -> Option<[u64; 4]> {
    sys::rusage(whose).ok().map(|words| used(&words).0)
}

/// Begins measuring: the usage of the calling thread so far.
pub fn begin() -> Option<Used> {
    sys::rusage(sys::OF_THREAD).ok().map(|words| used(&words))
}

/// Ends measuring: its usage is kept apart, since the kernel's accounts of the process contain it.
pub fn end(begun: Option<Used>) {
    let (Some(file), Some(Used(before)), Some(Used(now))) = (guest_file::file(), begun, begin()) else { return };
    for (slot, (now, before)) in slots(file).into_iter().zip(now.into_iter().zip(before)) {
        slot.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
    }
}

/// Stores the usage of the process, without that of measuring.
fn usage() {
    let Some(file) = guest_file::file() else { return };
    let Ok(words) = sys::rusage(sys::OF_PROCESS) else { return };
    let Used(all) = used(&words);
    let fields =
        [&file.rusage.user_ns, &file.rusage.system_ns, &file.rusage.minor_faults, &file.rusage.major_faults];
    for ((field, all), own) in fields.into_iter().zip(all).zip(slots(file)) {
        guest_file::set(field, all.saturating_sub(own.load(Ordering::Relaxed)));
    }
    let [_, _, _, _, max_rss_kib, ..] = words;
    guest_file::set(&file.rusage.max_rss_bytes, max_rss_kib * 1024);
}

fn by_pages(plan: &Plan<'static>, pagemap: &Pagemap, tally: &mut Tally, begin: u64) -> Option<PlacementMethod> {
    let mut data_end = 0;
    let (mut complete, mut mappings) = (true, 0u32);
    let mut sweep = Sweep::new(pagemap);
    let walked = maps::each(&mut |mapping| {
        let Some(place) = place_of(plan, mapping, &mut data_end) else { return true };
        complete = tally.mapping(&place, mapping.span, &mut sweep).is_ok();
        backing::census(&place, mapping, pagemap);
        mappings += 1;
        if mappings % 16 == 0 && sys::monotonic_ns() > begin + LIMIT_NS {
            complete = false;
        }
        complete
    });
    tally.finish();
    if walked.is_ok() && complete {
        return Some(PlacementMethod::PagemapScan);
    }
    tally.reset();
    None
}

fn place(memory: Memory, layout: Option<Layout>) -> Place {
    Place { memory: memory as u64 + 1, layout }
}

/// Kind and layout of a mapping; `None` if it is not the program's: no access, the kernel's own pages, the guest's
/// file.
fn place_of(plan: &Plan<'static>, mapping: &Mapping<'_>, data_end: &mut usize) -> Option<Place> {
    let special =
        mapping.name.starts_with(b"[v") || mapping.name.ends_with(b".guest") || backing::is_own(mapping.span.start);
    if !(mapping.read || mapping.write || mapping.exec) || special {
        return None;
    }
    let start = mapping.span.start;
    if (HEAP.start..HEAP.end).contains(&start) {
        return Some(place(Memory::Heap, pool_layout(plan, Memory::Heap, HEAP_BASE as usize)));
    }
    if (POOLS.start..POOLS.end).contains(&start) {
        return Some(in_pool(plan, mapping.span));
    }
    let memory = match maps::kind_of(mapping, *data_end) {
        Some(Memory::Data) => {
            *data_end = mapping.span.end;
            Memory::Data
        }
        Some(memory) => memory,
        None if mapping.name == b"[heap]" => Memory::Heap,
        None if mapping.is_file() => Memory::File,
        None if mapping.shared => return Some(Place { memory: REGION_OTHER, layout: None }),
        None => Memory::Anon,
    };
    let direct = matches!(memory, Memory::Data | Memory::Stack).then(|| {
        let section = plan::section_for(memory, mapping.span.len()).filter(Section::governs_pages)?;
        Some(Layout::new(*plan, section, start, mapping.span.len()))
    });
    Some(place(memory, direct.flatten()))
}

fn in_pool(plan: &Plan<'static>, span: Span) -> Place {
    let index = (span.start - POOLS.start) / POOL_BYTES as usize;
    let base = POOLS.start + index * POOL_BYTES as usize;
    let arena = tables::lock().pool(base).is_some_and(|pool| pool.is_arena(span.start));
    let memory = if arena { Memory::Arenas } else { Memory::Anon };
    let layout = pool_layout(plan, memory, base);
    place(memory, layout.or_else(|| pool_layout(plan, Memory::Anon, base)))
}

/// The layout of the pool at `base`, as the first section with that pool gives it.
fn pool_layout(plan: &Plan<'static>, memory: Memory, base: usize) -> Option<Layout> {
    let mut sections = (0..plan.section_count()).filter_map(|number| plan.section(number));
    let section = sections.find(|section| {
        let governed = section.governs_pages() || section.governs_frames();
        section.memory == memory && section.pool_base as usize == base && governed
    })?;
    plan::section_for(memory, usize::MAX).map(|_| Layout::new(*plan, section, base, POOL_BYTES as usize))
}
