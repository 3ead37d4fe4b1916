//! The pages below the top, ordered by their last use.
//!
//! A page's *stamp* is its slot in a window of slots that fills up and is then compacted. Its distance in the list of
//! its colour is the number of live slots of that colour above it. A page has one stamp for all colours, so one window
//! serves all colour counts of a chain. Within a block of 512 slots, the slots of the same colour are found by
//! comparing bit planes of the codes. Over blocks, each class of colour has prefix counts in groups of 32, which a
//! removal corrects with one vector subtraction per storey.
//!
//! The counts are of slots *below*: pages come in at the upper end, so the counts of slots below them need no change.
//! The number of all pages of a class changes only with first uses, and the difference is the distance.
//!
//! The lowest page of all, which a program that loops over its pages takes each time, is removed without any of this:
//! it stays counted, and each class has the number of pages at the lower end that were removed in this way.

use crate::cpu;
use crate::pages::Id;
use crate::table::Table;

const LANES: usize = 32;
const LANE_BITS: u32 = LANES.trailing_zeros();
const WORDS: usize = 8;
const BLOCK: u32 = 64 * WORDS as u32;
const BLOCK_BITS: u32 = BLOCK.trailing_zeros();
/// Slots under one group of near counts, as a power of two.
const NEAR_BITS: u32 = BLOCK_BITS + LANE_BITS;
/// Slots per live page in a new window: in each window each slot is filled once, and each live page is moved once.
const ROOM: usize = 4;
/// From this many bytes on, the data for a removal is prefetched; below, the processor's own cache contains it.
const FAR_MEMORY: usize = 256 << 10;

/// A bit for each slot of a block.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Bits([u64; WORDS]);

/// Live slots before each block of a group: fewer than 2^14.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Near([u16; LANES]);

/// Live slots before each group of a larger one.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Far([u32; LANES]);

/// Live slots of pages, with ranks for `L` colour counts.
#[derive(Debug)]
pub struct Window<const L: usize> {
    /// Number of bit planes of the codes: as many as the first level needs, and one more for each further level.
    planes: usize,
    /// For each level, its first class among all classes, and the bits of a code that number its classes.
    base: [usize; L],
    masks: [u16; L],
    classes: usize,
    end: u32,
    capacity: u32,
    owner: Table<Id>,
    /// For each block: live bits, then the planes.
    words: Table<Bits>,
    /// For each group: a row for each class. Lanes above the end have no defined value.
    near: Table<Near>,
    /// The same for groups of groups, and so on; as many storeys as the capacity needs.
    far: Vec<Table<Far>>,
    /// Number of pages of each class, including those outside the window and the gone ones.
    pages: Vec<u32>,
    /// Number of pages of each class that were taken out for a while.
    taken_out: Vec<u32>,
    /// Number of those inside, while a block is opened or the window is compacted.
    inside: Vec<u32>,
    /// The lowest live slot, or the end; slots below still have their bits, and are counted like live ones.
    lowest: u32,
    /// Number of these in each class.
    gone: Vec<u32>,
}

impl<const L: usize> Window<L> {
    /// An empty window; `masks`: the bits of the code that distinguish colours at each level, one more bit each time.
    pub fn new(masks: [u16; L]) -> Self {
        let mut base = [0; L];
        let mut classes = 0;
        for (start, mask) in base.iter_mut().zip(masks) {
            *start = classes;
            classes += mask as usize + 1;
        }
        let planes = masks[L - 1].count_ones() as usize;
        let (end, capacity) = (0, 0);
        let (owner, words, near, far) = (Table::default(), Table::default(), Table::default(), Vec::new());
        let [pages, taken_out, inside, gone] = [const { Vec::new() }; 4].map(|_: Vec<u32>| vec![0; classes]);
        let mut window = Self {
            planes,
            base,
            masks,
            classes,
            end,
            capacity,
            owner,
            words,
            near,
            far,
            pages,
            taken_out,
            inside,
            lowest: 0,
            gone,
        };
        window.grow(0);
        window
    }

