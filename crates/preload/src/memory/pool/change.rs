//! Changes to the program's memory in a pool: protection, advice, mappings over its own.

use pagelab_abi::guest::Counter;

use crate::backing;
use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::mapping;
use crate::boundary::span::{Span, align_down, align_up};
use crate::boundary::sys::{self, Errno, c};
use crate::state::guest_file;
use crate::state::layout::{Backing, Piece};

use super::arenas::ARENA_BYTES;
use super::{How, Pool, first_of};

impl Pool {
    /// mprotect or pkey_mprotect (`key` ≥ 0) of whole pages.
    pub fn protect(&mut self, span: Span, prot: i32, key: i32) -> Result<(), Errno> {
        if self.ready().is_err() {
            // Without room in the tables the program's own memory still gets it; a tile may be judged wrongly later.
            return mapping::protect(span, prot, key);
        }
        self.catch_up();
        self.keep_anchor_off(span);
        if key < 0
            && prot == c::PROT_RW
            && let Some(result) = self.grow_arena(span)
        {
            return result;
        }
        let mut at = span.start;
        while at < span.end {
            // Memory mapped in advance, or given back, is not the program's: natively nothing would be mapped there.
            let kept = first_of(self.spare.next_after(at), self.held.next_after(at));
            let end = kept.map_or(span.end, |kept| kept.start.min(span.end));
            if end <= at {
                return Err(Errno::ENOMEM);
            }
            at = match self.used.next_after(at) {
                Some(run) if run.start <= at => {
                    let own = Span::new(at, run.end.min(end));
                    self.protect_own(own, prot, key)?;
                    own.end
                }
                next => {
                    // The kernel knows whether the program mapped something there past libc.
                    let gap = Span::new(at, next.map_or(end, |run| run.start.min(end)));
                    mapping::protect(gap, prot, key)?;
                    gap.end
                }
            };
        }
        Ok(())
    }

    /// As [`Pool::protect`], for memory that the program has.
    fn protect_own(&mut self, own: Span, prot: i32, key: i32) -> Result<(), Errno> {
        self.pending.forget(own);
        if prot != c::PROT_RW || key >= 0 {
            self.part_with(own);
        }
        match key {
            // Memory that a key closes cannot be read for a copy later.
            0.. => self.demote_all(own)?,
            _ if prot == c::PROT_RW => self.demote_shut_edges(own)?,
            _ => self.demote_edges(own)?,
        }
        self.arenas.leave(own);
        let result = mapping::protect(own, prot, key);
        match result {
            Ok(()) if prot == c::PROT_RW && key < 0 => {
                let _ = self.shut.remove(own);
                self.retry_edges(own);
            }
            // The kernel stops at a hole (made past libc), and has changed what lies before it.
            Ok(()) | Err(Errno::ENOMEM) => {
                let _ = self.shut.insert(own);
            }
            Err(_) => {}
        }
        result
    }

    /// Restores the tiles at the edges of `span` that are plain memory again.
    fn retry_edges(&mut self, span: Span) {
        for at in [span.start, span.end - 1] {
            if let Some(tile) = self.layout.piece(at).tile(at)
                && tile.and(span) != tile
                && self.is_plain(tile)
            {
                self.restore(tile);
            }
        }
    }

    /// Grows an arena's heap: gives access to the rest of the tile as well. `None`: the request is something else.
    fn grow_arena(&mut self, span: Span) -> Option<Result<(), Errno>> {
        let layout = self.layout;
        let (heap, start) = self.arenas.heap(span.start)?;
        if !heap.grows(start, span) {
            return None;
        }
        let open = start + heap.open_bytes();
        if open >= span.end {
            heap.grown(start, span.end, open);
            return Some(Ok(()));
        }
        let last = layout.piece(span.end - 1);
        let end = last.whole_tiles(Span::new(span.end - 1, span.end)).end.min(start + ARENA_BYTES);
        let wide = Span::new(open.max(start), end);
        let mut end = end;
        let mut result = self.open_arena(wide, &last);
        if result == Err(Errno::ENOMEM) && span.end < end {
            // There is no memory for the rest of the tile: the requested part is enough.
            end = span.end;
            result = self.open_arena(Span::new(wide.start, end), &last);
            guest_file::count(Counter::FallbackNoMemory);
        }
        if result.is_ok()
            && let Some((heap, start)) = self.arenas.heap(span.start)
        {
            heap.grown(start, span.end, end);
            self.count_opened(Span::new(wide.start, end), &last);
        }
        Some(result)
    }

