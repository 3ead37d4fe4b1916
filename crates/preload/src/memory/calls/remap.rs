//! mremap: inside a pool, out of one, into one, and across the borders of heap and pools.

use pagelab_abi::guest::Counter;

use crate::backing;
use crate::boundary::arch::{PAGE, TASK_END};
use crate::boundary::mapping;
use crate::boundary::span::{Span, align_up};
use crate::boundary::sys::{self, Errno, Result, c};
use crate::memory::pool::{Pool, carry, is_uniform, moves_in_part};
use crate::memory::tables::{self, Tables};
use crate::state::guest_file;
use crate::state::plan::HEAP;

use super::advise::locks_all;
use super::{Owner, concerns_us, each_part, munmap};

/// Answers mremap; `new` counts only with MREMAP_FIXED or MREMAP_DONTUNMAP.
pub fn mremap(old: usize, old_len: usize, new_len: usize, flags: i32, new: usize) -> Result<usize> {
    sys::part_with(old, old_len);
    let result = match moved(old, old_len, new_len, flags, new) {
        Err(Errno::ENOMEM) if may_lack_memory(old, old_len, new_len, flags) => {
            moved(old, old_len, new_len, flags, new)
        }
        // Locked memory may not grow beyond the limit, but the library, not the program, had locked it.
        Err(Errno::EAGAIN) if backing::unpin(old, old_len) => moved(old, old_len, new_len, flags, new),
        result => result,
    };
    if flags & c::MREMAP_DONTUNMAP == 0 && result.is_ok_and(|at| at != old) {
        backing::hints::forget(old, old_len);
    }
    result
}

/// After a refusal (ENOMEM): gives up memory mapped in advance, if that is what the call lacks. If the block may not
/// move, something else may lie behind it: then nothing is mapped to learn what is lacking, as other threads may need
/// that room.
fn may_lack_memory(old: usize, old_len: usize, new_len: usize, flags: i32) -> bool {
    let keeps = flags & c::MREMAP_DONTUNMAP != 0;
    let lacking = if keeps { new_len } else { new_len.saturating_sub(old_len) };
    let may_move = flags & c::MREMAP_MAYMOVE != 0;
    let mut guest = tables::lock();
    if !guest.has_spare() {
        return false;
    }
    let mut lacks = || {
        let asked = Asked::new(old, old_len, new_len, flags, 0);
        let growth = asked.map(|asked| Span::new(asked.from.end, old.saturating_add(asked.len)));
        let is_clear = growth.is_some_and(|growth| growth.end <= TASK_END && is_clear(&mut guest, growth));
        is_clear && !locks_all() && !tables::has_room(lacking)
    };
    (may_move || lacks()) && guest.gives_up_spare_for(lacking)
}

/// Whether the program has nothing in `span`, as far as that can be known.
fn is_clear(guest: &mut Tables, span: Span) -> bool {
    let heap_end = guest.heap_end();
    let clear = each_part(span, heap_end, &mut |owner, part| {
        let is_clear = match (owner, &guest.heap) {
            (Owner::Heap, Some(heap)) => heap.own(part).is_empty(),
            (Owner::Pool, _) => match guest.pool(part.start) {
                Some(pool) => pool.is_free(part),
                None => !mapping::is_taken(part),
            },
            _ => !mapping::is_taken(part),
        };
        if is_clear { Ok(()) } else { Err(Errno::EEXIST) }
    });
    clear.is_ok()
}

/// Prepares for the growth in place of locked memory, and reserves the addresses. `None`: the memory is not locked, or
/// does not grow in place.
pub fn before_growth(old: usize, old_len: usize, new_len: usize, flags: i32) -> Option<Span> {
    let asked = Asked::new(old, old_len, new_len, flags, 0)?;
    let Asked { from, len, .. } = asked;
    let growth = Span::new(from.end, from.start.saturating_add(len));
    let fits = !asked.has_place() && !from.is_empty() && !growth.is_empty() && growth.end <= TASK_END;
    if !fits || !sys::is_locked(from.end - PAGE, PAGE) {
        return None;
    }
    let mut guest = tables::lock();
    let all = guest.pools.iter().flatten().all(|pool| pool.has(from.and(pool.bounds())));
    let alike = all && (mapping::is_within_one(from) || Kind::of(&guest, from).plain || is_uniform(from));
    if !alike || !asked.makes_room(&mut guest, growth).ok()? {
        return None;
    }
    each_pool_part(&mut guest, growth, &mut |pool, part| {
        pool.moved_in(part, false, false);
        Ok(())
    })
    .ok()?;
    Some(growth)
}

