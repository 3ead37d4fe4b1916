//! mremap inside a pool, out of it and into it.

use crate::arch::PMD;
use crate::intervals::{Span, align_down};
use crate::kernel;
use crate::layout::Backing;
use crate::maps;
use crate::sandbox;
use crate::sys::{self, Errno, c};

use super::Pool;

const MOVE: i32 = c::MREMAP_MAYMOVE | c::MREMAP_FIXED;

impl Pool {
    /// mremap without a target address: `old` lies in this pool, lengths are whole pages, `new_len` is not 0.
    pub fn remap(&mut self, old: Span, new_len: usize, may_move: bool) -> Result<usize, Errno> {
        self.ready()?;
        if !self.used.covers(old) {
            return Err(Errno::EFAULT);
        }
        if new_len <= old.len() {
            if new_len < old.len() {
                self.unmap(Span::new(old.start + new_len, old.end))?;
            }
            return Ok(old.start);
        }
        let growth = Span::new(old.end, old.start.checked_add(new_len).ok_or(Errno::ENOMEM)?);
        if growth.and(self.bounds()) == growth && !self.used.overlaps(growth) && self.grow(old, growth) {
            return Ok(old.start);
        }
        if may_move { self.shift(old, new_len) } else { Err(Errno::ENOMEM) }
    }

    /// Growth in place into `growth`, where the program has nothing.
    fn grow(&mut self, old: Span, growth: Span) -> bool {
        if self.is_plain(old) {
            return self.map_plain(growth).is_ok();
        }
        if self.has_hugetlb(Span::new(old.start, growth.end)) {
            return false;
        }
        self.drop_spare(growth);
        // SAFETY: without MREMAP_MAYMOVE the mapping stays, and the kernel checks that nothing follows it.
        let grown = unsafe { sys::mremap(old.start, old.len(), old.len() + growth.len(), 0, 0) };
        if grown.is_ok() {
            self.inherit(old, growth);
        }
        grown.is_ok()
    }

    /// `new` is the program's and what `old` is (its beginning decides).
    fn inherit(&mut self, old: Span, new: Span) {
        let first = Span::new(old.start, old.start + 1);
        let (foreign, shut) = (self.foreign.overlaps(first), self.shut.overlaps(first));
        let _ = self.used.insert(new);
        if foreign {
            let _ = self.foreign.insert(new);
        } else if shut {
            let _ = self.shut.insert(new);
        }
    }

    /// A place for `len` bytes with the same offset in its huge page as `old`, so that the kernel can move whole
    /// page-table entries instead of splitting the pages.
    fn place_like(&self, old: Span, len: usize) -> Option<usize> {
        let large = self.align >= PMD;
        let offset = if large { old.start - align_down(old.start, PMD) } else { 0 };
        let align = if large { PMD } else { self.align };
        Some(self.place_clear(self.bounds(), len.checked_add(offset)?, align)? + offset)
    }

    /// Growth by moving to another place of the pool.
    fn shift(&mut self, old: Span, new_len: usize) -> Result<usize, Errno> {
        if self.has_hugetlb(old) && self.is_plain(old) {
            return self.shift_by_copy(old, new_len);
        }
        self.demote_all(old)?;
        let at = self.place_like(old, new_len).ok_or(Errno::ENOMEM)?;
        let (head, tail) = (Span::new(at, at + old.len()), Span::new(at + old.len(), at + new_len));
        self.yield_kept(head);
        self.part_with(old);
        if !self.is_plain(old) {
            let new = Span::new(head.start, tail.end);
            self.drop_spare(new);
            carry(old, new, MOVE)?;
            self.inherit(old, new);
            self.leave_behind(old);
            self.settle(new);
            return Ok(at);
        }
        // The tail first: when it cannot be had, nothing has changed.
        self.map_plain(tail)?;
        if self.has_hugetlb(head) {
            // The tail's first tile is a reserved page: nothing can be moved into the rest of it.
            self.unmap(tail)?;
            return self.shift_by_copy(old, new_len);
        }
        if let Err(errno) = carry(old, head, MOVE) {
            let _ = self.unmap(tail);
            return Err(errno);
        }
        let _ = self.spare.remove(head);
        let _ = self.used.insert(head);
        self.leave_behind(old);
        self.settle(head);
        Ok(at)
    }

    /// `old` is not mapped any more: neither is the rest of its tiles, where nobody uses them.
    fn leave_behind(&mut self, old: Span) {
        let wide = self.widen(old);
        for edge in [Span::new(wide.start, old.start), Span::new(old.end, wide.end)] {
            if !edge.is_empty() {
                self.drop_spare(edge);
            }
        }
        self.forget(old);
    }

