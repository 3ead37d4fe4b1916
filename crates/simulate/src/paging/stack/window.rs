//! The pages below the top, by the time they were last used.
//!
//! A page's *stamp* is its slot in a window of slots that fills up and is then compacted. Its distance in the list of its
//! colour is the number of live slots of that colour above it. Because a page has one stamp whatever the colours, one
//! window serves all colour counts of a chain: within a block of 256 slots, the slots of the same colour are found by
//! comparing bit planes of the codes; over blocks, each class of colour has prefix counts in groups of sixteen, which
//! a removal corrects with one vector subtraction a level of the hierarchy.

use super::super::cpu;
use super::super::pages::Id;

const LANES: usize = 16;
const LANE_BITS: u32 = 4;
const WORDS: usize = 4;
const BLOCK_BITS: u32 = 8;
const BLOCK: u32 = 1 << BLOCK_BITS;
/// Slots under one group of near counts.
const NEAR_BITS: u32 = BLOCK_BITS + LANE_BITS;
const MIDDLE_BITS: u32 = NEAR_BITS + LANE_BITS;
/// Slots for each live page when a window is new: each slot is filled once, each live page moved once a window.
const ROOM: usize = 4;

/// Live slots of pages, with ranks for `L` colour counts.
#[derive(Debug)]
pub struct Window<const L: usize> {
    /// Bit planes of the codes: as many as the first level needs, and one more for each further level.
    planes: usize,
    /// Where the classes of each level begin among all classes, and which bits of a code number them.
    base: [usize; L],
    masks: [u16; L],
    classes: usize,
    end: u32,
    capacity: u32,
    owner: Vec<Id>,
    /// Per block: live bits, then the planes.
    words: Vec<[u64; WORDS]>,
    /// Live slots of a class before each block of its group, before each group of its supergroup, and so on.
    near: Vec<[u16; LANES]>,
    middle: Vec<[u16; LANES]>,
    far: Vec<Vec<[u32; LANES]>>,
    live: Vec<u32>,
}

impl<const L: usize> Window<L> {
    /// An empty window; `masks`: the bits of the code that tell colours apart at each level, one bit more each time.
    pub fn new(masks: [u16; L]) -> Self {
        let mut base = [0; L];
        let mut classes = 0;
        for (start, mask) in base.iter_mut().zip(masks) {
            *start = classes;
            classes += mask as usize + 1;
        }
        let planes = masks[L - 1].count_ones() as usize;
        let (end, capacity) = (0, 0);
        let (owner, words, near, middle, far, live) = Default::default();
        let mut window =
            Self { planes, base, masks, classes, end, capacity, owner, words, near, middle, far, live };
        window.clear(0);
        window
    }

    /// Empties the window, with room for `pages` live pages.
    pub fn clear(&mut self, pages: usize) {
        let slots = (pages * ROOM).next_multiple_of(1 << NEAR_BITS).max(1 << NEAR_BITS);
        self.capacity = u32::try_from(slots).expect("fewer than 2^30 live pages");
        self.end = 0;
        let groups = |bits: u32| slots.div_ceil(1 << bits) * self.classes;
        self.owner = vec![0; slots];
        self.words = vec![[0; WORDS]; (slots >> BLOCK_BITS) * (1 + self.planes)];
        self.near = vec![[0; LANES]; groups(NEAR_BITS)];
        self.middle = vec![[0; LANES]; groups(MIDDLE_BITS)];
        self.far = (MIDDLE_BITS + LANE_BITS..)
            .step_by(LANE_BITS as usize)
            .take_while(|bits| slots > 1 << (bits - LANE_BITS))
            .map(|bits| vec![[0; LANES]; groups(bits)])
            .collect();
        self.live = vec![0; self.classes];
    }