    /// Makes space for `pages` pages, and for later ones.
    fn grow(&mut self, pages: usize) {
        let slots = (pages * ROOM).next_multiple_of(BLOCK as usize).max(1 << NEAR_BITS);
        if slots <= self.capacity as usize {
            return;
        }
        self.capacity = u32::try_from(slots).expect("fewer than 2^30 live pages");
        self.owner.resize(slots, 0);
        self.words.resize((slots >> BLOCK_BITS) * (1 + self.planes), Bits([0; WORDS]));
        let groups = |bits: u32| slots.div_ceil(1 << bits) * self.classes;
        self.near.resize(groups(NEAR_BITS), Near([0; LANES]));
        for height in 0.. {
            if slots <= 1 << far_bits(height) {
                break;
            }
            if height == self.far.len() {
                self.far.push(Table::default());
            }
            self.far[height].resize(groups(far_bits(height) + LANE_BITS), Far([0; LANES]));
        }
    }

    /// Empties the window, with room for `pages` pages.
    pub fn clear(&mut self, pages: usize) {
        (self.end, self.lowest) = (0, 0);
        self.pages.fill(0);
        self.gone.fill(0);
        self.grow(pages);
    }

    /// The stamp that the next page gets.
    #[inline(always)]
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Whether [`Window::compact`] has to be called before the next [`Window::push`].
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.end == self.capacity
    }

    /// Pages, those outside the window included.
    pub fn len(&self) -> usize {
        let classes = ..=self.masks[0] as usize;
        self.pages[classes].iter().zip(&self.gone[classes]).map(|(&pages, &gone)| (pages - gone) as usize).sum()
    }

    /// Whether the data that [`Window::take`] reads is worth a [`Window::prefetch`].
    #[inline(always)]
    pub fn is_far(&self) -> bool {
        self.words.len() * size_of::<Bits>() + self.near.len() * size_of::<Near>() > FAR_MEMORY
    }

    #[inline(always)]
    fn class(&self, level: usize, code: u16) -> usize {
        self.base[level] + (code & self.masks[level]) as usize
    }

    /// Adds a page to the stacks; it need not be in the window yet.
    pub fn add(&mut self, code: u16) {
        for level in 0..L {
            let class = self.class(level, code);
            self.pages[class] += 1;
        }
    }

    /// Puts a page above all others; returns its stamp. `outside`: codes of the pages (this one or others) that are
    /// counted but are outside the window at this moment.
    #[inline(always)]
    pub fn push(&mut self, id: Id, code: u16, outside: impl Iterator<Item = u16>) -> u32 {
        if self.end.is_multiple_of(BLOCK) {
            self.inside.copy_from_slice(&self.pages);
            for other in outside {
                for level in 0..L {
                    let class = self.class(level, other);
                    self.inside[class] -= 1;
                }
            }
            self.open_block();
        }
        self.put(id, code)
    }

    /// Notes that a page outside the window stays outside until [`Window::put_back`]. Until then nothing else is
    /// pushed.
    pub fn take_out(&mut self, code: u16) {
        for level in 0..L {
            let class = self.class(level, code);
            self.taken_out[class] += 1;
        }
    }

    /// Puts such a page above all others; returns its stamp.
    pub fn put_back(&mut self, id: Id, code: u16) -> u32 {
        if self.end.is_multiple_of(BLOCK) {
            for ((inside, pages), out) in self.inside.iter_mut().zip(&self.pages).zip(&self.taken_out) {
                *inside = pages - out;
            }
            self.open_block();
        }
        for level in 0..L {
            let class = self.class(level, code);
            self.taken_out[class] -= 1;
        }
        self.put(id, code)
    }

    #[inline(always)]
    fn put(&mut self, id: Id, code: u16) -> u32 {
        let stamp = self.end;
        self.end += 1;
        self.owner[stamp as usize] = id;
        let (word, bit) = (word_of(stamp), stamp % 64);
        let first = (stamp >> BLOCK_BITS) as usize * (1 + self.planes);
        let block = &mut self.words[first..=first + self.planes];
        block[0].0[word] |= 1 << bit;
        for (plane, words) in block[1..].iter_mut().enumerate() {
            words.0[word] |= u64::from(code >> plane & 1) << bit;
        }
        stamp
    }

    /// Empties the block that begins at `end` and sets its prefix counts; `inside` must have the window's counts.
    #[inline(never)]
    fn open_block(&mut self) {
        let first = (self.end >> BLOCK_BITS) as usize * (1 + self.planes);
        self.words[first..=first + self.planes].fill(Bits([0; WORDS]));
        let near = (self.end >> NEAR_BITS) as usize * self.classes;
        for class in 0..self.classes {
            let mut left = self.inside[class];
            for (height, counts) in self.far.iter_mut().enumerate().rev() {
                let bits = far_bits(height);
                let group = (self.end >> (bits + LANE_BITS)) as usize * self.classes;
                let prefix = &mut counts[group + class].0[(self.end >> bits) as usize % LANES];
                if self.end.trailing_zeros() >= bits {
                    *prefix = left;
                }
                left -= *prefix;
            }
            self.near[near + class].0[(self.end >> BLOCK_BITS) as usize % LANES] = left as u16;
        }
    }

    /// Removes a page, which still counts as one of its class. Returns how many pages of its colour lie above it, in
    /// the window and outside, for each level.
    #[inline(always)]
    pub fn take(&mut self, stamp: u32, code: u16) -> [u32; L] {
        if stamp == self.lowest {
            return self.take_lowest(code);
        }
        let mut below = self.below_in_block(stamp, code);
        let class: [usize; L] = std::array::from_fn(|level| self.class(level, code));
        let lane = (stamp >> BLOCK_BITS) as usize % LANES;
        let group = (stamp >> NEAR_BITS) as usize * self.classes;
        let rows = &mut self.near[group..group + self.classes];
        let after: [u16; LANES] = part(&AFTER_NEAR, LANES - 1 - lane);
        for (below, class) in below.iter_mut().zip(class) {
            let row = &mut rows[class].0;
            *below += u32::from(row[lane]);
            let old = *row;
            *row = std::array::from_fn(|lane| old[lane].wrapping_sub(after[lane]));
        }
        for (height, counts) in self.far.iter_mut().enumerate() {
            let bits = far_bits(height);
            let lane = (stamp >> bits) as usize % LANES;
            let group = (stamp >> (bits + LANE_BITS)) as usize * self.classes;
            let rows = &mut counts[group..group + self.classes];
            let after: [u32; LANES] = part(&AFTER_FAR, LANES - 1 - lane);
            for (below, class) in below.iter_mut().zip(class) {
                let row = &mut rows[class].0;
                *below += row[lane];
                let old = *row;
                *row = std::array::from_fn(|lane| old[lane].wrapping_sub(after[lane]));
            }
        }
        std::array::from_fn(|level| self.pages[class[level]] - 1 - below[level])
    }

    #[inline(always)]
    fn take_lowest(&mut self, code: u16) -> [u32; L] {
        self.lowest = self.live_from(self.lowest + 1);
        std::array::from_fn(|level| {
            let class = self.class(level, code);
            let above = self.pages[class] - 1 - self.gone[class];
            self.gone[class] += 1;
            self.pages[class] += 1;
            above
        })
    }

    /// The first live slot from `stamp` on, if all below are gone, or the end.
    #[inline(always)]
    fn live_from(&self, mut stamp: u32) -> u32 {
        while stamp < self.end {
            let live = self.words[(stamp >> BLOCK_BITS) as usize * (1 + self.planes)].0[word_of(stamp)];
            let rest = live >> (stamp % 64);
            if rest != 0 {
                return stamp + rest.trailing_zeros();
            }
            stamp = (stamp | 63) + 1;
        }
        self.end
    }

    /// Clears the page's live bit; counts the live slots of its colour below it in its block, for each level.
    ///
    /// Bits are read and written as whole vectors: a single word just written would delay the next read of its vector.
    #[inline(always)]
    fn below_in_block(&mut self, stamp: u32, code: u16) -> [u32; L] {
        let first = (stamp >> BLOCK_BITS) as usize * (1 + self.planes);
        let block = &mut self.words[first..=first + self.planes];
        let (word, bit) = (word_of(stamp), 1_u64 << (stamp % 64));
        let here: [u64; WORDS] = part(&HERE, WORDS - word);
        let before: [u64; WORDS] = part(&BEFORE, WORDS - word);
        let live = block[0].0;
        block[0].0 = std::array::from_fn(|w| live[w] & !(here[w] & bit));
        let mut matching: [u64; WORDS] = std::array::from_fn(|w| live[w] & (before[w] | (here[w] & (bit - 1))));
        let (coarsest, finer) = block[1..].split_at(self.planes + 1 - L);
        for (k, plane) in coarsest.iter().enumerate() {
            keep_equal(&mut matching, &plane.0, code >> k & 1);
        }
        // Sums are at most 512: four of them fit into one word, and are summed over the words at once.
        let mut sums = [[0_u64; WORDS]; 3];
        add_counts(&mut sums[0], &matching, 0);
        for (level, plane) in (1..L).zip(finer) {
            keep_equal(&mut matching, &plane.0, code >> (coarsest.len() + level - 1) & 1);
            add_counts(&mut sums[level / 4], &matching, level % 4);
        }
        let sums: [u64; 3] = sums.map(|words| words.iter().sum());
        std::array::from_fn(|level| u32::from((sums[level / 4] >> (16 * (level % 4))) as u16))
    }

    /// Prefetches the data that [`Window::take`] will read.
    #[inline(always)]
    pub fn prefetch(&self, stamp: u32, code: u16) {
        let first = (stamp >> BLOCK_BITS) as usize * (1 + self.planes);
        for plane in 0..=self.planes {
            cpu::prefetch(&self.words, first + plane);
        }
        let near = (stamp >> NEAR_BITS) as usize * self.classes;
        for level in 0..L {
            cpu::prefetch(&self.near, near + self.class(level, code));
        }
    }

    /// Whether two stamps need the same [`Window::prefetch`] as far as blocks are concerned.
    #[inline(always)]
    pub fn is_same_block(one: u32, other: u32) -> bool {
        one >> BLOCK_BITS == other >> BLOCK_BITS
    }
}

