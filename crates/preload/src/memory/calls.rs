//! The memory calls, each passed to the kernel or answered by a pool.

mod advise;
mod brk;
mod registering;
mod remap;

use pagelab_abi::guest::Counter;
use pagelab_abi::plan::{Fetch, Memory, Section};

use crate::backing;
use crate::boundary::arch::{PAGE, PMD, TASK_END};
use crate::boundary::mapping;
use crate::boundary::span::{Span, align_down, align_up};
use crate::boundary::sys::{self, Errno, Result, c};
use crate::memory::pool::{How, looks_like_arena};
use crate::state::guest_file;
use crate::state::layout::Layout;
use crate::state::plan::{self, HEAP, POOLS};

use super::{files, prefault, tables};

use advise::has_all;
pub use advise::{
    all_locked_or_unlocked, before_futex, before_lock_all, before_populating, before_property, gives_up_mappings,
    has_read, is_mapped, locks_all, madvise, personality, place_to_lock, set_locks_all, unlocked,
};
pub use brk::{brk, brk_alone, close_heap, open_heap, publish_heap};
pub use registering::{API, REGISTER, has_registered, registered, registering, to_register, wants_events};
pub use remap::{after_growth, before_growth, mremap};

/// Flags with which anonymous memory is governed. Calls with other flags go to the kernel: MAP_SHARED (another kind of
/// memory), MAP_GROWSDOWN and MAP_32BIT (they request a place), MAP_HUGETLB (the program has decided), MAP_LOCKED (the
/// rest of a tile would be locked, too).
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
const MAP_32BIT: i32 = 0x40;
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
    /// Whether it is malloc's own, for a heap of a thread arena.
    for_arena: bool,
    /// The kernel maps a multiple of these bytes.
    unit: usize,
}

impl Request {
    fn raw(&self) -> Result<usize> {
        self.raw_with(self.addr, self.flags)
    }

    fn raw_with(&self, addr: usize, flags: i32) -> Result<usize> {
        // SAFETY: the program makes this call itself, and answers for its arguments.
        unsafe { sys::mmap(addr, self.len, self.prot, flags, self.fd, self.offset) }
    }

    fn how(&self) -> How {
        let dropped = FIXED | c::MAP_POPULATE | c::MAP_NONBLOCK | IGNORED_FLAGS;
        How { prot: self.prot, flags: self.flags & !dropped, for_arena: self.for_arena }
    }

    fn is_anonymous(&self) -> bool {
        self.flags & c::MAP_ANONYMOUS != 0
    }

    fn is_governable(&self) -> bool {
        self.is_anonymous() && self.flags & c::MAP_TYPE == c::MAP_PRIVATE && self.flags & !GOVERNED_FLAGS == 0
    }

    /// Whether the requested addresses are whole pages that a program can have.
    fn is_in_reach(&self) -> bool {
        let end = align_up(self.len, self.unit).and_then(|len| self.addr.checked_add(len));
        self.addr.is_multiple_of(PAGE) && end.is_some_and(|end| end <= TASK_END)
    }

    fn span_at(&self, addr: usize) -> Span {
        Span::new(addr, addr.saturating_add(align_up(self.len, self.unit).unwrap_or(self.len)))
    }

    /// Whether the kernel unmaps what lies at the address.
    fn replaces(&self) -> bool {
        self.flags & FIXED != 0 && self.flags & c::MAP_FIXED_NOREPLACE == 0
    }

    /// Has `map` answer the request. If the kernel has too little memory for it, or too many mappings, memory mapped in
    /// advance is given up, and `map` is called again.
    fn with_room(&self, map: &mut dyn FnMut() -> Result<usize>) -> Result<usize> {
        match map() {
            // (Other limits decide on reserved pages, and on the lowest addresses.)
            Err(Errno::ENOMEM) if self.flags & (c::MAP_HUGETLB | MAP_32BIT) == 0 => match () {
                // What it replaces may be most of it.
                () if self.replaces() && self.is_in_reach() => again(map),
                () if tables::lock().gives_up_spare_for(self.len) => map(),
                () => Err(Errno::ENOMEM),
            },
            result => result,
        }
    }

