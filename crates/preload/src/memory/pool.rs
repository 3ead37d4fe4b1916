//! One pool of anonymous memory: the addresses in use, and those mapped in advance.
//!
//! Every address of the pool is in one of three states:
//! - *used*: the program has it;
//! - *spare*: mapped read-write by the library as the rest of a tile, never handed out since, hence zero;
//! - neither: not mapped at all.
//!
//! A request that enters a tile with nothing in it maps the whole tile: the kernel gives a huge page at the first touch
//! only where one mapping covers all of it and nothing is populated. When the program gives back the last used byte of
//! a tile, its spare part goes, too. Memory that the program gave back is really unmapped, and mapped anew when it is
//! wanted again. So memory that is handed out is zero, stale pointers fault, the kernel's own references (pages in
//! pipes, I/O under way) keep their contents, and none of the program's settings for the old mapping are left.

mod account;
mod anchor;
mod arenas;
mod change;
mod churn;
mod fill;
mod hugetlb;
mod pending;
mod remap;
#[cfg(test)]
mod tests;

use pagelab_abi::guest::{Counter, GuestWarning};
use pagelab_abi::plan::Memory;

use crate::backing;
use crate::boundary::arch::{PAGE, PMD};
use crate::boundary::span::{Span, align_down, align_up};
use crate::boundary::sys::{self, Errno, c};
use crate::boundary::{mapping, maps};
use crate::state::guest_file;
use crate::state::intervals::{Full, Intervals};
use crate::state::layout::{Backing, Layout, Piece};

use anchor::Anchor;
use arenas::Arenas;
pub use arenas::{ARENA_BYTES, looks_like_arena};
pub use change::{collapse_nothing, discards};
use churn::Churn;
pub use hugetlb::{copy_of, demote, protection_of};
pub use pending::Pending;
pub use remap::{carry, is_uniform, moves_in_part};

/// A pool.
pub struct Pool {
    layout: Layout,
    /// Memory that the program has.
    used: Intervals,
    /// Memory mapped in advance.
    spare: Intervals,
    /// The part of `used` that is private anonymous memory without read-write access now (guards, reservations).
    shut: Intervals,
    /// The part of `used` that is something else for good: no-reserve mappings, files, shared memory, and pages that the
    /// program took from a reserved pool.
    foreign: Intervals,
    /// Tiles that the program broke up: accounted for at that time, and not made whole since.
    broken: Intervals,
    /// Tiles from the kernel's reserved pools.
    hugetlb: Intervals,
    /// The part of `used` that the program gave back but the kernel cannot unmap yet: parts of reserved pages.
    held: Intervals,
    /// The part of `spare` that is one mapping with a block before it, which was moved or stretched. It has the
    /// program's settings for that block, so only that block may grow into it.
    attached: Intervals,
    /// The part of `used` with the program's own advice, where a move could lead onto reserved pages, which cannot have
    /// it.
    advised: Intervals,
    arenas: Arenas,
    pending: Pending,
    churn: Churn,
    anchor: Anchor,
    /// The program has given back nothing from here on.
    untouched: usize,
    /// The tile in which small memory that is not read-write was placed last: the next such request goes there, too.
    closed: Span,
    /// Requests of at least this many bytes begin on a multiple of it.
    align: usize,
    /// Whether any of its pieces takes pages from the kernel's reserved pools.
    takes_reserved: bool,
}

/// Protection and flags of a new mapping.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Protection.
    pub prot: i32,
    /// Flags, without any `MAP_FIXED`.
    pub flags: i32,
    /// Whether malloc makes it for a heap of a thread arena.
    pub for_arena: bool,
}

impl How {
    /// Whether it is plain read-write memory.
    pub fn is_plain(self) -> bool {
        self.prot == c::PROT_RW && self.flags & c::MAP_NORESERVE == 0
    }

    /// Whether it is private memory without a file, and not from a reserved pool.
    fn is_normal(self) -> bool {
        self.flags & (c::MAP_ANONYMOUS | c::MAP_HUGETLB) == c::MAP_ANONYMOUS
            && self.flags & c::MAP_TYPE == c::MAP_PRIVATE
    }
}

