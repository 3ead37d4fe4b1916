//! Placement: missing pages get pages from the pool.
//!
//! A thread that waits for a page always continues: with the wanted page, with another one, with the kernel's zero
//! page, or because its memory is no longer registered.

pub mod exact_search;
pub mod module;
pub mod seen;
pub mod shadow;
pub mod stale_faults;
pub mod wake;
pub mod window;

use core::sync::atomic::Ordering::Relaxed;

use pagelab_frames::{Run, Strategy, Want};

use crate::boundary::arch::PAGE;
use crate::boundary::span::{Span, align_down, page_at};
use crate::boundary::sys::{self, Errno, c};
use crate::frames::engine::Engine;
use crate::frames::kernel::uffd::Then;
use crate::frames::pool::Pools;
use crate::frames::pool::chunks::{self, SLOTS};
use crate::frames::report::tally::{self, Got};
use pagelab_abi::plan::MAX_STRATEGIES;

use super::{areas, rest};

use seen::Seen;
use shadow::Shadow;

/// Frames of the placed pages, for the count at exit.
pub static SHADOW: Shadow = Shadow::new();

/// Most chunks that are found changed during the placement of one run of pages.
const MOST_CHANGED: usize = 4096;
/// How many times a move is repeated when the kernel requests it.
pub const PATIENCE: usize = 1000;
/// Most pages of the pool that turn out to be in use, for one page placed.
const BUSY: usize = 64;

/// Result of placing a span.
enum End {
    /// All of it was placed.
    Done,
    /// The next page is present already.
    Present,
    /// Nothing can be moved to the next page.
    Refused,
    /// The next page could not be placed this time.
    Busy,
    /// The pool has no pages.
    Dry,
}

/// Why a page is placed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A fault.
    Fault,
    /// A request.
    Eager,
}

impl Pools {
    fn wake(&self, span: Span) {
        let _ = self.tools.uffd.wake(span);
    }

    /// Fills `page` with the kernel's zero page; where even that fails, lets the kernel itself answer the fault. False:
    /// the fault is outdated, its page is present or not mapped any more.
    fn fill_or_free(&self, page: usize) -> bool {
        for _ in 0..PATIENCE {
            match self.tools.uffd.zero(page_at(page)) {
                Ok(()) => return true,
                Err(Errno::EAGAIN) => {}
                Err(Errno::EEXIST | Errno::ENOENT) => {
                    self.wake(page_at(page));
                    return false;
                }
                Err(_) => break,
            }
        }
        let _ = self.tools.uffd.unregister(page_at(page));
        self.wake(page_at(page));
        true
    }

    /// Moves pages, and repeats that while the kernel requests it.
    pub fn shift(&self, from: usize, to: Span, then: Then) -> (usize, Option<Errno>) {
        let mut result = (0, Some(Errno::EAGAIN));
        for _ in 0..PATIENCE {
            // SAFETY: the caller holds the slots, and their pages are zero; the target gets the pages that it misses.
            result = unsafe { self.tools.uffd.shift(from, to, then) };
            if result.0 > 0 || result.1 != Some(Errno::EAGAIN) {
                break;
            }
        }
        if result == (0, Some(Errno::EEXIST)) {
            result = self.recounted(from, to, then);
        }
        tally::engine(|counts| &counts.moves, 1);
        tally::engine(|counts| &counts.move_pages, (result.0 / PAGE) as u64);
        result
    }

    /// If a page comes back from swap while it is moved, the kernel (6.18) moves it, tries again, and returns EEXIST.
    /// So pages at the beginning of the move that are no longer in the pool have been moved.
    #[cold]
    fn recounted(&self, from: usize, to: Span, then: Then) -> (usize, Option<Errno>) {
        let mut words = [0; SLOTS];
        let Some(words) = words.get_mut(..to.len() / PAGE) else { return (0, Some(Errno::EEXIST)) };
        let gone = match self.tools.pagemap.read_there(from, words) {
            Ok(()) => PAGE * words.iter().take_while(|there| **there == 0).count(),
            Err(_) => 0,
        };
        if gone > 0 && then == Then::Wake {
            let _ = self.tools.uffd.wake(Span::new(to.start, to.start + gone));
        }
        (gone, if gone == to.len() { None } else { Some(if gone > 0 { Errno::EAGAIN } else { Errno::EEXIST }) })
    }
}