/// Records whether the block at `old` grew into `growth`, which [`before_growth`] has reserved.
pub fn after_growth(old: usize, growth: Span, grew: bool) {
    let mut guest = tables::lock();
    if grew {
        let kind = Kind::of(&guest, Span::new(old, growth.start));
        arrived(&mut guest, growth, kind);
    } else {
        guest.recheck(growth);
    }
}

fn moved(old: usize, old_len: usize, new_len: usize, flags: i32, new: usize) -> Result<usize> {
    match Asked::new(old, old_len, new_len, flags, new).filter(Asked::concerns_us) {
        // Parts of reserved pages that the program gave back are mapped, but not its own.
        Some(asked) if asked.from.is_empty() && is_held(old) => Err(Errno::EFAULT),
        // Nothing is old, and nothing may move: the kernel knows which error that is.
        Some(asked) if !asked.from.is_empty() || flags & c::MREMAP_MAYMOVE != 0 => asked.answer(),
        // SAFETY: the program makes this call itself, and answers for its arguments.
        _ => unsafe { sys::mremap(old, old_len, new_len, flags, new) },
    }
}

/// Whether the page at `addr` was given back, but is still mapped.
fn is_held(addr: usize) -> bool {
    tables::lock().pool(addr).is_some_and(|pool| pool.holds(Span::new(addr, addr + PAGE)))
}

/// A call whose arguments the kernel would accept; lengths are whole pages.
struct Asked {
    /// The old range; empty: shared memory is to be mapped once more.
    from: Span,
    len: usize,
    flags: i32,
    /// The new address: counts with MREMAP_FIXED; with MREMAP_DONTUNMAP it is a hint.
    to: usize,
}

impl Asked {
    fn new(old: usize, old_len: usize, new_len: usize, flags: i32, to: usize) -> Option<Asked> {
        let len = align_up(new_len, PAGE).filter(|len| (1..=TASK_END).contains(len))?;
        let end = old.checked_add(align_up(old_len, PAGE)?).filter(|&end| end <= TASK_END)?;
        let from = Span::new(old, end);
        let known = flags & !(c::MREMAP_MAYMOVE | c::MREMAP_FIXED | c::MREMAP_DONTUNMAP) == 0;
        let asked = Asked { from, len, flags, to };
        let fits = !asked.has_place()
            || (flags & c::MREMAP_MAYMOVE != 0
                && to.is_multiple_of(PAGE)
                && to <= TASK_END - len
                && (flags & c::MREMAP_DONTUNMAP == 0 || len == from.len())
                && from.and(Span::new(to, to + len)).is_empty());
        (known && fits && old.is_multiple_of(PAGE)).then_some(asked)
    }

    fn answer(&self) -> Result<usize> {
        match () {
            () if self.has_place() => self.to_target(),
            () if self.len <= self.from.len() => self.shrunk(),
            () => self.grown(),
        }
    }

    /// Whether the kernel reads an address for the result.
    fn has_place(&self) -> bool {
        self.flags & (c::MREMAP_FIXED | c::MREMAP_DONTUNMAP) != 0
    }

    /// With MREMAP_FIXED: the range that will be replaced.
    fn target(&self) -> Option<Span> {
        (self.flags & c::MREMAP_FIXED != 0).then(|| Span::new(self.to, self.to + self.len))
    }

    fn keeps(&self) -> bool {
        self.flags & c::MREMAP_DONTUNMAP != 0
    }

