//! Transparent huge pages: the kernel's switches, and the advice that it takes.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::boundary::span::Span;
use crate::boundary::sys::{self, Advice, c};

/// Whether the kernel makes huge pages without a request: then base pages must be requested.
static UNASKED: AtomicBool = AtomicBool::new(true);

/// Reads a file of one line; returns the number of bytes.
pub fn read_setting(path: &CStr, text: &mut [u8; 64]) -> usize {
    let Ok(fd) = sys::open(path, c::O_RDONLY, 0) else { return 0 };
    let used = sys::read(fd, text).unwrap_or(0);
    sys::close(fd);
    used
}

/// Reads from the kernel's switches whether it makes huge pages without a request.
pub fn read_switches() {
    let mut text = [0u8; 64];
    let mut always = |path| {
        let used = read_setting(path, &mut text);
        text.get(..used).is_some_and(|text| text.windows(8).any(|window| window == b"[always]"))
    };
    UNASKED.store(SWITCHES.iter().any(|path| always(path)), Ordering::Relaxed);
}

/// Whether base pages must be requested, because huge pages come without a request.
pub fn come_unasked() -> bool {
    UNASKED.load(Ordering::Relaxed)
}

/// The switches of transparent huge pages, for all sizes and by size.
const SWITCHES: [&CStr; 9] = [
    c"/sys/kernel/mm/transparent_hugepage/enabled",
    c"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled",
    c"/sys/kernel/mm/transparent_hugepage/hugepages-1024kB/enabled",
    c"/sys/kernel/mm/transparent_hugepage/hugepages-512kB/enabled",
    c"/sys/kernel/mm/transparent_hugepage/hugepages-256kB/enabled",
    c"/sys/kernel/mm/transparent_hugepage/hugepages-128kB/enabled",
    c"/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
    c"/sys/kernel/mm/transparent_hugepage/hugepages-32kB/enabled",
    c"/sys/kernel/mm/transparent_hugepage/hugepages-16kB/enabled",
];

/// Requests huge pages for memory that is mapped.
pub fn advise_huge(span: Span) {
    let _ = sys::advise(span.start, span.len(), Advice::HugePages);
}

/// Requests base pages for mapped memory, where the kernel would make larger ones without a request.
pub fn advise_base(span: Span) {
    if come_unasked() {
        // A kernel without larger pages refuses this advice, and needs none.
        let _ = sys::advise(span.start, span.len(), Advice::BasePages);
    }
}