impl Pool {
    /// An empty pool.
    pub fn new(layout: Layout) -> Pool {
        let align = layout.largest_tile();
        let mut takes_reserved = false;
        layout
            .each(layout.bounds(), &mut |piece, _| takes_reserved |= matches!(piece.backing, Backing::Hugetlb(_)));
        Pool {
            layout,
            used: Intervals::new(),
            spare: Intervals::new(),
            shut: Intervals::new(),
            foreign: Intervals::new(),
            broken: Intervals::new(),
            hugetlb: Intervals::new(),
            held: Intervals::new(),
            attached: Intervals::new(),
            advised: Intervals::new(),
            arenas: Arenas::new(layout.bounds().start),
            pending: Pending::new(),
            churn: Churn::new(),
            anchor: Anchor::default(),
            untouched: 0,
            closed: Span::new(0, 0),
            align,
            takes_reserved,
        }
    }

    /// All its addresses.
    pub fn bounds(&self) -> Span {
        self.layout.bounds()
    }

    /// Its layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Changes the layout for memory that is mapped from now on (a child that does not inherit the policy).
    pub fn set_layout(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// Whether `addr` lies in the heap of a thread arena.
    pub fn is_arena(&self, addr: usize) -> bool {
        self.arenas.covers(addr)
    }

    /// The first part of `span` that is the program's private anonymous memory, with its kind.
    pub fn first_own(&self, span: Span) -> Option<(Span, Memory)> {
        let mut at = span.start;
        while at < span.end {
            let run = self.used.next_after(at)?.and(Span::new(at, span.end));
            let others = [&self.foreign, &self.held].into_iter().filter_map(|set| set.next_after(run.start));
            let other = others.min_by_key(|run| run.start).unwrap_or(Span::new(usize::MAX, usize::MAX));
            let heap = align_down(run.start, ARENA_BYTES);
            if !run.is_empty() && self.is_arena(run.start) {
                return Some((run.and(Span::new(heap, heap + ARENA_BYTES)), Memory::Arenas));
            }
            if run.start < run.end.min(other.start) {
                return Some((Span::new(run.start, run.end.min(other.start)), Memory::Anon));
            }
            at = if run.is_empty() { span.end } else { other.end };
        }
        None
    }

    /// Makes room in the tables for the few changes of one call.
    fn ready(&mut self) -> Result<(), Errno> {
        let all = [&mut self.used, &mut self.spare, &mut self.shut, &mut self.foreign, &mut self.broken];
        let more = [&mut self.hugetlb, &mut self.held, &mut self.attached];
        let reserved = self.takes_reserved.then_some(&mut self.advised);
        all.into_iter().chain(more).chain(reserved).try_for_each(|set| set.reserve(16)).map_err(|Full| {
            guest_file::count(Counter::FallbackTables);
            Errno::ENOMEM
        })
    }

    /// Whether a request is for memory that may share tiles. Stacks keep off reserved pages: their owner makes guard
    /// pages of parts of them at a time when other threads run and such a page cannot be replaced.
    fn shares_tiles(&self, how: How) -> bool {
        how.is_plain() && !(self.takes_reserved && how.flags & c::MAP_STACK != 0)
    }

    fn place(&mut self, len: usize, how: How) -> Option<usize> {
        let (plain, arena) = (self.shares_tiles(how), how.for_arena);
        let tile = PMD.min(self.align);
        let align = match () {
            () if arena => ARENA_BYTES,
            () if len >= self.align => self.align,
            () if len >= PMD => tile,
            () => PAGE,
        };
        if plain {
            return self.place_without(&[&self.attached], self.bounds(), len, align);
        }
        let mut bounds = self.bounds();
        // One such mapping after the other would spoil larger tiles, so it goes far away from them.
        if !arena && self.align > PMD {
            bounds.start += bounds.len() / 2;
        }
        if arena || len >= tile {
            return self.place_clear(bounds, len, align);
        }
        // Memory that is not read-write cannot share a huge page, so it stays out of tiles that others use. But small
        // blocks of it lie side by side: the kernel makes neighbours one mapping, and a process may have few mappings.
        // (Plain memory may have taken that tile since; an empty one counts as plain.)
        if !self.is_plain(self.closed)
            && let Some(at) = self.place_clear(self.closed, len, PAGE)
        {
            return Some(at);
        }
        let at = self.place_clear(bounds, tile, tile)?;
        self.closed = Span::new(at, at + tile);
        Some(at)
    }

    /// The lowest free place in `bounds` without spare parts of reserved pages, which could not be replaced.
    fn place_clear(&self, bounds: Span, len: usize, align: usize) -> Option<usize> {
        self.place_without(&[&self.attached, &self.hugetlb], bounds, len, align)
    }

    /// The lowest free place in `bounds` that touches none of `avoided`.
    fn place_without(&self, avoided: &[&Intervals], bounds: Span, len: usize, align: usize) -> Option<usize> {
        let mut from = bounds.start;
        loop {
            let at = self.used.first_fit(Span::new(from, bounds.end), len, align)?;
            let in_the_way = avoided.iter().filter_map(|set| set.next_after(at).filter(|run| run.start < at + len));
            match in_the_way.map(|run| run.end).max() {
                Some(end) => from = end,
                None => return Some(at),
            }
        }
    }

    /// Whether the program has anything in `span`.
    fn is_live(&self, span: Span) -> bool {
        let mut at = span.start;
        while let Some(run) = self.used.next_after(at).filter(|run| at < span.end && run.start < span.end) {
            at = at.max(run.start);
            match self.held.next_after(at) {
                Some(held) if held.start <= at => at = held.end,
                _ => return true,
            }
        }
        false
    }

    /// Maps `len` bytes (whole pages) at the lowest place that fits, or at `hint` if that is free.
    pub fn map(&mut self, len: usize, how: How, hint: Option<usize>) -> Result<usize, Errno> {
        self.ready()?;
        self.catch_up();
        for _ in 0..8 {
            let wanted = hint.map(|at| Span::new(at, at.saturating_add(len)));
            let free = wanted.filter(|&span| self.takes_hint(span));
            let at = match free {
                Some(span) => span.start,
                None => self.place(len, how).ok_or_else(|| {
                    guest_file::count(Counter::FallbackPoolFull);
                    Errno::ENOMEM
                })?,
            };
            let span = Span::new(at, at + len);
            self.detach(span);
            let mapped = if self.shares_tiles(how) { self.map_plain(span) } else { self.map_other(span, how) };
            match mapped {
                Err(Errno::EEXIST) => self.block_foreign(span),
                Err(errno) => return Err(errno),
                Ok(()) => {
                    if how.for_arena {
                        self.arenas.enter(span);
                        guest_file::count(Counter::ArenasRecognised);
                    }
                    return Ok(at);
                }
            }
        }
        Err(Errno::EEXIST)
    }

    /// Maps `span` for MAP_FIXED_NOREPLACE: EEXIST if anything is there.
    pub fn map_exactly(&mut self, span: Span, how: How) -> Result<(), Errno> {
        self.ready()?;
        self.catch_up();
        self.clear_of_used(span)?;
        self.detach(span);
        match self.shares_tiles(how) {
            true => match self.map_plain(span) {
                // Something that the tables do not know may lie in the rest of its tiles only.
                Err(Errno::EEXIST) => self.map_other(span, how),
                result => result,
            },
            false => self.map_other(span, how),
        }
    }

    /// Maps read-write memory at `span`, which is free, with the rest of its tiles.
    fn map_plain(&mut self, span: Span) -> Result<(), Errno> {
        let layout = self.layout;
        self.keep_anchor_off(span);
        let mut result = Ok(());
        layout.each(span, &mut |piece, part| {
            if result.is_ok() {
                result = self.fill(&piece, part);
            }
        });
        if let Err(errno) = result {
            self.give_up(span);
            return Err(errno);
        }
        let _ = self.spare.remove(span);
        let _ = self.attached.remove(span);
        let _ = self.used.insert(span);
        Ok(())
    }

    /// Unmaps spare memory in `span` that has the program's settings for the block before it: a new block begins
    /// without any.
    fn detach(&mut self, span: Span) {
        while let Some(run) =
            self.attached.next_after(span.start).map(|run| run.and(span)).filter(|run| !run.is_empty())
        {
            self.drop_spare(run);
            let _ = self.attached.remove(run);
        }
    }

    /// Maps memory of another kind at `span`, which is free; it replaces spare parts.
    fn map_other(&mut self, span: Span, how: How) -> Result<(), Errno> {
        self.demote_edges(span)?;
        self.drop_spare(span);
        let flags = how.flags | c::MAP_FIXED_NOREPLACE;
        // SAFETY: with NOREPLACE, nothing that exists is touched.
        let at = unsafe { sys::mmap(span.start, span.len(), how.prot, flags, -1, 0) }?;
        debug_assert_eq!(at, span.start);
        self.layout.each(span, &mut |piece, part| backing::apply(part, piece.backing));
        let _ = self.used.insert(span);
        self.classify(span, how);
        Ok(())
    }

    /// Enters `span`, which is used, into the tables of its kind.
    fn classify(&mut self, span: Span, how: How) {
        if !how.is_normal() || how.flags & c::MAP_NORESERVE != 0 {
            let _ = self.foreign.insert(span);
        } else if how.prot != c::PROT_RW {
            let _ = self.shut.insert(span);
        }
    }

    /// Whether all of `span` is plain read-write memory.
    fn is_plain(&self, span: Span) -> bool {
        self.is_mapped(span) && !self.shut.overlaps(span) && !self.foreign.overlaps(span)
    }

    /// Unmaps spare memory inside `span`, which becomes something else.
    fn drop_spare(&mut self, span: Span) {
        self.keep_anchor_off(span);
        self.unmap_spare(span);
    }

    /// Unmaps spare memory inside `span`.
    fn unmap_spare(&mut self, span: Span) {
        let mut at = span.start;
        while let Some(next) = self.spare.next_after(at).map(|next| next.and(span)).filter(|next| !next.is_empty())
        {
            at = next.end;
            // SAFETY: spare memory is the library's, and nobody was given its address.
            if unsafe { sys::munmap(next.start, next.len()) }.is_err() {
                // The kernel would have to make two mappings of one, and the process has no more of them.
                continue;
            }
            let _ = self.spare.remove(next);
            let _ = self.attached.remove(next);
            self.pending.forget(next);
        }
    }

    /// Unmaps all spare memory, except parts of reserved pages, and closes the rests of malloc's heaps; returns whether
    /// there was any.
    pub fn drop_all_spare(&mut self) -> bool {
        let before = self.spare.bytes();
        self.drop_normal_spare(self.bounds());
        self.close_rests() || before != self.spare.bytes()
    }

    /// Unmaps spare memory that is a mapping of its own, because the program gave the blocks around it other properties;
    /// returns whether there was any. (Elsewhere a hole would make one mapping more.)
    pub fn drop_lone_spare(&mut self) -> bool {
        let before = self.spare.bytes();
        let mut at = 0;
        while let Some(run) = self.spare.next_after(at) {
            at = run.end;
            let ends_at = |edge: usize| !mapping::is_within_one(Span::new(edge - PAGE, edge + PAGE));
            if !self.hugetlb.overlaps(run) && ends_at(run.start) && ends_at(run.end) {
                self.unmap_spare(run);
            }
        }
        before != self.spare.bytes()
    }

    /// Unmaps spare memory in `span`, except parts of reserved pages. (Without room in the tables it stays.)
    pub fn drop_spare_in(&mut self, span: Span) {
        if self.spare.overlaps(span) && self.ready().is_ok() {
            self.drop_normal_spare(span);
        }
    }

    /// Bytes mapped, or opened, in advance.
    pub fn spare_bytes(&self) -> usize {
        self.spare.bytes() + self.rest_bytes()
    }

    /// As [`Pool::drop_spare`], except parts of reserved pages, which the kernel cannot unmap.
    fn drop_normal_spare(&mut self, span: Span) {
        let Span { start: mut at, end } = span;
        while let Some(run) =
            self.spare.next_after(at).map(|run| run.and(Span::new(at, end))).filter(|run| !run.is_empty())
        {
            match self.hugetlb.next_after(run.start) {
                Some(reserved) if reserved.start <= run.start => at = reserved.end,
                reserved => {
                    let part =
                        Span::new(run.start, reserved.map_or(run.end, |reserved| run.end.min(reserved.start)));
                    self.drop_spare(part);
                    at = part.end;
                }
            }
        }
    }

    /// Blocks the mappings in the tiles of `span` that the tables do not know (made past libc): their addresses are not
    /// handed out from now on. If none is found, that is `span` itself.
    fn block_foreign(&mut self, span: Span) {
        guest_file::warn(GuestWarning::PoolOccupied, None, span.start, span.len());
        guest_file::count(Counter::FallbackOccupied);
        let [first, last] = self.ends(span);
        let end = last.whole_tiles(Span::new(span.end - 1, span.end)).end;
        let tiles = Span::new(first.whole_tiles(Span::new(span.start, span.start + 1)).start, end);
        self.remove_anchor();
        let mut found = false;
        let _ = maps::each(&mut |mapping| {
            let mut at = mapping.span.start.max(tiles.start);
            let end = mapping.span.end.min(tiles.end);
            while at < end {
                let known = first_of(self.used.next_after(at), self.spare.next_after(at));
                let unknown = Span::new(at, known.map_or(end, |known| known.start.clamp(at, end)));
                at = known.map_or(end, |known| known.end.min(end));
                found |= !unknown.is_empty();
                let _ = self.used.insert(unknown);
                let _ = self.foreign.insert(unknown);
            }
            mapping.span.end < tiles.end
        });
        if !found {
            self.drop_spare(span);
            let _ = self.used.insert(span);
            let _ = self.foreign.insert(span);
        }
    }

    /// The pieces around the first and the last byte of `span`.
    fn ends(&self, span: Span) -> [Piece; 2] {
        let first = self.piece(span.start);
        let alike = span.end <= first.span.end && !self.hugetlb.overlaps(span);
        let last = if alike { first } else { self.piece(span.end - 1) };
        [first, last]
    }

    /// The piece around `addr`. Reserved pages have their size also in a child that does not inherit the policy: one that
    /// was made past libc has them.
    fn piece(&self, addr: usize) -> Piece {
        let is_reserved = self.hugetlb.overlaps(Span::new(addr, addr + 1));
        let layout = if is_reserved { self.layout.inherited() } else { self.layout };
        layout.piece(addr)
    }

    /// `span`, extended to whole tiles at its ends, as far as the tables know nothing else of the program's in them. The
    /// program may have attached something there past libc's memory calls.
    fn widen(&self, span: Span) -> Span {
        let mut wide = span;
        if self.align == PAGE {
            return wide;
        }
        let [first, last] = self.ends(span);
        if let Some(tile) = first.tile(span.start) {
            let before = Span::new(tile.start, span.start);
            let after = Span::new(span.end.min(tile.end), tile.end);
            if !self.is_live(before) && !self.is_live(after) {
                wide.start = tile.start;
            }
        }
        if let Some(tile) = last.tile(span.end - 1) {
            let before = Span::new(tile.start, span.start.max(tile.start));
            let after = Span::new(span.end, tile.end);
            if !self.is_live(before) && !self.is_live(after) {
                wide.end = tile.end;
            }
        }
        wide
    }

    /// Whether all of `span` is mapped, and the library's alone.
    fn is_only_ours(&self, span: Span) -> bool {
        let mut at = span.start;
        while at < span.end {
            match first_of(self.spare.next_after(at), self.held.next_after(at)) {
                Some(next) if next.start <= at => at = next.end,
                _ => return false,
            }
        }
        true
    }

    /// Whether all of `span` is mapped, used or spare.
    fn is_mapped(&self, span: Span) -> bool {
        let mut at = span.start;
        while at < span.end {
            match first_of(self.used.next_after(at), self.spare.next_after(at)) {
                Some(next) if next.start <= at => at = next.end,
                _ => return false,
            }
        }
        true
    }

    /// Unmaps `span`: whole pages, wherever the program has something there.
    pub fn unmap(&mut self, span: Span) -> Result<(), Errno> {
        if self.ready().is_err() && !self.has_hugetlb(span) {
            // Without room in the tables the memory is unmapped all the same; its addresses are not handed out again.
            // SAFETY: the program makes this call itself, and answers for its arguments.
            return unsafe { sys::munmap(span.start, span.len()) };
        }
        self.catch_up();
        self.keep_anchor_off(span);
        let (tiles, wide) = (self.widen(span), self.to_unmap(span));
        let around = (wide != tiles).then_some(tiles);
        self.part_with(wide);
        let (wide, held) = self.edges_to_hold(wide)?;
        if wide.is_empty() {
            self.hold(held);
            return Ok(());
        }
        self.anchor(wide);
        // SAFETY: the program requested that for `span`; all that `wide` adds to it is the library's.
        backing::give_back(wide, || unsafe { sys::munmap(wide.start, wide.len()) })?;
        self.forget(wide);
        if let Some(tiles) = around {
            self.drop_normal_spare(tiles);
        }
        self.hold(held);
        if wide.len() == PMD && span.len() <= churn::SMALL && self.backing_at(wide.start) == Backing::Thp(PMD) {
            self.churn.note(wide);
        }
        Ok(())
    }

    /// `span`, which the program gives up, and the rests of its tiles that nobody else uses.
    fn to_unmap(&self, span: Span) -> Span {
        let mut wide = self.widen(span);
        if !self.is_only_ours(Span::new(wide.start, span.start)) {
            wide.start = span.start;
        }
        if !self.is_only_ours(Span::new(span.end, wide.end)) {
            wide.end = span.end;
        }
        wide
    }

    /// Removes `span` from all tables: it is not mapped any more, or belongs to somebody else.
    fn forget(&mut self, span: Span) {
        self.untouched = self.untouched.max(span.end);
        let _ = self.used.remove(span);
        let _ = self.spare.remove(span);
        let _ = self.shut.remove(span);
        let _ = self.foreign.remove(span);
        let _ = self.hugetlb.remove(span);
        let _ = self.held.remove(span);
        let _ = self.attached.remove(span);
        let _ = self.advised.remove(span);
        self.forget_broken(span);
        self.arenas.leave(span);
        self.pending.forget(span);
    }

    /// Forgets that tiles wholly inside `span` were broken: they are gone.
    fn forget_broken(&mut self, span: Span) {
        if !self.broken.overlaps(span) {
            return;
        }
        let layout = self.layout;
        layout.each(span, &mut |piece, part| {
            let tile = piece.backing.tile_bytes();
            let start = align_up(part.start, tile).unwrap_or(part.end);
            let _ = self.broken.remove(Span::new(start, align_down(part.end, tile)));
        });
    }

    /// Reads the pool's memory anew from `/proc/self/maps`, after a fork that caught another thread in the middle of a
    /// change. Spare memory then counts as the program's (lost, but never handed out twice). Where the file cannot be
    /// read, all of the pool does.
    pub fn rebuild(&mut self) {
        let bounds = self.bounds();
        self.remove_anchor();
        (self.used, self.spare) = (Intervals::new(), Intervals::new());
        (self.shut, self.foreign) = (Intervals::new(), Intervals::new());
        (self.held, self.attached) = (Intervals::new(), Intervals::new());
        self.broken = Intervals::new();
        let mut reserved = Intervals::new();
        self.advised = Intervals::new();
        self.pending = Pending::new();
        self.anchor = Anchor::default();
        self.arenas = Arenas::new(bounds.start);
        let mut is_whole = true;
        let read = maps::each(&mut |mapping| {
            let span = mapping.span.and(bounds);
            if !span.is_empty() {
                is_whole &= self.ready().is_ok();
                let _ = self.used.insert(span);
                let _ = self.foreign.insert(span);
                if mapping.is_reserved() {
                    is_whole &= reserved.reserve(4).is_ok() && reserved.insert(span).is_ok();
                }
            }
            is_whole
        });
        if read.is_ok() && is_whole {
            self.hugetlb = reserved;
        } else {
            let _ = self.used.insert(bounds);
            let _ = self.foreign.insert(bounds);
        }
    }

    /// Backing of memory at `addr`.
    pub fn backing_at(&self, addr: usize) -> Backing {
        self.layout.piece(addr).backing
    }
}

fn first_of(a: Option<Span>, b: Option<Span>) -> Option<Span> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a.start <= b.start { a } else { b }),
        (a, b) => a.or(b),
    }
}