/// The word of a block that has a stamp's bit.
#[inline(always)]
const fn word_of(stamp: u32) -> usize {
    (stamp % BLOCK / 64) as usize
}

/// Slots, as a power of two, under one lane of `far[height]`.
#[inline(always)]
const fn far_bits(height: usize) -> u32 {
    NEAR_BITS + LANE_BITS * height as u32
}

/// Keeps the slots whose bit in `plane` is `bit`.
#[inline(always)]
fn keep_equal(slots: &mut [u64; WORDS], plane: &[u64; WORDS], bit: u16) {
    let differ = u64::from(bit).wrapping_sub(1);
    for (slots, plane) in slots.iter_mut().zip(plane) {
        *slots &= plane ^ differ;
    }
}

/// Adds the number of set bits of each word to the `part`th quarter of its sum.
#[inline(always)]
fn add_counts(sums: &mut [u64; WORDS], slots: &[u64; WORDS], part: usize) {
    for (sum, slots) in sums.iter_mut().zip(slots) {
        *sum += u64::from(slots.count_ones()) << (16 * part);
    }
}

impl<const L: usize> Window<L> {
    /// Moves the pages in the window together, and makes space for as many more. Calls `soon` for each page before it
    /// is moved, and `moved` with its new stamp.
    pub fn compact(&mut self, mut soon: impl FnMut(Id), mut moved: impl FnMut(Id, u32)) {
        let blocks = self.blocks();
        let lowest = self.lowest;
        (self.end, self.lowest) = (0, 0);
        self.inside.fill(0);
        let mut block = Vec::with_capacity(1 + self.planes);
        for number in blocks {
            // A copy, because pages move down, into this block at most.
            self.copy_block(number, lowest, &mut block);
            for (word, first) in (0..WORDS).zip((number * BLOCK as usize..).step_by(64)) {
                // After a sweep the pages of a word are consecutive, and the processor prefetches by itself.
                if self.owner[first + 63].wrapping_sub(self.owner[first]) != 63 {
                    each_bit(block[0].0[word], |bit| soon(self.owner[first + bit as usize]));
                }
            }
            for (word, first) in (0..WORDS).zip((number * BLOCK as usize..).step_by(64)) {
                each_live(&block, word, |bit, code| {
                    let id = self.owner[first + bit as usize];
                    if self.end.is_multiple_of(BLOCK) {
                        self.open_block();
                    }
                    moved(id, self.put(id, code));
                    for level in 0..L {
                        let class = self.class(level, code);
                        self.inside[class] += 1;
                    }
                });
            }
        }
        for (pages, gone) in self.pages.iter_mut().zip(&mut self.gone) {
            *pages -= std::mem::take(gone);
        }
        self.grow(self.len());
    }