    /// Counts the tiles of `opened`, the part of an arena's heap that was opened just now; `last`: the piece at its end. A
    /// tile of which only the beginning was open is whole now.
    fn count_opened(&mut self, opened: Span, last: &Piece) {
        if !last.backing.is_tiled() {
            return;
        }
        let bytes = last.backing.tile_bytes();
        let first = align_up(opened.start, bytes).unwrap_or(opened.end);
        let [asked, whole] = [align_up(opened.end, bytes).unwrap_or(opened.end), opened.end]
            .map(|end| end.saturating_sub(first) / bytes);
        guest_file::add(Counter::TilesAsked, asked as u64);
        guest_file::add(Counter::TilesMaterialised, whole as u64);
        if let Some(tile) = last.tile(opened.start)
            && tile.start < opened.start
            && tile.end <= opened.end
        {
            guest_file::count(Counter::TilesRefilled);
            self.pending.wait(tile);
        }
    }

    /// Takes back the access that malloc's heaps have to the rests of tiles: the program did not ask for it, so nothing is
    /// there. Returns whether there was any.
    pub(super) fn close_rests(&mut self) -> bool {
        let (mut at, mut some) = (self.bounds().start, false);
        while let Some(rest) = self.next_to_close(at) {
            at = rest.end;
            // The mapping as malloc made it: without access alone, it would stay committed.
            let flags = c::MAP_PRIVATE | c::MAP_ANONYMOUS | c::MAP_NORESERVE | c::MAP_FIXED;
            // SAFETY: the program has reserved this memory, without access, and never asked for access to it.
            if unsafe { sys::mmap(rest.start, rest.len(), c::PROT_NONE, flags, -1, 0) }.is_err() {
                continue;
            }
            self.layout.each(rest, &mut |piece, part| backing::apply(part, piece.backing));
            self.pending.forget(rest);
            self.arenas.closed(rest.start);
            some = true;
        }
        some
    }

    /// Bytes of these rests.
    pub(super) fn rest_bytes(&self) -> usize {
        let (mut at, mut bytes) = (self.bounds().start, 0);
        while let Some(rest) = self.next_to_close(at) {
            at = rest.end;
            bytes += rest.len();
        }
        bytes
    }

    /// The first of these rests from `at` on. Parts of reserved pages stay open. So does what the program has locked
    /// (mlockall): a new mapping would not be locked, and natively malloc's reservation is.
    fn next_to_close(&self, mut at: usize) -> Option<Span> {
        loop {
            let rest = self.arenas.next_rest(at)?;
            if !self.hugetlb.overlaps(rest) && !sys::is_locked(rest.start, rest.len()) {
                return Some(rest);
            }
            at = rest.end;
        }
    }

    /// Gives access to `wide` of an arena's heap, from reserved pages where the policy wants that.
    fn open_arena(&mut self, wide: Span, last: &Piece) -> Result<(), Errno> {
        if let Backing::Hugetlb(bytes) = last.backing {
            let mut at = wide.start;
            while let Some(tile) = last.tile(at).filter(|tile| tile.start == at && tile.end <= wide.end) {
                if !self.replace_by_tile(tile, bytes) {
                    break;
                }
                at = tile.end;
            }
            if at == wide.end {
                return Ok(());
            }
        }
        // SAFETY: the program requested access; the rest of the tile belongs to the same heap.
        unsafe { sys::mprotect(wide.start, wide.len(), c::PROT_RW) }
    }