impl Engine {
    /// Answers a fault of `thread` at `addr`.
    pub fn fault(&mut self, addr: usize, thread: u32) {
        let page = align_down(addr, PAGE);
        let (number, within) = areas::around(page);
        let Some(number) = number else {
            if areas::is_programs(page) {
                // An outdated message for memory that the program now fills itself: it must not get zeros from here. A
                // thread that asks again would do so for ever if the page were still registered. (Not before the program
                // has made its call, which a registration here, however short, would make fail.)
                if !areas::is_asked(page) && self.checks.stale_faults.settled(page, thread, sys::monotonic_ns()) {
                    self.pools.give_up_page(page);
                }
                return self.pools.wake(page_at(page));
            }
            self.pools.fill_or_free(page);
            return;
        };
        let window = match self.placers.get_mut(number as usize).and_then(Option::as_mut) {
            Some(placer) => placer.windows.pages(page),
            None => {
                self.pools.fill_or_free(page);
                return;
            }
        };
        let window = if self.is_squeezed(number) { 1 } else { window };
        let end = page.saturating_add(window * PAGE).min(within.end);
        tally::frames(number, |counts| &counts.faults, 1);
        self.pools.ask_node(page, thread);
        self.scratch.touched = Some(page);
        let (placed, ended) = self.place(number, Span::new(page, end), Why::Fault);
        self.scratch.touched = None;
        tally::frames(number, |counts| &counts.ahead_pages, ((placed - page) / PAGE).saturating_sub(1));
        if placed == page {
            match ended {
                End::Present => {
                    tally::engine(|counts| &counts.eexist, 1);
                    self.pools.wake(page_at(page));
                }
                End::Done | End::Refused | End::Busy | End::Dry => {
                    #[cfg(feature = "expensive")]
                    delay();
                    if !self.checks.stale_faults.settled(page, thread, sys::monotonic_ns()) {
                        tally::engine(|counts| &counts.doubted, 1);
                        return self.pools.wake(page_at(page));
                    }
                    SHADOW.set(page, 0, false);
                    if self.pools.fill_or_free(page)
                        && let Some(slot) = tally::slot(number)
                    {
                        tally::page(slot, Want::Any, Got::Nothing);
                    }
                }
            }
        } else if let Some(Some(placer)) = self.placers.get_mut(number as usize) {
            placer.windows.placed(placed);
        }
    }

    /// Places the missing pages of `span`, for `thread`, up to the first that cannot be: there nothing is mapped, or the
    /// kernel must decide. Returns the bytes placed.
    pub fn eager(&mut self, span: Span, thread: u32) -> usize {
        let (mut total, mut refused) = (0, false);
        areas::each(span, &mut |part, number| {
            let Some(number) = number.filter(|_| !refused) else { return };
            let mut at = part.start;
            let mut seen = Seen::new();
            while let Some(missing) = seen.first_missing(self.pools.tools.pagemap, Span::new(at, part.end)) {
                at = missing.start;
                self.pools.ask_node(at, thread);
                let rest = self.pools.of_one_policy(missing);
                let (end, ended) = self.place(number, rest, Why::Eager);
                total += end - at;
                at = match ended {
                    End::Dry => break,
                    End::Refused if end == at => {
                        refused = true;
                        break;
                    }
                    End::Present | End::Busy if end == at => end + PAGE,
                    End::Present | End::Busy | End::Refused | End::Done => end,
                };
            }
        });
        total
    }