    /// Gives memory that was moved to `span` the page sizes of its new place.
    fn settle(&mut self, span: Span) {
        let layout = self.layout;
        layout.each(span, &mut |piece, part| kernel::advise(part, piece.backing));
        if !self.is_plain(span) {
            return;
        }
        // The first tile's beginning: map it, so that the tile can become whole.
        let piece = layout.piece(span.start);
        let _ = self.fill(&piece, piece.span.and(span));
        layout.each(span, &mut |piece, part| {
            let mut at = part.start;
            while at < part.end && matches!(piece.backing, Backing::Thp(PMD)) {
                let Some(tile) = piece.tile(at) else { break };
                if self.is_plain(tile) {
                    self.restore(tile);
                }
                at = tile.end;
            }
        });
    }

    /// mremap with MREMAP_DONTUNMAP and no target: the kernel would choose one; the pool does.
    pub fn duplicate(&mut self, old: Span) -> Result<usize, Errno> {
        self.ready()?;
        if self.has_hugetlb(old) {
            return self.duplicate_by_copy(old);
        }
        let at = self.place_like(old, old.len()).ok_or(Errno::ENOMEM)?;
        let new = Span::new(at, at + old.len());
        self.drop_spare(new);
        carry(old, new, MOVE | c::MREMAP_DONTUNMAP)?;
        self.inherit(old, new);
        self.settle(new);
        Ok(at)
    }

    /// Before a move to `new` (MREMAP_FIXED): nothing of our own may lie there.
    pub fn before_move_in(&mut self, new: Span) -> Result<(), Errno> {
        self.ready()?;
        self.yield_kept(new);
        self.part_with(new);
        self.demote_edges(new)
    }

    /// A move to elsewhere has been done: `old` is not mapped any more.
    pub fn moved_away(&mut self, old: Span) {
        if self.ready().is_ok() {
            self.leave_behind(old);
        }
    }

    /// A move to `new` (MREMAP_FIXED) has been done; `governed`: it came from a pool and is plain memory.
    pub fn moved_in(&mut self, new: Span, governed: bool) {
        if self.ready().is_err() {
            return;
        }
        self.forget(new);
        let _ = self.used.insert(new);
        if governed {
            self.settle(new);
        } else {
            let _ = self.foreign.insert(new);
        }
    }

    /// Whether `span` is plain read-write memory.
    pub fn is_plain_at(&self, span: Span) -> bool {
        self.is_plain(span)
    }
}

/// Moves `old` to the beginning of `new`, which may be longer.
///
/// What the program got as one mapping may be several here (tiles of different sizes, or mapped at different times),
/// which the kernel refuses to move at once: then one after the other, if they are all of one kind, as they would be
/// without us.
pub fn carry(old: Span, new: Span, flags: i32) -> Result<(), Errno> {
    // SAFETY: the program asked for the move; nothing that it wants to keep lies at the target.
    match unsafe { sys::mremap(old.start, old.len(), new.len(), flags, new.start) } {
        Err(Errno::EFAULT) if !sandbox::is_active() && is_uniform(old) => carry_each(old, new, flags),
        result => result.map(drop),
    }
}

/// Whether `span` is mapped without holes, with one protection, and either no file or one.
fn is_uniform(span: Span) -> bool {
    let mut at = span.start;
    let mut first = None;
    let mut uniform = true;
    let walked = maps::each(&mut |mapping| {
        if mapping.span.end <= span.start {
            return true;
        }
        if mapping.span.start >= span.end {
            return false;
        }
        let kind = (mapping.read, mapping.write, mapping.exec, mapping.shared, mapping.inode);
        uniform &= mapping.span.start <= at && *first.get_or_insert(kind) == kind && mapping.inode == 0;
        at = mapping.span.end;
        uniform
    });
    walked.is_ok() && uniform && at >= span.end
}

fn carry_each(old: Span, new: Span, flags: i32) -> Result<(), Errno> {
    let mut done = 0;
    while done < old.len() {
        let from = old.start + done;
        let part = mapping_around(from).map(|span| span.and(Span::new(from, old.end))).ok_or(Errno::EFAULT)?;
        let last = part.end == old.end;
        let len = if last { new.len() - done } else { part.len() };
        // SAFETY: as in `carry`, piece by piece.
        if let Err(errno) = unsafe { sys::mremap(from, part.len(), len, flags, new.start + done) } {
            if flags & c::MREMAP_DONTUNMAP == 0 && done > 0 {
                let _ = carry_each(Span::new(new.start, new.start + done), Span::new(old.start, from), flags);
            }
            return Err(errno);
        }
        done += part.len();
    }
    Ok(())
}

fn mapping_around(addr: usize) -> Option<Span> {
    let mut found = None;
    let _ = maps::each(&mut |mapping| {
        if mapping.span.end > addr && mapping.span.start <= addr {
            found = Some(mapping.span);
        }
        mapping.span.end <= addr
    });
    found
}