    /// Calls `told` for every page in the window with its code, the one used longest ago first.
    pub fn each(&self, mut told: impl FnMut(Id, u16)) {
        let mut block = Vec::with_capacity(1 + self.planes);
        for number in self.blocks() {
            self.copy_block(number, self.lowest, &mut block);
            for (word, first) in (0..WORDS).zip((number * BLOCK as usize..).step_by(64)) {
                each_live(&block, word, |bit, code| told(self.owner[first + bit as usize], code));
            }
        }
    }

    /// Blocks with live slots.
    fn blocks(&self) -> std::ops::Range<usize> {
        (self.lowest >> BLOCK_BITS) as usize..self.end.div_ceil(BLOCK) as usize
    }

    /// Live bits and planes of block `number`, without slots below `lowest`.
    fn copy_block(&self, number: usize, lowest: u32, block: &mut Vec<Bits>) {
        block.clear();
        block.extend_from_slice(&self.words[number * (1 + self.planes)..][..=self.planes]);
        if number == (lowest >> BLOCK_BITS) as usize {
            block[0].0[..word_of(lowest)].fill(0);
            block[0].0[word_of(lowest)] &= u64::MAX << (lowest % 64);
        }
    }
}

/// Calls `told` for the bits that are set.
#[inline(always)]
fn each_bit(mut bits: u64, mut told: impl FnMut(u32)) {
    while bits != 0 {
        told(bits.trailing_zeros());
        bits &= bits - 1;
    }
}

