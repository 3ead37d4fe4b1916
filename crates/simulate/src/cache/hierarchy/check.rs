//! Invariants of a hierarchy between accesses.

use super::super::counts::WALK;
use super::super::spec::Inclusion;
use super::{FETCH, Hierarchy};

impl Hierarchy {
    /// Whether `line` is in `core`'s copy of level `number`.
    #[must_use]
    pub fn holds(&self, number: usize, core: usize, line: u64) -> bool {
        self.levels[number].peek(core, line).is_some()
    }

    /// Checks the invariants between accesses: sets are sound; each line is in its set; inclusive levels contain all
    /// lines of those above; exclusive levels contain no line of the level above (except with several cores); at most
    /// one core has a line dirty; and every hit, miss and read agrees with the level above.
    ///
    /// # Errors
    /// The violated invariant.
    pub fn check(&self) -> Result<(), String> {
        for (number, level) in self.levels.iter().enumerate() {
            for sets in &level.sets {
                sets.check().map_err(|what| format!("level {number}: {what}"))?;
                if let Some((set, way)) = sets.iter().find(|(set, way)| level.index.of(way.key) != *set) {
                    return Err(format!("level {number}: line {:#x} in set {set}", way.key));
                }
            }
        }
        self.paths.iter().try_for_each(|path| self.check_path(path))
    }

    fn check_path(&self, path: &[usize]) -> Result<(), String> {
        let one_path = self.paths[0] == self.paths[1];
        for (at, &number) in path.iter().enumerate().skip(1) {
            let level = &self.levels[number];
            for above in path[..at].iter().copied() {
                for core in 0..self.levels[above].sets.len() {
                    for (_, way) in self.levels[above].sets[core].iter() {
                        let here = level.peek(core, way.key).is_some();
                        let adjacent = above == path[at - 1];
                        match level.inclusion {
                            Inclusion::Inclusive if !here => {
                                return Err(format!("level {number} lacks line {:#x} of level {above}", way.key));
                            }
                            Inclusion::Exclusive if here && adjacent && self.cores == 1 && (at > 1 || one_path) => {
                                return Err(format!("level {number} has line {:#x} of level {above} too", way.key));
                            }
                            _ => {}
                        }
                    }
                }
            }
        }
        let last = path.last().map(|last| self.levels[*last].counts);
        for kind in 0..WALK {
            let pairs = path.windows(2).map(|pair| (self.levels[pair[0]].counts, self.levels[pair[1]].counts));
            let data = kind != FETCH;
            if path == self.paths[usize::from(!data)] {
                for (above, below) in pairs {
                    if above.misses[kind] != below.accesses[kind] {
                        return Err(format!(
                            "{} misses above, {} accesses below",
                            above.misses[kind], below.accesses[kind]
                        ));
                    }
                }
                if last.is_some_and(|last| last.misses[kind] != self.memory.reads[kind]) {
                    return Err("misses of the last level are not the reads of memory".to_owned());
                }
            }
        }
        Ok(())
    }
}
