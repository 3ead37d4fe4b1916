//! The plan's answer for an address: the piece of a pool that contains it, and the backing of that piece.

use pagelab_abi::plan::{BASE_PAGE, Interval, KERNEL, Memory, Plan, Section, Via};

use crate::boundary::arch::PAGE;
use crate::boundary::span::{Span, align_down, align_up};

/// Backing of a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Left to the kernel.
    Kernel,
    /// Base pages only.
    Base,
    /// Transparent huge pages of this many bytes.
    Thp(usize),
    /// Pages of this many bytes from the kernel's reserved pools.
    Hugetlb(usize),
}

impl Backing {
    fn of(interval: &Interval) -> Backing {
        let bytes = interval.page_bytes as usize;
        match interval.page_bytes {
            KERNEL => Backing::Kernel,
            BASE_PAGE => Backing::Base,
            _ if interval.via == Via::Hugetlb || bytes > crate::boundary::arch::PMD => Backing::Hugetlb(bytes),
            _ => Backing::Thp(bytes),
        }
    }

    /// Bytes of one tile; a base page where there are no tiles.
    pub fn tile_bytes(self) -> usize {
        match self {
            Backing::Kernel | Backing::Base => PAGE,
            Backing::Thp(bytes) | Backing::Hugetlb(bytes) => bytes,
        }
    }

    /// Whether whole tiles matter.
    pub fn is_tiled(self) -> bool {
        matches!(self, Backing::Thp(_) | Backing::Hugetlb(_))
    }
}

/// A stretch of addresses with one backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its addresses.
    pub span: Span,
    /// Its backing.
    pub backing: Backing,
}

impl Piece {
    /// `span` widened to whole tiles of this piece (never beyond the piece).
    pub fn whole_tiles(&self, span: Span) -> Span {
        let tile = self.backing.tile_bytes();
        let start = align_down(span.start, tile).max(self.span.start);
        let end = align_up(span.end, tile).unwrap_or(self.span.end).min(self.span.end);
        Span::new(start, end)
    }

    /// The tile around `addr`, if it lies wholly inside the piece.
    pub fn tile(&self, addr: usize) -> Option<Span> {
        let tile = self.backing.tile_bytes();
        let start = align_down(addr, tile);
        let whole = self.backing.is_tiled() && start >= self.span.start && start + tile <= self.span.end;
        whole.then(|| Span::new(start, start + tile))
    }
}

/// One section of the plan at its addresses.
#[derive(Clone, Copy)]
pub struct Layout {
    plan: Plan<'static>,
    /// The section.
    pub section: Section,
    base: usize,
    room: usize,
    muted: bool,
}

impl Layout {
    /// `section` of `plan` with its offset 0 at `base`, for `room` bytes.
    pub fn new(plan: Plan<'static>, section: Section, base: usize, room: usize) -> Layout {
        Layout { plan, section, base, room, muted: false }
    }

    /// A layout of the same addresses that leaves them to the kernel.
    pub fn muted(self) -> Layout {
        Layout { muted: true, ..self }
    }

    /// The layout before it was muted: memory that is there has the pages that it was mapped with.
    pub fn inherited(self) -> Layout {
        Layout { muted: false, ..self }
    }

    /// All its addresses.
    pub fn bounds(&self) -> Span {
        Span::new(self.base, self.base.saturating_add(self.room))
    }

    /// The piece around `addr`: explicit address ranges of earlier rules first, then the section's own.
    pub fn piece(&self, addr: usize) -> Piece {
        if self.muted {
            return Piece { span: self.bounds(), backing: Backing::Kernel };
        }
        let interval = self.plan.piece(&self.section, (addr - self.base) as u64);
        let start = self.base + interval.start as usize;
        let end = self.base + (interval.end as usize).min(self.room);
        let own = Piece { span: Span::new(start, end), backing: Backing::of(&interval) };
        match overriding(&self.plan, self.section.rule, own.span, addr) {
            (Some(piece), _) => piece,
            (None, clear) => Piece { span: clear, backing: own.backing },
        }
    }

    /// Calls `visit` for each piece of `span`, cut to it. Addresses beyond the layout belong to no section.
    pub fn each(&self, span: Span, visit: &mut dyn FnMut(Piece, Span)) {
        let span = span.and(self.bounds());
        let mut at = span.start;
        while at < span.end {
            let piece = self.piece(at);
            let part = piece.span.and(Span::new(at, span.end));
            visit(piece, part);
            at = part.end;
        }
    }

    /// Largest tile anywhere in the layout, bytes.
    pub fn largest_tile(&self) -> usize {
        let own = (0..self.section.interval_count()).filter_map(|index| self.plan.interval(&self.section, index));
        let largest = own.map(|interval| interval.page_bytes).fold(self.section.otherwise, u64::max);
        (largest as usize).max(PAGE)
    }
}