    fn concerns_us(&self) -> bool {
        concerns_us(self.from.start, self.len.max(self.from.len()))
            || self.target().is_some_and(|target| concerns_us(target.start, target.len()))
    }

    /// Whether all of the old range lies in one pool.
    fn is_in_one_pool(&self, guest: &mut Tables) -> bool {
        let pool = guest.pool(self.from.start);
        !self.from.is_empty() && pool.is_some_and(|pool| self.from.and(pool.bounds()) == self.from)
    }

    /// Shrinks a block by its end. As without the library, only its first page must be mapped.
    fn shrunk(&self) -> Result<usize> {
        let first = Span::new(self.from.start, self.from.start + PAGE);
        let mut guest = tables::lock();
        let heap_end = guest.heap_end();
        each_part(first, heap_end, &mut |owner, part| {
            let is_there = match (owner, &guest.heap) {
                (Owner::Heap, Some(heap)) => heap.own(part) == part && sys::is_mapped(part.start, PAGE).is_ok(),
                (Owner::Pool, _) => match guest.pool(part.start) {
                    Some(pool) => {
                        guest_file::count(Counter::MremapGoverned);
                        pool.is_there(part)
                    }
                    None => sys::is_mapped(part.start, PAGE).is_ok(),
                },
                _ => sys::is_mapped(part.start, PAGE).is_ok(),
            };
            if is_there { Ok(()) } else { Err(Errno::EFAULT) }
        })?;
        drop(guest);
        if self.len < self.from.len() {
            munmap(self.from.start + self.len, self.from.len() - self.len)?;
        } else {
            // The kernel refuses a sealed block even with the same size. (Parts of reserved pages cause other errors.)
            let stays = sys::grow_in_place(first.start, PAGE, PAGE);
            stays.or_else(|errno| if errno == Errno::EPERM { Err(errno) } else { Ok(first.start) })?;
        }
        Ok(self.from.start)
    }

    /// Grows a block in place, if there is room; otherwise elsewhere, if it may move.
    fn grown(&self) -> Result<usize> {
        let may_move = self.flags & c::MREMAP_MAYMOVE != 0;
        let mut guest = tables::lock();
        let own = self.is_in_one_pool(&mut guest);
        let end = self.from.start + self.len;
        if let Some(pool) = guest.pool(self.from.start).filter(|pool| own && (end <= pool.bounds().end)) {
            guest_file::count(Counter::MremapGoverned);
            return self.resized(&mut || pool.remap(self.from, self.len, may_move));
        }
        if !self.from.is_empty() && end <= TASK_END && self.stretched(&mut guest)? {
            return Ok(self.from.start);
        }
        if !may_move {
            return Err(Errno::ENOMEM);
        }
        if let Some(pool) = guest.pool(self.from.start).filter(|_| own) {
            guest_file::count(Counter::MremapGoverned);
            return self.resized(&mut || pool.remap(self.from, self.len, true));
        }
        self.carried_off(&mut guest)
    }

    fn resized(&self, resize: &mut dyn FnMut() -> Result<usize>) -> Result<usize> {
        if self.flags & c::MREMAP_MAYMOVE != 0 { backing::retry_when_short(resize) } else { resize() }
    }

    /// Grows a block in place that begins or ends outside of one pool. False: something is in the way.
    fn stretched(&self, guest: &mut Tables) -> Result<bool> {
        let growth = Span::new(self.from.end, self.from.start + self.len);
        if !self.makes_room(guest, growth)? {
            return Ok(false);
        }
        let kind = Kind::of(guest, self.from);
        let raw = |from: Span| sys::grow_in_place(from.start, from.len(), from.len() + growth.len());
        let grown = match raw(self.from) {
            Err(Errno::EFAULT) if kind.plain || is_uniform(self.from) => {
                raw(Span::new(self.from.end - PAGE, self.from.end))
            }
            result => result,
        };
        match grown {
            Err(Errno::ENOMEM) => return Ok(false),
            result => result?,
        };
        arrived(guest, growth, kind);
        Ok(true)
    }

