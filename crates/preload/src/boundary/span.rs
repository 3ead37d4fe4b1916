//! Ranges of addresses.

use crate::boundary::arch::{PAGE, PMD};

/// Addresses `[start, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// `[start, end)`; empty if the bounds are the wrong way round.
    pub const fn new(start: usize, end: usize) -> Span {
        Span { start, end: if end < start { start } else { end } }
    }

    /// Bytes inside.
    pub const fn len(self) -> usize {
        self.end - self.start
    }

    /// Nothing inside.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether a whole 2 MiB tile lies inside.
    pub fn holds_tile(self) -> bool {
        align_up(self.start, PMD).is_some_and(|tile| tile < self.end && self.end - tile >= PMD)
    }

    /// The common part (empty if there is none).
    pub fn and(self, other: Span) -> Span {
        Span::new(self.start.max(other.start), self.end.min(other.end))
    }
}

/// `value` rounded up to a multiple of `align`, a power of two.
pub fn align_up(value: usize, align: usize) -> Option<usize> {
    Some(value.checked_add(align - 1)? & !(align - 1))
}

/// `value` rounded down to a multiple of `align`, a power of two.
pub const fn align_down(value: usize, align: usize) -> usize {
    value & !(align - 1)
}

/// The page at `addr`.
pub fn page_at(addr: usize) -> Span {
    Span::new(addr, addr + PAGE)
}
