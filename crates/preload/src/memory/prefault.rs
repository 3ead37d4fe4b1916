//! Populating memory when it is mapped, and advice for explicit address ranges outside the pools.

use core::ffi::CStr;

use pagelab_abi::guest::{Counter, NoteKind};
use pagelab_abi::plan::{Fetch, Memory};

use crate::backing;
use crate::boundary::apart::apart;
use crate::boundary::arch::PAGE;
use crate::boundary::sys::{self, c};
use crate::frames;
use crate::hooks::seccomp;
use crate::state::guest_file;
use crate::state::intervals::Span;
use crate::state::layout::Layout;

use super::guest;

/// From this size on, available memory is looked up before populating.
const LARGE: usize = 16 << 20;

/// After anonymous memory was mapped (or made accessible): populates it where the policy or the program wants that.
pub fn after_mmap(fetch: Fetch, span: Span, prot: i32, flags: i32) {
    let asked = flags & c::MAP_POPULATE != 0;
    if (fetch != Fetch::Prefault && !asked) || seccomp::is_active() {
        return;
    }
    let writable = prot & c::PROT_WRITE != 0;
    let unsuitable = prot == c::PROT_NONE || (flags & c::MAP_NORESERVE != 0 && !asked);
    if unsuitable || (!asked && !has_room(span.len())) {
        guest_file::count(Counter::PrefaultSkipped);
        if !unsuitable {
            guest_file::note(NoteKind::PrefaultSkipped, None, span.start, span.len());
        }
        return;
    }
    // Read-only: the kernel's zero page, which would have to be filled in page by page, and be in the way of a placed page
    // when the memory is made writable (and populated).
    if !writable && !asked && frames::governs(span.start) {
        return guest_file::count(Counter::PrefaultSkipped);
    }
    if writable && frames::populate(span) {
        return guest_file::count(Counter::PrefaultDone);
    }
    let advice = if writable { c::MADV_POPULATE_WRITE } else { c::MADV_POPULATE_READ };
    // SAFETY: populating changes no contents.
    match unsafe { sys::madvise(span.start, span.len(), advice) } {
        Ok(()) => guest_file::count(Counter::PrefaultDone),
        Err(errno) => {
            guest_file::count(Counter::PrefaultSkipped);
            guest_file::note(NoteKind::PrefaultSkipped, Some(errno), span.start, span.len());
        }
    }
}

/// Whether `bytes` can be populated and leave an eighth of what is available now.
pub fn has_room(bytes: usize) -> bool {
    if bytes < LARGE {
        return true;
    }
    available().is_none_or(|available| bytes < available - available / 8)
}

/// Reads the beginning of the file at `path`; how many bytes.
fn read_start(path: &CStr, text: &mut [u8]) -> Option<usize> {
    let fd = sys::open(path, c::O_RDONLY, 0).ok()?;
    let used = sys::read(fd, text);
    sys::close(fd);
    used.ok()
}

/// MemAvailable, bytes.
pub fn available() -> Option<usize> {
    let mut text = [0u8; 256];
    let used = apart(|| read_start(c"/proc/meminfo", &mut text)).ok()?;
    let text = text.get(..used?)?;
    let name = b"MemAvailable:";
    let at = text.windows(name.len()).position(|window| window == name)?;
    let digits = text.get(at + name.len()..)?.iter().skip_while(|&&byte| byte == b' ');
    let kib = digits.take_while(|byte| byte.is_ascii_digit());
    Some(kib.fold(0usize, |value, &byte| value * 10 + usize::from(byte - b'0')) * 1024)
}

/// All that the process has mapped, bytes.
pub fn mapped_bytes() -> Option<usize> {
    statm(0)
}

/// All that the process has in memory, bytes.
pub fn resident_bytes() -> Option<usize> {
    statm(1)
}

/// Number `column` of `/proc/self/statm`, in bytes.
fn statm(column: usize) -> Option<usize> {
    let mut text = [0u8; 64];
    let used = apart(|| read_start(c"/proc/self/statm", &mut text)).ok()?;
    let word = text.get(..used?)?.split(|byte| *byte == b' ').nth(column)?;
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0usize, |value, &byte| value * 10 + usize::from(byte - b'0')) * PAGE)
}

/// Advice for the parts of `span`, outside the pools, that explicit address ranges name.
pub fn advise_ranges(span: Span) {
    let Some(plan) = guest::plan() else { return };
    for section in (0..plan.section_count()).filter_map(|number| plan.section(number)) {
        if section.memory != Memory::Range {
            continue;
        }
        let part = span.and(Span::new(section.range_start as usize, section.range_end as usize));
        if !part.is_empty() {
            let layout = Layout::new(plan, section, 0, usize::MAX);
            layout.each(part, &mut |piece, part| backing::advise(part, piece.backing));
        }
    }
}
