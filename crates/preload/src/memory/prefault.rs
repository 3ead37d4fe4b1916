//! Populating of memory when it is mapped, and advice for explicit address ranges outside the pools.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pagelab_abi::guest::{Counter, GuestWarning};
use pagelab_abi::plan::{Fetch, Memory};

use crate::backing;
use crate::boundary::apart::apart;
use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Advice, c, task};
use crate::boundary::{control_groups, meminfo};
use crate::state::layout::Layout;
use crate::state::{guest_file, plan, seccomp};

/// Available memory is looked up before populating, once in this many bytes, ...
const LARGE: usize = 16 << 20;
/// ... or in one part in this many of what there is, if that is less.
const SHARE: usize = 8;
/// ... but not more often than once in this many bytes.
const SMALL: usize = 1 << 20;
/// After a refusal, as much is refused without a look for this many ns: a look reads a dozen files.
const PAUSE_NS: u64 = 10_000_000;

/// Populates anonymous memory that was just mapped (or made accessible), where the policy or the program wants that.
pub fn after_mmap(fetch: Fetch, span: Span, prot: i32, flags: i32) {
    // With MAP_NONBLOCK, MAP_POPULATE does nothing.
    let asked = flags & (c::MAP_POPULATE | c::MAP_NONBLOCK) == c::MAP_POPULATE;
    if (fetch != Fetch::Prefault && !asked) || seccomp::is_active() {
        return;
    }
    let writable = prot & c::PROT_WRITE != 0;
    let unsuitable = prot == c::PROT_NONE || (flags & c::MAP_NORESERVE != 0 && !asked);
    if unsuitable || (!asked && !has_room(span.len())) {
        guest_file::count(Counter::PrefaultSkipped);
        if !unsuitable {
            guest_file::warn(GuestWarning::PrefaultSkipped, None, span.start, span.len());
        }
        return;
    }
    // Read-only memory would get the kernel's zero page, page by page, which would count as there when the memory is made
    // writable.
    if !writable && !asked {
        return guest_file::count(Counter::PrefaultSkipped);
    }
    // Pages that could not be placed come in by the program's own request all the same.
    if writable && backing::populate(span) && !asked {
        return guest_file::count(Counter::PrefaultDone);
    }
    let advice = if writable { Advice::PopulateWrite } else { Advice::PopulateRead };
    match sys::advise(span.start, span.len(), advice) {
        Ok(()) => guest_file::count(Counter::PrefaultDone),
        Err(errno) => {
            guest_file::count(Counter::PrefaultSkipped);
            guest_file::warn(GuestWarning::PrefaultSkipped, Some(errno), span.start, span.len());
        }
    }
}

/// Populates what the program mapped with MAP_POPULATE, as the kernel does it: pages that it cannot get are left out.
pub fn as_asked(span: Span, prot: i32, flags: i32) {
    let is_written = prot & c::PROT_WRITE != 0 && flags & c::MAP_TYPE == c::MAP_PRIVATE;
    let advice = if is_written { Advice::PopulateWrite } else { Advice::PopulateRead };
    if prot != c::PROT_NONE {
        let _ = sys::advise(span.start, span.len(), advice);
    }
}

/// Whether [`as_asked`] does what MAP_POPULATE does for a file: the advice (Linux 5.14) needs access to the memory.
pub fn can_populate(prot: i32, flags: i32) -> bool {
    let is_private = flags & c::MAP_TYPE == c::MAP_PRIVATE;
    let has_access = prot & c::PROT_READ != 0 || (is_private && prot & c::PROT_WRITE != 0);
    has_access && task::kernel_release() >= (5, 14)
}

