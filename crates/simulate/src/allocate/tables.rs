//! The frame of each placed page.

use std::collections::HashMap;

const CHUNK_BITS: u32 = 9;
const CHUNK: usize = 1 << CHUNK_BITS;
const NEAR: usize = 1 << 10;
/// No frame yet.
pub(crate) const NONE: u64 = u64::MAX;

/// Frames by page; pages of all address spaces in one number.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    chunks: HashMap<u64, usize>,
    frames: Vec<[u64; CHUNK]>,
    /// Pages looked up lately, and their frames.
    near: Vec<(u64, u64)>,
}

impl Tables {
    pub(crate) fn new() -> Tables {
        Tables { chunks: HashMap::new(), frames: vec![], near: vec![(NONE, NONE); NEAR] }
    }

    /// The frame of `page` if it was looked up lately.
    #[inline]
    pub(crate) fn near(&self, page: u64) -> Option<u64> {
        let (key, frame) = self.near[(page ^ page >> 10) as usize & (NEAR - 1)];
        (key == page).then_some(frame)
    }

    /// The frame of `page`, or [`NONE`].
    pub(crate) fn get(&mut self, page: u64) -> u64 {
        let frame = self.chunks.get(&(page >> CHUNK_BITS)).map_or(NONE, |chunk| self.frames[*chunk][place(page)]);
        if frame != NONE {
            self.near[(page ^ page >> 10) as usize & (NEAR - 1)] = (page, frame);
        }
        frame
    }

    pub(crate) fn set(&mut self, page: u64, frame: u64) {
        let next = self.frames.len();
        let chunk = *self.chunks.entry(page >> CHUNK_BITS).or_insert(next);
        if chunk == next {
            self.frames.push([NONE; CHUNK]);
        }
        self.frames[chunk][place(page)] = frame;
    }
}

const fn place(page: u64) -> usize {
    page as usize & (CHUNK - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_found() {
        let mut tables = Tables::new();
        let pages: Vec<u64> = (0..5000_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8).collect();
        pages.iter().enumerate().for_each(|(i, page)| tables.set(*page, i as u64));
        for (i, page) in pages.iter().enumerate() {
            assert_eq!((tables.get(*page), tables.near(*page)), (i as u64, Some(i as u64)));
        }
        assert_eq!(tables.get(77), NONE);
    }
}
