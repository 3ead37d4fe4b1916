//! Placement of memory that goes before the process ends: measured just before the program gives it back or breaks up
//! its tiles, and kept apart from the measurement at the end.

use core::sync::atomic::{AtomicU32, Ordering};

use pagelab_abi::guest::{Counter, GuestFile, RegionSlot};
use pagelab_abi::plan::Memory;

use crate::boundary::apart::apart;
use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::span::{Span, align_down};
use crate::boundary::sys;
use crate::given_back::regions::{Place, account, bump, bump_size, huge_bytes};
use crate::given_back::scan::Pagemap;
use crate::state::layout::{Backing, Layout, Piece};
use crate::state::{guest_file, seccomp};

/// Spans in a row that were given back with fewer touched bytes than [`LITTLE`].
static LITTLE_TOUCHED: AtomicU32 = AtomicU32::new(0);
/// Touching so many bytes costs several times as much (30 µs and more) as examining them (6 µs).
const LITTLE: usize = 256 << 10;
/// After this many such spans in a row ...
const PATIENCE: u32 = 64;
/// ... only one span in this many is examined.
const SAMPLE: u32 = 64;

/// Base pages are accounted for in spans of at least this many bytes.
pub const BASE_SPAN: usize = 8 << 20;

/// Up to this many bytes, a check for resident pages precedes the scan.
const SMALL: usize = 8 << 20;

/// Whether it is time to scan: a program that maps and unmaps memory and touches little of it must not pay for scans
/// that find next to nothing. Spans that are not scanned are counted.
fn may_look() -> bool {
    let row = LITTLE_TOUCHED.load(Ordering::Relaxed);
    if row < PATIENCE || row.is_multiple_of(SAMPLE) {
        return true;
    }
    LITTLE_TOUCHED.store(row.wrapping_add(1).max(PATIENCE), Ordering::Relaxed);
    guest_file::count(Counter::RetiredUnseen);
    false
}

/// Whether `span` was never touched, as far as a check that is cheaper than a scan can show it.
fn is_untouched(span: Span) -> bool {
    let mut pages = [0u8; SMALL / PAGE];
    span.len() <= SMALL
        && sys::mincore(span.start, span.len(), &mut pages).is_ok()
        && pages.iter().take(span.len() / PAGE).all(|&page| page & 1 == 0)
}

/// Knowledge of the owner of the memory.
pub struct Known<'a> {
    /// Whether a tile is whole and not accounted for yet.
    pub counts: &'a dyn Fn(Span) -> bool,
    /// Whether a span comes from a reserved pool.
    pub reserved: &'a dyn Fn(Span) -> bool,
}

/// Accounts for `span`, of which the program gives back or breaks up all or a part.
pub fn retire(memory: Memory, layout: &Layout, span: Span, known: &Known<'_>) {
    let mut any = false;
    layout.each(span, &mut |piece, part| any |= is_concerned(&piece, part));
    let Some(file) = guest_file::file().filter(|_| any && !seccomp::is_active() && may_look()) else { return };
    let touched = match is_untouched(span) {
        true => 0,
        false => apart(|| Pagemap::open().map_or(0, |pagemap| all(file, &pagemap, memory, layout, span, known)))
            .unwrap_or(0),
    };
    let row = if touched >= LITTLE { 0 } else { LITTLE_TOUCHED.load(Ordering::Relaxed).wrapping_add(1) };
    LITTLE_TOUCHED.store(row, Ordering::Relaxed);
}

/// Whether a piece gets an account when `part` of it goes.
fn is_concerned(piece: &Piece, part: Span) -> bool {
    match piece.backing {
        Backing::Kernel => false,
        // Single base pages come and go too often, and say little.
        Backing::Base => part.len() >= BASE_SPAN,
        Backing::Thp(bytes) | Backing::Hugetlb(bytes) => bytes >= PMD,
    }
}

/// Accounts for the pieces of `span`; returns the bytes that were resident.
fn all(
    file: &GuestFile,
    pagemap: &Pagemap,
    memory: Memory,
    layout: &Layout,
    span: Span,
    known: &Known<'_>,
) -> usize {
    let mut touched = 0;
    let place = Place { memory: memory as u64 + 1, layout: Some(*layout) };
    layout.each(span, &mut |piece, part| {
        if !is_concerned(&piece, part) {
            return;
        }
        let slot = account(file, &place, Some(&piece)).and_then(|number| file.regions.get(number));
        if let Some(slot) = slot {
            slot.start.fetch_min(part.start as u64, Ordering::Relaxed);
            slot.end.fetch_max(part.end as u64, Ordering::Relaxed);
            touched += one(pagemap, &piece, part, slot, known);
        }
    });
    touched
}

fn one(pagemap: &Pagemap, piece: &Piece, part: Span, slot: &RegionSlot, known: &Known<'_>) -> usize {
    let (mut tile, mut touched) = (Sum::default(), 0);
    let _ = pagemap.each(piece.whole_tiles(part), &mut |run, huge| {
        touched += run.len();
        let size = if huge { huge_bytes(piece.backing, (known.reserved)(run)) } else { PAGE };
        bump_size(&slot.retired_by_size, size, run.and(part).len());
        if piece.backing == Backing::Base {
            bump(&slot.retired_whole, run.len() / PAGE);
            bump(&slot.retired_as_asked, if huge { 0 } else { run.len() / PAGE });
        } else {
            tile.add(piece, run, size, slot, known);
        }
    });
    tile.close(piece, slot, known);
    touched
}

/// The tile to which runs are being added.
#[derive(Default)]
struct Sum {
    start: usize,
    large: usize,
}

impl Sum {
    fn add(&mut self, piece: &Piece, run: Span, size: usize, slot: &RegionSlot, known: &Known<'_>) {
        let bytes = piece.backing.tile_bytes();
        let mut at = run.start;
        while at < run.end {
            let start = align_down(at, bytes);
            if start != self.start {
                self.close(piece, slot, known);
                *self = Sum { start, large: 0 };
            }
            let end = run.end.min(start + bytes);
            self.large += if size >= bytes { end - at } else { 0 };
            at = end;
        }
    }

    fn close(&mut self, piece: &Piece, slot: &RegionSlot, known: &Known<'_>) {
        let Some(tile) = piece.tile(self.start).filter(|tile| self.start != 0 && (known.counts)(*tile)) else {
            return;
        };
        bump(&slot.retired_whole, 1);
        bump(&slot.retired_as_asked, usize::from(self.large == tile.len()));
    }
}