    /// madvise of whole pages.
    pub fn advise(&mut self, span: Span, advice: i32) -> Result<(), Errno> {
        if self.ready().is_err() {
            return self.advise_raw(span, advice);
        }
        self.keep_anchor_off(span);
        let governed = self.backing_at(span.start) != Backing::Kernel || backing::governs(span.start);
        match advice {
            c::MADV_COLLAPSE if governed && !span.holds_tile() => collapse_nothing(span),
            // The policy has decided on page sizes.
            c::MADV_HUGEPAGE | c::MADV_NOHUGEPAGE | c::MADV_COLLAPSE if governed => {
                if self.is_kept(span) {
                    Err(Errno::ENOMEM)
                } else {
                    sys::is_mapped(span.start, span.len())
                }
            }
            _ if self.has_hugetlb(span) && discards(advice) => self.discard_hugetlb(span),
            // An error for private memory without a file. The kernel treats reserved pages as a file, and would carry
            // it out.
            c::MADV_REMOVE if self.has_hugetlb(span) => Err(Errno::EINVAL),
            c::MADV_DONTNEED => self.discard(span),
            // In forked children reserved pages are replaced by copies, but the program forbids this memory to them.
            c::MADV_DONTFORK if self.has_hugetlb(span) => {
                self.demote_all(span)?;
                self.advise_and_note(span, advice)
            }
            // The kernel may free pages lazily or keep their contents, and reserved pages are kept.
            c::MADV_FREE if self.has_hugetlb(span) => Ok(()),
            _ => {
                if matches!(advice, c::MADV_FREE | c::MADV_REMOVE | c::MADV_DONTNEED_LOCKED | c::MADV_GUARD_INSTALL)
                {
                    self.part_with(span);
                }
                self.advise_and_note(span, advice)
            }
        }
    }

    /// Gives advice, and notes it if reserved pages could not keep it and the memory may be moved onto such pages.
    fn advise_and_note(&mut self, span: Span, advice: i32) -> Result<(), Errno> {
        let stays = matches!(advice, c::MADV_DONTFORK | c::MADV_WIPEONFORK | c::MADV_GUARD_INSTALL);
        if stays && self.takes_reserved {
            let _ = self.advised.insert(span);
        }
        self.advise_raw(span, advice)
    }

    /// Gives advice as it is. If the kernel refuses it for reserved pages only, normal memory takes their place and
    /// gets it.
    fn advise_raw(&mut self, span: Span, advice: i32) -> Result<(), Errno> {
        let Some(advice) = backing::advice_for(span.start, advice) else { return Ok(()) };
        match self.each_used(span, advice) {
            Err(Errno::EINVAL) if self.has_hugetlb(span) => {
                self.demote_all(span)?;
                self.each_used(span, advice)
            }
            result => result,
        }
    }

    /// MADV_DONTNEED. It is always left to the kernel: zeroes written over the pages would show wherever it still reads
    /// them. In an arena, malloc trims a few pages at a time and touches them again a moment later, so the tiles at the
    /// edges are collapsed again.
    fn discard(&mut self, span: Span) -> Result<(), Errno> {
        self.part_with(span);
        let advice = backing::advice_for(span.start, c::MADV_DONTNEED).unwrap_or(c::MADV_DONTNEED);
        let result = backing::give_back(span, || self.each_used(span, advice));
        if let Some((heap, start)) = self.arenas.heap(span.start) {
            let open = Span::new(start, start + heap.open_bytes());
            for at in [span.start, span.end - 1] {
                let tile =
                    self.layout.piece(at).tile(at).filter(|tile| tile.len() == PMD && tile.and(open) == *tile);
                if let Some(tile) = tile.filter(|tile| tile.and(span) != *tile && !self.hugetlb.covers(*tile)) {
                    self.pending.wait(tile);
                }
            }
        }
        result
    }

    /// Gives advice for the program's parts of `span`, not for spare memory beside them; ENOMEM at the end if there are
    /// holes.
    fn each_used(&self, span: Span, advice: i32) -> Result<(), Errno> {
        // SAFETY: the program itself gives this advice for its own memory.
        let raw = |part: Span| unsafe { sys::madvise(part.start, part.len(), advice) };
        if !self.spare.overlaps(span) {
            return raw(span);
        }
        let mut at = span.start;
        // A run may end beyond `span`, and is found again at its end.
        while let Some(run) = self.used.next_after(at).map(|run| run.and(span)).filter(|run| at < run.end) {
            match raw(run) {
                Ok(()) | Err(Errno::ENOMEM) => at = run.end,
                result => return result,
            }
        }
        Err(Errno::ENOMEM)
    }

