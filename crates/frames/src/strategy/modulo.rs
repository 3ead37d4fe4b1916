//! Modulo: a colour for each page, from a pattern that repeats over the addresses or from a saved map.

use super::spans::Spans;
use super::{Strategy, Want};
use pagelab_abi::plan::{ANYWHERE, Words};

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
    /// Page `vpn` gets colour `values[vpn mod length]`; an empty pattern leaves every page to any colour.
    pub fn repeating(colours: u32, values: Words<'p>) -> Modulo<'p> {
        Modulo { colours: u64::from(colours.max(1)), colouring: Colouring::Pattern(values) }
    }

    /// The colours of a saved map; pages outside it get any.
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
