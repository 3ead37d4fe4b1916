//! Pages that the program gives up come back to the pool, instead of going to the kernel and being populated again.
//!
//! The refiller puts empty chunks on offer; threads of the program, just before they unmap or discard governed memory, move
//! its pages there, which takes little more than freeing them. Slots are claimed with one atomic word a chunk, so that
//! nobody waits for anybody. The refiller (or the handler, if it needs one of these pages at once) zeroes them and looks up
//! their frames anew. They keep the order of their addresses: where the same memory is mapped again, a strategy by address
//! asks for their frames in just that order, and one system call moves many of them.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::arch::PAGE;
use crate::intervals::Span;
use crate::sys::Errno;

use super::engine::PLACERS;
use super::offers::{self, OFFERS, Part};
use super::{areas, gate, place, refiller};

/// Pages given up at a time of which is looked for those that are there: 256 MiB.
const MOST_LOOKED: usize = 1 << 16;
/// Pages that came back and are not sorted yet, for which the refiller is woken.
const NUDGE: u32 = 256;

/// So many bytes given up at a time make a process smaller.
const MUCH: usize = 8 << 20;

/// Pages that came back since the refiller was last woken for that.
static PENDING: AtomicU32 = AtomicU32::new(0);
/// Pool of each strategy, plus one.
static POOL_OF: [AtomicU8; PLACERS] = [const { AtomicU8::new(0) }; PLACERS];

/// Strategy `number` takes its pages from pool `pool`.
pub fn belongs(number: usize, pool: usize) {
    if let Some(place) = POOL_OF.get(number) {
        place.store(pool as u8 + 1, Ordering::Relaxed);
    }
}

/// In a forked child: nothing is on offer.
pub fn forget() {
    offers::forget();
    PENDING.store(0, Ordering::Relaxed);
}

/// Pages taken out of the program's memory, which may still be put back.
pub struct Taken {
    parts: [Option<Part>; OFFERS],
}

/// The program is about to give `span` back: takes pages of it into the pool, as far as there is room.
pub fn take(span: Span) -> Option<Taken> {
    let (number, within) = areas::around(span.start);
    let number = number?;
    let pool = usize::from(POOL_OF.get(number as usize)?.load(Ordering::Relaxed)).checked_sub(1)?;
    let end = span.end.min(within.end).min(span.start.saturating_add(MOST_LOOKED * PAGE));
    let looked = Span::new(span.start, end);
    let (room, mut pages) = (offers::room(pool), 0);
    place::SHADOW.runs(looked, &mut |run| {
        pages = room.min(pages + run.len() / PAGE);
        pages < room
    });
    if pages == 0 {
        // Where there is no room, the pool may hold more than it should when the program has so much less.
        if room == 0 && looked.len() >= MUCH {
            refiller::nudge();
        }
        return None;
    }
    let (parts, pages) = offers::claim(pool, pages);
    let taken = Taken { parts };
    let mut slots = taken.slots();
    let mut left = pages;
    place::SHADOW.runs(looked, &mut |run| {
        let run = Span::new(run.start, run.end.min(run.start + left * PAGE));
        left -= run.len() / PAGE;
        place::SHADOW.forget(run);
        take_run(run, number as u8, &mut slots) && left > 0
    });
    Some(taken)
}

/// Moves the pages of `run` to the next slots. False: this memory's pages cannot be moved.
fn take_run(run: Span, number: u8, slots: &mut impl Iterator<Item = (Part, usize)>) -> bool {
    let mut at = run.start;
    while at < run.end {
        // Slots that are side by side take pages that are.
        let Some((part, first)) = slots.next() else { return false };
        let most = (run.end - at) / PAGE;
        let mut count = 1;
        part.note(first, number, at);
        while count < most && part.slots().contains(&(first + count)) {
            let Some((_, slot)) = slots.next() else { break };
            part.note(slot, number, at + count * PAGE);
            count += 1;
        }
        let to = part.page(first);
        if !shift(at, Span::new(to, to + count * PAGE)) {
            return false;
        }
        at += count * PAGE;
    }
    true
}

/// Moves what is there of the pages from `from` on to `to`.
fn shift(from: usize, to: Span) -> bool {
    let mut done = 0;
    while done < to.len() {
        // SAFETY: the program gives the contents up, and the slots are empty and ours alone; or the other way round.
        let (moved, errno) = unsafe { gate::uffd().shift_present(from + done, Span::new(to.start + done, to.end)) };
        done += moved;
        match errno {
            None => return true,
            Some(Errno::EAGAIN) if moved > 0 => {}
            Some(_) => return false,
        }
    }
    true
}

impl Taken {
    fn slots(&self) -> impl Iterator<Item = (Part, usize)> + use<> {
        self.parts.into_iter().flatten().flat_map(|part| part.slots().map(move |slot| (part, slot)))
    }

    /// Whether the memory is `gone`: if the kernel refused to take it, the program has it as it was. (It counts as not
    /// placed then.)
    pub fn settle(self, gone: bool) {
        if !gone {
            // From nowhere: more slots were claimed than pages were there.
            for (part, slot) in self.slots().filter(|(part, slot)| part.from(*slot) != 0) {
                let (page, from) = (part.page(slot), part.from(slot));
                shift(page, Span::new(from, from + PAGE));
            }
        }
        let mut pages = 0;
        for part in self.parts.into_iter().flatten() {
            pages += part.count as u32;
            part.is_done();
        }
        if PENDING.fetch_add(pages, Ordering::Relaxed) + pages >= NUDGE {
            PENDING.store(0, Ordering::Relaxed);
            refiller::nudge();
        }
    }
}