/// The piece that a range rule before `rule` puts around `addr`, or otherwise the part of `within` around `addr` that
/// no such rule names.
fn overriding(plan: &Plan<'static>, rule: u16, within: Span, addr: usize) -> (Option<Piece>, Span) {
    let mut clear = within;
    for number in 0..plan.section_count() {
        let Some(section) = plan.section(number).filter(|section| section.memory == Memory::Range) else {
            continue;
        };
        if section.rule >= rule {
            continue;
        }
        let range = Span::new(section.range_start as usize, section.range_end as usize);
        if (range.start..range.end).contains(&addr) {
            return (Some(range_piece(plan, &section, range.and(within), addr)), clear);
        }
        if range.end <= addr {
            clear.start = clear.start.max(range.end);
        } else {
            clear.end = clear.end.min(range.start);
        }
    }
    (None, clear)
}

fn range_piece(plan: &Plan<'static>, section: &Section, within: Span, addr: usize) -> Piece {
    let interval = plan.piece(section, addr as u64);
    let span = Span::new(interval.start as usize, interval.end.min(usize::MAX as u64) as usize);
    Piece { span: span.and(within), backing: Backing::of(&interval) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_abi::plan::{PlanSpec, RunSpec, SectionSpec};

    const MIB: usize = 1 << 20;
    const BASE: usize = 0x6100_0000_0000;

    fn layout(range: Option<(usize, usize)>) -> Layout {
        let mut anon = SectionSpec::uniform(Memory::Anon, 4096, Via::Thp);
        anon.rule = 1;
        anon.intervals =
            vec![Interval { start: 0, end: 8 * MIB as u64, page_bytes: 2 * MIB as u64, via: Via::Thp }];
        let mut sections = vec![anon];
        if let Some((start, end)) = range {
            let mut section = SectionSpec::uniform(Memory::Range, 0, Via::Thp);
            section.range = Some((start as u64, end as u64));
            sections.insert(0, section);
        }
        let bytes = PlanSpec { sections, ..PlanSpec::default() }.encode(&RunSpec::default()).unwrap();
        let plan = Plan::parse(bytes.leak()).unwrap();
        Layout::new(plan, plan.section_for(Memory::Anon, 0).unwrap(), BASE, 1 << 40)
    }

    #[test]
    fn pieces_follow_the_mosaic() {
        let layout = layout(None);
        let mut seen = Vec::new();
        let span = Span::new(BASE + MIB, BASE + 9 * MIB);
        layout.each(span, &mut |piece, part| seen.push((piece.backing, part.start - BASE, part.end - BASE)));
        assert_eq!(seen, [(Backing::Thp(2 * MIB), MIB, 8 * MIB), (Backing::Base, 8 * MIB, 9 * MIB)]);
        assert_eq!(layout.largest_tile(), 2 * MIB);
    }

    #[test]
    fn tiles_stay_inside_their_piece() {
        let piece = layout(None).piece(BASE + 3 * MIB);
        assert_eq!(piece.tile(BASE + 3 * MIB), Some(Span::new(BASE + 2 * MIB, BASE + 4 * MIB)));
        let wide = piece.whole_tiles(Span::new(BASE + 3 * MIB, BASE + 7 * MIB));
        assert_eq!(wide, Span::new(BASE + 2 * MIB, BASE + 8 * MIB));
        let odd = Piece { span: Span::new(BASE + MIB, BASE + 5 * MIB), backing: Backing::Thp(2 * MIB) };
        assert_eq!(odd.tile(BASE + MIB), None);
        assert_eq!(odd.whole_tiles(Span::new(BASE + MIB, BASE + 2 * MIB)).start, BASE + MIB);
    }

    #[test]
    fn a_span_beyond_the_end_ends_there() {
        let layout = layout(None);
        let end = layout.bounds().end;
        let mut seen = Vec::new();
        layout.each(Span::new(end - MIB, end + MIB), &mut |_, part| seen.push(part));
        assert_eq!(seen, [Span::new(end - MIB, end)]);
    }

    #[test]
    fn earlier_range_rules_come_first() {
        let layout = layout(Some((BASE + 2 * MIB, BASE + 4 * MIB)));
        let mut seen = Vec::new();
        let span = Span::new(BASE, BASE + 6 * MIB);
        layout.each(span, &mut |piece, part| seen.push((piece.backing, part.end - BASE)));
        let huge = Backing::Thp(2 * MIB);
        assert_eq!(seen, [(huge, 2 * MIB), (Backing::Kernel, 4 * MIB), (huge, 6 * MIB)]);
    }
}