    /// Prepares for a growth into `growth`. False: the program has something there.
    fn makes_room(&self, guest: &mut Tables, growth: Span) -> Result<bool> {
        let takes_heap = guest.heap.as_ref().is_some_and(|heap| !heap.own(growth.and(HEAP)).is_empty());
        let takes_pools = guest.pools.iter().flatten().any(|pool| {
            let part = growth.and(pool.bounds());
            !part.is_empty() && !pool.is_free(part)
        });
        if takes_heap || takes_pools {
            return Ok(false);
        }
        self.demote_reserved(guest)?;
        if let Some(heap) = &mut guest.heap {
            heap.make_way(growth.and(HEAP))?;
        }
        each_pool_part(guest, growth, &mut |pool, part| pool.clear_for(part))?;
        Ok(true)
    }

    /// Moves a block to a place of the kernel's choice, which is never in a pool.
    fn carried_off(&self, guest: &mut Tables) -> Result<usize> {
        self.demote_reserved(guest)?;
        let plain = Kind::of(guest, self.from).plain;
        self.prepare_heap(guest)?;
        let at = self.carried(plain).inspect_err(|_| guest.recheck(self.from))?;
        self.departed(guest);
        Ok(at)
    }

    /// Moves a block with MREMAP_FIXED or MREMAP_DONTUNMAP.
    fn to_target(&self) -> Result<usize> {
        let mut guest = tables::lock();
        let own = self.is_in_one_pool(&mut guest);
        if let Some(pool) = guest.pool(self.from.start).filter(|_| own) {
            guest_file::count(Counter::MremapGoverned);
            if self.target().is_none() {
                // Without MREMAP_FIXED, an address is only a hint.
                return pool.duplicate(self.from);
            }
        }
        self.demote_reserved(&mut guest)?;
        let kind = Kind::of(&guest, self.from);
        self.prepare_heap(&mut guest)?;
        let target = self.target().unwrap_or(Span::new(0, 0));
        if let Some(heap) = &mut guest.heap {
            heap.prepare(target.and(HEAP))?;
        }
        let mut has_reserved = false;
        each_pool_part(&mut guest, target, &mut |pool, part| {
            has_reserved |= pool.has_hugetlb(part);
            pool.prepare(part)
        })?;
        let covered = if has_reserved { cover(target) } else { Ok(()) };
        let at = covered.and_then(|()| self.carried(kind.plain)).inspect_err(|_| {
            if has_reserved {
                // As kernels do: what was to be replaced has gone.
                // SAFETY: the program gave it up by the same call.
                let _ = unsafe { sys::munmap(target.start, target.len()) };
            }
            guest.recheck(target);
            guest.recheck(self.from);
        })?;
        if !self.keeps() {
            self.departed(&mut guest);
        }
        if let Some(heap) = &mut guest.heap {
            heap.part_with(target.and(HEAP));
        }
        arrived(&mut guest, Span::new(at, at + self.len), kind);
        Ok(at)
    }

    /// Makes the move itself, after all preparations; `plain`: as of [`carry`].
    fn carried(&self, plain: bool) -> Result<usize> {
        if self.target().is_some() && moves_in_part(self.from, self.len, plain) {
            return self.carried_in_pieces(plain);
        }
        // SAFETY: the program makes this call itself, and answers for its arguments.
        let raw = unsafe { sys::mremap(self.from.start, self.from.len(), self.len, self.flags, self.to) };
        match raw {
            Err(Errno::EFAULT) if !self.from.is_empty() && (plain || is_uniform(self.from)) => {
                self.carried_in_pieces(plain)
            }
            result => {
                let at = result?;
                // What the move cuts off is unmapped; behind the new place lies other memory.
                let moved = self.from.len().min(self.len);
                backing::after_move(Span::new(self.from.start, self.from.start + moved), at, self.keeps());
                Ok(at)
            }
        }
    }

