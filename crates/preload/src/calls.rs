//! The memory calls: which go to the kernel unchanged, which to a pool.

mod locks;
mod remap;

use pagelab_abi::guest::Counter;
use pagelab_abi::plan::{Fetch, Memory, Section};

use crate::arch::PAGE;
use crate::files;
use crate::frames;
use crate::guest::{self, HEAP, POOLS};
use crate::intervals::{Span, align_down, align_up};
use crate::kernel;
use crate::pool::{How, looks_like_arena};
use crate::populate;
use crate::record;
use crate::sys::{self, Errno, Result, c};

pub use locks::{mlock, mlock_all, munlock, munlock_all};
pub use remap::mremap;

/// Flags with which anonymous memory is governed; all others go to the kernel: MAP_SHARED (another kind of memory),
/// MAP_GROWSDOWN and MAP_32BIT (they ask for a place), MAP_HUGETLB (the program has decided), MAP_LOCKED (the rest of a
/// tile would be locked, too).
const GOVERNED_FLAGS: i32 = c::MAP_PRIVATE
    | c::MAP_ANONYMOUS
    | c::MAP_NORESERVE
    | c::MAP_POPULATE
    | c::MAP_NONBLOCK
    | c::MAP_STACK
    | c::MAP_FIXED
    | c::MAP_FIXED_NOREPLACE
    | IGNORED_FLAGS;
/// MAP_DENYWRITE and MAP_EXECUTABLE: the kernel ignores them.
const IGNORED_FLAGS: i32 = 0x1800;
const FIXED: i32 = c::MAP_FIXED | c::MAP_FIXED_NOREPLACE;

/// One mmap call.
#[derive(Clone, Copy)]
struct Request {
    addr: usize,
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: i64,
}

impl Request {
    fn raw(&self) -> Result<usize> {
        self.raw_with(self.addr, self.flags)
    }

    fn raw_with(&self, addr: usize, flags: i32) -> Result<usize> {
        // SAFETY: the program's own request.
        unsafe { sys::mmap(addr, self.len, self.prot, flags, self.fd, self.offset) }
    }

    fn how(&self) -> How {
        let dropped = FIXED | c::MAP_POPULATE | c::MAP_NONBLOCK | IGNORED_FLAGS;
        How { prot: self.prot, flags: self.flags & !dropped }
    }

    fn is_anonymous(&self) -> bool {
        self.flags & c::MAP_ANONYMOUS != 0
    }

    fn is_governable(&self) -> bool {
        self.is_anonymous() && self.flags & c::MAP_TYPE == c::MAP_PRIVATE && self.flags & !GOVERNED_FLAGS == 0
    }

    fn span_at(&self, addr: usize) -> Span {
        Span::new(addr, addr.saturating_add(align_up(self.len, PAGE).unwrap_or(self.len)))
    }

    fn section(&self) -> Option<Section> {
        let arena = looks_like_arena(self.len, self.how());
        guest::section_for(if arena { Memory::Arenas } else { Memory::Anon }, self.len)
    }
}

