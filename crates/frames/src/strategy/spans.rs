//! Values for pages by address: the spans of a saved map.

use pagelab_abi::plan::{ANYWHERE, Words};

const PAGE_SHIFT: u32 = 12;
const WORDS_A_SPAN: usize = 3;

/// Sorted, disjoint spans of pages, each with one value a page.
///
/// `spans` are triples of words: start address (a multiple of 4096), pages, and the index of the first page's value.
#[derive(Clone, Copy, Debug)]
pub struct Spans<'p> {
    spans: Words<'p>,
    values: Words<'p>,
    /// Span of the last answer: pages come in order, mostly.
    last: usize,
}

struct Span {
    start: u64,
    pages: u64,
    first: u64,
}

impl<'p> Spans<'p> {
    /// Reads in place; what is out of bounds later is answered with `None`.
    pub fn new(spans: Words<'p>, values: Words<'p>) -> Spans<'p> {
        Spans { spans, values, last: 0 }
    }

    fn span(&self, number: usize) -> Option<Span> {
        let at = number.checked_mul(WORDS_A_SPAN)?;
        let (start, pages, first) = (self.spans.get(at)?, self.spans.get(at + 1)?, self.spans.get(at + 2)?);
        Some(Span { start: start >> PAGE_SHIFT, pages, first })
    }

    fn value_in(&self, span: &Span, vpn: u64) -> Option<u64> {
        let offset = vpn.checked_sub(span.start).filter(|offset| *offset < span.pages)?;
        let at = usize::try_from(span.first.checked_add(offset)?).ok()?;
        self.values.get(at).filter(|value| *value != ANYWHERE)
    }

    /// The value of page `vpn`; `None` outside the spans and for pages that were not resident.
    pub fn value(&mut self, vpn: u64) -> Option<u64> {
        let holds = |span: &Span| span.start <= vpn && vpn - span.start < span.pages;
        if let Some(span) = self.span(self.last).filter(holds) {
            return self.value_in(&span, vpn);
        }
        let (mut low, mut high) = (0, self.spans.len() / WORDS_A_SPAN);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.span(middle).is_some_and(|span| span.start <= vpn) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.last = low.checked_sub(1)?;
        self.value_in(&self.span(self.last)?, vpn)
    }
}
