//! Walks over the live slots of a window: to list them, or to compact them.

use super::super::super::pages::Id;
use super::{BLOCK, BLOCK_BITS, Bits, WORDS, Window, word_of};

impl<const L: usize> Window<L> {
    /// Moves the pages in the window together, and makes room for as many more; tells each its new stamp.
    pub fn compact(&mut self, mut moved: impl FnMut(Id, u32)) {
        let blocks = self.blocks();
        let lowest = self.lowest;
        (self.end, self.lowest) = (0, 0);
        self.inside.fill(0);
        let mut block = Vec::with_capacity(1 + self.planes);
        for number in blocks {
            // A copy: pages move down, into this very block at most.
            self.copy_block(number, lowest, &mut block);
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

    /// Tells every page in the window with its code, the one used longest ago first.
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

/// Tells the live bits of one word of a block, and their codes.
#[inline(always)]
fn each_live(block: &[Bits], word: usize, mut told: impl FnMut(u32, u16)) {
    let mut live = block[0].0[word];
    while live != 0 {
        let bit = live.trailing_zeros();
        live &= live - 1;
        let planes = block[1..].iter().enumerate();
        let code = planes.fold(0, |code, (k, plane)| code | ((plane.0[word] >> bit & 1) as u16) << k);
        told(bit, code);
    }
}
