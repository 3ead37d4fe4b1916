//! A hierarchy of caches in lockstep: each reference passes all levels before the next one starts.
//!
//! The caches are write-back and write-allocate. A dirty line that a level evicts is written back to the level below.
//! If that level has the line, it becomes dirty there, which does not count as a use; otherwise the line is put in, or
//! passed on if the level's `writebacks_allocate` is false. With several cores, private copies are coherent as under
//! MSI: a core that writes takes the line from the others, a core that reads leaves it clean everywhere.

mod check;

use super::counts::{Counts, MemoryCounts, WALK};
use super::index::Index;
use super::passing::{self, Passed, Stage};
use super::sets::{Sets, Victim};
use super::spec::{HierarchySpec, Inclusion, SpecError};

/// Number of stores among the kinds.
pub(crate) const STORE: usize = 1;
const FETCH: usize = 2;

#[derive(Clone, Debug)]
struct Level {
    /// One array of sets, or one for each core.
    sets: Vec<Sets>,
    index: Index,
    inclusion: Inclusion,
    writebacks_allocate: bool,
    /// Whether the eviction of a clean line changes no other level.
    drops_clean_lines: bool,
    /// The path on which its lines are evicted, and its depth there. A level that data and fetches share may be nearer
    /// to one of them; what is below it is the same.
    path: usize,
    depth: usize,
    counts: Counts,
}

impl Level {
    /// Whether it neither changes the level above nor depends on that level, except for the events that pass it.
    fn passes(&self) -> bool {
        let plain = matches!(self.index, Index::Bits(_)) && self.sets.iter().all(Sets::is_ordered);
        plain && self.inclusion == Inclusion::Nine && self.writebacks_allocate
    }

    #[inline]
    fn of(&mut self, core: usize) -> &mut Sets {
        let own = if self.sets.len() == 1 { 0 } else { core };
        &mut self.sets[own]
    }

    #[inline(always)]
    fn touch(&mut self, core: usize, line: u64, write: bool) -> Option<bool> {
        let set = self.index.of(line);
        self.of(core).touch(set, line, write)
    }

    fn remove(&mut self, core: usize, line: u64) -> Option<bool> {
        let set = self.index.of(line);
        self.of(core).remove(set, line)
    }

    fn peek(&self, core: usize, line: u64) -> Option<bool> {
        let own = if self.sets.len() == 1 { 0 } else { core };
        self.sets[own].peek(self.index.of(line), line)
    }

    /// Makes `line` dirty if it is present; returns whether it is.
    fn soil(&mut self, core: usize, line: u64) -> bool {
        let set = self.index.of(line);
        self.of(core).mark(set, line, true)
    }

    #[inline(always)]
    fn insert(&mut self, core: usize, line: u64, dirty: bool) -> Option<Victim> {
        let set = self.index.of(line);
        let victim = self.of(core).insert(set, line, dirty);
        self.counts.evictions += u64::from(victim.is_some());
        victim
    }
}

/// The hierarchy and its counts. Lines are physical addresses divided by the size of a line, below 2⁶³ − 1.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    levels: Vec<Level>,
    /// Levels for data, and levels for fetches, nearest first.
    paths: [Vec<usize>; 2],
    cores: usize,
    memory: MemoryCounts,
    /// Depth at which fetches that a first level simulated elsewhere lets pass enter the levels below it: 0 if there is
    /// a first level of data only.
    fetch_top: usize,
    /// Whether the levels below the first can be simulated one after the other ([`super::passing`]).
    passes: bool,
}

