//! mremap inside a pool.

use crate::arch::PMD;
use crate::intervals::{Span, align_down};
use crate::kernel;
use crate::layout::Backing;
use crate::sys::{self, Errno, c};

use super::Pool;

impl Pool {
    /// Whether `span` is plain read-write memory of this pool's own making.
    fn is_plain(&self, span: Span) -> bool {
        self.used.covers(span) && !self.other.overlaps(span)
    }

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
        self.drop_spare(growth);
        // SAFETY: without MREMAP_MAYMOVE the mapping stays, and the kernel checks that nothing follows it.
        let grown = unsafe { sys::mremap(old.start, old.len(), old.len() + growth.len(), 0, 0) };
        if grown.is_ok() {
            let _ = self.used.insert(growth);
            let _ = self.other.insert(growth);
        }
        grown.is_ok()
    }

    /// A place for `len` bytes with the same offset in its huge page as `old`, so that the kernel can move whole
    /// page-table entries instead of splitting the pages.
    fn place_like(&self, old: Span, len: usize) -> Option<usize> {
        let offset = old.start - align_down(old.start, PMD);
        let align = if self.align >= PMD { PMD } else { self.align };
        let offset = if align == PMD { offset } else { 0 };
        Some(self.used.first_fit(self.bounds(), len.checked_add(offset)?, align)? + offset)
    }

    /// Growth by moving to another place of the pool.
    fn shift(&mut self, old: Span, new_len: usize) -> Result<usize, Errno> {
        let at = self.place_like(old, new_len).ok_or(Errno::ENOMEM)?;
        let (head, tail) = (Span::new(at, at + old.len()), Span::new(at + old.len(), at + new_len));
        if !self.is_plain(old) {
            self.drop_spare(Span::new(head.start, tail.end));
            let flags = c::MREMAP_MAYMOVE | c::MREMAP_FIXED;
            // SAFETY: the program asked for the move; nothing of its own lies at the target.
            unsafe { sys::mremap(old.start, old.len(), new_len, flags, at) }?;
            self.forget_old(old);
            let new = Span::new(head.start, tail.end);
            let _ = self.used.insert(new);
            let _ = self.other.insert(new);
            return Ok(at);
        }
        // The tail first: when it cannot be had, nothing has changed.
        self.map_plain(tail)?;
        if let Err(errno) = self.carry(old, head) {
            let _ = self.unmap(tail);
            return Err(errno);
        }
        let _ = self.spare.remove(head);
        let _ = self.used.insert(head);
        self.forget_old(old);
        self.settle(head);
        Ok(at)
    }

    fn forget_old(&mut self, old: Span) {
        let wide = self.widen(old);
        for edge in [Span::new(wide.start, old.start), Span::new(old.end, wide.end)] {
            if !edge.is_empty() {
                self.drop_spare(edge);
            }
        }
        self.forget(old);
    }

    /// Moves the pages of `old` to `new` (same length), replacing spare memory there.
    ///
    /// What the program got as one mapping may be several here (tiles mapped at different times), which the kernel
    /// refuses to move at once: then tile by tile, and by copying where even that fails.
    fn carry(&mut self, old: Span, new: Span) -> Result<(), Errno> {
        let flags = c::MREMAP_MAYMOVE | c::MREMAP_FIXED;
        // SAFETY: the program asked for the move; nothing of its own lies at the target.
        let moved = unsafe { sys::mremap(old.start, old.len(), old.len(), flags, new.start) };
        match moved {
            Ok(_) => return Ok(()),
            Err(Errno::EFAULT) => {}
            Err(errno) => return Err(errno),
        }
        let mut done = 0;
        while done < old.len() {
            let from = old.start + done;
            let len = (align_down(from, PMD) + PMD - from).min(old.len() - done);
            // SAFETY: as above, piece by piece.
            let moved = unsafe { sys::mremap(from, len, len, flags, new.start + done) };
            if moved.is_err() {
                copy_over(from, new.start + done, len)?;
            }
            done += len;
        }
        Ok(())
    }

    /// Gives memory that was moved to `span` the page sizes of its new place.
    fn settle(&mut self, span: Span) {
        self.layout.each(span, &mut |piece, part| kernel::advise(part, piece.backing));
        // The first tile's beginning: map it, so that the tile can become whole.
        let piece = self.layout.piece(span.start);
        let _ = self.fill(&piece, piece.span.and(span));
        let layout = self.layout;
        let mut budget = 64;
        layout.each(span, &mut |piece, part| {
            let mut at = part.start;
            while at < part.end && matches!(piece.backing, Backing::Thp(PMD)) {
                let Some(tile) = piece.tile(at) else { break };
                if budget > 0 && self.is_mapped(tile) {
                    budget -= 1;
                    self.pending.push(tile);
                }
                at = tile.end;
            }
        });
    }

    /// A move to or from elsewhere has been done by the kernel: `old` is not ours any more.
    pub fn moved_away(&mut self, old: Span) {
        if self.ready().is_ok() {
            self.forget_old(old);
        }
    }

    /// A move from elsewhere to `new` (MREMAP_FIXED) has been done by the kernel.
    pub fn moved_in(&mut self, new: Span, anonymous: bool) {
        if self.ready().is_err() {
            return;
        }
        self.forget(new);
        let _ = self.used.insert(new);
        let _ = self.other.insert(new);
        if anonymous {
            self.layout.each(new, &mut |piece, part| kernel::advise(part, piece.backing));
        }
    }
}

/// Copies what cannot be moved: maps fresh memory at `to`, copies, and unmaps `from`.
fn copy_over(from: usize, to: usize, len: usize) -> Result<(), Errno> {
    let flags = c::MAP_PRIVATE | c::MAP_ANONYMOUS | c::MAP_FIXED;
    // SAFETY: nothing of the program lies at the target.
    unsafe { sys::mmap(to, len, c::PROT_RW, flags, -1, 0) }?;
    // SAFETY: `from` is plain read-write memory of the program, which asked for its move; the two do not overlap.
    unsafe {
        core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len);
        sys::munmap(from, len)
    }
}