/// Populates what is missing of anonymous memory that the program has just got access to, if there is room for all of
/// that.
pub fn opened(span: Span, prot: i32) {
    if prot & c::PROT_WRITE == 0 || seccomp::is_active() {
        return;
    }
    let mut missing = 0;
    each_run(span, false, &mut |run| missing += run.len());
    if missing == 0 {
        return;
    }
    let mut done = has_room(missing).then_some(Ok(()));
    if done.is_some() {
        each_run(span, false, &mut |run| {
            if !backing::populate(run)
                && let Err(errno) = sys::advise(run.start, run.len(), Advice::PopulateWrite)
            {
                done = Some(Err(errno));
            }
        });
    }
    match done {
        Some(Ok(())) => guest_file::count(Counter::PrefaultDone),
        failed => {
            guest_file::count(Counter::PrefaultSkipped);
            guest_file::warn(GuestWarning::PrefaultSkipped, failed.and_then(Result::err), span.start, span.len());
        }
    }
}

/// Calls `visit` with the runs of pages of `span` that are in memory, or with those that are not.
pub fn each_run(span: Span, in_memory: bool, visit: &mut dyn FnMut(Span)) {
    let mut buffer = [0u8; 2048];
    for start in (span.start..span.end).step_by(buffer.len() * PAGE) {
        let part = Span::new(start, span.end.min(start + buffer.len() * PAGE));
        if sys::mincore(part.start, part.len(), &mut buffer).is_err() {
            return;
        }
        let mut at = part.start;
        let pages = buffer.get(..part.len() / PAGE).unwrap_or(&[]);
        for run in pages.chunk_by(|one, next| (one ^ next) & 1 == 0) {
            let end = at + run.len() * PAGE;
            if run.first().is_some_and(|page| (page & 1 != 0) == in_memory) {
                visit(Span::new(at, end));
            }
            at = end;
        }
    }
}

/// Whether `bytes` can be populated so that an eighth of the memory is left that was available at most, and [`LARGE`].
pub fn has_room(bytes: usize) -> bool {
    LOOKS.has_room(bytes, sys::monotonic_ns, available)
}

/// Bytes that the machine and the process's control groups leave.
fn available() -> Option<usize> {
    let looks = apart(|| (meminfo::available(), control_groups::left_now()));
    let (machine, group) = looks.unwrap_or_else(|_| (sys::free_bytes(), None));
    let group = group.and_then(|left| usize::try_from(left).ok());
    machine.map(|machine| group.map_or(machine, |group| machine.min(group)))
}

static LOOKS: Looks = Looks::none();

/// What the looks at available memory have found.
struct Looks {
    /// Bytes that may be populated before the next look.
    unchecked: AtomicUsize,
    /// The most memory that was available at a look.
    most: AtomicUsize,
    /// The fewest bytes that were refused since the pause began, ...
    refused: AtomicUsize,
    /// ... and when it ends, ns.
    until_ns: AtomicU64,
}

impl Looks {
    const fn none() -> Looks {
        Looks {
            unchecked: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            until_ns: AtomicU64::new(0),
        }
    }

    /// Mappings that are small, but many, count as one.
    fn has_room(&self, bytes: usize, now: impl FnOnce() -> u64, available: impl FnOnce() -> Option<usize>) -> bool {
        if self.unchecked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
        {
            return true;
        }
        let now = now();
        let is_pause = now < self.until_ns.load(Ordering::Relaxed);
        if is_pause && bytes >= self.refused.load(Ordering::Relaxed) {
            return false;
        }
        let left = available().and_then(|available| {
            let most = self.most.fetch_max(available, Ordering::Relaxed).max(available);
            available.saturating_sub((most / 8).max(LARGE)).checked_sub(bytes)
        });
        self.unchecked.store(left.map_or(0, |left| (left / SHARE).clamp(SMALL, LARGE)), Ordering::Relaxed);
        if left.is_none() {
            self.refused.store(bytes, Ordering::Relaxed);
            self.until_ns.store(now + PAUSE_NS, Ordering::Relaxed);
        }
        left.is_some()
    }
}