    /// Moves several mappings one by one to a given place: a block that the program got as one mapping may be several
    /// mappings of the kernel.
    fn carried_in_pieces(&self, plain: bool) -> Result<usize> {
        let mut from = self.from;
        if self.len < from.len() {
            // SAFETY: the program gives up this end of the range by the same call.
            unsafe { sys::munmap(from.start + self.len, from.len() - self.len) }?;
            from = Span::new(from.start, from.start + self.len);
        }
        let flags = self.flags | c::MREMAP_MAYMOVE | c::MREMAP_FIXED;
        if let Some(target) = self.target() {
            return carry(from, target, flags, plain).map(|()| target.start);
        }
        let at = sys::map_anywhere(self.len, c::PROT_NONE, c::MAP_NORESERVE)?;
        match carry(from, Span::new(at, at + self.len), flags, plain) {
            Ok(()) => Ok(at),
            Err(errno) => {
                // SAFETY: the mapping was made a moment ago, and nobody knows its address.
                let _ = unsafe { sys::munmap(at, self.len) };
                Err(errno)
            }
        }
    }

    /// Prepares the old range for a move or a growth: reserved pages become normal memory, and memory mapped in it
    /// without the program's knowledge goes.
    fn demote_reserved(&self, guest: &mut Tables) -> Result<()> {
        if let Some(heap) = &mut guest.heap {
            heap.demote_all(heap.own(self.from.and(HEAP)))?;
        }
        each_pool_part(guest, self.from, &mut |pool, part| pool.before_move_out(part))
    }

    /// Prepares the heap's part of the old range for a move.
    fn prepare_heap(&self, guest: &mut Tables) -> Result<()> {
        match &mut guest.heap {
            Some(heap) if !self.keeps() => heap.prepare(self.from.and(HEAP)),
            _ => Ok(()),
        }
    }

    /// Records that the old range is not mapped any more.
    fn departed(&self, guest: &mut Tables) {
        if let Some(heap) = &mut guest.heap {
            heap.part_with(self.from.and(HEAP));
        }
        for pool in guest.pools.iter_mut().flatten() {
            let part = self.from.and(pool.bounds());
            if !part.is_empty() {
                pool.moved_away(part);
            }
        }
    }
}

/// Records that `span` contains memory of this kind, which was moved or has grown there.
fn arrived(guest: &mut Tables, span: Span, kind: Kind) {
    for pool in guest.pools.iter_mut().flatten() {
        let part = span.and(pool.bounds());
        if !part.is_empty() {
            pool.moved_in(part, kind.plain, kind.advised);
        }
    }
}

fn each_pool_part(
    guest: &mut Tables,
    span: Span,
    visit: &mut dyn FnMut(&mut Pool, Span) -> Result<()>,
) -> Result<()> {
    for pool in guest.pools.iter_mut().flatten() {
        let part = span.and(pool.bounds());
        if !part.is_empty() {
            visit(pool, part)?;
        }
    }
    Ok(())
}

/// Kind of the moved memory.
#[derive(Clone, Copy)]
struct Kind {
    /// Whether all of it is plain memory of pools.
    plain: bool,
    /// Whether some of it has advice that reserved pages could not keep.
    advised: bool,
}

/// Replaces reserved pages by memory that can be unmapped in parts: what moves there may be several mappings, and the
/// kernel unmaps for each what it replaces.
fn cover(target: Span) -> Result<()> {
    let flags = c::MAP_PRIVATE | c::MAP_ANONYMOUS | c::MAP_FIXED | c::MAP_NORESERVE;
    // SAFETY: the program gives up what is there by the call that is being answered.
    unsafe { sys::mmap(target.start, target.len(), c::PROT_NONE, flags, -1, 0) }.map(drop)
}

impl Kind {
    fn of(guest: &Tables, span: Span) -> Kind {
        let (mut plain, mut advised) = (0, false);
        for pool in guest.pools.iter().flatten() {
            let part = span.and(pool.bounds());
            if part.is_empty() {
                continue;
            }
            advised |= pool.is_advised(part);
            if pool.is_plain_at(part) {
                plain += part.len();
            }
        }
        Kind { plain: !span.is_empty() && plain == span.len(), advised }
    }
}
