//! The frame of each placed page.

use crate::pages::Pages;
use crate::table::Table;

/// No frame yet.
pub(crate) const NONE: u64 = u64::MAX;

/// Frames by page; pages of all address spaces in one number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pages: Pages,
    frames: Table<u64>,
}

impl Tables {
    /// The frame of `page`, or [`NONE`].
    #[inline(always)]
    pub(crate) fn get(&self, page: u64) -> u64 {
        self.pages.find(page).map_or(NONE, |id| self.frames[id as usize])
    }

    pub(crate) fn set(&mut self, page: u64, frame: u64) {
        let id = self.pages.id(page);
        self.frames.resize(self.pages.len(), NONE);
        self.frames[id as usize] = frame;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_found() {
        let mut tables = Tables::default();
        let pages: Vec<u64> = (0..5000_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8).collect();
        pages.iter().enumerate().for_each(|(i, page)| tables.set(*page, i as u64));
        let copy = tables.clone();
        for (i, page) in pages.iter().enumerate() {
            assert_eq!((tables.get(*page), copy.get(*page)), (i as u64, i as u64));
        }
        assert_eq!((tables.get(77), tables.get(pages[0] ^ 1)), (NONE, NONE));
    }
}