/// mmap.
pub fn mmap(addr: usize, len: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> Result<usize> {
    let request = Request { addr, len, prot, flags, fd, offset };
    // A hint counts as well: the kernel puts what is not governed where it is told to, if nothing is there.
    let at_pool = addr != 0 && guest::touches_pools(addr, len);
    if flags & FIXED != 0 && at_pool {
        return placed_in_pool(&request);
    }
    if !request.is_governable() || flags & FIXED != 0 || len == 0 {
        return if at_pool { placed_in_pool(&request) } else { passed(&request) };
    }
    match request.section() {
        Some(section) if section.governs_pages() || section.governs_frames() => governed(&request, &section),
        _ if at_pool => placed_in_pool(&request),
        section => {
            let result = passed(&request);
            if let (Ok(at), Some(section)) = (result, section) {
                populate::after_mmap(section.fetch, request.span_at(at), prot, flags);
            }
            result
        }
    }
}

fn passed(request: &Request) -> Result<usize> {
    if request.flags & c::MAP_FIXED != 0 {
        part_with_heap(request.addr, request.len)?;
    }
    let result = request.raw();
    record::count(Counter::MmapPassed);
    if let Ok(at) = result
        && !request.is_anonymous()
    {
        files::after_mmap(request.span_at(at), request.prot, request.flags);
    }
    if let Ok(at) = result
        && request.is_governable()
    {
        populate::advise_ranges(request.span_at(at));
    }
    result
}

fn governed(request: &Request, section: &Section) -> Result<usize> {
    let Some(len) = align_up(request.len, PAGE) else { return request.raw() };
    let base = section.pool_base as usize;
    // As the kernel rounds hints.
    let hint = Some(align_down(request.addr, PAGE)).filter(|&hint| hint != 0);
    if let Some(hint) = hint
        && !(POOLS.start..POOLS.end).contains(&hint)
        && let Ok(at) = at_hint(request, section, hint)
    {
        return Ok(at);
    }
    let mut guest = guest::lock();
    let result = match guest.pool(base) {
        Some(pool) => {
            let hint = hint.filter(|&hint| pool.bounds().and(Span::new(hint, hint + 1)).len() == 1);
            frames::frugally(|| pool.map(len, request.how(), hint))
        }
        None => Err(Errno::EINVAL),
    };
    drop(guest);
    match result {
        Ok(at) => {
            record::count(Counter::MmapGoverned);
            populate::after_mmap(section.fetch, Span::new(at, at + len), request.prot, request.flags);
            Ok(at)
        }
        Err(errno) => {
            kernel::fallback(errno, len);
            // Without a hint into the pool: nothing must come to lie there unknown to it.
            let addr = if guest::touches_pools(request.addr, len) { 0 } else { request.addr };
            request.raw_with(addr, request.flags)
        }
    }
}

/// A hint outside the pools: honoured where the kernel would honour it.
fn at_hint(request: &Request, section: &Section, hint: usize) -> Result<usize> {
    let at = request.raw_with(hint, request.flags | c::MAP_FIXED_NOREPLACE)?;
    if at != hint {
        // An old kernel, or a place the kernel moved: as good as any.
        return Ok(at);
    }
    record::count(Counter::MmapPassed);
    let span = request.span_at(at);
    if let Some(plan) = guest::plan() {
        let layout = crate::layout::Layout::new(plan, *section, span.start, span.len());
        // Offsets mean nothing outside the pool: the size for "everything else" applies.
        if section.interval_count() == 0 {
            layout.each(span, &mut |piece, part| kernel::advise(part, piece.backing));
        }
    }
    populate::after_mmap(section.fetch, span, request.prot, request.flags);
    Ok(at)
}

/// A mapping at addresses of a pool that the program chose: MAP_FIXED, MAP_FIXED_NOREPLACE, or a hint for memory that is
/// not governed.
fn placed_in_pool(request: &Request) -> Result<usize> {
    let fixed = request.flags & FIXED != 0;
    if fixed && !request.addr.is_multiple_of(PAGE) {
        return request.raw();
    }
    let span = request.span_at(align_down(request.addr, PAGE));
    let mut guest = guest::lock();
    let plain = fixed && request.is_governable() && request.how().is_plain();
    if let Some(pool) = guest.pool(span.start).filter(|pool| plain && span.and(pool.bounds()) == span) {
        if request.flags & c::MAP_FIXED_NOREPLACE != 0 {
            pool.clear_of_used(span)?;
            return pool.map(span.len(), request.how(), Some(span.start));
        }
        if pool.has_hugetlb(span) {
            let rest = pool.renew_edges(span)?;
            if rest.is_empty() {
                return Ok(span.start);
            }
            if rest != span {
                drop(guest);
                mmap(rest.start, rest.len(), request.prot, request.flags, request.fd, request.offset)?;
                return Ok(span.start);
            }
        }
    }
    for pool in guest.pools.iter_mut().flatten() {
        let part = span.and(pool.bounds());
        if part.is_empty() {
            continue;
        }
        if request.flags & c::MAP_FIXED_NOREPLACE != 0 {
            pool.clear_for(part)?;
        } else if fixed {
            pool.prepare(part)?;
        } else if pool.clear_for(part).is_err() {
            // Taken: the kernel will find another place.
            break;
        }
    }
    let at = request.raw()?;
    for pool in guest.pools.iter_mut().flatten() {
        let part = request.span_at(at).and(pool.bounds());
        if !part.is_empty() {
            pool.replaced(part, request.how());
            record::count(Counter::MmapGoverned);
        }
    }
    drop(guest);
    if !request.is_anonymous() {
        files::after_mmap(request.span_at(at), request.prot, request.flags);
    }
    Ok(at)
}

/// Whole pages from `addr`; `None` where the kernel would refuse the arguments, or nothing of a pool is meant.
fn pool_span(addr: usize, len: usize) -> Option<Span> {
    if len == 0 || !addr.is_multiple_of(PAGE) || !guest::touches_pools(addr, len) {
        return None;
    }
    let span = Span::new(addr, addr.checked_add(align_up(len, PAGE)?)?);
    // Parts outside the pools are rare enough to be left to the kernel together with the rest.
    (span.and(POOLS) == span).then_some(span)
}

/// munmap.
pub fn munmap(addr: usize, len: usize) -> Result<()> {
    frames::hints::forget(addr, len);
    if let Some(span) = pool_span(addr, len) {
        let mut guest = guest::lock();
        if let Some(pool) = guest.pool(addr)
            && span.and(pool.bounds()) == span
        {
            record::count(Counter::MunmapGoverned);
            return pool.unmap(span);
        }
    }
    part_with_heap(addr, len)?;
    // SAFETY: the program's own request.
    unsafe { sys::munmap(addr, len) }
}

/// mprotect (`key` < 0) and pkey_mprotect.
pub fn mprotect(addr: usize, len: usize, prot: i32, key: i32) -> Result<()> {
    if let Some(span) = pool_span(addr, len) {
        let mut guest = guest::lock();
        if let Some(pool) = guest.pool(addr)
            && span.and(pool.bounds()) == span
        {
            record::count(Counter::MprotectGoverned);
            let result = pool.protect(span, prot, key);
            drop(guest);
            if result.is_ok() {
                let fetch = guest::section_for(Memory::Arenas, len).map_or(Fetch::Kernel, |section| section.fetch);
                populate::after_mmap(fetch, span, prot, 0);
            }
            return result;
        }
    }
    if let Some(span) = heap_span(addr, len)
        && let Some(heap) = &mut guest::lock().heap
    {
        return heap.protect(span, prot, key);
    }
    kernel::protect(Span::new(addr, addr.saturating_add(len)), prot, key)
}

/// Whole pages from `addr` on, which lies in the heap's pool.
fn heap_span(addr: usize, len: usize) -> Option<Span> {
    let inside = (HEAP.start..HEAP.end).contains(&addr) && addr.is_multiple_of(PAGE) && len != 0;
    let end = addr.checked_add(align_up(len, PAGE)?)?;
    inside.then_some(Span::new(addr, end))
}

/// Before part of the heap is unmapped, moved away or replaced.
fn part_with_heap(addr: usize, len: usize) -> Result<()> {
    match (heap_span(addr, len), &mut guest::lock().heap) {
        (Some(span), Some(heap)) => heap.part_with(span),
        _ => Ok(()),
    }
}

/// madvise.
pub fn madvise(addr: usize, len: usize, advice: i32) -> Result<()> {
    if advice == c::MADV_POPULATE_WRITE {
        // What is missing then the kernel is asked for, which also finds the errors.
        locks::place_ahead(addr, len);
    }
    if let Some(span) = pool_span(addr, len) {
        let mut guest = guest::lock();
        if let Some(pool) = guest.pool(addr)
            && span.and(pool.bounds()) == span
        {
            record::count(Counter::MadviseGoverned);
            return pool.advise(span, advice);
        }
    }
    if advice == c::MADV_DONTNEED
        && addr.is_multiple_of(PAGE)
        && let Some(result) = discard_heap(addr, len)
    {
        return result;
    }
    if files::overrules(len, advice) {
        return sys::is_mapped(addr, len);
    }
    let Some(advised) = frames::advice_for(addr, advice) else { return Ok(()) };
    // SAFETY: the program's own request.
    let raw = || unsafe { sys::madvise(addr, len, advised) };
    if (HEAP.start..HEAP.end).contains(&addr) && len > 0 && frames::governs(addr) {
        match advice {
            c::MADV_DONTNEED if addr.is_multiple_of(PAGE) => {
                let end = align_up(addr.saturating_add(len), PAGE).unwrap_or(addr);
                return frames::giving(Span::new(addr, end), raw);
            }
            // The policy has decided.
            c::MADV_HUGEPAGE | c::MADV_NOHUGEPAGE | c::MADV_COLLAPSE => return sys::is_mapped(addr, len),
            _ => {}
        }
    }
    raw()
}

/// MADV_DONTNEED in a heap with reserved pages; `None`: not that.
fn discard_heap(addr: usize, len: usize) -> Option<Result<()>> {
    let span = heap_span(addr, len)?;
    let mut guest = guest::lock();
    let heap = guest.heap.as_mut().filter(|heap| heap.has_hugetlb(span) && heap.mapped().and(span) == span)?;
    Some(heap.discard(span))
}

/// brk. Without a governed heap it is the kernel's own.
pub fn brk(addr: usize) -> Result<()> {
    let mut guest = guest::lock();
    let (before, end) = match &mut guest.heap {
        Some(heap) => (heap.end(), heap.set(addr)),
        None => (sys::brk(0), sys::brk(addr)),
    };
    drop(guest);
    record::count(Counter::BrkGoverned);
    crate::start::set_current_break(end);
    if end > before {
        let fetch = guest::section_for(Memory::Heap, 0).map_or(Fetch::Kernel, |section| section.fetch);
        let span = Span::new(align_down(before, PAGE), align_up(end, PAGE).unwrap_or(end));
        populate::after_mmap(fetch, span, c::PROT_RW, 0);
    }
    // The kernel's own rule, by way of glibc: only a break below the wanted one is an error.
    if end < addr { Err(Errno::ENOMEM) } else { Ok(()) }
}
