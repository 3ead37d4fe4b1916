//! The stock of free pages, sorted by colour.
//!
//! Pages lie in **slots**: 4096 bytes of pagelab's own address space, 512 to a **chunk** (2 MiB, contiguous). A slot is
//! *free* (its page's frame number is known, and the page may be handed out), *held* (a caller works on it: populates
//! it, moves its page out or in, zeroes it) or *empty* (its page went to the program; a page that comes back can be
//! moved in here). Slots change like this:
//!
//! ```text
//! add_chunk → held ── add, give_back ──→ free ── take… ──→ held ── emptied ──→ empty ── take_empty_run ──→ held
//! ```
//!
//! Free slots are linked in one doubly linked list for each colour. The links are stored in the slots, so every change
//! takes constant time. The neighbours of a slot are found by its number, which makes runs cheap: a chunk cut from one
//! huge page holds consecutive frames. The caller supplies the memory, a little more than 8 KiB for each chunk it adds.
//! So small processes stay small, and large ones need nothing set aside. The owner of a stock serialises access to it.

mod chunk;
mod index;
mod lists;
mod marks;
mod runs;
#[cfg(test)]
mod tests;
mod validate;

pub use chunk::{CHUNK_SLOTS, Chunk, Counts, State};
pub use lists::List;

use crate::colour::Colours;
use chunk::Slot;
use index::Index;
use lists::NIL;

/// Most chunks of one stock (64 GiB).
pub const MOST_CHUNKS: usize = 1 << 15;
/// Limit of frame numbers: all are below this (4 PiB of memory).
pub const FRAME_LIMIT: u64 = 1 << 40;

/// A slot by number: 512 × its chunk's number + its index in the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

impl SlotId {
    /// Slot `index` (modulo 512) of chunk `chunk`.
    pub const fn new(chunk: u32, index: u32) -> SlotId {
        SlotId(chunk * CHUNK_SLOTS as u32 + index % CHUNK_SLOTS as u32)
    }

    /// Number of its chunk.
    pub const fn chunk(self) -> u32 {
        self.0 / CHUNK_SLOTS as u32
    }

    /// Index in its chunk, `0..512`.
    pub const fn index(self) -> u32 {
        self.0 % CHUNK_SLOTS as u32
    }
}

/// Neighbouring slots of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first one.
    pub slot: SlotId,
    /// Their number.
    pub len: u32,
}

impl Run {
    /// A run of one slot.
    pub const fn one(slot: SlotId) -> Run {
        Run { slot, len: 1 }
    }

    /// Its slots in order.
    pub fn slots(self) -> impl Iterator<Item = SlotId> {
        (0..self.len).map(move |i| SlotId(self.slot.0 + i))
    }
}

/// The end of its colour's list at which a page is put. Single pages are taken from the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Handed out soon: pages that came back, warm in the caches.
    Front,
    /// Handed out late: fresh chunks, whose long runs should stay whole.
    Back,
}

/// Why a change was refused; then nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No room in the chunk table.
    Full,
    /// There is no such slot or chunk, or it is in another state.
    State,
    /// The frame number is 0 (pagemap's answer without the right to see it) or beyond [`FRAME_LIMIT`].
    Frame,
    /// Fewer lists than colours.
    Lists,
}

/// The stock. `'m` is the lifetime of the memory that the caller supplied.
pub struct Stock<'m> {
    colours: Colours,
    chunks: &'m mut [Option<&'m mut Chunk>],
    lists: &'m mut [List],
    empties: List,
    index: Index<'m>,
    /// Chunk numbers from this one on have never been used.
    used: u32,
    totals: Counts,
    chunk_count: u32,
    /// Requests to all lists.
    asked: u32,
    /// Colour at which the next search for any page begins.
    cursor: u32,
}