    /// Places pages from the beginning of `span` on, up to a chunk's worth at a time. Returns where it ended, and why.
    fn place(&mut self, number: u32, span: Span, why: Why) -> (usize, End) {
        let mut at = span.start;
        while at < span.end {
            if at > span.start {
                self.pools.next_node(at);
                rest::HANDLER.rest();
            }
            let part = self.pools.of_one_node(Span::new(at, span.end.min(at + SLOTS * PAGE)));
            let (end, ended) = self.place_part(number, part, why);
            at = end;
            if !matches!(ended, End::Done) {
                return (at, ended);
            }
        }
        (at, End::Done)
    }

    /// As [`Engine::place`], for at most a chunk's worth of pages.
    fn place_part(&mut self, number: u32, span: Span, why: Why) -> (usize, End) {
        let count = span.len() / PAGE;
        if let Some(Some(placer)) = self.placers.get_mut(number as usize) {
            let first = (span.start / PAGE) as u64;
            for (want, vpn) in self.scratch.wants.iter_mut().take(count).zip(first..) {
                *want = placer.strategy.want(vpn);
            }
        }
        let (mut at, mut waiting) = (0, false);
        let ended = loop {
            if at == count {
                break End::Done;
            }
            let (done, whole, ended) = self.place_run(number, span, at, why);
            // Threads that are woken last find the whole window.
            waiting |= done > 0 && !whole;
            at += done;
            if let Some(ended) = ended {
                break ended;
            }
        };
        if waiting {
            let placed = Span::new(span.start, span.start + at * PAGE);
            if why == Why::Fault { self.wake_in_turn(placed) } else { self.pools.wake(placed) }
        }
        if let Some(Some(placer)) = self.placers.get_mut(number as usize) {
            placer.strategy.take_back(count - at);
        }
        self.count(number, at, why);
        (span.start + at * PAGE, ended)
    }

    /// Whether the control groups leave so little that strategy `number` places nothing ahead.
    pub fn is_squeezed(&mut self, number: u32) -> bool {
        self.pool_of(number).and_then(|pool| self.pools.pool(pool)).is_some_and(|pool| pool.is_squeezed())
    }

    fn count(&mut self, number: u32, pages: usize, why: Why) {
        match why {
            Why::Fault => tally::frames(number, |counts| &counts.demand_pages, pages),
            Why::Eager => tally::frames(number, |counts| &counts.eager_pages, pages),
        }
        if let Some(pool) = self.pool_of(number).and_then(|pool| self.pools.pool(pool)) {
            pool.placed += pages as u64;
        }
    }

    /// Makes one move: of as many pages of `span` from page `at` on as have neighbouring pages in the pool. Returns how
    /// many were placed, whether that was all of the span and waiting threads are awake, and why it must not go on.
    fn place_run(&mut self, number: u32, span: Span, at: usize, why: Why) -> (usize, bool, Option<End>) {
        let count = span.len() / PAGE;
        let mut most = count - at;
        for _ in 0..BUSY {
            let Some((run, from)) = self.take_known(number, at, most) else { return (0, false, Some(End::Dry)) };
            let pages = run.len as usize;
            let to = Span::new(span.start + at * PAGE, span.start + (at + pages) * PAGE);
            let whole = pages == count && !(why == Why::Fault && self.wakes_later());
            let then = if whole || why == Why::Eager { Then::Wake } else { Then::Wait };
            let (moved, errno) = self.pools.shift(from, to, then);
            let done = moved / PAGE;
            self.settle(number, run, span.start, at, done);
            match errno {
                // If a shorter move succeeded, the mapping ends there.
                None => return (done, whole, (most < count - at).then_some(End::Refused)),
                Some(Errno::EAGAIN) if done > 0 => return (done, whole, None),
                Some(Errno::EEXIST) => return (0, false, Some(End::Present)),
                Some(Errno::EBUSY) => {
                    tally::engine(|counts| &counts.ebusy, 1);
                    self.drop_slot(number, Run::one(run.slot));
                }
                // The span may reach beyond its mapping.
                Some(Errno::ENOENT | Errno::EINVAL) if pages > 1 => most = pages / 2,
                Some(errno) => {
                    if errno == Errno::EINVAL {
                        tally::engine(|counts| &counts.einval, 1);
                        if why == Why::Fault
                            && at == 0
                            && self.place_with_attributes(number, span.start + at * PAGE, at)
                        {
                            return (1, count == 1, (count > 1).then_some(End::Refused));
                        }
                    }
                    let again = errno == Errno::EAGAIN;
                    return (0, false, Some(if again { End::Busy } else { End::Refused }));
                }
            }
        }
        (0, false, Some(End::Busy))
    }

