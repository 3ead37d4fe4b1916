//! mremap inside a pool, out of it and into it.

use crate::backing;
use crate::backing::thp;
use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::span::{Span, align_down, align_up};
use crate::boundary::sys::{self, Errno, c, task};
use crate::boundary::{mapping, maps};
use crate::state::layout::Backing;
use crate::state::seccomp;

use super::Pool;

const MOVE: i32 = c::MREMAP_MAYMOVE | c::MREMAP_FIXED;

impl Pool {
    /// Whether the program has all of `span`.
    pub fn has(&self, span: Span) -> bool {
        self.used.covers(span) && !self.held.overlaps(span)
    }

    /// Whether the library has any of `span` that the program has not: mapped in advance, or given back.
    pub fn is_kept(&self, span: Span) -> bool {
        self.spare.overlaps(span) || self.held.overlaps(span)
    }

    /// Whether `page` is the program's, and mapped. What it has may be gone: detached, unmapped past libc, or kept from
    /// a child. What it has not may be there: attached, or mapped past libc.
    pub fn is_there(&mut self, page: Span) -> bool {
        self.keep_anchor_off(page);
        !self.is_kept(page) && sys::is_mapped(page.start, page.len()).is_ok()
    }

    /// Enters what the program attached, or mapped past libc, where it has nothing in `span`.
    fn adopt(&mut self, span: Span) {
        self.keep_anchor_off(span);
        let mut at = span.start;
        while at < span.end && !self.used.covers(span) && !self.is_kept(span) {
            let next = self.used.next_after(at).unwrap_or(Span::new(span.end, span.end));
            let gap = Span::new(at, next.start.min(span.end));
            if !gap.is_empty() {
                if sys::is_mapped(gap.start, gap.len()).is_err() {
                    return;
                }
                let _ = self.used.insert(gap);
                let _ = self.foreign.insert(gap);
            }
            at = next.end.max(at + PAGE);
        }
    }

    /// mremap without a target address: `old` lies in this pool, lengths are whole pages, `new_len` is not 0.
    pub fn remap(&mut self, old: Span, new_len: usize, may_move: bool) -> Result<usize, Errno> {
        self.ready()?;
        self.adopt(old);
        if !self.has(old) || sys::is_mapped(old.start, old.len()).is_err() {
            return Err(Errno::EFAULT);
        }
        if new_len <= old.len() {
            if new_len < old.len() {
                self.unmap(Span::new(old.start + new_len, old.end))?;
            }
            return Ok(old.start);
        }
        let mixed = !self.is_plain(old) && !self.has_hugetlb(old);
        if mixed && !mapping::is_within_one(old) && !is_uniform(old) {
            // The program made several mappings of it.
            return Err(Errno::EFAULT);
        }
        let growth = Span::new(old.end, old.start.checked_add(new_len).ok_or(Errno::ENOMEM)?);
        if growth.and(self.bounds()) == growth && !self.used.overlaps(growth) && self.grow(old, growth)? {
            return Ok(old.start);
        }
        if may_move { self.shift(old, new_len) } else { Err(Errno::ENOMEM) }
    }