impl<'m> Stock<'m> {
    /// An empty stock. `chunks` (all `None`, at most [`MOST_CHUNKS`] are used) bounds the number of its chunks; `lists`
    /// needs one entry for each colour, with any contents.
    pub fn new(
        colours: Colours,
        chunks: &'m mut [Option<&'m mut Chunk>],
        lists: &'m mut [List],
    ) -> Result<Stock<'m>, Refused> {
        let lists = lists.get_mut(..colours.count() as usize).ok_or(Refused::Lists)?;
        lists.fill(List::EMPTY);
        let room = chunks.len().min(MOST_CHUNKS);
        let chunks = chunks.get_mut(..room).ok_or(Refused::Full)?;
        Ok(Stock {
            colours,
            chunks,
            lists,
            empties: List::EMPTY,
            index: Index::none(),
            used: 0,
            totals: Counts::default(),
            chunk_count: 0,
            asked: 0,
            cursor: 0,
        })
    }

    /// Adds a chunk, with any contents (zeroed memory is valid); its 512 slots begin as held. Returns its number.
    ///
    /// `address` is where the chunk's pages lie, in bytes.
    pub fn add_chunk(&mut self, chunk: &'m mut Chunk, address: usize) -> Result<u32, Refused> {
        let vacant = |chunks: &[Option<&mut Chunk>]| chunks.iter().position(Option::is_none);
        let number = if self.chunk_count == self.used {
            self.used as usize
        } else {
            vacant(self.chunks).ok_or(Refused::Full)?
        };
        let place = self.chunks.get_mut(number).ok_or(Refused::Full)?;
        chunk.reset(address);
        *place = Some(chunk);
        self.chunk_count += 1;
        self.totals.held += CHUNK_SLOTS as u32;
        self.used = self.used.max(number as u32 + 1);
        Ok(number as u32)
    }

    /// Removes a chunk without held slots, with its free pages; returns its memory and the start of its pages.
    pub fn remove_chunk(&mut self, number: u32) -> Result<(&'m mut Chunk, usize), Refused> {
        let counts = self.chunk_counts(number).ok_or(Refused::State)?;
        if counts.held != 0 {
            return Err(Refused::State);
        }
        for index in 0..CHUNK_SLOTS as u32 {
            self.hold(SlotId::new(number, index));
        }
        let chunk = self.chunks.get_mut(number as usize).and_then(Option::take).ok_or(Refused::State)?;
        self.chunk_count -= 1;
        self.totals.held -= CHUNK_SLOTS as u32;
        let address = chunk.address();
        Ok((chunk, address))
    }

    /// Makes a held slot free: it holds frame `pfn`, zeroed.
    pub fn add(&mut self, slot: SlotId, pfn: u64, end: End) -> Result<(), Refused> {
        if pfn == 0 || pfn >= FRAME_LIMIT {
            return Err(Refused::Frame);
        }
        let colour = self.colours.of(pfn);
        let entry = self.slot_mut(slot).filter(|entry| entry.state() == State::Held).ok_or(Refused::State)?;
        entry.set_page(pfn, colour);
        self.link(slot, end);
        Ok(())
    }

    /// Makes held slots free again whose pages were not touched since they were taken. Slots in another state, or that
    /// never had a page, stay as they are.
    pub fn give_back(&mut self, run: Run) {
        for slot in run.slots() {
            if let Some(pfn) = self.frame(slot) {
                let _ = self.add(slot, pfn, End::Front);
            }
        }
    }

    /// Records that held slots have lost their pages: these went to the program, or were not available.
    pub fn emptied(&mut self, run: Run) {
        for slot in run.slots() {
            let Some(entry) = self.slot_mut(slot).filter(|entry| entry.state() == State::Held) else { continue };
            entry.set_empty();
            self.link(slot, End::Front);
        }
    }

    /// Records that the page in a free slot now has another frame (the kernel moved it). Refused if the slot is not
    /// free.
    pub fn refresh(&mut self, slot: SlotId, pfn: u64) -> Result<(), Refused> {
        if self.state(slot) != Some(State::Free) {
            return Err(Refused::State);
        }
        if self.frame(slot) == Some(pfn) {
            return Ok(());
        }
        if pfn == 0 || pfn >= FRAME_LIMIT {
            return Err(Refused::Frame);
        }
        self.hold(slot);
        self.add(slot, pfn, End::Back)
    }

    /// Sorts all pages anew by another colour function. On refusal nothing has changed.
    pub fn recolour(&mut self, colours: Colours, lists: &'m mut [List]) -> Result<&'m mut [List], Refused> {
        let lists = lists.get_mut(..colours.count() as usize).ok_or(Refused::Lists)?;
        lists.fill(List::EMPTY);
        let old = core::mem::replace(&mut self.lists, lists);
        (self.colours, self.cursor, self.asked, self.totals.free) = (colours, 0, 0, 0);
        self.index.clear();
        for number in 0..self.used {
            let Some(chunk) = self.chunks.get_mut(number as usize).and_then(Option::as_deref_mut) else { continue };
            let free = chunk.free_bits();
            chunk.forget_free();
            self.totals.held += free.iter().map(|word| word.count_ones()).sum::<u32>();
            for index in (0..CHUNK_SLOTS as u32).filter(|index| chunk::bit(&free, *index)) {
                let slot = SlotId::new(number, index);
                if let Some(pfn) = self.frame(slot) {
                    let _ = self.add(slot, pfn, End::Back);
                }
            }
        }
        Ok(old)
    }

    /// The colour function.
    pub fn colours(&self) -> &Colours {
        &self.colours
    }

    /// Free, held and empty slots of all chunks.
    pub fn totals(&self) -> Counts {
        self.totals
    }

    /// Free pages of one colour.
    pub fn count(&self, colour: u32) -> u32 {
        self.lists.get(colour as usize).map_or(0, |list| list.count)
    }

    /// Number of chunks.
    pub fn chunk_count(&self) -> u32 {
        self.chunk_count
    }

    /// One past the highest chunk number that was ever used: the end of a walk through all chunks.
    pub fn chunk_limit(&self) -> u32 {
        self.used
    }

    /// Free, held and empty slots of chunk `number`; `None` where there is no chunk.
    pub fn chunk_counts(&self, number: u32) -> Option<Counts> {
        Some(self.chunk(number)?.counts())
    }

    /// The start of the pages of chunk `number`.
    pub fn chunk_address(&self, number: u32) -> Option<usize> {
        Some(self.chunk(number)?.address())
    }

    /// The address of the page of `slot`, in bytes.
    pub fn address(&self, slot: SlotId) -> Option<usize> {
        Some(self.chunk_address(slot.chunk())? + slot.index() as usize * 4096)
    }

    /// The state of `slot`; `None` if there is no such slot.
    pub fn state(&self, slot: SlotId) -> Option<State> {
        Some(self.slot(slot)?.state())
    }

    /// The frame in a free slot, or the one that was last in a held slot. `None` for empty slots, and for held slots
    /// that had no page since they were last empty.
    #[inline]
    pub fn frame(&self, slot: SlotId) -> Option<u64> {
        self.slot(slot)?.frame()
    }

    fn chunk(&self, number: u32) -> Option<&Chunk> {
        self.chunks.get(number as usize)?.as_deref()
    }

    #[inline]
    fn slot(&self, slot: SlotId) -> Option<&Slot> {
        Some(self.chunk(slot.chunk())?.slot(slot.index()))
    }

    #[inline]
    fn slot_mut(&mut self, slot: SlotId) -> Option<&mut Slot> {
        Some(self.chunks.get_mut(slot.chunk() as usize)?.as_deref_mut()?.slot_mut(slot.index()))
    }
}