/// Advice for the parts of `span`, outside the pools, that explicit address ranges name.
pub fn advise_ranges(span: Span) {
    let Some(plan) = plan::current() else { return };
    for section in (0..plan.section_count()).filter_map(|number| plan.section(number)) {
        if section.memory != Memory::Range {
            continue;
        }
        let part = span.and(Span::new(section.range_start as usize, section.range_end as usize));
        if !part.is_empty() {
            let layout = Layout::new(plan, section, 0, usize::MAX);
            layout.each(part, &mut |piece, part| backing::apply(part, piece.backing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_room(looks: &Looks, bytes: usize, available: Option<usize>) -> bool {
        looks.until_ns.store(0, Ordering::Relaxed);
        looks.has_room(bytes, || 0, || available)
    }

    #[test]
    fn small_mappings_are_populated_only_while_memory_is_left() {
        let (looks, asked) = (Looks::none(), AtomicUsize::new(0));
        for _ in 0..100 {
            let available = || {
                asked.fetch_add(1, Ordering::Relaxed);
                Some(1 << 30)
            };
            assert!(looks.has_room(1 << 20, || 0, available));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 6, "one in 16 MiB");
        let populated = (0..100).filter(|_| has_room(&looks, 1 << 20, Some(1 << 20))).count();
        assert!(
            populated <= 16 && !has_room(&looks, 5 << 20, Some(0)),
            "{populated} MiB although there is no room"
        );
        assert!(
            !has_room(&looks, LARGE, Some(LARGE)) && !has_room(&looks, LARGE, None) && !has_room(&looks, 1, None)
        );
        let looks = Looks::none();
        assert!(has_room(&looks, LARGE, Some(3 * LARGE)));
        assert!(!has_room(&looks, LARGE / 4, None) && looks.unchecked.load(Ordering::Relaxed) == 0);
        // Small memory is looked up more often.
        let left = left_of(24 << 20, 1 << 20);
        assert!((15 << 20..=17 << 20).contains(&left), "{left} bytes are left");
        // Of a GiB, 128 blocks of 8 MiB leave an eighth all the same.
        let left = left_of(1 << 30, 8 << 20);
        assert!((96 << 20..=128 << 20).contains(&left), "{left} bytes are left");
    }

    /// What is left of so many bytes after 128 mappings of such a size.
    fn left_of(mut bytes: usize, size: usize) -> usize {
        let looks = Looks::none();
        for _ in 0..128 {
            bytes -= if has_room(&looks, size, Some(bytes)) { size } else { 0 };
        }
        bytes
    }

    #[test]
    fn after_a_refusal_as_much_is_refused_without_a_look_for_a_while() {
        let (looks, asked) = (Looks::none(), AtomicUsize::new(0));
        let has_room = |bytes, now, left| {
            let available = || {
                asked.fetch_add(1, Ordering::Relaxed);
                Some(LARGE + left)
            };
            looks.has_room(bytes, || now, available)
        };
        assert!(!has_room(2 << 20, 1, 1 << 20) && (0..100).all(|_| !has_room(2 << 20, PAUSE_NS, 1 << 30)));
        assert_eq!(asked.swap(0, Ordering::Relaxed), 1);
        assert!(has_room(1 << 20, PAUSE_NS, 1 << 20), "less is looked up, and there is room");
        assert!((0..256).all(|_| has_room(4096, PAUSE_NS, 0)), "once in a MiB");
        assert_eq!(asked.swap(0, Ordering::Relaxed), 1);
        assert!(!has_room(4096, PAUSE_NS, 0) && !has_room(4096, PAUSE_NS, 0) && !has_room(2 << 20, PAUSE_NS, 0));
        assert_eq!(asked.swap(0, Ordering::Relaxed), 1, "what was refused last counts");
        assert!(has_room(2 << 20, 2 * PAUSE_NS, 1 << 30), "a later look");
        // If nothing can be looked up, it is not tried for each mapping either.
        let looks = Looks::none();
        assert!(!looks.has_room(4096, || 1, || None) && !looks.has_room(4096, || 2, || unreachable!("no look")));
    }
}
