//! Chunks on offer, for pages that come back: who claims which slots.
//!
//! Threads of the program claim slots with one atomic word a chunk, so that nobody waits for anybody; the engine puts chunks
//! on offer and takes in what came.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use pagelab_frames::SlotId;

use crate::arch::{PAGE, PMD};
use crate::sys::{Errno, Result};

use super::engine::Engine;
use super::sorting::Sorting;
use super::store::{self, SLOTS};

/// Chunks on offer at a time, at most.
pub const OFFERS: usize = 8;

/// A chunk on offer.
pub struct Offer {
    /// Its number among all places plus one, in the upper half; slots claimed, in the lower. 0: nothing is on offer.
    word: AtomicU64,
    /// Claimed slots whose pages are there.
    done: AtomicU32,
    /// Of these, the first so many are in the stock. (Written under the engine's lock, like what follows.)
    sorted: AtomicU32,
    /// Somebody is sorting it.
    busy: AtomicBool,
    /// Its number in the stock of its pool, and the pool.
    number: AtomicU32,
    pool: AtomicU32,
    /// Counts the offers made.
    serial: AtomicU32,
    /// Which strategy's page each slot got, and where it was.
    whose: [AtomicU8; SLOTS],
    from: [AtomicUsize; SLOTS],
}

static TABLE: [Offer; OFFERS] = [const { Offer::none() }; OFFERS];
static SERIAL: AtomicU32 = AtomicU32::new(0);

fn address(word: u64) -> usize {
    store::BASE + ((word >> 32) as usize - 1) * PMD
}

fn claimed(word: u64) -> usize {
    word as u32 as usize
}

/// Slots claimed for pages that come back: side by side in one chunk.
#[derive(Clone, Copy)]
pub struct Part {
    offer: &'static Offer,
    first: usize,
    /// How many.
    pub count: usize,
    /// Where the first one is.
    address: usize,
}

impl Part {
    /// Its slots.
    pub fn slots(self) -> core::ops::Range<usize> {
        self.first..self.first + self.count
    }

    /// Where the page of `slot` is.
    pub fn page(self, slot: usize) -> usize {
        self.address + (slot - self.first) * PAGE
    }

    /// Notes that `slot` gets a page of strategy `number`, which was at `from`.
    pub fn note(self, slot: usize, number: u8, from: usize) {
        if let (Some(whose), Some(place)) = (self.offer.whose.get(slot), self.offer.from.get(slot)) {
            whose.store(number, Ordering::Relaxed);
            place.store(from, Ordering::Relaxed);
        }
    }

    /// Where the page of `slot` was; 0: there is none.
    pub fn from(self, slot: usize) -> usize {
        self.offer.from.get(slot).map_or(0, |from| from.load(Ordering::Relaxed))
    }

    /// All pages that will come are there.
    pub fn is_done(self) {
        self.offer.done.fetch_add(self.count as u32, Ordering::Release);
    }
}

impl Offer {
    const fn none() -> Offer {
        Offer {
            word: AtomicU64::new(0),
            done: AtomicU32::new(0),
            sorted: AtomicU32::new(0),
            busy: AtomicBool::new(false),
            number: AtomicU32::new(0),
            pool: AtomicU32::new(0),
            serial: AtomicU32::new(0),
            whose: [const { AtomicU8::new(0) }; SLOTS],
            from: [const { AtomicUsize::new(0) }; SLOTS],
        }
    }

    fn withdraw(&self) {
        self.word.store(0, Ordering::Release);
        self.done.store(0, Ordering::Relaxed);
        self.sorted.store(0, Ordering::Relaxed);
        self.busy.store(false, Ordering::Relaxed);
    }

    /// Its number in the stock of its pool, and the pool.
    pub fn chunk(&self) -> (u32, usize) {
        (self.number.load(Ordering::Relaxed), self.pool.load(Ordering::Relaxed) as usize)
    }

    /// Number of the strategy whose page `slot` got.
    pub fn whose(&self, slot: usize) -> u32 {
        self.whose.get(slot).map_or(0, |whose| u32::from(whose.load(Ordering::Relaxed)))
    }