    /// Whether [`Window::compact`] has to be called before the next [`Window::push`].
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.end == self.capacity
    }

    /// Pages in the window.
    pub fn len(&self) -> usize {
        self.live[..=self.masks[0] as usize].iter().map(|&live| live as usize).sum()
    }

    #[inline(always)]
    fn class(&self, level: usize, code: u16) -> usize {
        self.base[level] + (code & self.masks[level]) as usize
    }

    /// Puts a page above all others; returns its stamp.
    #[inline(always)]
    pub fn push(&mut self, id: Id, code: u16) -> u32 {
        let stamp = self.end;
        if stamp.is_multiple_of(BLOCK) {
            self.open_block();
        }
        self.end += 1;
        self.owner[stamp as usize] = id;
        let (word, bit) = ((stamp % BLOCK / 64) as usize % WORDS, stamp % 64);
        let first = (stamp >> BLOCK_BITS) as usize * (1 + self.planes);
        let block = &mut self.words[first..=first + self.planes];
        block[0][word] |= 1 << bit;
        for (plane, words) in block[1..].iter_mut().enumerate() {
            words[word] |= u64::from(code >> plane & 1) << bit;
        }
        for level in 0..L {
            let class = self.class(level, code);
            self.live[class] += 1;
        }
        stamp
    }

    /// Sets the prefix counts of the block that begins at `end`: everything live lies before it.
    fn open_block(&mut self) {
        let lane = |bits: u32| (self.end >> bits) as usize % LANES;
        let group = |bits: u32| (self.end >> bits) as usize * self.classes;
        let (near, middle) = (group(NEAR_BITS), group(MIDDLE_BITS));
        let opens = |bits: u32| self.end.trailing_zeros() >= bits;
        for class in 0..self.classes {
            let mut left = self.live[class];
            for (height, counts) in self.far.iter_mut().enumerate().rev() {
                let bits = far_bits(height);
                let first = (self.end >> (bits + LANE_BITS)) as usize * self.classes;
                let prefix = &mut counts[first + class][(self.end >> bits) as usize % LANES];
                if self.end.trailing_zeros() >= bits {
                    *prefix = left;
                }
                left -= *prefix;
            }
            let prefix = &mut self.middle[middle + class][lane(NEAR_BITS)];
            if opens(NEAR_BITS) {
                *prefix = left as u16;
            }
            left -= u32::from(*prefix);
            self.near[near + class][lane(BLOCK_BITS)] = left as u16;
        }
    }

    /// Takes a page out; returns how many pages of its colour lie above it, for each level.
    #[inline(always)]
    pub fn remove(&mut self, stamp: u32, code: u16) -> [u32; L] {
        let mut above = self.below_in_block(stamp, code);
        let lane = |bits: u32| (stamp >> bits) as usize % LANES;
        let group = |bits: u32| (stamp >> bits) as usize * self.classes;
        let (near, middle) = (group(NEAR_BITS), group(MIDDLE_BITS));
        for (level, count) in above.iter_mut().enumerate() {
            let class = self.class(level, code);
            let mut below = *count;
            below += u32::from(take(&mut self.near[near + class], lane(BLOCK_BITS)));
            below += u32::from(take(&mut self.middle[middle + class], lane(NEAR_BITS)));
            for (height, counts) in self.far.iter_mut().enumerate() {
                let bits = far_bits(height);
                let first = (stamp >> (bits + LANE_BITS)) as usize * self.classes;
                below += take_far(&mut counts[first + class], (stamp >> bits) as usize % LANES);
            }
            self.live[class] -= 1;
            *count = self.live[class] - below;
        }
        above
    }

    /// Clears the page's live bit; counts the live slots of its colour below it in its block, for each level.
    #[inline(always)]
    fn below_in_block(&mut self, stamp: u32, code: u16) -> [u32; L] {
        let first = (stamp >> BLOCK_BITS) as usize * (1 + self.planes);
        let block = &mut self.words[first..=first + self.planes];
        let (word, bit) = ((stamp % BLOCK / 64) as usize % WORDS, stamp % 64);
        block[0][word] &= !(1 << bit);
        let mut matching = block[0];
        for (w, bits) in matching.iter_mut().enumerate() {
            *bits &= if w < word { u64::MAX } else { u64::from(w == word) * ((1 << bit) - 1) };
        }
        let (coarsest, finer) = block[1..].split_at(self.planes + 1 - L);
        for (k, plane) in coarsest.iter().enumerate() {
            keep_equal(&mut matching, plane, code >> k & 1);
        }
        let mut below = [0; L];
        below[0] = count(&matching);
        for (level, plane) in finer.iter().enumerate().take(L - 1) {
            keep_equal(&mut matching, plane, code >> (coarsest.len() + level) & 1);
            below[level + 1] = count(&matching);
        }
        below
    }

    /// Fetches what [`Window::remove`] will read.
    #[inline(always)]
    pub fn prefetch(&self, stamp: u32, code: u16) {
        let first = (stamp >> BLOCK_BITS) as usize * (1 + self.planes);
        cpu::prefetch(&self.words, first);
        cpu::prefetch(&self.words, first + self.planes / 2);
        cpu::prefetch(&self.words, first + self.planes);
        let near = (stamp >> NEAR_BITS) as usize * self.classes;
        for level in 0..L {
            cpu::prefetch(&self.near, near + self.class(level, code));
        }
    }

    /// Moves the live pages together, into a window with room for as many more; tells each its new stamp.
    pub fn compact(&mut self, mut moved: impl FnMut(Id, u32)) {
        let words = std::mem::take(&mut self.words);
        let owner = std::mem::take(&mut self.owner);
        self.clear(self.len());
        each_live(&words, self.planes, &owner, |id, code| moved(id, self.push(id, code)));
    }

    /// Tells every page with its code, the one used longest ago first.
    pub fn each(&self, told: impl FnMut(Id, u16)) {
        each_live(&self.words, self.planes, &self.owner, told);
    }
}

