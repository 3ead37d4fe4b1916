//! Pages from the kernel's reserved pools.

use pagelab_abi::guest::{Counter, GuestWarning};

use crate::boundary::span::Span;
use crate::boundary::sys::{self, Errno, c};
use crate::state::{guest_file, seccomp};

/// mmap flags for pages of `bytes` from the reserved pools, with reservation.
pub fn flags_for(bytes: usize) -> i32 {
    c::MAP_PRIVATE | c::MAP_ANONYMOUS | c::MAP_HUGETLB | ((bytes.trailing_zeros() as i32) << c::MAP_HUGE_SHIFT)
}

/// Maps pages of `bytes` from the reserved pools at exactly `span`, where nothing is mapped.
pub fn map(span: Span, bytes: usize) -> Result<(), Errno> {
    match sys::map_unused(span.start, span.len(), c::PROT_RW, flags_for(bytes)) {
        Ok(_) => {
            guest_file::add(Counter::HugetlbTiles, (span.len() / bytes) as u64);
            Ok(())
        }
        Err(errno) => {
            note_exhausted(errno, bytes);
            Err(errno)
        }
    }
}

/// Records that no page of `bytes` could be taken from the reserved pools.
pub fn note_exhausted(errno: Errno, bytes: usize) {
    guest_file::count(Counter::FallbackHugetlb);
    guest_file::warn(GuestWarning::HugetlbExhausted, Some(errno), 0, bytes);
}

/// Whether the page at `addr` is resident.
pub fn is_resident(addr: usize) -> bool {
    let mut page = [0u8; 1];
    seccomp::is_active() || sys::mincore(addr, 1, &mut page).is_ok() && page[0] & 1 != 0
}