/// Calls `told` for the live bits of one word of a block, with their codes.
#[inline(always)]
fn each_live(block: &[Bits], word: usize, mut told: impl FnMut(u32, u16)) {
    each_bit(block[0].0[word], |bit| {
        let planes = block[1..].iter().enumerate();
        let code = planes.fold(0, |code, (k, plane)| code | ((plane.0[word] >> bit & 1) as u16) << k);
        told(bit, code);
    });
}

// A vector that depends on a number is part of a longer one, by value: one load each. A comparison of lanes with the
// number, or a reference, made the compiler split the vector into lanes.

/// Part `LANES - 1 - l`: 1 in the lanes after lane l.
static AFTER_NEAR: [u16; 2 * LANES] = {
    let mut lanes = [0; 2 * LANES];
    let mut lane = LANES;
    while lane < lanes.len() {
        lanes[lane] = 1;
        lane += 1;
    }
    lanes
};
static AFTER_FAR: [u32; 2 * LANES] = {
    let mut lanes = [0; 2 * LANES];
    let mut lane = LANES;
    while lane < lanes.len() {
        lanes[lane] = 1;
        lane += 1;
    }
    lanes
};
/// Part `WORDS - w`: all bits in the words before word w.
static BEFORE: [u64; 2 * WORDS] = {
    let mut words = [0; 2 * WORDS];
    let mut word = 0;
    while word < WORDS {
        words[word] = u64::MAX;
        word += 1;
    }
    words
};
/// Part `WORDS - w`: all bits in word w.
static HERE: [u64; 2 * WORDS] = {
    let mut words = [0; 2 * WORDS];
    words[WORDS] = u64::MAX;
    words
};

#[inline(always)]
fn part<T: Copy, const N: usize, const M: usize>(table: &[T; M], from: usize) -> [T; N] {
    *table[from..].first_chunk().expect("tables are twice as long as their parts")
}
