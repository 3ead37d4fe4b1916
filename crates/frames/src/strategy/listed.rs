//! Strategies that read lists, with a colour or a frame for each page: modulo (a pattern that repeats over the
//! addresses, or a saved map) and exact (a saved map); and the spans of saved maps.

use super::{Strategy, Want};
use pagelab_abi::plan::{ANYWHERE, Words};

const PAGE_SHIFT: u32 = 12;
const WORDS_A_SPAN: usize = 3;

/// Sorted, disjoint spans of pages, with one value for each page.
///
/// `spans` are triples of words: start address (a multiple of 4096), pages, and the index of the first page's value.
#[derive(Clone, Copy, Debug)]
pub struct Spans<'p> {
    spans: Words<'p>,
    values: Words<'p>,
    /// Span of the last answer, because pages mostly come in order.
    last: usize,
}

struct Span {
    start: u64,
    pages: u64,
    first: u64,
}

impl<'p> Spans<'p> {
    /// Reads the lists in place; where a later access is out of bounds, the answer is `None`.
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

#[derive(Clone, Copy, Debug)]
enum Colouring<'p> {
    Pattern(Words<'p>),
    Map(Spans<'p>),
}

/// Colours given page by page (ALLOC, section 3: re-creates the colouring of another execution).
#[derive(Clone, Copy, Debug)]
pub struct Modulo<'p> {
    colours: u64,
    colouring: Colouring<'p>,
}

impl<'p> Modulo<'p> {
    /// Gives page `vpn` the colour `values[vpn mod length]`; with an empty pattern every page may have any colour.
    pub fn repeating(colours: u32, values: Words<'p>) -> Modulo<'p> {
        Modulo { colours: u64::from(colours.max(1)), colouring: Colouring::Pattern(values) }
    }

    /// Gives pages the colours of a saved map; pages outside it may have any.
    pub fn replaying(colours: u32, spans: Spans<'p>) -> Modulo<'p> {
        Modulo { colours: u64::from(colours.max(1)), colouring: Colouring::Map(spans) }
    }
}

impl Strategy for Modulo<'_> {
    #[inline]
    fn want(&mut self, vpn: u64) -> Want {
        let value = match &mut self.colouring {
            Colouring::Pattern(values) => {
                vpn.checked_rem(values.len() as u64).and_then(|at| values.get(usize::try_from(at).ok()?))
            }
            Colouring::Map(spans) => spans.value(vpn),
        };
        let colour = value.filter(|value| *value != ANYWHERE).and_then(|v| v.checked_rem(self.colours));
        colour.map_or(Want::Any, |colour| Want::Colour(colour as u32))
    }

    fn take_back(&mut self, _count: usize) {}

    fn is_by_address(&self) -> bool {
        true
    }

    fn period(&self) -> u64 {
        match &self.colouring {
            Colouring::Pattern(values) => values.len().max(1) as u64,
            Colouring::Map(_) => 0,
        }
    }
}

/// The frames of a saved map (ALLOC, section 3); pages outside it get any.
#[derive(Clone, Copy, Debug)]
pub struct Exact<'p> {
    spans: Spans<'p>,
}

impl<'p> Exact<'p> {
    /// Gives pages the frames that are the values of `spans`.
    pub fn new(spans: Spans<'p>) -> Exact<'p> {
        Exact { spans }
    }
}

impl Strategy for Exact<'_> {
    fn want(&mut self, vpn: u64) -> Want {
        self.spans.value(vpn).map_or(Want::Any, Want::Frame)
    }

    fn take_back(&mut self, _count: usize) {}

    fn is_by_address(&self) -> bool {
        true
    }

    fn period(&self) -> u64 {
        0
    }
}