    /// Grows a block in place into `growth`, where the program has nothing. False: there is no room. A growth that the
    /// kernel would refuse wherever the block lies (EPERM: it is sealed; EAGAIN: it is locked, and the limit is
    /// reached) is refused here.
    fn grow(&mut self, old: Span, growth: Span) -> Result<bool, Errno> {
        if self.is_plain(old) && !(self.is_advised(old) && self.wants_hugetlb(growth)) {
            // As without the library, a growing mapping keeps the program's settings. Spare memory in its way that is,
            // even in part, a mapping of its own lacks these settings, or has those of another block.
            let spare = self.spare.next_after(growth.start).filter(|run| run.start < growth.end);
            let own = |run: Span| {
                let reused = Span::new(growth.start - PAGE, run.end.min(growth.end));
                run.start <= growth.start && mapping::is_within_one(reused)
            };
            if spare.is_none_or(own) || self.has_hugetlb(old) {
                // Further spare memory, before the next block, is no part of that mapping either.
                if let Some(next) = spare.filter(|run| run.end < growth.end) {
                    self.drop_normal_spare(Span::new(next.end, growth.end));
                }
                self.stretch(growth)?;
                return Ok(self.map_plain(growth).is_ok());
            }
            self.part_with(Span::new(growth.start, growth.start + PAGE));
        }
        if self.has_hugetlb(Span::new(old.start, growth.end)) {
            return Ok(false);
        }
        self.drop_spare(growth);
        match sys::grow_in_place(old.end - PAGE, PAGE, PAGE + growth.len()) {
            Ok(_) => self.inherit(old, growth),
            Err(errno) if is_final(errno) => return Err(errno),
            Err(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Stretches the mapping that ends at `end` (with its spare rest) over `growth` and the rest of its last tile. A
    /// new mapping would not do. If the block was moved there, the two would not merge: several mappings would be moved
    /// one by one the next time, and a tile made of two can never be one page. And a new mapping has none of the
    /// program's settings for the block, such as a lock. So if the rest of the tile is not available, the block gets
    /// only the requested part.
    fn stretch(&mut self, growth: Span) -> Result<(), Errno> {
        let edge = self.spare.next_after(growth.start).filter(|run| run.start <= growth.start);
        let edge = edge.map_or(growth.start, |run| run.end);
        if self.stays_apart(edge - 1) {
            return Ok(());
        }
        let mut asked = edge;
        while asked < growth.end && !self.stays_apart(asked) {
            asked = growth.end.min(self.layout.piece(asked).span.end);
        }
        if asked == edge {
            return Ok(());
        }
        let in_the_way = self.spare.next_after(edge).map_or(usize::MAX, |run| run.start);
        let asked = Span::new(edge, asked.min(in_the_way));
        let whole = Span::new(edge, self.tile_end(asked).min(in_the_way));
        if asked.is_empty() {
            return Ok(());
        }
        self.keep_anchor_off(whole);
        for rest in [whole, asked] {
            match sys::grow_in_place(edge - PAGE, PAGE, PAGE + rest.len()) {
                Ok(_) => {
                    self.stretched(rest);
                    return Ok(());
                }
                Err(errno) if is_final(errno) && rest == asked => return Err(errno),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Whether memory at `addr` is a separate mapping, into which nothing else can grow.
    fn stays_apart(&self, addr: usize) -> bool {
        let backing = self.backing_at(addr);
        let middle = (PAGE + 1..PMD).contains(&backing.tile_bytes());
        matches!(backing, Backing::Hugetlb(_)) || (middle && thp::keeps_apart())
    }

    /// Records that `rest` belongs to the mapping before it now.
    fn stretched(&mut self, rest: Span) {
        let _ = self.spare.insert(rest);
        let _ = self.attached.insert(rest);
        let layout = self.layout;
        layout.each(rest, &mut |piece, part| {
            backing::apply(part, piece.backing);
            self.count_tiles(&piece, part);
        });
    }

    /// Records that `new` is the program's, and of the same kind as `old` (whose beginning decides).
    fn inherit(&mut self, old: Span, new: Span) {
        let first = Span::new(old.start, old.start + 1);
        let (foreign, shut) = (self.foreign.overlaps(first), self.shut.overlaps(first));
        let _ = self.used.insert(new);
        if foreign {
            let _ = self.foreign.insert(new);
        } else if shut {
            let _ = self.shut.insert(new);
        }
        if self.is_advised(old) {
            let _ = self.advised.insert(new);
        }
    }

    /// Whether the program gave advice on any of `span` that reserved pages could not keep.
    pub fn is_advised(&self, span: Span) -> bool {
        self.advised.overlaps(span)
    }

    /// Whether `old` has reserved pages, and grows on such pages where it moves. (If it has advice, it becomes normal
    /// memory instead, and its advice moves with it.)
    fn moves_by_copy(&self, old: Span) -> bool {
        self.has_hugetlb(old) && self.is_plain(old) && !self.is_advised(old)
    }

    /// A place for `old` grown to `len` bytes.
    ///
    /// Memory that has been touched keeps its old offset for the kernel when it moves, so it never merges with the
    /// mapping beside it. A tile can then be one page only if the moved memory fills it from its beginning. Memory that
    /// contains a whole tile already keeps its offset in the tile, so that the kernel moves huge entries as they are
    /// instead of splitting them.
    fn place_like(&self, old: Span, len: usize) -> Option<usize> {
        let tile = self.align.min(PMD);
        let period = backing::period(old.start);
        if tile == PAGE && period > PAGE {
            // Moved by a multiple of the period, pages keep the frames that their new addresses want.
            let at = self.place_clear(self.bounds(), len.checked_add(period)?, PAGE)?;
            let offset = |addr: usize| addr % period;
            return Some(at + (period + offset(old.start) - offset(at)) % period);
        }
        let first = align_up(old.start, tile)?;
        let offset = if first + tile <= old.end { old.start - align_down(old.start, tile) } else { 0 };
        // To the end of the last tile: other memory in it would keep it from being one page.
        let room = align_up(len.checked_add(offset)?, tile)?;
        Some(self.place_clear(self.bounds(), room, tile)? + offset)
    }

    /// Grows a block by moving it to another place of the pool.
    fn shift(&mut self, old: Span, new_len: usize) -> Result<usize, Errno> {
        if self.moves_by_copy(old) {
            return self.shift_by_copy(old, new_len);
        }
        self.demote_all(old)?;
        let at = self.place_like(old, new_len).ok_or(Errno::ENOMEM)?;
        let new = Span::new(at, at + new_len);
        let reserved = self.wants_hugetlb(new);
        if self.is_plain(old) && reserved && !self.is_advised(old) {
            return self.shift_onto_reserved(old, new);
        }
        if !self.is_plain(old) || reserved {
            self.part_with(old);
            self.drop_spare(new);
            carry(old, new, MOVE, self.is_plain(old))?;
            self.inherit(old, new);
            self.leave_behind(old);
            self.settle(new, new, false);
            return Ok(at);
        }
        self.part_with(self.widen(old));
        // The rest of the last tile moves as well: nothing mapped there later could merge with the moved memory.
        let whole = Span::new(at, self.tile_end(new));
        let from = self.with_rest(old, whole);
        self.drop_spare(whole);
        let room = match carry(from, whole, MOVE, true) {
            Err(Errno::ENOMEM | Errno::EAGAIN) if whole.len() > new_len.max(from.len()) => {
                let least = Span::new(at, at + new_len.max(from.len()));
                carry(from, least, MOVE, true).map(|()| least)
            }
            moved => moved.map(|()| whole),
        }?;
        let _ = self.spare.remove(Span::new(old.end, from.end));
        let _ = self.used.insert(new);
        let _ = self.spare.insert(Span::new(new.end, room.end));
        let _ = self.attached.insert(Span::new(new.end, room.end));
        let as_it_is = self.is_congruent(old, at);
        if as_it_is {
            self.follow(from, at);
        }
        self.leave_behind(old);
        self.settle(new, Span::new(at, at + from.len()), as_it_is);
        Ok(at)
    }

    /// Whether memory that moves from `old` to `at` keeps its offsets in tiles.
    fn is_congruent(&self, old: Span, at: usize) -> bool {
        (old.start ^ at) & (self.align.min(PMD) - 1) == 0
    }

    /// `old` and the spare rest of its last tile, if that can move to `target` as well. A rest that is another mapping
    /// cannot: memory that grows onto it would lack the program's settings, such as MADV_WIPEONFORK or a lock.
    fn with_rest(&self, old: Span, target: Span) -> Span {
        let wide = Span::new(old.start, self.tile_end(old));
        let rest = Span::new(old.end, wide.end);
        let movable = !rest.is_empty() && self.is_congruent(old, target.start) && wide.len() <= target.len();
        let comes_along =
            movable && self.spare.covers(rest) && mapping::is_within_one(Span::new(old.end - PAGE, wide.end));
        if comes_along { wide } else { old }
    }

    /// Transfers what is known of the tiles wholly inside `old`, which moved to `at` as they are.
    fn follow(&mut self, old: Span, at: usize) {
        self.pending.follow(old, at);
        let tile = self.align.min(PMD);
        let mut from = align_up(old.start, tile).unwrap_or(old.end);
        let end = align_down(old.end, tile);
        while let Some(run) = self.broken.next_after(from).filter(|run| from < end && run.start < end) {
            let start = run.start.max(from);
            let moved = Span::new(at + (start - old.start), at + (run.end.min(end) - old.start));
            let _ = self.broken.insert(moved);
            from = run.end;
        }
    }

    /// [`Pool::shift`] to a place where reserved pages are wanted. Nothing can be moved onto them, so the present
    /// memory stays normal, to the end of its last tile. It is never copied onto them: I/O under way would go on in the
    /// original pages.
    fn shift_onto_reserved(&mut self, old: Span, new: Span) -> Result<usize, Errno> {
        let last = new.start + old.len() - 1;
        let seam = self.layout.piece(last).tile(last).map_or(last + 1, |tile| tile.end).min(new.end);
        let (head, tail) = (Span::new(new.start, seam), Span::new(seam, new.end));
        self.keep_anchor_off(head);
        self.drop_spare(head);
        // The tail comes first: if it is not available, nothing has changed.
        if !tail.is_empty() {
            self.map_plain(tail)?;
        }
        self.part_with(old);
        if let Err(errno) = carry(old, head, MOVE, true) {
            if !tail.is_empty() {
                let _ = self.unmap(tail);
            }
            return Err(errno);
        }
        let _ = self.used.insert(head);
        self.leave_behind(old);
        self.settle(head, head, false);
        Ok(new.start)
    }

    /// End of the last tile of `span`, or of the free part of it.
    fn tile_end(&self, span: Span) -> usize {
        let end = self.ends(span)[1].whole_tiles(Span::new(span.end - 1, span.end)).end;
        self.used.next_after(span.end).map_or(end, |next| end.min(next.start.max(span.end)))
    }

    /// Whether any tile of `span` is to come from a reserved pool, onto which nothing can be moved.
    pub(super) fn wants_hugetlb(&self, span: Span) -> bool {
        let mut wanted = false;
        self.layout.each(span, &mut |piece, _| wanted |= matches!(piece.backing, Backing::Hugetlb(_)));
        wanted
    }

    /// Unmaps the unused rest of the tiles of `old`, which is not mapped any more.
    pub(super) fn leave_behind(&mut self, old: Span) {
        let wide = self.widen(old);
        for edge in [Span::new(wide.start, old.start), Span::new(old.end, wide.end)] {
            if !edge.is_empty() {
                self.drop_spare(edge);
            }
        }
        self.forget(wide);
    }

    /// Gives `span` the page sizes of its place. `moved` came from elsewhere, the rest is fresh; `as_it_is`: whole
    /// tiles moved as such.
    fn settle(&mut self, span: Span, moved: Span, as_it_is: bool) {
        let layout = self.layout;
        let room = Span::new(span.start, self.tile_end(span));
        layout.each(room, &mut |piece, part| backing::apply(part, piece.backing));
        if !self.is_plain(span) {
            return;
        }
        let is_mixed = |tile: Span| match tile.and(moved) {
            part if part.is_empty() => false,
            part => part != tile || !as_it_is,
        };
        layout.each(span, &mut |piece, part| {
            let mut at = part.start;
            while at < part.end {
                let Some(tile) = piece.tile(at) else { break };
                if tile.start < span.start {
                    // The memory before it in the tile is, or will be, another mapping.
                    let _ = self.broken.insert(tile);
                } else if piece.backing == Backing::Thp(PMD) && is_mixed(tile) && self.is_plain(tile) {
                    self.restore(tile);
                }
                at = tile.end;
            }
        });
    }

    /// mremap with MREMAP_DONTUNMAP and no target: the kernel would choose one; the pool does.
    pub fn duplicate(&mut self, old: Span) -> Result<usize, Errno> {
        self.ready()?;
        self.adopt(old);
        if !self.has(old) || sys::is_mapped(old.start, old.len()).is_err() {
            return Err(Errno::EFAULT);
        }
        self.demote_all(old)?;
        // (With MREMAP_FIXED, which is added here, the kernel moves several mappings of any kinds.)
        if !self.is_plain(old) && !mapping::is_within_one(old) && !is_uniform(old) {
            return Err(Errno::EFAULT);
        }
        let at = self.place_like(old, old.len()).ok_or(Errno::ENOMEM)?;
        let new = Span::new(at, at + old.len());
        self.drop_spare(new);
        carry(old, new, MOVE | c::MREMAP_DONTUNMAP, self.is_plain(old))?;
        self.inherit(old, new);
        self.settle(new, new, false);
        Ok(at)
    }

    /// Prepares `old` for a move or growth by the kernel: memory that the program does not know of goes, and reserved
    /// pages become normal memory.
    pub fn before_move_out(&mut self, old: Span) -> Result<(), Errno> {
        self.ready()?;
        self.demote_all(old)?;
        if !self.used.covers(old) {
            self.drop_spare(old);
        }
        Ok(())
    }

    /// Prepares `span` for registration with the program's own userfaultfd, which cannot have parts of reserved pages.
    /// Spare memory would be registered with the rest, and the next block there would wait for the program's handler.
    pub fn before_registering(&mut self, span: Span) -> Result<(), Errno> {
        self.ready()?;
        self.demote_all(span)?;
        self.drop_normal_spare(span);
        Ok(())
    }

    /// Records that `old` has been moved elsewhere and is not mapped any more.
    pub fn moved_away(&mut self, old: Span) {
        if self.ready().is_ok() {
            self.leave_behind(old);
        }
    }

    /// Records a move to `new` (MREMAP_FIXED); `governed`: the memory came from a pool and is plain; `advised`: see
    /// [`Pool::is_advised`].
    pub fn moved_in(&mut self, new: Span, governed: bool, advised: bool) {
        if self.ready().is_err() {
            return;
        }
        self.forget(new);
        let _ = self.used.insert(new);
        if advised && self.takes_reserved {
            let _ = self.advised.insert(new);
        }
        if governed {
            self.settle(new, new, false);
        } else {
            let _ = self.foreign.insert(new);
        }
    }

    /// Whether `span` is plain read-write memory.
    pub fn is_plain_at(&self, span: Span) -> bool {
        self.is_plain(span)
    }
}

/// Whether mremap refuses a block for its kind, not for lack of room.
fn is_final(errno: Errno) -> bool {
    matches!(errno, Errno::EPERM | Errno::EAGAIN)
}

/// Moves `old` to the beginning of `new`, which may be longer.
///
/// A block that the program got as one mapping may be several here (tiles of different sizes, or mapped at different
/// times), which the kernel refuses to move at once. Then they are moved one after the other, if all are of one kind,
/// as without the library. `plain`: that is known, also where no file can be opened.
pub fn carry(old: Span, new: Span, flags: i32, plain: bool) -> Result<(), Errno> {
    // SAFETY: the program requested the move; nothing that it wants to keep lies at the target.
    let whole = || unsafe { sys::mremap(old.start, old.len(), new.len(), flags, new.start) };
    if moves_in_part(old, new.len(), plain) {
        carry_each(old, new, flags)?;
    } else {
        match whole() {
            Err(Errno::EFAULT) if plain || is_uniform(old) => carry_each(old, new, flags),
            result => result.map(drop),
        }?;
    }
    backing::after_move(old, new.start, flags & c::MREMAP_DONTUNMAP != 0);
    Ok(())
}

/// Whether the kernel could move the beginning of `old` and then refuse the rest. If the length stays the same, one
/// call can move several mappings (Linux 6.17), but none of them may be registered with a userfaultfd. Here they are
/// moved one by one. `plain`: as of [`carry`].
pub fn moves_in_part(old: Span, new_len: usize, plain: bool) -> bool {
    old.len() == new_len
        && backing::governs_any(old)
        && !mapping::is_within_one(old)
        && (plain || is_uniform(old) || moves_several())
}

/// Whether this kernel moves several mappings at once, of any kinds, and with holes between them. (It is not tried: the
/// addresses that a move leaves behind are another thread's a moment later.)
fn moves_several() -> bool {
    !seccomp::is_active() && task::kernel_release() >= (6, 17)
}

/// Whether `span` is mapped without holes, with one protection, and without a file.
pub fn is_uniform(span: Span) -> bool {
    if seccomp::is_active() || span.is_empty() {
        return false;
    }
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
        let rest = Span::new(from, old.end);
        let part = first_mapping(rest).unwrap_or(Span::new(old.end, old.end));
        if part.is_empty() || part.start > from {
            // A hole: as the kernel has it, one at the beginning is an error, the others stay holes.
            if done == 0 {
                return Err(Errno::EFAULT);
            }
            done = part.start.max(from) - old.start;
            if part.is_empty() {
                break;
            }
            continue;
        }
        let last = part.end == old.end;
        let len = if last { new.len() - done } else { part.len() };
        // SAFETY: as in `carry`: the program requested the move, and nothing that it wants to keep lies at the target.
        if let Err(errno) = unsafe { sys::mremap(from, part.len(), len, flags, new.start + done) } {
            if done > 0 {
                let back = flags & !c::MREMAP_DONTUNMAP;
                let _ = carry_each(Span::new(new.start, new.start + done), Span::new(old.start, from), back);
            }
            return Err(errno);
        }
        done += part.len();
    }
    Ok(())
}

/// The part of `span` in its first mapping. Only behind a hole, or where the mapping is sealed, it is looked up.
fn first_mapping(span: Span) -> Option<Span> {
    if let Some(end) = mapping::end_of_first(span) {
        return Some(Span::new(span.start, end));
    }
    let mut found = None;
    let _ = maps::each(&mut |mapping| {
        if mapping.span.end > span.start {
            found = Some(mapping.span.and(span));
        }
        found.is_none()
    });
    found
}