    fn is_of(&self, pool: usize) -> bool {
        self.word.load(Ordering::Acquire) != 0 && self.pool.load(Ordering::Relaxed) as usize == pool
    }

    fn room(&self) -> usize {
        let word = self.word.load(Ordering::Relaxed);
        if word == 0 { 0 } else { SLOTS - claimed(word).min(SLOTS) }
    }

    /// The slots, from one to before another, that can be sorted.
    fn ready(&self) -> Option<(usize, usize)> {
        if self.busy.load(Ordering::Acquire) {
            return None;
        }
        let done = self.done.load(Ordering::Acquire) as usize;
        let word = self.word.load(Ordering::Acquire);
        let sorted = self.sorted.load(Ordering::Relaxed) as usize;
        // Unless all that was claimed is done, somebody is between claiming and giving: the next time.
        (word != 0 && done == claimed(word) && sorted < done).then_some((sorted, done))
    }

    /// Has the caller sort what is ready: those slots, and where the first one is.
    fn begin(&'static self, first: usize, end: usize) -> Sorting {
        self.busy.store(true, Ordering::Relaxed);
        let address = address(self.word.load(Ordering::Relaxed)) + first * PAGE;
        Sorting { offer: self, first, end, address }
    }

    /// The slots before `end` are sorted.
    pub fn ends(&self, end: usize) {
        self.sorted.store(end as u32, Ordering::Relaxed);
        self.busy.store(false, Ordering::Release);
        if end == SLOTS {
            self.withdraw();
        }
    }

    /// Claims slots for up to `pages` pages of pool `pool`.
    fn claim(&'static self, pool: usize, pages: usize) -> Option<Part> {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let first = claimed(word);
            let count = pages.min(SLOTS - first.min(SLOTS));
            if word == 0 || count == 0 || self.pool.load(Ordering::Relaxed) as usize != pool {
                return None;
            }
            match self.word.compare_exchange_weak(word, word + count as u64, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Part { offer: self, first, count, address: address(word) + first * PAGE }),
                Err(now) => word = now,
            }
        }
    }
}

/// In a forked child: nothing is on offer.
pub fn forget() {
    TABLE.iter().for_each(Offer::withdraw);
}

/// What can be sorted (of pool `pool` alone), the latest offer first: then the earliest pages will be in front.
pub fn begin(pool: Option<usize>) -> Option<Sorting> {
    let mine = TABLE.iter().filter(|offer| pool.is_none_or(|pool| offer.is_of(pool)));
    let ready = mine.filter_map(|offer| Some((offer, offer.ready()?)));
    let (offer, (first, end)) = ready.max_by_key(|(offer, _)| offer.serial.load(Ordering::Relaxed))?;
    Some(offer.begin(first, end))
}

/// Slots that pages of pool `pool` can come back to.
pub fn room(pool: usize) -> usize {
    TABLE.iter().filter(|offer| offer.is_of(pool)).map(Offer::room).sum()
}

/// Claims slots for up to `pages` pages.
pub fn claim(pool: usize, pages: usize) -> ([Option<Part>; OFFERS], usize) {
    let (mut parts, mut left) = ([None; OFFERS], pages);
    for (place, offer) in parts.iter_mut().zip(&TABLE) {
        if left == 0 {
            break;
        }
        *place = offer.claim(pool, left);
        left -= place.map_or(0, |part| part.count);
    }
    (parts, pages - left)
}

impl Engine {
    /// Puts empty chunks on offer, for as many pages as the pools may like to have back.
    pub fn keep_offers(&mut self) {
        for at in 0..self.pools().len() {
            let Some(wanted) = self.pool(at).map(|pool| pool.welcome()) else { continue };
            while room(at) < wanted && self.offer(at).is_ok() {}
        }
    }

