//! Return of memory to the kernel: the pools' surplus, memory that the program needs, and everything at the end.

use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::frames::report::tally;

use super::Pools;
use super::chunks::{self, SLOTS};
use super::pools::Pool;

impl Pools {
    /// Gives back every chunk that can go, because the program is short of memory.
    pub fn shed(&mut self) {
        for pool in self.all.iter_mut().flatten() {
            for number in 0..pool.stock.chunk_limit() {
                let free = pool.stock.chunk_counts(number).map_or(0, |counts| counts.free);
                if let Ok((book, address)) = pool.stock.remove_chunk(number) {
                    chunks::unmap(address);
                    self.books.give_back(book);
                    self.addresses.give_back(address);
                    tally::engine(|counts| &counts.released_pages, u64::from(free));
                }
            }
        }
        self.account();
    }

    /// Gives all memory of the pools back to the kernel.
    pub fn dissolve(&mut self) {
        for pool in self.all.iter_mut().filter_map(Option::take) {
            (0..pool.stock.chunk_limit())
                .filter_map(|number| pool.stock.chunk_address(number))
                .for_each(chunks::unmap);
        }
        self.account();
    }

    /// Gives back chunks without pages, and pages beyond the budget of pool `at`, so that another chunk fits into it.
    pub fn make_room(&mut self, at: usize) {
        self.measure(at);
        let Some(pool) = self.all.get_mut(at).and_then(Option::as_mut) else { return };
        let mut from = 0;
        while let Some(number) = pool.stock.spare_chunk(from, 0) {
            from = number + 1;
            if let Ok((book, address)) = pool.stock.remove_chunk(number) {
                chunks::unmap(address);
                self.books.give_back(book);
                self.addresses.give_back(address);
            }
        }
        self.give_back(at, Pool::is_full);
        self.account();
    }

    /// Gives back the pages of pool `at` beyond its budget, where the budget is less than a chunk.
    pub fn trim(&mut self, at: usize) {
        if self.pool(at).is_some_and(|pool| pool.exceeds()) {
            self.give_back(at, Pool::exceeds);
            self.account();
        }
    }

    /// Gives pages of pool `at` back to the kernel, colours in turn, while it has too many.
    fn give_back(&mut self, at: usize, has_too_many: impl Fn(&Pool) -> bool) {
        let Some(pool) = self.all.get_mut(at).and_then(Option::as_mut) else { return };
        // Frames that were searched for are not thrown away.
        if pool.exact {
            return;
        }
        let mut keep = pool.stock.totals().free / pool.stock.colours().count().max(1);
        while has_too_many(pool) {
            match pool.stock.take_surplus(keep, SLOTS as u32) {
                Some(run) => {
                    if let Some(from) = pool.stock.address(run.slot) {
                        chunks::discard(Span::new(from, from + run.len as usize * PAGE));
                    }
                    pool.stock.emptied(run);
                    tally::engine(|counts| &counts.released_pages, u64::from(run.len));
                }
                None if keep == 0 => break,
                None => keep /= 2,
            }
        }
    }
}
