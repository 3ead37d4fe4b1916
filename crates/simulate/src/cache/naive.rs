//! A naive simulation of the same caches: lists of (line, dirty), most recent first, LRU only. For tests.

use super::counts::{Counts, MemoryCounts};
use super::spec::{HierarchySpec, Inclusion};

pub(super) struct Naive {
    spec: HierarchySpec,
    /// Lines by level and set.
    lists: Vec<Vec<Vec<(u64, bool)>>>,
    pub(super) counts: Vec<Counts>,
    pub(super) memory: MemoryCounts,
}

impl Naive {
    pub(super) fn new(spec: &HierarchySpec) -> Naive {
        let lists = spec.levels.iter().map(|level| vec![vec![]; level.sets(spec.line_bytes) as usize]).collect();
        Naive {
            lists,
            counts: vec![Counts::default(); spec.levels.len()],
            memory: MemoryCounts::default(),
            spec: spec.clone(),
        }
    }

    fn list(&mut self, level: usize, line: u64) -> &mut Vec<(u64, bool)> {
        let sets = self.lists[level].len() as u64;
        &mut self.lists[level][(line % sets) as usize]
    }

    fn take(&mut self, level: usize, line: u64) -> Option<bool> {
        let list = self.list(level, line);
        let at = list.iter().position(|entry| entry.0 == line)?;
        Some(list.remove(at).1)
    }

    pub(super) fn access(&mut self, kind: usize, line: u64) {
        let path = self.spec.path(kind == 2);
        let mut found = path.len();
        let mut dirty = false;
        for (depth, &level) in path.iter().enumerate() {
            self.counts[level].accesses[kind] += 1;
            if let Some(was) = self.take(level, line) {
                if self.spec.levels[level].inclusion == Inclusion::Exclusive {
                    dirty = was;
                } else {
                    let flag = was || (depth == 0 && kind == 1);
                    self.list(level, line).insert(0, (line, flag));
                }
                found = depth;
                break;
            }
            self.counts[level].misses[kind] += 1;
        }
        if found == path.len() {
            self.memory.reads[kind] += 1;
        }
        for depth in (0..found).rev() {
            if self.spec.levels[path[depth]].inclusion != Inclusion::Exclusive {
                let flag = std::mem::take(&mut dirty) || (depth == 0 && kind == 1);
                self.put(&path, depth, line, flag);
            }
        }
    }

    fn put(&mut self, path: &[usize], depth: usize, line: u64, dirty: bool) {
        let level = path[depth];
        let ways = self.spec.levels[level].ways as usize;
        let list = self.list(level, line);
        list.insert(0, (line, dirty));
        if list.len() > ways {
            let (out, mut dirty) = list.pop().unwrap();
            self.counts[level].evictions += 1;
            if self.spec.levels[level].inclusion == Inclusion::Inclusive {
                for above in 0..level {
                    if let Some(was) = self.take(above, out) {
                        self.counts[above].invalidations += 1;
                        dirty |= was;
                    }
                }
            }
            self.counts[level].writebacks_out += u64::from(dirty);
            self.give(path, depth + 1, out, dirty);
        }
    }

    fn give(&mut self, path: &[usize], depth: usize, line: u64, dirty: bool) {
        let Some(&level) = path.get(depth) else {
            self.memory.writes += u64::from(dirty);
            return;
        };
        let exclusive = self.spec.levels[level].inclusion == Inclusion::Exclusive;
        if !dirty && !exclusive {
            return;
        }
        self.counts[level].writebacks_in += u64::from(dirty);
        if let Some(entry) = self.list(level, line).iter_mut().find(|entry| entry.0 == line) {
            entry.1 |= dirty;
            return;
        }
        if !exclusive && !self.spec.levels[level].writebacks_allocate {
            self.counts[level].writebacks_out += 1;
            return self.give(path, depth + 1, line, dirty);
        }
        // A line may be in an exclusive level below, but in one place only.
        let below = path.get(depth + 1).copied();
        let below = below.filter(|below| self.spec.levels[*below].inclusion == Inclusion::Exclusive);
        let moved = below.and_then(|below| self.take(below, line)).unwrap_or(false);
        self.put(path, depth, line, dirty | moved);
    }
}
