//! Counts of a level.

use pagelab_trace::Kind;

/// Number of kinds of demand references: load, store, fetch; and the reads of page walks.
pub const KINDS: usize = 4;
/// Number of the reads of page walks among the kinds.
pub(crate) const WALK: usize = 3;

/// Events of one level, of all cores together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Demand accesses by kind, as [`Kind`] numbers them.
    pub accesses: [u64; KINDS],
    /// Accesses that did not find their line, by kind.
    pub misses: [u64; KINDS],
    /// Dirty lines that came from the level above.
    pub writebacks_in: u64,
    /// Lines evicted from a full set.
    pub evictions: u64,
    /// Dirty lines that left for the level below.
    pub writebacks_out: u64,
    /// Lines removed because an inclusive level below evicted them, or because another core wrote.
    pub invalidations: u64,
}

impl Counts {
    /// Accesses and misses of every kind.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        (self.accesses.iter().sum(), self.misses.iter().sum())
    }

    /// Adds the counts of another simulation of the same level.
    pub fn add(&mut self, other: &Counts) {
        for kind in 0..KINDS {
            self.accesses[kind] += other.accesses[kind];
            self.misses[kind] += other.misses[kind];
        }
        self.writebacks_in += other.writebacks_in;
        self.evictions += other.evictions;
        self.writebacks_out += other.writebacks_out;
        self.invalidations += other.invalidations;
    }
}

/// Events at the memory below the last level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// Lines read for a reference, by kind.
    pub reads: [u64; KINDS],
    /// Lines written back.
    pub writes: u64,
}

/// The number of `kind`, below [`KINDS`]; prefetches and the like have none, because they are no demand.
#[inline]
#[must_use]
pub const fn demand(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Load => Some(0),
        Kind::Store => Some(1),
        Kind::Fetch => Some(2),
        Kind::Other => None,
    }
}
