//! An array of which many machines with the same past have one copy, and their own copies of the parts that they change.

use std::sync::Arc;

/// Cells of a part: programs touch frames all over memory, so parts are small.
const PART: usize = 256;

/// A value for each frame.
#[derive(Clone, Debug)]
pub(super) enum Cells<T> {
    Own(Vec<T>),
    Shared { all: Arc<Vec<T>>, changed: Vec<Option<Box<[T]>>> },
}

impl<T: Copy> Cells<T> {
    pub(super) fn new(value: T, count: usize) -> Cells<T> {
        Cells::Own(vec![value; count])
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Cells::Own(all) => all.len(),
            Cells::Shared { all, .. } => all.len(),
        }
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<T> {
        let at = at as usize;
        match self {
            Cells::Own(all) => all.get(at).copied(),
            Cells::Shared { all, changed } => match changed.get(at / PART)? {
                Some(part) => part.get(at % PART).copied(),
                None => all.get(at).copied(),
            },
        }
    }

    /// Changes a cell, which must be there.
    #[inline]
    pub(super) fn set(&mut self, at: u32, value: T) {
        let at = at as usize;
        match self {
            Cells::Own(all) => all[at] = value,
            Cells::Shared { all, changed } => {
                let from = at / PART * PART;
                let part = changed[at / PART]
                    .get_or_insert_with(|| all[from..all.len().min(from + PART)].to_vec().into_boxed_slice());
                part[at % PART] = value;
            }
        }
    }

    /// From now on clones have these cells in common, until one changes its own.
    pub(super) fn share(&mut self) {
        if let Cells::Own(all) = self {
            let changed = vec![None; all.len().div_ceil(PART)];
            *self = Cells::Shared { all: Arc::new(std::mem::take(all)), changed };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_have_their_own_changes_only() {
        let mut one = Cells::new(0_u32, 1000);
        one.set(999, 7);
        one.share();
        let mut other = one.clone();
        other.set(998, 8);
        one.set(0, 1);
        let values = |cells: &Cells<u32>| [0, 1, 998, 999, 1000, 1023, 1024].map(|at| cells.get(at));
        assert_eq!(values(&one), [Some(1), Some(0), Some(0), Some(7), None, None, None]);
        assert_eq!(values(&other), [Some(0), Some(0), Some(8), Some(7), None, None, None]);
        let Cells::Shared { all, changed } = &other else { panic!("not shared") };
        assert_eq!((Arc::strong_count(all), changed.iter().flatten().count()), (2, 1));
    }
}