    fn section(&self) -> Option<Section> {
        plan::section_for(if self.for_arena { Memory::Arenas } else { Memory::Anon }, self.len)
    }
}

/// Unit of the lengths that the kernel maps for a request at addresses of heap or pools.
fn unit(flags: i32, fd: i32) -> usize {
    let huge = match (flags & c::MAP_ANONYMOUS != 0, (flags as u32 >> c::MAP_HUGE_SHIFT) & 0x3f) {
        (false, _) => sys::huge_page_bytes(fd),
        (true, _) if flags & c::MAP_HUGETLB == 0 => None,
        (true, 0) => Some(PMD),
        (true, shift) => 1usize.checked_shl(shift),
    };
    huge.unwrap_or(PAGE).max(PAGE)
}

/// Answers an mmap call; `by_libc`: libc made it, not the program.
pub fn mmap([addr, len]: [usize; 2], prot: i32, flags: i32, fd: i32, offset: i64, by_libc: bool) -> Result<usize> {
    let for_arena = by_libc && looks_like_arena(len, prot, flags);
    let unit = if addr != 0 && concerns_us(addr, len) { unit(flags, fd) } else { PAGE };
    let request = Request { addr, len, prot, flags, fd, offset, for_arena, unit };
    if !(offset as usize).is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    // A hint counts as well: at its hint the kernel maps even memory that is not governed, if nothing is there.
    let at_pool = addr != 0 && plan::touches_pools(addr, len);
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
                prefault::after_mmap(section.fetch, request.span_at(at), prot, flags);
            }
            result
        }
    }
}

/// Makes `call` again, which the kernel refused (ENOMEM) for lack of mappings or of an unknown amount of memory: gives up
/// memory mapped in advance that is a mapping of its own, and if that is not enough, all of it.
fn again<T>(call: &mut dyn FnMut() -> Result<T>) -> Result<T> {
    let mut result = Err(Errno::ENOMEM);
    if gives_up_mappings() {
        result = call();
    }
    match result {
        Err(Errno::ENOMEM) if tables::lock().gives_up_spare_for(0) => call(),
        result => result,
    }
}

fn passed(request: &Request) -> Result<usize> {
    let fixed = request.flags & FIXED != 0;
    if fixed {
        sys::part_with(request.addr, request.len);
    }
    let span = request.span_at(request.addr);
    let over_heap = fixed && request.is_in_reach() && !span.and(HEAP).is_empty();
    let result = request.with_room(&mut || match over_heap {
        true => laid_over(&mut tables::lock(), request, span),
        false => request.raw(),
    });
    guest_file::count(Counter::MmapPassed);
    if let Ok(at) = result
        && !request.is_anonymous()
    {
        files::after_mmap(request.span_at(at), request.prot);
    }
    if let Ok(at) = result
        && request.is_governable()
    {
        prefault::advise_ranges(request.span_at(at));
    }
    result
}

fn governed(request: &Request, section: &Section) -> Result<usize> {
    let Some(len) = align_up(request.len, PAGE) else { return request.raw() };
    let base = section.pool_base as usize;
    // Rounded as the kernel rounds hints.
    let hint = Some(align_down(request.addr, PAGE)).filter(|&hint| hint != 0);
    if let Some(hint) = hint
        && !plan::touches_pools(hint, len)
        && let Ok(at) = request.with_room(&mut || at_hint(request, section, hint))
    {
        return Ok(at);
    }
    if let Some(hint) = hint
        && plan::touches_pools(hint, len)
        && let Ok(at) = at_border(request, Span::new(hint, hint.saturating_add(len)))
    {
        return Ok(at);
    }
    let mut guest = tables::lock();
    // A hint into a hole of another rule's pool is honoured, too.
    let wanted = hint.map(|hint| Span::new(hint, hint.saturating_add(len)));
    let other = wanted.filter(|span| guest.pool(span.start).is_some_and(|pool| pool.is_free(*span)));
    let in_pool = |guest: &mut tables::Tables| match guest.pool(other.map_or(base, |span| span.start)) {
        Some(pool) => {
            let hint = hint.filter(|&hint| pool.bounds().and(Span::new(hint, hint + 1)).len() == 1);
            backing::retry_when_short(|| pool.map(len, request.how(), hint))
        }
        None => Err(Errno::EINVAL),
    };
    let mut result = in_pool(&mut guest);
    drop(guest);
    let mut elsewhere = Err(Errno::ENOMEM);
    if result.is_err() {
        // A hint into a pool is removed: the pool must know everything that is mapped there.
        let addr = if plan::touches_pools(request.addr, len) { 0 } else { request.addr };
        elsewhere = request.raw_with(addr, request.flags);
        let mut guest = tables::lock();
        if elsewhere == Err(Errno::ENOMEM) && guest.gives_up_spare_for(len) {
            result = in_pool(&mut guest);
        }
    }
    match result {
        Ok(at) => {
            guest_file::count(Counter::MmapGoverned);
            prefault::after_mmap(section.fetch, Span::new(at, at + len), request.prot, request.flags);
            Ok(at)
        }
        Err(errno) => {
            backing::fallback(errno, len);
            elsewhere
        }
    }
}

