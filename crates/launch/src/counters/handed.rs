//! The counters of a run that its program gets as descriptors, so that it can read them in windows.
//!
//! They are the counters whose totals the run reports: each counts the whole tree, so that what a window counts is the
//! difference of two readings, and the processor needs no second set of counters.

use super::role::Role;
use super::session::Session;
use crate::sys::process;
use pagelab_contract::record::Counter;
use pagelab_policy::windows::{self, EVENTS, HandedCounter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// First descriptor numbers that the program may get, in order of preference: away from its own descriptors, and within
/// the usual limits of 1024 and 256.
const FIRST: [RawFd; 2] = [1024 - EVENTS as RawFd, 256 - EVENTS as RawFd];

/// Counters that the program gets.
pub struct Handed {
    /// The first one's number in the program.
    pub first: RawFd,
    fds: Vec<OwnedFd>,
    ids: Vec<u64>,
    /// By role: its number, and the parts' places in `fds`.
    roles: Vec<(usize, Vec<usize>)>,
    /// Roles for which there is no room.
    left_out: usize,
}

/// How the counts of windows become one role's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InWindows {
    /// The role's name.
    pub name: String,
    /// Which counts of a window it consists of, added or subtracted.
    pub parts: Vec<(usize, i64)>,
}

impl InWindows {
    /// The role's count in a window; `None`: a part was not counted, or the sum is impossible.
    pub fn count(&self, counts: &[Option<u64>; EVENTS]) -> Option<u64> {
        let part = |&(place, sign): &(usize, i64)| Some(i128::from(sign) * i128::from((*counts.get(place)?)?));
        let sum: Option<i128> = self.parts.iter().map(part).sum();
        u64::try_from(sum?).ok().filter(|&sum| sum < super::verdict::ABSURD)
    }

    /// Its unit.
    pub fn unit(&self) -> &'static str {
        if self.name.starts_with("task-clock") { "ns" } else { "" }
    }
}

impl Handed {
    /// Chooses whole roles, as many as there is room for, and numbers that are free in the program.
    pub(super) fn choose(roles: &[Role], session: &Session, pid: i32, measure: Option<RawFd>) -> Option<Handed> {
        let first = first_free(process::descriptor_limit(pid)?, measure, crate::sys::files::is_open)?;
        let mut handed = Handed { first, fds: Vec::new(), ids: Vec::new(), roles: Vec::new(), left_out: 0 };
        for (number, role) in roles.iter().enumerate() {
            let of_role = session.opened.iter().filter(|opened| opened.slot.0 == number);
            let singles: Option<Vec<(OwnedFd, u64)>> = of_role.map(super::session::Opened::single).collect();
            let Some(singles) = singles.filter(|parts| !parts.is_empty() && parts.len() == role.parts.len()) else {
                continue;
            };
            if handed.fds.len() + singles.len() > EVENTS {
                handed.left_out += 1;
                continue;
            }
            handed.roles.push((number, (handed.fds.len()..handed.fds.len() + singles.len()).collect()));
            for (fd, id) in singles {
                handed.fds.push(fd);
                handed.ids.push(id);
            }
        }
        (!handed.fds.is_empty()).then_some(handed)
    }

    /// The launcher's descriptors of them, in order of their numbers in the program.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.fds.iter().map(AsFd::as_fd).collect()
    }

    /// What the library in the program reads.
    pub fn file(&self) -> Vec<u8> {
        let counter =
            |(number, id): (usize, &u64)| HandedCounter { descriptor: self.first as u64 + number as u64, id: *id };
        windows::handed(&self.ids.iter().enumerate().map(counter).collect::<Vec<_>>())
    }

    /// The roles to be reported in windows: those whose total in the run is reported.
    pub fn in_windows(&self, roles: &[Role], counted: &[Counter]) -> Vec<InWindows> {
        let trusted = |number: &usize| counted.get(*number).is_some_and(|counter| counter.count.is_some());
        let of_role = |(number, places): &(usize, Vec<usize>)| {
            let role = roles.get(*number).filter(|_| trusted(number))?;
            let parts = places.iter().copied().zip(role.parts.iter().map(|part| part.sign)).collect();
            Some(InWindows { name: role.name.clone(), parts })
        };
        self.roles.iter().filter_map(of_role).collect()
    }

    /// How many roles are not in windows because there is no room for them.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

/// The first number of [`EVENTS`] that are free, here and therefore in the program, which was forked off a moment ago.
fn first_free(limit: u64, measure: Option<RawFd>, is_taken: impl Fn(RawFd) -> bool) -> Option<RawFd> {
    let range = |first: RawFd| first..first + EVENTS as RawFd;
    FIRST.into_iter().find(|&first| {
        range(first).end as u64 <= limit
            && !measure.is_some_and(|number| range(first).contains(&number))
            && !range(first).any(&is_taken)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_within_the_programs_limit_and_free() {
        let free = |limit, measure| first_free(limit, measure, |_| false);
        assert_eq!(free(1024, None), Some(1008));
        assert_eq!(free(1 << 20, Some(1010)), Some(240));
        assert_eq!(free(256, None), Some(240));
        assert_eq!(free(255, None), None);
        assert_eq!(first_free(1024, None, |number| number == 1023), Some(240));
        assert_eq!(first_free(1024, None, |number| number == 1023 || number == 240), None);
    }

    #[test]
    fn a_role_is_the_sum_of_its_parts_or_nothing() {
        let role = InWindows { name: "tlb.hits".to_owned(), parts: vec![(0, 1), (2, -1)] };
        let mut counts = [None; EVENTS];
        (counts[0], counts[2]) = (Some(7), Some(3));
        assert_eq!(role.count(&counts), Some(4));
        counts[2] = Some(8);
        assert_eq!(role.count(&counts), None, "a negative difference");
        counts[2] = None;
        assert_eq!(role.count(&counts), None);
        (counts[0], counts[2]) = (Some(1 << 50), Some(0));
        assert_eq!(role.count(&counts), None, "absurd");
    }
}