fn each_live(words: &[[u64; WORDS]], planes: usize, owner: &[Id], mut told: impl FnMut(Id, u16)) {
    for (block, slots) in words.chunks_exact(1 + planes).zip(owner.chunks_exact(BLOCK as usize)) {
        for (word, slots) in slots.chunks_exact(64).enumerate() {
            let mut live = block[0][word];
            while live != 0 {
                let bit = live.trailing_zeros();
                live &= live - 1;
                let planes = block[1..].iter().enumerate();
                let code = planes.fold(0, |code, (k, plane)| code | ((plane[word] >> bit & 1) as u16) << k);
                told(slots[bit as usize], code);
            }
        }
    }
}

/// Slots, as a power of two, under one lane of `far[height]`.
#[inline(always)]
const fn far_bits(height: usize) -> u32 {
    MIDDLE_BITS + LANE_BITS * height as u32
}

/// Keeps the slots whose bit in `plane` is `bit`.
#[inline(always)]
fn keep_equal(slots: &mut [u64; WORDS], plane: &[u64; WORDS], bit: u16) {
    let differ = u64::from(bit).wrapping_sub(1);
    for (slots, plane) in slots.iter_mut().zip(plane) {
        *slots &= plane ^ differ;
    }
}

#[inline(always)]
fn count(slots: &[u64; WORDS]) -> u32 {
    slots.iter().map(|bits| bits.count_ones()).sum()
}

/// `AFTER[lane][l]`: 1 where l > lane.
const AFTER: [[u16; LANES]; LANES] = {
    let mut rows = [[0; LANES]; LANES];
    let mut at = 0;
    while at < LANES * LANES {
        rows[at / LANES][at % LANES] = (at % LANES > at / LANES) as u16;
        at += 1;
    }
    rows
};

/// The prefix count at `lane`; those of later lanes fall by one.
#[inline(always)]
fn take(prefix: &mut [u16; LANES], lane: usize) -> u16 {
    let below = prefix[lane];
    for (count, after) in prefix.iter_mut().zip(&AFTER[lane]) {
        *count = count.wrapping_sub(*after);
    }
    below
}

#[inline(always)]
fn take_far(prefix: &mut [u32; LANES], lane: usize) -> u32 {
    let below = prefix[lane];
    for (count, after) in prefix.iter_mut().zip(&AFTER[lane]) {
        *count = count.wrapping_sub(u32::from(*after));
    }
    below
}