/// No search for a free address ends so far down, and no setting for the lowest address is higher.
const LOWEST: usize = 1 << 20;

/// Maps at a hint outside the pools, where the kernel accepts the hint. It is only a hint for the kernel, too: at a
/// place that the program insists on, it maps even where a stack is to grow.
fn at_hint(request: &Request, section: &Section, hint: usize) -> Result<usize> {
    // (What the program locks as it is mapped would be populated, also at a place that is given up again.)
    let exactly = if advise::locks_all() && hint >= LOWEST { c::MAP_FIXED_NOREPLACE } else { 0 };
    let at = request.raw_with(hint, request.flags & !(c::MAP_POPULATE | c::MAP_NONBLOCK) | exactly)?;
    // The kernel raises a hint that is below the lowest address of its setting (vm.mmap_min_addr).
    if at != hint && !(hint..LOWEST).contains(&at) {
        // SAFETY: the mapping was just made, and nobody knows its address.
        let _ = unsafe { sys::munmap(at, request.len) };
        return Err(Errno::EEXIST);
    }
    guest_file::count(Counter::MmapPassed);
    let span = request.span_at(at);
    if let Some(plan) = plan::current() {
        let layout = Layout::new(plan, *section, span.start, span.len());
        // Offsets mean nothing outside the pool: the page size for "everything else" applies.
        if section.interval_count() == 0 {
            layout.each(span, &mut |piece, part| backing::apply(part, piece.backing));
        }
    }
    prefault::after_mmap(section.fetch, span, request.prot, request.flags);
    Ok(at)
}

/// Maps at a hint that no single pool contains, but that touches pools or could touch them: the hint is accepted where
/// nothing is mapped.
fn at_border(request: &Request, wanted: Span) -> Result<usize> {
    let mut guest = tables::lock();
    if guest.pool(wanted.start).is_some_and(|pool| wanted.and(pool.bounds()) == wanted) {
        return Err(Errno::EEXIST);
    }
    drop(guest);
    let flags = request.flags | c::MAP_FIXED_NOREPLACE;
    placed_in_pool(&Request { addr: wanted.start, flags, ..*request })
}

/// Makes a mapping at addresses of a pool that the program chose: MAP_FIXED, MAP_FIXED_NOREPLACE, or a hint for memory
/// that is not governed.
fn placed_in_pool(request: &Request) -> Result<usize> {
    let fixed = request.flags & FIXED != 0;
    if fixed && !request.is_in_reach() {
        // The kernel refuses it before it touches anything.
        return request.raw();
    }
    request.with_room(&mut || place_in_pool(request))
}

