//! Groups of events that are on the hardware at the same time.

use super::breakdown::Slot;
use super::processor::{self, Processor};
use super::role::{Part, Role};
use super::selftest;
use super::session::open_allowed;
use crate::sys::perf::{self, Open, Reading};
use perf_event_open_sys::bindings as abi;
use std::io;
use std::os::fd::OwnedFd;

/// Events that count at the same time or not at all.
pub struct Group {
    /// The first leads.
    pub slots: Vec<Slot>,
    /// On the hardware all the time, or an error.
    pub pinned: bool,
}

impl Group {
    /// A software event: it needs no counter, so it never waits for others.
    pub fn alone(slot: Slot) -> Group {
        Group { slots: vec![slot], pinned: false }
    }
}

/// The event of a slot.
pub fn part<'r>(roles: &'r [Role], slot: &Slot) -> Option<&'r Part> {
    roles.get(slot.0)?.parts.get(slot.1)
}

/// All events: (hardware, software).
pub fn slots(roles: &[Role]) -> (Vec<Slot>, Vec<Slot>) {
    let of_role = |number: usize| {
        let parts = roles.get(number).map_or(0, |role| role.parts.len());
        (0..parts).map(move |part| (number, part))
    };
    let all = (0..roles.len()).flat_map(of_role);
    all.partition(|slot| part(roles, slot).is_some_and(Part::is_hardware))
}

/// Cycles and instructions have counters of their own on Intel.
fn is_fixed(part: &Part) -> bool {
    part.code.kind == abi::PERF_TYPE_HARDWARE
        && part.code.config <= u64::from(abi::PERF_COUNT_HW_INSTRUCTIONS)
        && matches!(processor::own(), Some(Processor::X86 { vendor, .. }) if vendor == "GenuineIntel")
}

/// How many general counters these events need.
pub fn general(roles: &[Role], hardware: &[Slot]) -> usize {
    hardware.iter().filter(|slot| !part(roles, slot).is_some_and(is_fixed)).count()
}

/// One pinned group when the hardware holds it, else several that take turns.
pub fn hardware(roles: &[Role], hardware: &[Slot], usable: usize) -> Vec<Group> {
    if hardware.is_empty() {
        return Vec::new();
    }
    let needed = general(roles, hardware);
    if needed <= usable && rehearse(roles, hardware) {
        return vec![Group { slots: hardware.to_vec(), pinned: true }];
    }
    let room = usable.min(needed.saturating_sub(1)).max(1);
    let groups = in_turns(roles.len(), hardware, room);
    groups.into_iter().map(|slots| Group { slots, pinned: false }).collect()
}

/// Groups of at most `room` events each, in order; a role's events stay together where they fit.
fn in_turns(roles: usize, hardware: &[Slot], room: usize) -> Vec<Vec<Slot>> {
    let mut groups: Vec<Vec<Slot>> = Vec::new();
    for role in 0..roles {
        let own: Vec<Slot> = hardware.iter().filter(|slot| slot.0 == role).copied().collect();
        for chunk in own.chunks(room) {
            match groups.last_mut() {
                Some(last) if last.len() + chunk.len() <= room => last.extend(chunk),
                _ => groups.push(chunk.to_vec()),
            }
        }
    }
    groups
}

/// Opens the same group on this process for a moment: events may exclude each other on the hardware, which only an
/// attempt shows.
fn rehearse(roles: &[Role], hardware: &[Slot]) -> bool {
    let attempt = || -> io::Result<bool> {
        let mut counters: Vec<OwnedFd> = Vec::new();
        for slot in hardware {
            let Some(part) = part(roles, slot) else { continue };
            let leader = counters.first();
            let how = Open { pid: 0, cpu: None, leader, pinned: true, tree: false, stat: false };
            let counter = open_allowed(&part.code, &how)?.0;
            counters.push(counter);
        }
        if let Some(leader) = counters.first() {
            perf::enable(leader)?;
            selftest::branch_loop();
            perf::disable(leader)?;
        }
        let readings: io::Result<Vec<Option<Reading>>> = counters.iter().map(perf::read).collect();
        Ok(readings?
            .iter()
            .all(|one| one.is_some_and(|one| one.running_ns > 0 && one.running_ns == one.enabled_ns)))
    };
    // An error here occurs again when the run's own counters are opened, and is reported then.
    attempt().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_hold_no_more_than_the_hardware_and_keep_roles_together() {
        let slots = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)];
        assert_eq!(in_turns(3, &slots, 4), [vec![(0, 0), (0, 1), (1, 0), (1, 1)], vec![(2, 0)]]);
        assert_eq!(in_turns(3, &slots, 3), [vec![(0, 0), (0, 1)], vec![(1, 0), (1, 1), (2, 0)]]);
        assert_eq!(in_turns(3, &slots, 1).len(), 5);
    }
}