impl Hierarchy {
    /// Empty caches. `seed` is for random replacement.
    ///
    /// # Errors
    /// As [`HierarchySpec::check`].
    pub fn new(spec: &HierarchySpec, seed: u64) -> Result<Hierarchy, SpecError> {
        spec.check()?;
        let paths = [spec.path(false), spec.path(true)];
        let level = |number: usize| {
            let level = &spec.levels[number];
            let index = level.index(spec.line_bytes).ok_or_else(|| SpecError(format!("{}: hash", level.name)))?;
            let copies = if level.shared { 1 } else { spec.cores };
            let new = |core: usize| {
                let seed = seed ^ ((number as u64) << 32 | core as u64);
                Sets::new(level.sets(spec.line_bytes) as usize, level.ways as usize, level.replacement, seed)
            };
            Ok(Level {
                sets: (0..copies).map(new).collect(),
                index,
                inclusion: level.inclusion,
                writebacks_allocate: level.writebacks_allocate,
                drops_clean_lines: level.inclusion != Inclusion::Inclusive && !is_above_exclusive(spec, number),
                path: usize::from(!paths[0].contains(&number)),
                depth: paths.iter().find_map(|path| path.iter().position(|other| *other == number)).unwrap_or(0),
                counts: Counts::default(),
            })
        };
        let levels: Vec<Level> = (0..spec.levels.len()).map(level).collect::<Result<_, SpecError>>()?;
        let below = paths[0].get(1..).unwrap_or_default();
        let fetch_top = paths[1].len() - below.len();
        let passes = spec.cores == 1 && below.iter().all(|number| levels[*number].passes());
        Ok(Hierarchy { levels, paths, cores: spec.cores, memory: MemoryCounts::default(), fetch_top, passes })
    }

    #[inline]
    fn path(&self, kind: usize) -> &[usize] {
        &self.paths[usize::from(kind == FETCH)]
    }

    /// Makes one demand access of `core` (`kind`: 0 load, 1 store, 2 fetch) to a line. Returns how many levels it went
    /// down; if memory had to answer, this is the number of levels on its path.
    #[inline]
    pub fn access(&mut self, core: usize, kind: usize, line: u64) -> usize {
        let write = kind == STORE;
        let Some(&first) = self.path(kind).first() else { return self.from(core, kind, line, 0) };
        let level = &mut self.levels[first];
        level.counts.accesses[kind] += 1;
        if let Some(dirty) = level.touch(core, line, write) {
            if write && !dirty && self.cores > 1 {
                self.take_from_others(core, line);
            }
            return 0;
        }
        level.counts.misses[kind] += 1;
        if self.cores > 1 {
            self.ask_others(core, line, write);
        }
        self.from(core, kind, line, 1)
    }

    /// Handles an access below the first level, which missed: finds the line, and puts `line` into every level on the
    /// way back, including the first.
    fn from(&mut self, core: usize, kind: usize, line: u64, start: usize) -> usize {
        let (depth, dirty) = self.search(core, kind, line, start);
        self.fill(core, kind, line, depth, 0, dirty);
        depth
    }

    /// As [`Hierarchy::access`], for a line that missed in a first level simulated elsewhere: changes only the levels
    /// below it.
    #[inline(always)]
    pub(crate) fn access_below(&mut self, core: usize, kind: usize, line: u64) -> usize {
        let top = if kind == FETCH { self.fetch_top } else { 1 };
        let (depth, dirty) = self.search(core, kind, line, top);
        self.fill(core, kind, line, depth, top, dirty);
        depth
    }

    /// Reads a line for a page walk of `core` from the level at depth `enter` on. Returns the number of levels of the
    /// data's path that it passed, counted from the core.
    #[inline]
    pub fn walk(&mut self, core: usize, line: u64, enter: usize) -> usize {
        let (depth, dirty) = self.search(core, WALK, line, enter);
        self.fill(core, WALK, line, depth, enter, dirty);
        depth
    }

    /// Passes a batch of events from a first level simulated elsewhere through all levels below it, one level after the
    /// other. Returns false, and does nothing, if these levels depend on each other, so that each event must be
    /// simulated singly. Afterwards `events` contains those that passed all levels.
    pub(super) fn pass_below(&mut self, events: &mut Vec<Passed>, spare: &mut Vec<Passed>) -> bool {
        if !self.passes {
            return false;
        }
        let given_up = events.iter().filter(|event| event.kind().is_none()).count();
        self.levels[self.paths[0][0]].counts.writebacks_out += given_up as u64;
        for number in self.paths[0][1..].iter().copied() {
            let Level { sets, index, counts, .. } = &mut self.levels[number];
            if let (Index::Bits(mask), [sets]) = (&*index, &mut sets[..]) {
                spare.clear();
                Stage { sets, counts, mask: *mask }.take(events, spare);
                std::mem::swap(events, spare);
            }
        }
        passing::arrive(events, &mut self.memory.reads, &mut self.memory.writes);
        true
    }