    /// Puts an empty chunk of pool `at` on offer: one that has become empty, or a new one.
    fn offer(&mut self, at: usize) -> Result<()> {
        let free = |offer: &&Offer| offer.word.load(Ordering::Acquire) == 0;
        let offer = TABLE.iter().find(free).ok_or(Errno::ENOSPC)?;
        if self.pool(at).is_none_or(|pool| pool.is_full()) {
            self.make_room(at);
        }
        if self.pool(at).is_none_or(|pool| pool.is_full()) {
            return Err(Errno::ENOMEM);
        }
        let (number, address) = match self.empty_chunk(at) {
            Some(chunk) => chunk,
            None => self.new_chunk(at)?,
        };
        offer.withdraw();
        offer.number.store(number, Ordering::Relaxed);
        offer.pool.store(at as u32, Ordering::Relaxed);
        offer.serial.store(SERIAL.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        offer.from.iter().for_each(|from| from.store(0, Ordering::Relaxed));
        let place = ((address - store::BASE) / PMD + 1) as u64;
        offer.word.store(place << 32, Ordering::Release);
        Ok(())
    }

    /// A chunk of pool `at` whose pages all went to the program: its slots are held now.
    fn empty_chunk(&mut self, at: usize) -> Option<(u32, usize)> {
        let stock = &mut self.pool(at)?.stock;
        let number = stock.spare_chunk(0, 0)?;
        let address = stock.chunk_address(number)?;
        (0..SLOTS as u32).for_each(|index| {
            stock.take_this(SlotId::new(number, index));
        });
        Some((number, address))
    }

    fn new_chunk(&mut self, at: usize) -> Result<(u32, usize)> {
        let order = self.order(at).ok_or(Errno::ENOMEM)?;
        let mapped = store::map_empty(self.tools.uffd, order.address, order.pinned);
        match mapped.and_then(|()| self.adopt(order)) {
            Ok(number) => Ok((number, order.address)),
            Err(errno) => {
                self.cancel(order, errno);
                Err(errno)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(offer: &Offer, pool: u32) {
        offer.pool.store(pool, Ordering::Relaxed);
        offer.word.store(1 << 32, Ordering::Release);
    }

    #[test]
    fn slots_are_claimed_once_and_sorted_once() {
        static OFFER: Offer = Offer::none();
        open(&OFFER, 3);
        let mut claims = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut mine = Vec::new();
                        while let Some(part) = OFFER.claim(3, 1 + (mine.len() * 7 + thread) % 5) {
                            assert_eq!(part.page(part.first), store::BASE + part.first * PAGE);
                            mine.extend(part.slots());
                            part.is_done();
                        }
                        mine
                    })
                })
                .collect();
            let mut sorted = 0;
            while sorted < SLOTS {
                // What is not done yet is never ready.
                let Some((first, end)) = OFFER.ready() else { continue };
                assert_eq!(first, sorted);
                assert!(end > first && end <= SLOTS);
                let sorting = OFFER.begin(first, end);
                assert_eq!((sorting.address, OFFER.ready()), (store::BASE + first * PAGE, None));
                OFFER.ends(end);
                sorted = end;
            }
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        claims.sort_unstable();
        assert_eq!(claims, (0..SLOTS).collect::<Vec<_>>());
        assert_eq!((OFFER.room(), OFFER.claim(3, 1).is_none()), (0, true), "it is withdrawn when it is sorted");
    }

    #[test]
    fn claims_wait_for_those_before_them() {
        static OFFER: Offer = Offer::none();
        assert!(OFFER.claim(0, 1).is_none());
        open(&OFFER, 0);
        assert!(OFFER.claim(1, 1).is_none(), "of another pool");
        let (first, second) = (OFFER.claim(0, 5).unwrap(), OFFER.claim(0, 500).unwrap());
        assert_eq!((first.slots(), second.slots(), OFFER.room()), (0..5, 5..505, 7));
        assert_eq!(OFFER.claim(0, 500).map(|part| part.count), Some(7));
        second.is_done();
        assert_eq!(OFFER.ready(), None);
        first.is_done();
        assert_eq!(OFFER.ready(), None, "seven are claimed, and not there");
    }
}
