//! Tiles from the kernel's reserved pools.
//!
//! The kernel cannot unmap, protect or discard part of such a tile (it returns EINVAL, or success without effect). So
//! the library does that itself: parts given back are held, as they are, until the whole tile is free; before parts are
//! discarded or get another protection, the tile becomes normal memory, or the call is refused. Tiles are mapped *with*
//! reservation: when the pool is exhausted, the mapping fails and normal memory takes its place, and no later touch can
//! raise SIGBUS.

use pagelab_abi::guest::{Counter, GuestWarning};

use crate::backing;
use crate::backing::hugetlb;
use crate::boundary::arch::PMD;
use crate::boundary::own::{Fresh, Room};
use crate::boundary::span::{Span, align_down};
use crate::boundary::sys::{self, Errno, c};
use crate::boundary::{libc, mapping, maps};
use crate::state::intervals::Intervals;
use crate::state::layout::{Backing, Piece};
use crate::state::{guest_file, seccomp};

use super::Pool;

impl Pool {
    /// Maps the missing tiles of `part`, from the reserved pool where it has pages left.
    pub(super) fn fill_hugetlb(&mut self, piece: &Piece, part: Span, bytes: usize) -> Result<(), Errno> {
        let whole = piece.whole_tiles(part);
        let mut at = whole.start;
        while at < whole.end {
            let around = Span::new(align_down(at, bytes), align_down(at, bytes) + bytes).and(whole);
            let fresh = !self.used.overlaps(around) && !self.spare.overlaps(around);
            if fresh && piece.tile(at) == Some(around) && self.map_tile(around, bytes) {
                guest_file::count(Counter::TilesAsked);
                let _ = self.spare.insert(around);
            } else {
                self.fill_thp(piece, around, part)?;
            }
            at = around.end;
        }
        Ok(())
    }

    /// Maps one tile from the reserved pool, where nothing is mapped.
    fn map_tile(&mut self, tile: Span, bytes: usize) -> bool {
        let mapped = hugetlb::map(tile, bytes).is_ok();
        if mapped {
            let _ = self.hugetlb.insert(tile);
        }
        mapped
    }

    /// Whether any of `span` comes from a reserved pool.
    pub fn has_hugetlb(&self, span: Span) -> bool {
        self.hugetlb.overlaps(span)
    }

    /// The reserved page around `addr`.
    fn tile_at(&self, addr: usize) -> Option<Span> {
        self.piece(addr).tile(addr).filter(|tile| self.hugetlb.covers(*tile))
    }

    /// Prepares `span` for being unmapped. Parts of reserved pages that reach beyond it stay mapped, with their
    /// contents, and are handed out to nobody until the whole page is free: the kernel cannot unmap them, and zeroes
    /// written over them would show wherever it still reads them. Returns the range that can really be unmapped, and
    /// these parts, for [`Pool::hold`].
    pub(super) fn edges_to_hold(&mut self, span: Span) -> Result<(Span, [Span; 2]), Errno> {
        let mut rest = span;
        let mut held = [Span::new(0, 0); 2];
        if !self.hugetlb.overlaps(span) {
            return Ok((rest, held));
        }
        for (first, held) in [true, false].into_iter().zip(&mut held) {
            if rest.is_empty() {
                break;
            }
            let edge = if first { rest.start } else { rest.end - 1 };
            let Some(tile) = self.tile_at(edge) else { continue };
            let part = tile.and(rest);
            if part == tile || self.demote_if_closed(tile)? {
                continue;
            }
            *held = part;
            rest = if part.start == rest.start {
                Span::new(part.end, rest.end)
            } else {
                Span::new(rest.start, part.start)
            };
        }
        Ok((rest, held))
    }

