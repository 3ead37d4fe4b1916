//! Target numbers of pages of each colour in the stock.
//!
//! A colour that programs request often must not run out, and the others should not take its place in a bounded stock.
//! So requests are counted by colour, older ones with less and less weight, and a stock has a **goal** for each colour,
//! in proportion to them. Before there are many requests, all colours have equal goals.

use super::Stock;

/// Number of requests, spread evenly, that are assumed before the first one.
const PRIOR: u64 = 1024;
/// At this number of requests all counts are halved: requests before the last 8,192 to 16,384 hardly count.
const MEMORY: u32 = 16 * PRIOR as u32;
/// A colour's goal is at most this many even shares. Chunks bring all colours alike, so a goal of k shares may cost k
/// times the memory that it names.
const MOST_SHARES: u64 = 4;

impl Stock<'_> {
    /// Counts a request for a page of colour `colour`.
    #[inline]
    pub fn ask(&mut self, colour: u32) {
        let Some(list) = self.lists.get_mut(colour as usize) else { return };
        list.asked += 1;
        self.asked += 1;
        if self.asked >= MEMORY {
            self.lists.iter_mut().for_each(|list| list.asked /= 2);
            self.asked = self.lists.iter().map(|list| list.asked).sum();
        }
    }

    /// Free pages of colour `colour` that a stock of `pages` pages should have: its share of recent requests, between
    /// nothing and four times the even share (but at least a page, if there is a share at all).
    #[inline]
    pub fn goal(&self, colour: u32, pages: u32) -> u32 {
        let Some(list) = self.lists.get(colour as usize) else { return 0 };
        let (pages, colours) = (u64::from(pages), u64::from(self.colours.count().max(1)));
        let share = u64::from(list.asked) * colours + PRIOR;
        let all = (u64::from(self.asked) + PRIOR) * colours;
        let most = (MOST_SHARES * pages / colours).max(1);
        (pages * share / all).min(most) as u32
    }

    /// Whether colour `colour` has less than one part in `part` of its goal.
    #[inline]
    pub fn is_short(&self, colour: u32, pages: u32, part: u32) -> bool {
        self.count(colour) * part < self.goal(colour, pages)
    }

    /// Whether some colour would run out within `requests` more requests, spread as the recent ones were.
    pub fn runs_out(&self, requests: u32) -> bool {
        let all = u64::from(self.asked);
        let lacks = |list: &super::List| u64::from(list.count) * all < u64::from(requests) * u64::from(list.asked);
        self.lists.iter().any(lacks)
    }

    /// A colour that has less than one part in `part` of its goal.
    pub fn short_colour(&self, pages: u32, part: u32) -> Option<u32> {
        (0..self.colours.count()).find(|colour| self.is_short(*colour, pages, part))
    }
}
