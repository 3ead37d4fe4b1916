//! Advice to the kernel for base pages and transparent huge pages, within the kernel's limit on mappings.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pagelab_abi::guest::{Counter, GuestWarning};

use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::span::{Span, align_down};
use crate::boundary::sys::{self, Advice, Errno};
use crate::boundary::{huge_pages, maps};
use crate::state::layout::Backing;
use crate::state::{guest_file, seccomp};

/// An upper bound on the mappings that splits have added; it is compared with `vm.max_map_count`.
static PIECES: AtomicU32 = AtomicU32::new(0);
/// `vm.max_map_count`, less a reserve for the program's own needs.
static MOST_PIECES: AtomicU32 = AtomicU32::new(58_000);

/// Learns `vm.max_map_count` and how the kernel makes transparent huge pages.
pub fn read_settings() {
    read_map_limit();
    huge_pages::read_switches();
}

fn read_map_limit() {
    let mut text = [0u8; 64];
    let used = huge_pages::read_setting(c"/proc/sys/vm/max_map_count", &mut text);
    let digits = text.iter().take(used).take_while(|byte| byte.is_ascii_digit());
    let limit = digits.fold(0u32, |value, &byte| value.saturating_mul(10).saturating_add(u32::from(byte - b'0')));
    if limit > 0 {
        MOST_PIECES.store(limit - limit / 10, Ordering::Relaxed);
    }
}

/// Whether another mapping may be split off; counts the existing mappings when the estimate comes near the limit.
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
    guest_file::warn(GuestWarning::MapCountNear, None, 0, real as usize);
    // Count again only after a while: counting takes milliseconds.
    PIECES.store(most.saturating_sub(1000), Ordering::Relaxed);
    false
}

/// Advises the kernel to back the mapped memory of `span` as `backing` says.
pub fn advise(span: Span, backing: Backing) {
    let advice = match backing {
        Backing::Kernel => return,
        // Unneeded advice would add mappings, and it costs a system call.
        Backing::Base if !huge_pages::come_unasked() => return,
        Backing::Base => Advice::BasePages,
        Backing::Thp(_) | Backing::Hugetlb(_) => Advice::HugePages,
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
    if let Err(errno) = sys::advise(span.start, span.len(), advice) {
        // EINVAL: a kernel without transparent huge pages has nothing to switch off.
        if errno != Errno::EINVAL || advice == Advice::HugePages {
            guest_file::warn(GuestWarning::Fallback, Some(errno), span.start, span.len());
        }
    }
}

/// Whether the plan names several sizes of transparent huge pages, smaller ones than 2 MiB among them.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Records that the plan names several sizes; called once, at start.
pub fn several_sizes() {
    SEVERAL.store(true, Ordering::Relaxed);
}

/// Whether each tile of a size below 2 MiB is its own mapping.
pub fn keeps_apart() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// Makes each tile of `bytes` its own mapping. The kernel's page sizes are system-wide switches: it takes the largest
/// size that is on and fits into the mapping. If a mapping contained a tile and its neighbour, the kernel could make
/// one larger page of both. Every other tile gets MADV_RANDOM, which keeps the kernel from merging it with its
/// neighbours; for anonymous memory its only other effect is on swap readahead.
fn keep_apart(span: Span, bytes: usize) {
    let mut at = span.start;
    while at < span.end {
        let end = (align_down(at, bytes) + bytes).min(span.end);
        if !(at / bytes).is_multiple_of(2) {
            let advised = sys::advise(at, end - at, Advice::Random);
            if !may_split() || advised.is_err() {
                return guest_file::warn(GuestWarning::SwitchDenied, advised.err(), at, bytes);
            }
        }
        guest_file::count(Counter::MthpTiles);
        at = end;
    }
}

/// Result of collapsing a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collapsed {
    /// It is one page now.
    Huge,
    /// Nothing in it was touched: there is nothing to collapse, and the first touch can still give a huge page.
    Untouched,
    /// It consists of several mappings that the kernel cannot merge: parts of it were moved there.
    Patchwork,
    /// No page was available, or something else failed.
    Failed,
}

/// Makes one page of a whole tile of 2 MiB that consists of small ones.
pub fn collapse(tile: Span) -> Collapsed {
    match sys::advise(tile.start, tile.len(), Advice::Collapse) {
        Ok(()) => {
            guest_file::count(Counter::TilesCollapsed);
            Collapsed::Huge
        }
        Err(Errno::EINVAL) if is_untouched(tile) => Collapsed::Untouched,
        Err(Errno::EINVAL) => Collapsed::Patchwork,
        Err(errno) => {
            guest_file::count(Counter::TilesCollapseFailed);
            guest_file::warn(GuestWarning::CollapseFailed, Some(errno), tile.start, tile.len());
            Collapsed::Failed
        }
    }
}

fn is_untouched(tile: Span) -> bool {
    let mut pages = [0u8; PMD / PAGE];
    sys::mincore(tile.start, tile.len(), &mut pages).is_ok() && pages.iter().all(|&page| page & 1 == 0)
}
