//! Mapping and advising on behalf of the pools: each way of backing as the system calls that ask for it.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pagelab_abi::guest::{Counter, NoteKind};
use pagelab_abi::plan::Flags;

use crate::boundary::apart::apart;
use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::maps;
use crate::boundary::span::{Span, align_down};
use crate::boundary::sys::{self, Errno, c};
use crate::frames;
use crate::state::layout::Backing;
use crate::state::plan;
use crate::state::{guest_file, seccomp};

const PLAIN: i32 = c::MAP_PRIVATE | c::MAP_ANONYMOUS;

/// Mappings that pieces have made, at most: how far `vm.max_map_count` is.
static PIECES: AtomicU32 = AtomicU32::new(0);
/// `vm.max_map_count`, less a reserve for the program's own needs.
static MOST_PIECES: AtomicU32 = AtomicU32::new(58_000);

/// Whether the kernel makes huge pages where nobody asked for them: then base pages must be asked for.
static UNASKED: AtomicBool = AtomicBool::new(true);

fn read_setting(path: &CStr, text: &mut [u8; 64]) -> usize {
    let Ok(fd) = sys::open(path, c::O_RDONLY, 0) else { return 0 };
    let used = sys::read(fd, text).unwrap_or(0);
    sys::close(fd);
    used
}

