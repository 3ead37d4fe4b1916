//! A chunk's slots, packed.

use super::NIL;

/// Slots of a chunk: 2 MiB of 4 KiB pages.
pub const CHUNK_SLOTS: usize = 512;
const WORDS: usize = CHUNK_SLOTS / 64;

const FRAME_BITS: u32 = 40;
const STATE_SHIFT: u32 = 56;
const FRAME_MASK: u64 = (1 << FRAME_BITS) - 1;

/// State of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A caller works on it.
    Held,
    /// It has no page.
    Empty,
    /// Its page may be taken.
    Free,
}

/// Numbers of slots by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Slots with a page that may be taken.
    pub free: u32,
    /// Slots without a page.
    pub empty: u32,
    /// Slots in use by a caller.
    pub held: u32,
}

impl Counts {
    pub(super) fn of_mut(&mut self, state: State) -> &mut u32 {
        match state {
            State::Free => &mut self.free,
            State::Empty => &mut self.empty,
            State::Held => &mut self.held,
        }
    }
}

/// A slot: 40 bits of frame number (0: none), 16 of colour, 2 of state, and its two neighbours in its list.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Slot {
    word: u64,
    pub next: u32,
    pub prev: u32,
}

impl Slot {
    const HELD: Slot = Slot { word: 0, next: NIL, prev: NIL };

    #[inline]
    pub fn state(&self) -> State {
        match self.word >> STATE_SHIFT {
            0 => State::Held,
            1 => State::Empty,
            _ => State::Free,
        }
    }

    #[inline]
    pub fn frame(&self) -> Option<u64> {
        let frame = self.word & FRAME_MASK;
        if frame == 0 { None } else { Some(frame) }
    }

    #[inline]
    pub fn colour(&self) -> u32 {
        (self.word >> FRAME_BITS) as u32 & 0xffff
    }

    /// Makes the slot free, with this frame. (The number of colours is at most 2^16, and frame numbers are below 2^40.)
    pub fn set_page(&mut self, frame: u64, colour: u32) {
        self.word = (frame & FRAME_MASK) | u64::from(colour & 0xffff) << FRAME_BITS | 2 << STATE_SHIFT;
    }

    pub fn set_empty(&mut self) {
        self.word = 1 << STATE_SHIFT;
    }

    /// Makes the slot held; the frame stays known.
    pub fn set_held(&mut self) {
        self.word &= (1 << STATE_SHIFT) - 1;
    }
}

/// The bookkeeping of one chunk. Zeroed memory is a valid (meaningless) value.
#[repr(C)]
pub struct Chunk {
    address: usize,
    counts: Counts,
    reserved: u32,
    free: [u64; WORDS],
    empty: [u64; WORDS],
    slots: [Slot; CHUNK_SLOTS],
}

/// Bit `index` (modulo 512).
#[inline]
pub(super) fn bit(bits: &[u64; WORDS], index: u32) -> bool {
    bits[(index as usize / 64) % WORDS] >> (index % 64) & 1 != 0
}

fn set_bit(bits: &mut [u64; WORDS], index: u32, value: bool) {
    let word = &mut bits[(index as usize / 64) % WORDS];
    *word = *word & !(1 << (index % 64)) | u64::from(value) << (index % 64);
}

impl Chunk {
    /// A chunk to be given to [`super::Stock::add_chunk`].
    pub const fn new() -> Chunk {
        Chunk {
            address: 0,
            counts: Counts { free: 0, empty: 0, held: 0 },
            reserved: 0,
            free: [0; WORDS],
            empty: [0; WORDS],
            slots: [Slot::HELD; CHUNK_SLOTS],
        }
    }

    pub(super) fn reset(&mut self, address: usize) {
        self.address = address;
        self.counts = Counts { free: 0, empty: 0, held: CHUNK_SLOTS as u32 };
        self.reserved = 0;
        (self.free, self.empty) = ([0; WORDS], [0; WORDS]);
        self.slots.fill(Slot::HELD);
    }

    pub(super) fn address(&self) -> usize {
        self.address
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn free_bits(&self) -> [u64; WORDS] {
        self.free
    }

    pub(super) fn empty_bits(&self) -> &[u64; WORDS] {
        &self.empty
    }

    #[inline]
    pub(super) fn slot(&self, index: u32) -> &Slot {
        &self.slots[index as usize % CHUNK_SLOTS]
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize % CHUNK_SLOTS]
    }

    /// Counts a slot's change of state and marks it in the bitmaps.
    #[inline]
    pub(super) fn note(&mut self, index: u32, from: State, to: State) {
        *self.counts.of_mut(from) -= 1;
        *self.counts.of_mut(to) += 1;
        set_bit(&mut self.free, index, to == State::Free);
        set_bit(&mut self.empty, index, to == State::Empty);
    }

    /// Makes all free slots held, without regard for their lists.
    pub(super) fn forget_free(&mut self) {
        for index in 0..CHUNK_SLOTS as u32 {
            if bit(&self.free, index) {
                self.slot_mut(index).set_held();
            }
        }
        self.counts.held += self.counts.free;
        self.counts.free = 0;
        self.free = [0; WORDS];
    }
}

impl Default for Chunk {
    fn default() -> Chunk {
        Chunk::new()
    }
}
