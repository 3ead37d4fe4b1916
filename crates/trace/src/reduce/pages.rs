//! Pages with references recent enough to affect the reduction.

use super::links::NONE;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Spreads page numbers: multiplication by an odd constant, high bits folded in.
#[derive(Default)]
pub(super) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("pages are hashed as one word");
    }

    fn write_u64(&mut self, page: u64) {
        let product = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

struct Page {
    page: u64,
    /// Time of the last reference.
    last: u64,
    /// Time of the one kept before it; 0 where there is none, or it does not matter.
    first: u64,
    /// The last reference, as it waits; [`NONE`] once it is given out.
    entry: u32,
    /// In how many lists it is.
    lists: u32,
}

/// Pages by number; one that is in no list any more is forgotten.
#[derive(Default)]
pub(super) struct Pages {
    nodes: Vec<Page>,
    free: Vec<u32>,
    numbers: HashMap<u64, u32, BuildHasherDefault<PageHasher>>,
}

impl Pages {
    /// The node of a page, made where there is none.
    pub fn find_or_add(&mut self, page: u64) -> u32 {
        if let Some(node) = self.numbers.get(&page) {
            return *node;
        }
        let fresh = Page { page, last: 0, first: 0, entry: NONE, lists: 0 };
        let node = match self.free.pop() {
            Some(node) => {
                self.nodes[node as usize] = fresh;
                node
            }
            None => {
                self.nodes.push(fresh);
                (self.nodes.len() - 1) as u32
            }
        };
        self.numbers.insert(page, node);
        node
    }

    #[inline]
    pub fn last(&self, node: u32) -> u64 {
        self.nodes[node as usize].last
    }

    #[inline]
    pub fn first(&self, node: u32) -> u64 {
        self.nodes[node as usize].first
    }

    #[inline]
    pub fn entry(&self, node: u32) -> u32 {
        self.nodes[node as usize].entry
    }

    /// A reference at `time`, which waits as `entry`; the one kept before it was at `first`.
    #[inline]
    pub fn reference(&mut self, node: u32, time: u64, first: u64, entry: u32) {
        let page = &mut self.nodes[node as usize];
        (page.last, page.first, page.entry) = (time, first, entry);
    }

    /// The node is now in one more list.
    #[inline]
    pub fn enter(&mut self, node: u32) {
        self.nodes[node as usize].lists += 1;
    }

    /// The node is in one list fewer; without any it is forgotten.
    #[inline]
    pub fn leave(&mut self, node: u32) {
        let page = &mut self.nodes[node as usize];
        page.lists -= 1;
        if page.lists == 0 {
            self.numbers.remove(&page.page);
            self.free.push(node);
        }
    }

    /// The entry of a page no longer waits. The page may have been forgotten, and may have come back with another
    /// entry.
    pub fn given(&mut self, page: u64, entry: u32) {
        if let Some(node) = self.numbers.get(&page) {
            let page = &mut self.nodes[*node as usize];
            if page.entry == entry {
                page.entry = NONE;
            }
        }
    }
}