    /// Records that the program mapped something at exactly `span` (MAP_FIXED), in place of what was there.
    pub fn replaced(&mut self, span: Span, how: How) {
        self.forget(span);
        let _ = self.used.insert(span);
        self.classify(span, how);
        if how.is_normal() {
            self.layout.each(span, &mut |piece, part| backing::apply(part, piece.backing));
            self.retry_edges(span);
        }
    }

    /// Whether `span` lies in the pool and the program has nothing there.
    pub fn is_free(&self, span: Span) -> bool {
        span.and(self.bounds()) == span && !self.used.overlaps(span)
    }

    /// The beginning of `span`, as far as the program has it. What it mapped past libc is its own, too.
    pub fn first_had(&self, span: Span) -> Span {
        let starts = [self.spare.next_after(span.start), self.held.next_after(span.start)];
        let not_its_own = starts.into_iter().flatten().map(|run| run.start).min().unwrap_or(span.end);
        let most = Span::new(span.start, not_its_own.clamp(span.start, span.end));
        let run = self.used.next_after(span.start).filter(|run| run.start <= span.start);
        let known = run.map_or(span.start, |run| run.end).min(most.end);
        let is_unknown_mapped = known < most.end && sys::is_mapped(known, PAGE).is_ok();
        if is_unknown_mapped { most } else { Span::new(span.start, known) }
    }

    /// Whether any of `span` was given back, but is still mapped.
    pub fn holds(&self, span: Span) -> bool {
        self.held.overlaps(span)
    }

    /// EEXIST if the program has something in `span`.
    pub fn clear_of_used(&mut self, span: Span) -> Result<(), Errno> {
        if self.is_live(span) && !self.was_left(span) { Err(Errno::EEXIST) } else { Ok(()) }
    }

    /// Whether nothing is mapped in `span`, although the tables list it as used: the program unmapped it past libc's
    /// memory calls (by shmdt, or a system call of its own).
    fn was_left(&mut self, span: Span) -> bool {
        if !self.hugetlb.overlaps(span) {
            self.drop_spare(span);
        }
        let left = mapping::is_free(span);
        if left {
            self.forget(span);
        }
        left
    }

    /// Whether a block may begin at the hint `span`.
    pub(super) fn takes_hint(&mut self, span: Span) -> bool {
        span.and(self.bounds()) == span && (!self.used.overlaps(span) || !self.holds(span) && self.was_left(span))
    }

    /// Clears `span` for a MAP_FIXED_NOREPLACE mapping: EEXIST if the program has something there.
    pub fn clear_for(&mut self, span: Span) -> Result<(), Errno> {
        self.ready()?;
        self.clear_of_used(span)?;
        self.demote_edges(span)?;
        self.drop_spare(span);
        Ok(())
    }

    /// Prepares `span` for being replaced by the kernel (MAP_FIXED, MREMAP_FIXED): makes room in the tables, accounts
    /// for what goes, and unmaps memory that the program does not know of.
    pub fn prepare(&mut self, span: Span) -> Result<(), Errno> {
        self.ready()?;
        self.keep_anchor_off(span);
        self.part_with(span);
        self.demote_edges(span)?;
        self.drop_normal_spare(span);
        Ok(())
    }

    /// Forgets memory in `span` that is not mapped any more: the kernel refuses some calls only after it has unmapped
    /// what they were to replace, or a part of what they were to move.
    pub fn recheck(&mut self, span: Span) {
        let mut at = span.start;
        while let Some(run) = first_of(self.used.next_after(at), self.spare.next_after(at))
            .map(|run| run.and(Span::new(at, span.end)))
            .filter(|run| !run.is_empty())
        {
            mapping::each_hole(run, &mut |hole| {
                if self.ready().is_ok() {
                    self.leave_behind(hole);
                }
            });
            at = run.end;
        }
    }
}

/// MADV_COLLAPSE of less than a tile: the kernel cuts the range to whole tiles, and fails if its end lies before its
/// start then.
pub fn collapse_nothing(span: Span) -> Result<(), Errno> {
    sys::is_mapped(span.start, span.len())?;
    let first = align_up(span.start, PMD).ok_or(Errno::EINVAL)?;
    if first == align_down(span.end, PMD) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Whether this advice discards contents at once.
pub fn discards(advice: i32) -> bool {
    matches!(advice, c::MADV_DONTNEED | c::MADV_DONTNEED_LOCKED)
}