fn place_in_pool(request: &Request) -> Result<usize> {
    let fixed = request.flags & FIXED != 0;
    let span = request.span_at(align_down(request.addr, PAGE));
    let mut guest = tables::lock();
    let plain = fixed && request.is_governable() && request.how().is_plain();
    if request.flags & c::MAP_FIXED_NOREPLACE != 0
        && let Some(pool) = guest.pool(span.start).filter(|pool| plain && span.and(pool.bounds()) == span)
        && !pool.holds(span)
    {
        pool.map_exactly(span, request.how())?;
        drop(guest);
        guest_file::count(Counter::MmapGoverned);
        let fetch = request.section().map_or(Fetch::Kernel, |section| section.fetch);
        prefault::after_mmap(fetch, span, request.prot, request.flags);
        return Ok(span.start);
    }
    // While the kernel populated it, other threads would wait for the lock, and there would be no advice yet.
    let later = c::MAP_POPULATE;
    let at = laid_over(&mut guest, &Request { flags: request.flags & !later, ..*request }, span)?;
    let mut governed = false;
    for pool in guest.pools.iter_mut().flatten() {
        let part = request.span_at(at).and(pool.bounds());
        if !part.is_empty() {
            pool.replaced(part, request.how());
            governed = true;
        }
    }
    drop(guest);
    if governed {
        guest_file::count(Counter::MmapGoverned);
    }
    if request.is_governable() {
        prefault::after_mmap(Fetch::Kernel, request.span_at(at), request.prot, request.flags);
    } else if request.flags & (later | c::MAP_NONBLOCK) == later {
        prefault::as_asked(request.span_at(at), request.prot, request.flags);
    }
    if !request.is_anonymous() {
        files::after_mmap(request.span_at(at), request.prot);
    }
    Ok(at)
}

/// Has the kernel map `span` for a request, over what the heap and pools have there.
fn laid_over(guest: &mut tables::Tables, request: &Request, span: Span) -> Result<usize> {
    make_way(guest, request, span)?;
    let result = request.raw();
    match (&mut guest.heap, result) {
        _ if !request.replaces() => {}
        (Some(heap), Ok(_)) => heap.part_with(span.and(HEAP)),
        (None, Ok(_)) => {}
        // (Kernels differ in whether they unmap before or after they find the error.)
        (_, Err(_)) => guest.recheck(span),
    }
    result
}

/// Prepares `span`, which the kernel will map for a request: heap and pools give up what they hold there. MAP_FIXED
/// takes blocks of the program, too, MAP_FIXED_NOREPLACE refuses them, and a hint leaves them.
fn make_way(guest: &mut tables::Tables, request: &Request, span: Span) -> Result<()> {
    let fixed = request.flags & FIXED != 0;
    if let Some(heap) = guest.heap.as_mut().filter(|_| fixed && !span.and(HEAP).is_empty()) {
        match request.replaces() {
            true => heap.prepare(span.and(HEAP))?,
            false => heap.make_way(span.and(HEAP))?,
        }
    }
    for pool in guest.pools.iter_mut().flatten() {
        let part = span.and(pool.bounds());
        if part.is_empty() {
            continue;
        }
        if request.replaces() {
            pool.prepare(part)?;
        } else if fixed {
            pool.clear_for(part)?;
        } else if pool.clear_for(part).is_err() {
            // The place is taken: the kernel will find another one.
            break;
        }
    }
    Ok(())
}

/// Owner of the addresses in a part of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Heap,
    /// The pool at these addresses, if the plan has one there.
    Pool,
    /// The kernel: the part lies outside heap and pools.
    Kernel,
}

/// Whether any of `[addr, addr + len)` may belong to the heap or a pool.
pub fn concerns_us(addr: usize, len: usize) -> bool {
    addr < POOLS.end && addr.saturating_add(len) > HEAP.start
}

/// The whole pages of a range, if the kernel would accept it and it touches heap or pools.
fn our_span(addr: usize, len: usize) -> Option<Span> {
    if len == 0 || !addr.is_multiple_of(PAGE) || !concerns_us(addr, len) {
        return None;
    }
    let end = addr.checked_add(align_up(len, PAGE)?).filter(|&end| end <= TASK_END)?;
    Some(Span::new(addr, end))
}