    /// Handles a line that a first level simulated elsewhere evicted; only dirty lines matter to the levels below.
    pub(crate) fn write_back_below(&mut self, core: usize, line: u64) {
        self.leave(core, self.paths[0][0], Victim { key: line, flag: true });
    }

    /// Searches the levels from depth `start` on. Returns where the line was found, and whether it left an exclusive
    /// level dirty.
    #[inline(always)]
    fn search(&mut self, core: usize, kind: usize, line: u64, start: usize) -> (usize, bool) {
        let depths = self.path(kind).len();
        for depth in start..depths {
            let number = self.path(kind)[depth];
            let level = &mut self.levels[number];
            level.counts.accesses[kind] += 1;
            if depth > 0 && level.inclusion == Inclusion::Exclusive {
                if let Some(dirty) = level.remove(core, line) {
                    return (depth, dirty);
                }
            } else if level.touch(core, line, depth == 0 && kind == STORE).is_some() {
                return (depth, false);
            }
            level.counts.misses[kind] += 1;
        }
        self.memory.reads[kind] += 1;
        (depths, false)
    }

    /// Puts the line into the levels between `found` and `top`, the lowest first. A moved dirty bit stays in the
    /// lowest.
    #[inline(always)]
    fn fill(&mut self, core: usize, kind: usize, line: u64, found: usize, top: usize, mut moved: bool) {
        for depth in (top..found).rev() {
            let number = self.path(kind)[depth];
            if depth > 0 && self.levels[number].inclusion == Inclusion::Exclusive {
                continue;
            }
            let dirty = std::mem::take(&mut moved) || (depth == 0 && kind == STORE);
            if let Some(victim) = self.levels[number].insert(core, line, dirty)
                && (victim.flag || !self.levels[number].drops_clean_lines)
            {
                self.leave(core, number, victim);
            }
        }
        // All levels above are exclusive, and a walk does not enter them: a dirty line goes to memory.
        self.memory.writes += u64::from(moved);
    }

    /// Evicts a line from level `from`.
    fn leave(&mut self, core: usize, from: usize, mut victim: Victim) {
        if self.levels[from].inclusion == Inclusion::Inclusive {
            victim.flag |= self.invalidate_above(core, from, victim.key);
        }
        self.levels[from].counts.writebacks_out += u64::from(victim.flag);
        let Level { path, depth: own, .. } = self.levels[from];
        for depth in own + 1..self.paths[path].len() {
            let number = self.paths[path][depth];
            let level = &mut self.levels[number];
            let exclusive = level.inclusion == Inclusion::Exclusive;
            if !victim.flag && !exclusive {
                return;
            }
            level.counts.writebacks_in += u64::from(victim.flag);
            if (victim.flag && level.soil(core, victim.key))
                || (!victim.flag && level.peek(core, victim.key).is_some())
            {
                return;
            }
            if exclusive || level.writebacks_allocate {
                let fell = level.insert(core, victim.key, victim.flag);
                self.keep_exclusive(core, path, depth, victim.key);
                if let Some(next) = fell {
                    self.leave(core, number, next);
                }
                return;
            }
            level.counts.writebacks_out += 1;
        }
        self.memory.writes += u64::from(victim.flag);
    }

    /// Removes a line that is put into the level at `depth` from an exclusive level right below it.
    fn keep_exclusive(&mut self, core: usize, path: usize, depth: usize, line: u64) {
        let Some(&below) = self.paths[path].get(depth + 1) else { return };
        if self.levels[below].inclusion == Inclusion::Exclusive
            && self.levels[below].remove(core, line) == Some(true)
        {
            let number = self.paths[path][depth];
            self.levels[number].soil(core, line);
        }
    }

    /// Removes `line` from every level above `below`, of every core that it serves; returns whether a copy was dirty.
    fn invalidate_above(&mut self, core: usize, below: usize, line: u64) -> bool {
        let cores = if self.levels[below].sets.len() == 1 { 0..self.cores } else { core..core + 1 };
        let mut dirty = false;
        for number in 0..below {
            let copies =
                if self.levels[number].sets.len() == 1 { cores.start..cores.start + 1 } else { cores.clone() };
            for other in copies {
                if let Some(was) = self.levels[number].remove(other, line) {
                    self.levels[number].counts.invalidations += 1;
                    dirty |= was;
                }
            }
        }
        dirty
    }

