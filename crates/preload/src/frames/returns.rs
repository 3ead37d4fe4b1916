//! Pages that the program gives up come back to the pool, instead of going to the kernel and being populated again.
//!
//! The refiller offers an empty chunk; threads of the program, just before they unmap or discard governed memory, move
//! its pages there, which takes less than freeing them; the refiller zeroes them and looks up their frames anew. Slots
//! are claimed with one atomic word, so that nobody waits for anybody.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use pagelab_frames::{End, Run, SlotId};

use crate::arch::{PAGE, PMD};
use crate::intervals::Span;
use crate::sys::{Errno, Result};

use super::engine::Engine;
use super::pools::Pool;
use super::store::{self, SLOTS};
use super::{areas, gate, place, tally};

/// The chunk on offer: its number among all places plus one, in the upper half; slots claimed, in the lower. 0: none.
static OFFER: AtomicU64 = AtomicU64::new(0);
/// Claimed slots of it whose pages are there.
static DONE: AtomicU32 = AtomicU32::new(0);
/// Which strategy's page each slot got, as its number.
static WHOSE: [AtomicU8; SLOTS] = [const { AtomicU8::new(0) }; SLOTS];
/// A chunk that was on offer and is being emptied: as [`OFFER`].
static CLOSED: AtomicU64 = AtomicU64::new(0);
/// The chunk's number in the stock of its pool, and the pool.
static NUMBER: AtomicU32 = AtomicU32::new(0);
static POOL: AtomicU32 = AtomicU32::new(0);

fn address(offer: u64) -> usize {
    store::BASE + ((offer >> 32) as usize - 1) * PMD
}

fn claimed(offer: u64) -> usize {
    offer as u32 as usize
}

/// In a forked child: nothing is on offer.
pub fn forget() {
    OFFER.store(0, Ordering::Relaxed);
    CLOSED.store(0, Ordering::Relaxed);
    DONE.store(0, Ordering::Relaxed);
}

/// Pages taken out of the program's memory, which may still be put back.
pub struct Taken {
    from: Span,
    slots: usize,
}

/// Claims slots for up to `pages` pages: the first one's address, and how many.
fn claim(pages: usize, number: u32) -> Option<(usize, usize)> {
    let mut offer = OFFER.load(Ordering::Acquire);
    loop {
        let from = claimed(offer);
        let count = pages.min(SLOTS - from.min(SLOTS));
        if offer == 0 || count == 0 {
            return None;
        }
        match OFFER.compare_exchange_weak(offer, offer + count as u64, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                WHOSE.iter().skip(from).take(count).for_each(|who| who.store(number as u8, Ordering::Relaxed));
                return Some((address(offer) + from * PAGE, count));
            }
            Err(now) => offer = now,
        }
    }
}

/// The program is about to give `span` back: takes what fits of its beginning into the pool.
pub fn take(span: Span) -> Option<Taken> {
    let number = areas::strategy_of(span.start).filter(|_| place::SHADOW.get(span.start) != 0)?;
    let (slots, count) = claim(span.len() / PAGE, number)?;
    let from = Span::new(span.start, span.start + count * PAGE);
    // SAFETY: the program gives the contents up; the slots are empty and ours alone.
    unsafe { gate::uffd().shift_present(from.start, Span::new(slots, slots + from.len())) };
    // Unless it is placed there again, nothing of ours is there.
    place::SHADOW.set(span.start, 0);
    Some(Taken { from, slots })
}

impl Taken {
    /// Whether the memory is `gone`: if the kernel refused to take it, the program has it as it was.
    pub fn settle(self, gone: bool) {
        if !gone {
            // SAFETY: the very pages that were taken from there.
            unsafe { gate::uffd().shift_present(self.slots, self.from) };
        }
        DONE.fetch_add((self.from.len() / PAGE) as u32, Ordering::Release);
    }
}

impl Engine {
    /// Offers an empty chunk of pool `at`, if there is none on offer.
    pub fn offer(&mut self, at: usize) -> Result<()> {
        if OFFER.load(Ordering::Acquire) != 0 || CLOSED.load(Ordering::Acquire) != 0 {
            return Err(Errno::EBUSY);
        }
        // Pages of locked memory cannot be moved to where they would not be, and small processes stay small.
        let suits = |pool: &mut Pool| !pool.pinned && pool.placed >= SLOTS as u64;
        if !self.pool(at).is_some_and(suits) {
            return Err(Errno::EINVAL);
        }
        let order = self.order(at).ok_or(Errno::ENOMEM)?;
        let mapped = store::map_empty(self.tools.uffd, order.address, order.pinned);
        match mapped.and_then(|()| self.adopt(order)) {
            Ok(number) => {
                NUMBER.store(number, Ordering::Relaxed);
                POOL.store(at as u32, Ordering::Relaxed);
                DONE.store(0, Ordering::Relaxed);
                let place = ((order.address - store::BASE) / PMD + 1) as u64;
                OFFER.store(place << 32, Ordering::Release);
                Ok(())
            }
            Err(errno) => {
                self.cancel(order, errno);
                Err(errno)
            }
        }
    }

    /// Takes in what came back for pool `at`, and offers another chunk. True: something did.
    pub fn collect(&mut self, at: usize) -> bool {
        if POOL.load(Ordering::Relaxed) as usize != at {
            return false;
        }
        let mut closed = CLOSED.load(Ordering::Acquire);
        if closed == 0 {
            let offer = OFFER.load(Ordering::Acquire);
            if claimed(offer) == 0 || OFFER.compare_exchange(offer, 0, Ordering::AcqRel, Ordering::Acquire).is_err()
            {
                return false;
            }
            closed = offer;
            CLOSED.store(closed, Ordering::Release);
        }
        // Somebody is between claiming and giving: the next time.
        if DONE.load(Ordering::Acquire) as usize != claimed(closed) {
            return false;
        }
        self.frames.fill(0);
        let found = self.frames.get_mut(..claimed(closed)).is_some_and(|words| {
            self.tools.pagemap.read(address(closed), words).is_ok() && words.iter().any(|frame| *frame != 0)
        });
        for (slot, _) in self.frames.iter().enumerate().filter(|(_, frame)| **frame != 0) {
            let page = address(closed) + slot * PAGE;
            // SAFETY: a page of ours that is present: nobody waits for the handler here.
            unsafe { core::ptr::write_bytes(page as *mut u8, 0, PAGE) };
        }
        self.enter(at);
        DONE.store(0, Ordering::Relaxed);
        CLOSED.store(0, Ordering::Release);
        let _ = self.offer(at);
        found
    }

    /// The slots of the chunk that was on offer are free, or empty.
    fn enter(&mut self, at: usize) {
        let Some(Some(pool)) = self.pools.get_mut(at) else { return };
        let number = NUMBER.load(Ordering::Relaxed);
        for ((index, frame), whose) in (0..).zip(&self.frames).zip(&WHOSE) {
            let slot = SlotId::new(number, index);
            if *frame != 0 && pool.stock.add(slot, *frame, End::Front).is_ok() {
                tally::frames(u32::from(whose.load(Ordering::Relaxed)), |counts| &counts.harvested_pages, 1);
            } else {
                pool.stock.emptied(Run::one(slot));
            }
        }
    }
}