/// Learns `vm.max_map_count` and how the kernel makes transparent huge pages.
pub fn read_settings() {
    read_map_limit();
    let mut text = [0u8; 64];
    let mut always = |path| {
        let used = read_setting(path, &mut text);
        text.get(..used).is_some_and(|text| text.windows(8).any(|window| window == b"[always]"))
    };
    UNASKED.store(SWITCHES.iter().any(|path| always(path)), Ordering::Relaxed);
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

fn read_map_limit() {
    let mut text = [0u8; 64];
    let used = read_setting(c"/proc/sys/vm/max_map_count", &mut text);
    let digits = text.iter().take(used).take_while(|byte| byte.is_ascii_digit());
    let limit = digits.fold(0u32, |value, &byte| value.saturating_mul(10).saturating_add(u32::from(byte - b'0')));
    if limit > 0 {
        MOST_PIECES.store(limit - limit / 10, Ordering::Relaxed);
    }
}

/// Whether another mapping may be split off; counts what really exists when the estimate comes near the limit.
fn may_split() -> bool {
    let most = MOST_PIECES.load(Ordering::Relaxed);
    if PIECES.fetch_add(1, Ordering::Relaxed) < most {
        return true;
    }
    if seccomp::is_active() {
        return false;
    }
    let real = maps::count();
    PIECES.store(real, Ordering::Relaxed);
    if real < most {
        return true;
    }
    guest_file::count(Counter::FallbackMapCount);
    guest_file::note(NoteKind::MapCountNear, None, 0, real as usize);
    // Ask again only after a while: counting takes milliseconds.
    PIECES.store(most.saturating_sub(1000), Ordering::Relaxed);
    false
}

/// Maps fresh zeroed read-write memory at exactly `span`, where nothing is mapped, and advises it.
pub fn map_fresh(span: Span, backing: Backing) -> Result<(), Errno> {
    map_bare(span)?;
    advise(span, backing);
    Ok(())
}

fn map_bare(span: Span) -> Result<(), Errno> {
    let flags = PLAIN | c::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: nothing that exists is touched.
    let at = unsafe { sys::mmap(span.start, span.len(), c::PROT_RW, flags, -1, 0) }?;
    if at != span.start {
        // Kernels before 4.17 take the address for a hint.
        // SAFETY: the mapping was just made and nobody knows of it.
        let _ = unsafe { sys::munmap(at, span.len()) };
        return Err(Errno::EEXIST);
    }
    Ok(())
}

/// As [`map_fresh`], in base pages for now.
pub fn map_small(span: Span) -> Result<(), Errno> {
    map_bare(span)?;
    advise_base(span);
    Ok(())
}

/// Asks for huge pages where memory is mapped already.
pub fn advise_huge(span: Span) {
    // SAFETY: changes page sizes, never contents.
    let _ = unsafe { sys::madvise(span.start, span.len(), c::MADV_HUGEPAGE) };
}

/// Whether the pages on both sides of `border` belong to one mapping, so that both carry the same: mremap refuses to grow
/// what crosses mappings before it finds that there is no room to grow.
pub fn is_one_mapping(border: usize) -> bool {
    is_within_one(Span::new(border - PAGE, border + PAGE))
}

/// Whether all of `span` belongs to one mapping.
pub fn is_within_one(span: Span) -> bool {
    const TOO_MUCH: usize = 1 << 46;
    // SAFETY: nothing moves without MREMAP_MAYMOVE, and there is no room for that much anywhere.
    let grown = unsafe { sys::mremap(span.start, span.len(), TOO_MUCH, 0, 0) };
    grown != Err(Errno::EFAULT)
}

/// mmap flags for pages of `bytes` from the reserved pools, with reservation.
pub fn hugetlb_flags(bytes: usize) -> i32 {
    PLAIN | c::MAP_HUGETLB | ((bytes.trailing_zeros() as i32) << c::MAP_HUGE_SHIFT)
}

/// Maps pages of `bytes` from the reserved pools at exactly `span`, where nothing is mapped.
pub fn map_hugetlb(span: Span, bytes: usize) -> Result<(), Errno> {
    let flags = hugetlb_flags(bytes) | c::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: nothing that exists is touched.
    match unsafe { sys::mmap(span.start, span.len(), c::PROT_RW, flags, -1, 0) } {
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

/// A page from the reserved pools could not be had.
pub fn note_exhausted(errno: Errno, bytes: usize) {
    guest_file::count(Counter::FallbackHugetlb);
    guest_file::note(NoteKind::HugetlbExhausted, Some(errno), 0, bytes);
}

/// Asks for base pages, where the kernel would make larger ones unasked.
pub fn advise_base(span: Span) {
    if UNASKED.load(Ordering::Relaxed) {
        // SAFETY: changes page sizes, never contents. A kernel without larger pages has nothing to switch off.
        let _ = unsafe { sys::madvise(span.start, span.len(), c::MADV_NOHUGEPAGE) };
    }
}

/// Asks for `backing` where memory is mapped already, and has its pages placed where a strategy governs them.
pub fn advise(span: Span, backing: Backing) {
    if !backing.is_tiled() && frames::enter(span) {
        return;
    }
    let advice = match backing {
        Backing::Kernel => return,
        // Without the advice there are fewer mappings, and it is one call less.
        Backing::Base if !UNASKED.load(Ordering::Relaxed) => return,
        Backing::Base => c::MADV_NOHUGEPAGE,
        Backing::Thp(_) | Backing::Hugetlb(_) => c::MADV_HUGEPAGE,
    };
    if !may_split() {
        return;
    }
    if let Backing::Thp(bytes) = backing
        && bytes < PMD
        && SEVERAL.load(Ordering::Relaxed)
    {
        keep_apart(span, bytes);
    }
    // SAFETY: the two advices change page sizes, never contents.
    if let Err(errno) = unsafe { sys::madvise(span.start, span.len(), advice) } {
        // EINVAL: a kernel without transparent huge pages has nothing to switch off.
        if errno != Errno::EINVAL || advice == c::MADV_HUGEPAGE {
            guest_file::note(NoteKind::Fallback, Some(errno), span.start, span.len());
        }
    }
}

/// Whether the plan names several sizes of transparent huge pages, smaller ones than 2 MiB among them.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Told once, at start.
pub fn several_sizes() {
    SEVERAL.store(true, Ordering::Relaxed);
}

/// Whether tiles of sizes below 2 MiB are mappings of their own.
pub fn keeps_apart() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// Makes a mapping of each tile of `bytes`. Which sizes the kernel uses is a system-wide switch, and it takes the largest
/// that is on and fits into the mapping: so no mapping may hold a tile and its neighbour, with which it would make a larger
/// one. Every other tile gets MADV_RANDOM, which means nothing for anonymous memory (but for swap readahead), and keeps
/// the kernel from merging it.
fn keep_apart(span: Span, bytes: usize) {
    let mut at = span.start;
    while at < span.end {
        let end = (align_down(at, bytes) + bytes).min(span.end);
        if !(at / bytes).is_multiple_of(2) {
            // SAFETY: changes no contents.
            let advised = unsafe { sys::madvise(at, end - at, c::MADV_RANDOM) };
            if !may_split() || advised.is_err() {
                return guest_file::note(NoteKind::SwitchDenied, advised.err(), at, bytes);
            }
        }
        guest_file::count(Counter::MthpTiles);
        at = end;
    }
}

/// What came of collapsing a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collapsed {
    /// It is one page now.
    Huge,
    /// Nothing in it was touched: there is nothing to collapse, and the first touch can still give a huge page.
    Untouched,
    /// It consists of several mappings that the kernel cannot merge: parts of it were moved there.
    Patchwork,
    /// No page was to be had, or something else went wrong.
    Failed,
}

/// Makes one page of a whole tile of 2 MiB that consists of small ones.
pub fn collapse(tile: Span) -> Collapsed {
    // SAFETY: collapsing changes page sizes, never contents.
    match unsafe { sys::madvise(tile.start, tile.len(), c::MADV_COLLAPSE) } {
        Ok(()) => {
            guest_file::count(Counter::TilesCollapsed);
            Collapsed::Huge
        }
        Err(Errno::EINVAL) if is_untouched(tile) => Collapsed::Untouched,
        Err(Errno::EINVAL) => Collapsed::Patchwork,
        Err(errno) => {
            guest_file::count(Counter::TilesCollapseFailed);
            guest_file::note(NoteKind::CollapseFailed, Some(errno), tile.start, tile.len());
            Collapsed::Failed
        }
    }
}

fn is_untouched(tile: Span) -> bool {
    let mut pages = [0u8; PMD / PAGE];
    sys::mincore(tile.start, tile.len(), &mut pages).is_ok() && pages.iter().all(|&page| page & 1 == 0)
}

/// Counts a request that goes to the kernel unchanged.
pub fn fallback(errno: Errno, len: usize) {
    let counter = match errno {
        Errno::ENOMEM => Counter::FallbackNoMemory,
        Errno::EEXIST => Counter::FallbackOccupied,
        _ => Counter::FallbackOther,
    };
    guest_file::count(counter);
    guest_file::note(NoteKind::Fallback, Some(errno), 0, len);
}

/// Whether the page at `addr` is resident.
pub fn is_resident(addr: usize) -> bool {
    let mut page = [0u8; 1];
    seccomp::is_active() || sys::mincore(addr, 1, &mut page).is_ok() && page[0] & 1 != 0
}

/// mprotect, or pkey_mprotect with `key` ≥ 0: the program's own request about its own memory.
pub fn protect(span: Span, prot: i32, key: i32) -> Result<(), Errno> {
    // SAFETY: as the caller says.
    unsafe {
        match key {
            0.. => sys::pkey_mprotect(span.start, span.len(), prot, key),
            _ => sys::mprotect(span.start, span.len(), prot),
        }
    }
}

/// Reads memory that the program has closed to itself: the kernel's view of the process ignores protections.
pub fn read_closed(from: usize, into: &mut [u8]) -> Result<(), Errno> {
    apart(|| read_memory(from, into))?
}

fn read_memory(from: usize, into: &mut [u8]) -> Result<(), Errno> {
    let fd = sys::open(c"/proc/self/mem", c::O_RDONLY, 0)?;
    let mut done = 0;
    let result = loop {
        match into.get_mut(done..) {
            None | Some([]) => break Ok(()),
            Some(rest) => match sys::pread(fd, rest, from + done) {
                Ok(0) => break Err(Errno::EFAULT),
                Ok(bytes) => done += bytes,
                Err(errno) => break Err(errno),
            },
        }
    };
    sys::close(fd);
    result
}

/// In a forked child: an engine of its own that places frames, unless the policy is not inherited.
pub fn adopt_child() {
    if let Some(plan) = plan::current() {
        frames::adopt_child(plan.flags().contains(Flags::INHERIT_FORK));
    }
}
