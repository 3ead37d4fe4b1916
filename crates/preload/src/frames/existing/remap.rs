//! Remapping of existing memory: its pages move to their strategy's frames, contents kept.
//!
//! A page is moved out and copied onto a page of the pool, and that page is moved in. Threads that touch the page
//! meanwhile fault, and continue when it is back: no write is lost. The caller is a thread of the program that waits
//! for the answer, so even its own stack can be moved. File pages cannot be moved: a copy of the whole mapping takes
//! their place.

use pagelab_frames::{Strategy, Want};

use crate::boundary::arch::PAGE;
use crate::boundary::own::Fresh;
use crate::boundary::span::{Span, page_at};
use crate::boundary::sys::{self, Errno, Result};
use crate::frames::engine::Engine;
use crate::frames::kernel::uffd::Then;
use crate::frames::place::{PATIENCE, SHADOW};
use crate::frames::pool::{Pools, chunks};
use crate::frames::report::tally;
use crate::frames::threads::own_pages::TRANSIT;
use crate::frames::{areas, registrable};

impl Pools {
    /// Moves pages from `page` on to `transit`, in the transit area; returns the bytes moved.
    pub fn move_out(&self, page: usize, transit: Span) -> usize {
        // The program may have locked all memory, or a process may have read the area: either brings its pages in.
        chunks::discard(transit);
        for _ in 0..PATIENCE {
            // SAFETY: the transit area is the library's own and empty; the pages moved there come back.
            match unsafe { self.tools.uffd.shift(page, transit, Then::Wait) } {
                (0, Some(Errno::EAGAIN)) => {}
                // The area was empty: see [`Pools::recounted`].
                (0, Some(Errno::EEXIST)) => {
                    let mut words = [0; TRANSIT];
                    let Some(words) = words.get_mut(..transit.len() / PAGE) else { return 0 };
                    let known = self.tools.pagemap.read_there(transit.start, words).is_ok();
                    return if known { PAGE * words.iter().take_while(|there| **there != 0).count() } else { 0 };
                }
                (moved, _) => return moved,
            }
        }
        0
    }

    /// Puts back a page that was moved out, and for which no other could be moved in (its mapping has changed
    /// meanwhile): the page itself, or at least its contents.
    #[cold]
    pub fn bring_back(&self, page: Span, from: usize) {
        if self.shift(from, page, Then::Wake).1.is_none() {
            return SHADOW.set(page.start, 0, false);
        }
        for _ in 0..1000 {
            match self.tools.uffd.copy(from, page) {
                Err(Errno::EAGAIN) => {}
                // The page's mapping is not registered (any more), or does not exist.
                Err(Errno::ENOENT) if self.tools.uffd.register(page).is_ok() => {}
                // EEXIST, ENOENT: the page is present, or its mapping is gone.
                Ok(()) | Err(_) => break,
            }
        }
        SHADOW.set(page.start, 0, false);
    }
}

impl Engine {
    /// Puts the resident pages of `span` on the wanted frames; returns how many are on them afterwards.
    pub fn remap(&mut self, span: Span) -> usize {
        let mut good = 0;
        areas::each(span, &mut |part, number| {
            let Some(number) = number else { return };
            // Tiles of larger pages belong to the kernel: nothing can be moved into them.
            registrable::untiled(part, &mut |part| {
                for start in (part.start..part.end).step_by(TRANSIT * PAGE) {
                    good += self.remap_group(number, Span::new(start, part.end.min(start + TRANSIT * PAGE)));
                }
            });
        });
        good
    }

    /// [`Engine::remap`] for at most a transit area's worth of pages.
    fn remap_group(&mut self, number: u32, span: Span) -> usize {
        let count = span.len() / PAGE;
        let mut frames = [0u64; TRANSIT];
        let Some(words) = frames.get_mut(..count) else { return 0 };
        if self.pools.tools.pagemap.read(span.start, words).is_err() {
            return 0;
        }
        let (mut good, mut at) = (0, 0);
        while at < count {
            let wrong = |frame: &u64| *frame != 0;
            let first = frames.iter().skip(at).take(count - at).position(wrong).map_or(count, |skip| at + skip);
            let len = frames.iter().skip(first).take(count - first).take_while(|frame| wrong(frame)).count();
            good += self.remap_run(number, span.start, first, frames.get(first..first + len).unwrap_or(&[]));
            at = first + len.max(1);
        }
        good
    }

    /// Puts pages from number `first` of the span at `start`, all resident, on wanted frames; `frames` are their
    /// present ones.
    fn remap_run(&mut self, number: u32, start: usize, first: usize, frames: &[u64]) -> usize {
        let (mut good, mut at) = (0, first);
        let end = first + frames.len();
        self.ask(number, start, first, end);
        while at < end {
            let there = frames.get(at - first..).unwrap_or(&[]).iter().zip(self.scratch.wants.iter().skip(at));
            let (mut kept, mut wrong, mut met) = (0, 0, false);
            for (frame, want) in there {
                let right = self.is_as_wanted(number, *frame, *want);
                met |= !right;
                match (met, right) {
                    (false, _) => kept += 1,
                    (true, false) => wrong += 1,
                    (true, true) => break,
                }
            }
            for page in at..at + kept {
                let frame = frames.get(page - first).copied().unwrap_or(0);
                SHADOW.set(start + page * PAGE, frame, false);
            }
            (good, at) = (good + kept, at + kept);
            if wrong > 0 {
                let old = frames.get(at - first..).unwrap_or(&[]);
                let (done, moved) = self.exchange(number, start, at, old.get(..wrong).unwrap_or(&[]));
                (good, at) = (good + moved, at + done);
            }
        }
        good
    }

