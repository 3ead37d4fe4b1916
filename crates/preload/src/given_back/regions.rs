//! Accounts of given-back memory by region, kept in the guest file itself.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use pagelab_abi::guest::{GuestFile, RegionSlot, SIZE_COLUMNS};

use crate::boundary::arch::{PAGE, PMD};
use crate::state::guest_file;
use crate::state::layout::{Backing, Layout, Piece};

/// With more intervals than this, a section has one account for each page size instead of one for each interval.
const SEPARATE: u32 = 256;

/// Kind and backing of one mapping.
pub struct Place {
    /// Code for the file: a kind of memory plus one, or [`pagelab_abi::guest::REGION_OTHER`].
    pub memory: u64,
    /// The request; `None`: left to the kernel.
    pub layout: Option<Layout>,
}

/// Adds to a field.
pub fn bump(field: &AtomicU64, by: usize) {
    field.fetch_add(by as u64, Relaxed);
}

/// Adds `bytes` to the column of pages of `page_bytes`.
pub fn bump_size(columns: &[AtomicU64], page_bytes: usize, bytes: usize) {
    let index = SIZE_COLUMNS.iter().position(|&size| size == page_bytes as u64).unwrap_or(0);
    if let Some(field) = columns.get(index) {
        bump(field, bytes);
    }
}

/// Size of the page behind a huge entry of the page table; `reserved`: it comes from a reserved pool. (Transparent huge
/// pages take its place where that pool was exhausted, or where an arena is too small for a tile.)
pub fn huge_bytes(backing: Backing, reserved: bool) -> usize {
    match backing {
        Backing::Hugetlb(bytes) if reserved => bytes,
        _ => PMD,
    }
}

/// Number of the account for one piece of a place; opens the account if need be.
pub fn account(file: &GuestFile, place: &Place, piece: Option<&Piece>) -> Option<usize> {
    let (asked, via) = match piece.map(|piece| piece.backing) {
        None | Some(Backing::Kernel) => (0, 0),
        Some(Backing::Base) => (PAGE as u64, 0),
        Some(Backing::Thp(bytes)) => (bytes as u64, 0),
        Some(Backing::Hugetlb(bytes)) => (bytes as u64, 1),
    };
    let rule = place.layout.map_or(0, |layout| u64::from(layout.section.rule));
    let separate = place.layout.is_some_and(|layout| (1..=SEPARATE).contains(&layout.section.interval_count()));
    let interval = piece.filter(|_| separate).map_or(0, |piece| piece.span.start as u64 + 1);
    let key = [place.memory, asked, via, rule, interval];
    let fields = |slot: &RegionSlot| {
        [&slot.memory, &slot.asked, &slot.via, &slot.rule, &slot.interval].map(|field| field.load(Relaxed))
    };
    let used = file.region_count.load(Relaxed) as usize;
    if let Some(found) = file.regions.iter().take(used).rposition(|slot| fields(slot) == key) {
        return Some(found);
    }
    let Some(slot) = file.regions.get(used).filter(|slot| guest_file::has_room(*slot)) else {
        file.regions_dropped.fetch_add(1, Relaxed);
        return None;
    };
    let targets = [&slot.memory, &slot.asked, &slot.via, &slot.rule, &slot.interval];
    targets.into_iter().zip(key).for_each(|(field, value)| field.store(value, Relaxed));
    slot.start.store(u64::MAX, Relaxed);
    file.region_count.store(used as u64 + 1, Relaxed);
    Some(used)
}