/// Calls `visit` with the parts of `span`, lowest first, until it fails. The parts are cut where the heap's memory (up
/// to `heap_end`) and pools begin and end.
fn each_part(span: Span, heap_end: usize, visit: &mut dyn FnMut(Owner, Span) -> Result<()>) -> Result<()> {
    let mut at = span.start;
    while at < span.end {
        let (owner, end) = match at {
            _ if at < HEAP.start => (Owner::Kernel, HEAP.start),
            _ if at < heap_end => (Owner::Heap, heap_end),
            _ if at < POOLS.start => (Owner::Kernel, POOLS.start),
            _ if at < POOLS.end => (Owner::Pool, plan::pool_end(at)),
            _ => (Owner::Kernel, span.end),
        };
        let part = Span::new(at, end.min(span.end));
        visit(owner, part)?;
        at = part.end;
    }
    Ok(())
}

/// Answers a munmap call.
pub fn munmap(addr: usize, len: usize) -> Result<()> {
    sys::part_with(addr, len);
    backing::hints::forget(addr, len);
    match unmapped(addr, len) {
        // The kernel would have to split a mapping, and there are too many.
        Err(Errno::ENOMEM) if gives_up_mappings() => unmapped(addr, len),
        result => result,
    }
}

fn unmapped(addr: usize, len: usize) -> Result<()> {
    // SAFETY: the program makes this call itself, and answers for its arguments.
    let raw = |addr, len| unsafe { sys::munmap(addr, len) };
    let Some(span) = our_span(addr, len) else { return raw(addr, len) };
    let raw = |part: Span| raw(part.start, part.len());
    let mut guest = tables::lock();
    let heap_end = guest.heap_end();
    each_part(span, heap_end, &mut |owner, part| match (owner, &mut guest.heap) {
        (Owner::Heap, Some(heap)) => {
            heap.prepare(part)?;
            raw(part)?;
            heap.part_with(part);
            Ok(())
        }
        (Owner::Pool, _) => match guest.pool(part.start) {
            Some(pool) => {
                guest_file::count(Counter::MunmapGoverned);
                pool.unmap(part)
            }
            None => raw(part),
        },
        _ => raw(part),
    })
}

/// Answers mprotect (`key` < 0) and pkey_mprotect.
pub fn mprotect(addr: usize, len: usize, prot: i32, key: i32) -> Result<()> {
    sys::part_with(addr, len);
    let span = our_span(addr, len);
    let mut protect = || match span {
        Some(span) => protected(span, prot, key),
        None => mapping::protect(Span::new(addr, addr.saturating_add(len)), prot, key),
    };
    let mut result = protect();
    // Parts of mappings become mappings, and memory counts when it becomes writable. But most of these errors tell of a
    // hole.
    if result == Err(Errno::ENOMEM) && has_all(addr, len) {
        result = again(&mut protect);
    }
    if let Some(span) = span.filter(|_| result.is_ok() && prot != c::PROT_NONE && plan::prefaults()) {
        prefault_opened(span.and(POOLS), prot);
    }
    result
}

fn protected(span: Span, prot: i32, key: i32) -> Result<()> {
    let mut guest = tables::lock();
    let heap_end = guest.heap_end();
    each_part(span, heap_end, &mut |owner, part| match (owner, &mut guest.heap) {
        (Owner::Heap, Some(heap)) => heap.protect(part, prot, key),
        (Owner::Pool, _) => match guest.pool(part.start) {
            Some(pool) => {
                guest_file::count(Counter::MprotectGoverned);
                pool.protect(part, prot, key)
            }
            None => mapping::protect(part, prot, key),
        },
        _ => mapping::protect(part, prot, key),
    })
}

/// Populates what the program has just got access to, part by part: private anonymous memory of pools whose rules want
/// that, without the pages that are there (those that it shares with a child would be copied). What else lies there (files, shared memory, memory without reservation) would be written to. Memory that the
/// program registered with a userfaultfd would wait for the program.
fn prefault_opened(span: Span, prot: i32) {
    let mut at = span.start;
    while at < span.end && !has_registered() {
        let mut guest = tables::lock();
        let found = guest.pool(at).and_then(|pool| pool.first_own(Span::new(at, span.end.min(pool.bounds().end))));
        drop(guest);
        at = match found {
            Some((part, memory)) => {
                if plan::fetch_at(part.start, memory) == Fetch::Prefault {
                    prefault::opened(part, prot);
                }
                part.end
            }
            None => plan::pool_end(at),
        };
    }
}