    /// Prepares an access of `core` to the line: other cores' copies are removed if it writes, and become clean if it
    /// reads; dirty data goes to the level that the cores share.
    fn ask_others(&mut self, core: usize, line: u64, write: bool) {
        if write {
            self.take_from_others(core, line);
            return;
        }
        let mut dirty = false;
        for number in
            (0..self.levels.len()).filter(|number| self.levels[*number].sets.len() > 1).collect::<Vec<_>>()
        {
            for other in (0..self.cores).filter(|other| *other != core) {
                let level = &mut self.levels[number];
                let set = level.index.of(line);
                if level.sets[other].peek(set, line) == Some(true) {
                    level.sets[other].mark(set, line, false);
                    level.counts.writebacks_out += 1;
                    dirty = true;
                }
            }
        }
        if dirty {
            self.write_back_shared(core, line);
        }
    }

    fn take_from_others(&mut self, core: usize, line: u64) {
        let mut dirty = false;
        for level in self.levels.iter_mut().filter(|level| level.sets.len() > 1) {
            let set = level.index.of(line);
            for other in (0..self.cores).filter(|other| *other != core) {
                if let Some(was) = level.sets[other].remove(set, line) {
                    level.counts.invalidations += 1;
                    level.counts.writebacks_out += u64::from(was);
                    dirty |= was;
                }
            }
        }
        if dirty {
            self.write_back_shared(core, line);
        }
    }

    /// Writes dirty data of another core's private levels to the first shared level that has the line, otherwise to
    /// memory.
    fn write_back_shared(&mut self, core: usize, line: u64) {
        for level in self.levels.iter_mut().filter(|level| level.sets.len() == 1) {
            level.counts.writebacks_in += 1;
            if level.soil(core, line) {
                return;
            }
            level.counts.writebacks_out += 1;
        }
        self.memory.writes += 1;
    }

    /// Makes a reference to several lines as cachegrind counts it: one access in each level, which misses if any line
    /// misses; the next level then gets all lines. For one core and levels that are neither inclusive nor exclusive.
    pub(crate) fn access_whole(&mut self, kind: usize, lines: &[u64]) -> usize {
        let depths = self.path(kind).len();
        for depth in 0..depths {
            let number = self.path(kind)[depth];
            self.levels[number].counts.accesses[kind] += 1;
            let mut missed = false;
            for line in lines.iter().copied() {
                let write = depth == 0 && kind == STORE;
                if self.levels[number].touch(0, line, write).is_none() {
                    missed = true;
                    if let Some(victim) = self.levels[number].insert(0, line, write) {
                        self.leave(0, number, victim);
                    }
                }
            }
            if !missed {
                return depth;
            }
            self.levels[number].counts.misses[kind] += 1;
        }
        self.memory.reads[kind] += 1;
        depths
    }

    /// Events of each level, in the specification's order.
    pub fn counts(&self) -> impl Iterator<Item = &Counts> {
        self.levels.iter().map(|level| &level.counts)
    }

    /// Counts of level `number`, for the code that simulates it.
    pub(crate) fn counts_of(&mut self, number: usize) -> &mut Counts {
        &mut self.levels[number].counts
    }

    /// Events at memory.
    pub const fn memory(&self) -> &MemoryCounts {
        &self.memory
    }

    /// Tells the processor that an access to `line` comes soon.
    #[inline(always)]
    pub(crate) fn prefetch_below(&self, line: u64) {
        for number in self.paths[0].iter().skip(1) {
            let level = &self.levels[*number];
            if level.sets.len() == 1 {
                level.sets[0].prefetch(level.index.of(line));
            }
        }
    }
}

/// Whether a level right below `number`, on either path, is exclusive: evicted lines go there.
fn is_above_exclusive(spec: &HierarchySpec, number: usize) -> bool {
    [false, true].into_iter().any(|fetch| {
        let path = spec.path(fetch);
        let below = path.iter().position(|level| *level == number).and_then(|depth| path.get(depth + 1));
        below.is_some_and(|below| spec.levels[*below].inclusion == Inclusion::Exclusive)
    })
}