    /// Records that `parts` of reserved pages were given back, and stay mapped.
    pub(super) fn hold(&mut self, parts: [Span; 2]) {
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let _ = self.spare.remove(part);
            let _ = self.shut.remove(part);
            let _ = self.used.insert(part);
            let _ = self.held.insert(part);
            guest_file::count(Counter::HugetlbEmulated);
        }
    }

    /// Makes a reserved page that the program closed to writing normal memory, with the same protection, before part of
    /// it is given up. Returns true if it did.
    fn demote_if_closed(&mut self, tile: Span) -> Result<bool, Errno> {
        let closed = self.shut.overlaps(tile) && protection_of(tile, true)? & c::PROT_WRITE == 0;
        if closed {
            self.demote_tile(tile)?;
        }
        Ok(closed)
    }

    /// Makes one reserved page normal memory; parts of it that were held go.
    fn demote_tile(&mut self, tile: Span) -> Result<(), Errno> {
        demote(tile, &mut self.hugetlb, self.shut.overlaps(tile))?;
        self.release(tile);
        Ok(())
    }

    /// Unmaps the held parts of `span`, which is normal memory now.
    fn release(&mut self, span: Span) {
        while let Some(run) =
            self.held.next_after(span.start).map(|run| run.and(span)).filter(|run| !run.is_empty())
        {
            // SAFETY: the program gave this memory back, and nobody else got it.
            let _ = unsafe { sys::munmap(run.start, run.len()) };
            let _ = self.held.remove(run);
            let _ = self.used.remove(run);
        }
    }

    /// Prepares `span` for being opened: as [`Pool::demote_edges`], if the program has changed the protection of any of
    /// it.
    pub(super) fn demote_shut_edges(&mut self, span: Span) -> Result<(), Errno> {
        if self.hugetlb.overlaps(span) && self.shut.overlaps(span) { self.demote_edges(span) } else { Ok(()) }
    }

    /// Makes every reserved page that `span` cuts normal memory, so that the kernel can split it. Fails if its contents
    /// would have to be copied while other threads may write to them.
    pub(super) fn demote_edges(&mut self, span: Span) -> Result<(), Errno> {
        if !self.hugetlb.overlaps(span) {
            return Ok(());
        }
        for at in [span.start, span.end - 1] {
            if let Some(tile) = self.tile_at(at).filter(|tile| tile.and(span) != *tile) {
                self.demote_tile(tile)?;
            }
        }
        Ok(())
    }

    /// Makes every reserved page that `span` touches normal memory.
    pub fn demote_all(&mut self, span: Span) -> Result<(), Errno> {
        while let Some(run) = self.hugetlb.next_after(span.start).filter(|run| run.start < span.end) {
            let Some(tile) = self.tile_at(run.start.max(span.start)) else { break };
            self.demote_tile(tile)?;
        }
        Ok(())
    }

    /// MADV_DONTNEED on a span with reserved pages. For part of a page the kernel returns success and does nothing, so
    /// the page becomes normal memory first. (Zeroes written by the library would show wherever the kernel still reads
    /// the page.)
    pub(super) fn discard_hugetlb(&mut self, span: Span) -> Result<(), Errno> {
        // All or nothing: parts that cannot be discarded are found first.
        let mut at = span.start;
        while let Some(part) = self.next_part(at, span) {
            if let Some(tile) = self.tile_at(part.start).filter(|tile| *tile != part) {
                self.demote_tile(tile)?;
            }
            at = part.end;
        }
        at = span.start;
        while let Some(part) = self.next_part(at, span) {
            // SAFETY: the program gives up the contents.
            unsafe { sys::madvise(part.start, part.len(), c::MADV_DONTNEED) }?;
            at = part.end;
        }
        // As without the library: mapped parts are discarded, and holes cause an error at the end.
        if self.used.covers(span) { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// The first of the program's parts of `span` from `at` on: in one reserved page, or up to the next one.
    fn next_part(&self, at: usize, span: Span) -> Option<Span> {
        let used = self.used.next_after(at)?.and(Span::new(at, span.end));
        if used.is_empty() {
            return None;
        }
        let end = match self.tile_at(used.start) {
            Some(tile) => tile.end.min(used.end),
            None => self.hugetlb.next_after(used.start).map_or(used.end, |tile| tile.start.min(used.end)),
        };
        Some(Span::new(used.start, end))
    }

    /// Replaces a tile of an arena's heap, reserved without access and never touched, by a tile from the reserved pool.
    pub(super) fn replace_by_tile(&mut self, tile: Span, bytes: usize) -> bool {
        if bytes != PMD || !matches!(self.layout.piece(tile.start).backing, Backing::Hugetlb(PMD)) {
            return false;
        }
        let flags = hugetlb::flags_for(bytes) | c::MAP_FIXED;
        // SAFETY: the program has had no access to the tile yet, and requests it now.
        let mapped = unsafe { sys::mmap(tile.start, tile.len(), c::PROT_RW, flags, -1, 0) };
        match mapped {
            Ok(_) => {
                guest_file::count(Counter::HugetlbTiles);
                let _ = self.hugetlb.insert(tile);
                true
            }
            Err(errno) => {
                hugetlb::note_exhausted(errno, bytes);
                // The kernel had unmapped the old memory before it found that it has no page.
                let flags = c::MAP_PRIVATE | c::MAP_ANONYMOUS | c::MAP_NORESERVE | c::MAP_FIXED;
                // SAFETY: restores the program's mapping: reserved, untouched, without access.
                let _ = unsafe { sys::mmap(tile.start, tile.len(), c::PROT_NONE, flags, -1, 0) };
                backing::apply(tile, Backing::Thp(bytes));
                false
            }
        }
    }

    /// mremap of whole reserved pages. They are moved as they are (Linux 5.16), because I/O under way would go on in
    /// the original of a copy. `None`: that is not possible here.
    fn shift_tiles(&mut self, old: Span, new_len: usize) -> Option<usize> {
        let [first, last] = self.ends(old);
        let from = Span::new(old.start, last.tile(old.end - 1)?.end);
        let alone = first.tile(old.start)?.start == old.start && !self.is_live(Span::new(old.end, from.end));
        if !alone || !self.hugetlb.covers(from) || self.held.overlaps(from) {
            return None;
        }
        let at = self.place_clear(self.bounds(), new_len.max(from.len()), PMD)?;
        let to = Span::new(at, at + from.len());
        let (mut alike, mut at_tile) = (true, to.start);
        while at_tile < to.end && alike {
            let tile = self.layout.piece(at_tile).tile(at_tile);
            alike = tile.is_some_and(|tile| tile == Span::new(at_tile, at_tile + tile.len()) && tile.len() == PMD)
                && self.layout.piece(at_tile).backing == Backing::Hugetlb(PMD);
            at_tile += PMD;
        }
        if !alike || first.backing != Backing::Hugetlb(PMD) || last.backing != Backing::Hugetlb(PMD) {
            return None;
        }
        let tail = Span::new(to.end.min(at + new_len), at + new_len);
        let tail = if tail.start < to.end { Span::new(0, 0) } else { tail };
        if !tail.is_empty() && self.map_plain(tail).is_err() {
            return None;
        }
        self.keep_anchor_off(to);
        let flags = c::MREMAP_MAYMOVE | c::MREMAP_FIXED;
        // SAFETY: the program requested the move; nothing lies at the target.
        if unsafe { sys::mremap(from.start, from.len(), from.len(), flags, at) }.is_err() {
            if !tail.is_empty() {
                let _ = self.unmap(tail);
            }
            return None;
        }
        self.forget(from);
        let _ = self.hugetlb.insert(to);
        let _ = self.used.insert(Span::new(at, at + new_len));
        let _ = self.spare.insert(Span::new((at + new_len).min(to.end), to.end));
        Some(at)
    }

    /// mremap of reserved pages by a copy, because parts of them cannot be moved.
    pub(super) fn shift_by_copy(&mut self, old: Span, new_len: usize) -> Result<usize, Errno> {
        if let Some(at) = self.shift_tiles(old, new_len) {
            return Ok(at);
        }
        let at = self
            .place_without(&[&self.attached], self.bounds(), new_len, self.align.min(PMD))
            .ok_or(Errno::ENOMEM)?;
        let new = Span::new(at, at + new_len);
        self.map_plain(new)?;
        let left = self.leave_for_copy(old, new.start);
        if left.is_err() {
            let _ = self.unmap(new);
        }
        left.map(|()| new.start)
    }

    /// Copies `old` to `at`, and unmaps it. Before the copy it is closed to writing: a later write would be lost, and
    /// now faults as it does after a move. (Parts of reserved pages that stay mapped stay open.)
    fn leave_for_copy(&mut self, old: Span, at: usize) -> Result<(), Errno> {
        let (gone, _) = self.edges_to_hold(self.to_unmap(old))?;
        let ends = [old.start, old.end - 1].map(|at| self.tile_at(at));
        let closed = gone
            .and(Span::new(ends[0].map_or(old.start, |tile| tile.start), ends[1].map_or(old.end, |tile| tile.end)));
        let protect = |prot: i32| match closed.is_empty() {
            true => Ok(()),
            false => mapping::protect(closed, prot, -1),
        };
        let left = protect(c::PROT_READ).and_then(|()| {
            // SAFETY: the program may read `old` and write at `at`, and it requested the move.
            unsafe { core::ptr::copy_nonoverlapping(old.start as *const u8, at as *mut u8, old.len()) };
            guest_file::count(Counter::HugetlbEmulated);
            self.unmap(old)
        });
        if left.is_err() {
            let _ = protect(c::PROT_RW);
        }
        left
    }

    /// Calls `visit` with every reserved page, and whether its protection differs from read and write.
    pub fn each_hugetlb(&self, visit: &mut dyn FnMut(Span, bool)) {
        let mut at = 0;
        while let Some(run) = self.hugetlb.next_after(at) {
            let mut tile = run.start;
            while let Some(span) = self.tile_at(tile).filter(|_| tile < run.end) {
                visit(span, self.shut.overlaps(span));
                tile = span.end;
            }
            at = run.end;
        }
    }

    /// In a forked child, after the copies have taken their places: records that all memory is normal.
    pub fn all_demoted(&mut self) {
        let mut at = 0;
        while let Some(run) = self.hugetlb.next_after(at) {
            let layout = self.layout;
            layout.each(run, &mut |piece, part| backing::apply(part, piece.backing));
            at = run.end;
        }
        self.hugetlb = Intervals::new();
        self.release(self.bounds());
    }
}

/// Protection of the reserved page `tile`; `shut`: the program has changed it.
pub fn protection_of(tile: Span, shut: bool) -> Result<i32, Errno> {
    match shut {
        false => Ok(c::PROT_RW),
        // Under a filter, the protection cannot be looked up any more.
        true if seccomp::is_active() => refuse(tile),
        true => maps::protection(tile.start).ok_or(Errno::ENOMEM),
    }
}

fn refuse<T>(tile: Span) -> Result<T, Errno> {
    guest_file::count(Counter::CallsRefused);
    guest_file::warn(GuestWarning::CallRefused, Some(Errno::ENOMEM), tile.start, tile.len());
    Err(Errno::ENOMEM)
}

/// Makes one reserved page, which `set` lists, normal memory; its protection stays (`shut`: it is not read-write).
/// Fails if its contents would have to be copied while other threads may write to them and cannot be kept waiting.
pub fn demote(tile: Span, set: &mut Intervals, shut: bool) -> Result<(), Errno> {
    let protection = protection_of(tile, shut)?;
    set.reserve(4).map_err(|_| Errno::ENOMEM)?;
    let replace = || replace_by_copy(tile, protection);
    if protection & c::PROT_WRITE == 0 {
        replace()?;
    } else {
        // Also for the only thread: another process may write (CLONE_VM, process_vm_writev).
        match backing::program_uffd::replace_while_writes_wait(tile, replace) {
            Some(replaced) => replaced?,
            None if libc::is_alone() || !hugetlb::is_resident(tile.start) => replace()?,
            None => refuse(tile)?,
        }
    }
    let _ = set.remove(tile);
    guest_file::count(Counter::HugetlbDemoted);
    Ok(())
}

/// Replaces the memory at `tile` by normal memory with the same contents and protection.
fn replace_by_copy(tile: Span, protection: i32) -> Result<(), Errno> {
    let scratch = copy_of(tile, protection)?;
    // SAFETY: the copy takes the place of its original.
    unsafe { scratch.take_the_place_of(tile.start) }
}

/// Copies the contents and the protection of `tile` to normal memory at another place; untouched pages stay untouched.
pub fn copy_of(tile: Span, protection: i32) -> Result<Room, Errno> {
    // With reservation, like the program's own: the copy becomes the program's memory.
    let mut copy = Fresh::map_reserved(tile.len())?.into_bytes();
    fill_copy(tile, protection, copy.all())?;
    let mut copy = copy.into_room();
    if protection != c::PROT_RW {
        copy.protect(tile.len(), protection)?;
    }
    Ok(copy)
}

fn fill_copy(tile: Span, protection: i32, target: &mut [u8]) -> Result<(), Errno> {
    if hugetlb::is_resident(tile.start) {
        if protection & c::PROT_READ != 0 {
            // SAFETY: the source is readable memory of the program; the target has the same length.
            unsafe { core::ptr::copy_nonoverlapping(tile.start as *const u8, target.as_mut_ptr(), target.len()) };
        } else {
            // If it were opened for a moment, accesses of other threads that must fault would succeed.
            mapping::read_closed(tile.start, target)?;
        }
    }
    Ok(())
}