    /// Records that the first `done` pages of `run` went to page `at` of the span at `start` and after it; the others
    /// stay.
    pub fn settle(&mut self, number: u32, run: Run, start: usize, at: usize, done: usize) {
        self.pools.count_node(done);
        let Some(pool) = self.pool_of(number) else { return };
        let Some(Some(pool)) = self.pools.all.get_mut(pool) else { return };
        let slot = tally::slot(number);
        for ((id, want), page) in run.slots().zip(self.scratch.wants.iter().skip(at)).zip(at..at + done) {
            let frame = pool.stock.frame(id).unwrap_or(0);
            let addr = start + page * PAGE;
            SHADOW.set(addr, frame, self.scratch.touched.is_some_and(|touched| touched != addr));
            pool.asked(*want);
            let as_wanted = match *want {
                Want::Colour(colour) => pool.stock.colours().of(frame) == colour,
                Want::Frame(wanted) => frame == wanted,
                Want::Any => true,
            };
            if let Some(slot) = slot {
                tally::page(slot, *want, if as_wanted { Got::Wanted } else { Got::Other });
            }
        }
        if done > 0
            && let Some(slot) = slot
        {
            slot.counts.runs.fetch_add(1, Relaxed);
        }
        pool.stock.emptied(Run { slot: run.slot, len: done as u32 });
        let rest = pagelab_frames::SlotId(run.slot.0 + done as u32);
        pool.stock.give_back(Run { slot: rest, len: run.len - done as u32 });
    }

    /// Pages can be moved only between mappings that have the same protection and are both locked or both not. So this
    /// gives the page's slot the same attributes for a moment. True: the page is placed.
    fn place_with_attributes(&mut self, number: u32, page: usize, at: usize) -> bool {
        let Some((run, from)) = self.take_known(number, at, 1) else { return false };
        let any = c::PROT_RW | c::PROT_EXEC;
        let pinned = self.placers.get(number as usize).and_then(Option::as_ref).is_some_and(|placer| placer.pinned);
        let mut restored = true;
        let placed = [(true, c::PROT_RW), (false, any), (true, any)].into_iter().any(|(other, prot)| {
            let attempt = chunks::with_attributes(from, pinned, other, prot, || {
                self.pools.shift(from, page_at(page), Then::Wait).1.is_none()
            });
            restored &= attempt.restored;
            attempt.done
        });
        // Only now: memory that is locked meanwhile counts against the limit, which the program's next call may reach.
        if placed {
            self.pools.wake(page_at(page));
        }
        self.settle(number, run, page - at * PAGE, at, usize::from(placed));
        if !placed && !restored {
            // It would be refused for every other page, too, and be taken again for each of them.
            self.drop_slot(number, Run::one(run.slot));
        }
        placed
    }

    /// Gives the page of a slot back to the kernel: it cannot be used, because something refers to it, or because its
    /// attributes are no longer those of the pool.
    fn drop_slot(&mut self, number: u32, run: Run) {
        let Some(pool) = self.pool_of(number) else { return };
        let Some(Some(pool)) = self.pools.all.get_mut(pool) else { return };
        if pool.stock.take_this(run.slot)
            && let Some(address) = pool.stock.address(run.slot)
        {
            chunks::discard(page_at(address));
            pool.stock.emptied(run);
        }
    }

    /// The pool from which strategy `number` takes pages, on the current node.
    pub fn pool_of(&self, number: u32) -> Option<usize> {
        let placer = self.placers.get(number as usize)?.as_ref()?;
        Some(placer.pool + self.pools.source.node * MAX_STRATEGIES)
    }