    /// Asks the strategy for its wants for pages `first..end` of the span at `start`.
    fn ask(&mut self, number: u32, start: usize, first: usize, end: usize) {
        let Some(Some(placer)) = self.placers.get_mut(number as usize) else { return };
        for (page, want) in self.scratch.wants.iter_mut().enumerate().take(end).skip(first) {
            *want = placer.strategy.want((start / PAGE + page) as u64);
        }
    }

    pub fn is_as_wanted(&self, number: u32, frame: u64, want: Want) -> bool {
        let pool = self.placers.get(number as usize).and_then(Option::as_ref).map(|placer| placer.pool);
        let pool = pool.and_then(|pool| self.pools.all.get(pool)).and_then(Option::as_ref);
        match want {
            Want::Colour(colour) => pool.is_some_and(|pool| pool.stock.colours().of(frame) == colour),
            Want::Frame(wanted) => frame == wanted,
            Want::Any => true,
        }
    }

    /// Makes one exchange of pages from page `at` on, which are on frames `old`. Returns the pages dealt with, and
    /// those moved.
    pub fn exchange(&mut self, number: u32, start: usize, at: usize, old: &[u64]) -> (usize, usize) {
        let count = self.pools.stay_on_node(start + at * PAGE, old.len());
        let Some((run, from)) = self.take_known(number, at, count) else { return (1, 0) };
        let pages = run.len as usize;
        let (page, transit) = (start + at * PAGE, self.transit(number));
        let out = self.pools.move_out(page, Span::new(transit, transit + pages * PAGE)) / PAGE;
        // SAFETY: both ranges are the library's own and present: the pages just moved out, and slots that are held.
        unsafe { core::ptr::copy_nonoverlapping(transit as *const u8, from as *mut u8, out * PAGE) };
        let mut done = 0;
        while done < out {
            let to = Span::new(page + done * PAGE, page + out * PAGE);
            let (moved, errno) = self.pools.shift(from + done * PAGE, to, Then::Wake);
            done += moved / PAGE;
            if errno.is_some_and(|errno| errno != Errno::EAGAIN || moved == 0) {
                break;
            }
        }
        for lost in done..out {
            self.pools.bring_back(page_at(page + lost * PAGE), transit + lost * PAGE);
            // SAFETY: the slot is held and present; its page must be zero before it becomes free.
            unsafe { core::ptr::write_bytes((from + lost * PAGE) as *mut u8, 0, PAGE) };
        }
        self.settle(number, run, start, at, done);
        // These pages do not go to the pool: the kernel may hold references to what was the program's.
        if out > 0 {
            chunks::discard(Span::new(transit, transit + out * PAGE));
        }
        tally::frames(number, |counts| &counts.remapped_pages, done);
        // A page that cannot be moved out (shared, pinned, locked, read-only) is left where it is.
        (out.max(1), done)
    }

    fn transit(&self, number: u32) -> usize {
        let pinned = self.placers.get(number as usize).and_then(Option::as_ref).is_some_and(|placer| placer.pinned);
        self.pools.tools.transit + if pinned { TRANSIT * PAGE } else { 0 }
    }

    /// Replaces a private mapping of a file with a copy whose pages lie on wanted frames. (Nobody may write to it
    /// meanwhile.)
    pub fn replace(&mut self, span: Span) -> Result<usize> {
        let number = areas::strategy_of(span.start).ok_or(Errno::EINVAL)?;
        let fresh = Fresh::map(span.len())?.into_room();
        let whole = fresh.span();
        let pinned = self.placers.get(number as usize).and_then(Option::as_ref).is_some_and(|placer| placer.pinned);
        let filled = registrable::prepare(self.pools.tools.uffd, whole, pinned)
            .and_then(|()| self.fill_copy(number, span, whole.start));
        let count = filled?;
        // SAFETY: all that lay there has been copied, to the last page; nobody writes to it meanwhile.
        unsafe { fresh.take_the_place_of(span.start) }?;
        self.pools.tools.uffd.register(span)?;
        tally::frames(number, |counts| &counts.copied_pages, count);
        tally::frames(number, |counts| &counts.remapped_pages, count);
        Ok(count)
    }

    /// Copies `span` to `fresh`, page by page; EBUSY when a page cannot be placed at all.
    fn fill_copy(&mut self, number: u32, span: Span, fresh: usize) -> Result<usize> {
        let count = span.len() / PAGE;
        for page in 0..count {
            let addr = span.start + page * PAGE;
            self.ask(number, addr, 0, 1);
            self.pools.ask_node(addr, sys::getpid());
            let (run, from) = self.take_known(number, 0, 1).ok_or(Errno::ENOMEM)?;
            // SAFETY: the source is readable memory of the program, not registered by anybody; the target is a held
            // slot.
            unsafe { core::ptr::copy_nonoverlapping(addr as *const u8, from as *mut u8, PAGE) };
            let (moved, errno) = self.pools.shift(from, page_at(fresh + page * PAGE), Then::Wait);
            if moved == 0 {
                // SAFETY: the slot is held and present; its page must be zero before it becomes free.
                unsafe { core::ptr::write_bytes(from as *mut u8, 0, PAGE) };
            }
            self.settle(number, run, addr, 0, moved / PAGE);
            if moved == 0 {
                return Err(errno.unwrap_or(Errno::EBUSY));
            }
        }
        Ok(count)
    }
}
