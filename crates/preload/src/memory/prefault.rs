//! Populating of memory when it is mapped, and advice for explicit address ranges outside the pools.

use pagelab_abi::guest::{Counter, GuestWarning};
use pagelab_abi::plan::{Fetch, Memory};

use crate::backing;
use crate::boundary::meminfo;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Advice, c};
use crate::state::layout::Layout;
use crate::state::{guest_file, plan, seccomp};

/// From this many bytes on, available memory is looked up before populating.
const LARGE: usize = 16 << 20;

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
    // Read-only memory gets the kernel's zero page, page by page; it would be in the way of a placed page when the
    // memory is made writable (and populated).
    if !writable && !asked && backing::governs(span.start) {
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

/// Whether `bytes` can be populated so that an eighth of the memory available now is left.
pub fn has_room(bytes: usize) -> bool {
    if bytes < LARGE {
        return true;
    }
    meminfo::available().is_none_or(|available| bytes < available - available / 8)
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