    /// Makes sure that this pool exists.
    pub fn has_pool(&mut self, number: u32) -> bool {
        self.pool_of(number).is_some_and(|at| self.pools.make_twin(at).is_ok())
    }

    /// As [`Engine::take`], from `node`.
    pub fn take_at(&mut self, node: usize, number: u32, at: usize, most: usize) -> Option<(Run, usize)> {
        self.pools.source.node = node;
        let found = if self.has_pool(number) { self.take_here(number, at, most) } else { None };
        if found.is_none() {
            self.pools.return_to_wanted();
        }
        found
    }

    /// As [`Engine::take`], but only pages that are still on the frames of their look-up. A chunk in which some are not
    /// is sorted anew.
    pub fn take_known(&mut self, number: u32, at: usize, most: usize) -> Option<(Run, usize)> {
        for _ in 0..MOST_CHANGED {
            let (run, from) = self.take(number, at, most)?;
            let pool = self.pool_of(number)?;
            let pool = self.pools.all.get_mut(pool)?.as_mut()?;
            let run = pool.shortened(run, self.checks.grip.room());
            if pool.is_known(&mut self.checks.grip, self.pools.tools.pagemap, run, &mut self.scratch.frames) {
                return Some((run, from));
            }
        }
        None
    }

    /// Takes pages for the wants from number `at` on, at most `most`: of another node, or another colour, only if there
    /// is nothing else. Returns them, and their address.
    pub fn take(&mut self, number: u32, at: usize, most: usize) -> Option<(Run, usize)> {
        self.pools.return_to_wanted();
        let here = self.has_pool(number);
        let found = if here { self.take_here(number, at, most) } else { None };
        found.or_else(|| self.pools.other_nodes().find_map(|node| self.take_at(node, number, at, most)))
    }

    /// As [`Engine::take`], from the pool of the current node.
    pub fn take_here(&mut self, number: u32, at: usize, most: usize) -> Option<(Run, usize)> {
        let pool = self.pool_of(number)?;
        if self.pools.all.get(pool)?.as_ref()?.exact {
            return self.take_exact(pool, at, most);
        }
        let mut begin = 0;
        let most_turns = self.pools.all.get(pool)?.as_ref()?.turns();
        for turn in 0..=most_turns {
            let stock = &mut self.pools.all.get_mut(pool)?.as_mut()?.stock;
            if let Some(run) = stock.take_run(self.scratch.wants.get(at..at + most)?) {
                waited(begin);
                if turn > 0 {
                    self.pools.pool(pool)?.found(true);
                }
                let stock = &self.pools.all.get(pool)?.as_ref()?.stock;
                return Some((run, stock.address(run.slot)?));
            }
            if turn == 0 {
                begin = sys::monotonic_ns();
            }
            if turn == most_turns || self.pools.is_dry() {
                break;
            }
            self.pools.make_room(pool);
            rest::HANDLER.rest();
            if self.refill(pool).is_err() {
                break;
            }
        }
        waited(begin);
        let want = *self.scratch.wants.get(at)?;
        let pool = self.pools.pool(pool)?;
        pool.starving = true;
        pool.found(false);
        let slot = match want {
            Want::Colour(colour) => pool.stock.take_near(colour)?,
            Want::Frame(_) | Want::Any => pool.stock.take_any()?,
        };
        Some((Run::one(slot), pool.stock.address(slot)?))
    }
}

/// Waits, so that other threads can map memory where there was none.
#[cfg(feature = "expensive")]
fn delay() {
    crate::boundary::sys::task::futex_wait_for(&core::sync::atomic::AtomicU32::new(0), 0, 200_000);
}

/// Counts a fault that waited for a refill since `begin` (0: it did not).
fn waited(begin: u64) {
    if begin != 0 {
        tally::engine(|counts| &counts.waits, 1);
        tally::engine(|counts| &counts.wait_ns, sys::monotonic_ns() - begin);
    }
}
