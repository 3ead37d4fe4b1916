//! Exact: a frame for each page.

use super::spans::Spans;
use super::{Strategy, Want};

/// The frames of a saved map (ALLOC, section 3); pages outside it get any.
#[derive(Clone, Copy, Debug)]
pub struct Exact<'p> {
    spans: Spans<'p>,
}

impl<'p> Exact<'p> {
    /// The values of `spans` are frame numbers.
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
