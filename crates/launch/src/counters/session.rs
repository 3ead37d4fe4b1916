//! Opening the counters of a run: in groups that the hardware can hold, and a second set of them by CPU where
//! processes are told apart.

use super::announced::{Family, Watch};
use super::breakdown::{Breakdown, Heard, MOST_IDS, Slot};
use super::groups::{self, Group, part};
use super::role::{Part, Role};
use super::selftest;
use crate::cpus::Cpus;
use crate::sys::perf::{self, Code, Open, Reading, Ring};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

/// With more counters than this (events × CPUs), forks of the program become noticeably slower, since the kernel makes
/// as many for each child.
const MOST_BY_CPU: usize = 96;
const _: () = assert!(MOST_BY_CPU <= MOST_IDS);

/// One event of one role, open.
pub struct Opened {
    /// Which.
    pub slot: Slot,
    /// Its descriptors: one, or one a CPU.
    fds: Vec<OwnedFd>,
    /// It counts user mode only, because the kernel's settings demand it.
    pub user_only: bool,
}

/// The sum over a counter's descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Events counted, unscaled.
    pub count: u64,
    /// Time during which it was enabled.
    pub enabled_ns: u64,
    /// Time during which it counted.
    pub running_ns: u64,
}

/// All counters of a run.
#[derive(Default)]
pub struct Session {
    /// Counters that were opened.
    pub opened: Vec<Opened>,
    /// Counters that could not be opened, and why.
    pub refused: Vec<(usize, io::Error)>,
    /// Hardware counters that were found to count nothing: (advertised, usable).
    pub lying: Option<(usize, usize)>,
    /// Announcements of the process tree; None: refused, or there are too many CPUs.
    pub watch: Option<Watch>,
    /// Why not, when the kernel refused them.
    pub unwatched: Option<io::Error>,
    /// Ring buffers, when processes are told apart.
    pub breakdown: Option<Breakdown>,
    /// Why processes, or some of their counters, are not counted separately, although the request wanted it.
    pub no_breakdown: Option<String>,
    /// Hardware counters that are left when the totals have theirs.
    pub(super) spare: usize,
}

impl Opened {
    /// Reads and sums; `Ok(None)`: the hardware could not keep it.
    pub fn total(&self) -> io::Result<Option<Total>> {
        let mut total = Total::default();
        for fd in &self.fds {
            let Some(reading) = perf::read(fd)? else { return Ok(None) };
            total.count += reading.count;
            total.running_ns += reading.running_ns;
            // A counter of one CPU is enabled while its task runs anywhere.
            total.enabled_ns = total.enabled_ns.max(reading.enabled_ns);
        }
        Ok(Some(total))
    }

    /// A duplicate of its descriptor, and its id, if it has one of the whole tree.
    pub fn single(&self) -> Option<(OwnedFd, u64)> {
        let [fd] = self.fds.as_slice() else { return None };
        Some((fd.try_clone().ok()?, perf::read(fd).ok()??.id))
    }

    fn ids(&self) -> io::Result<Vec<u64>> {
        let readings: io::Result<Vec<Option<Reading>>> = self.fds.iter().map(perf::read).collect();
        Ok(readings?.into_iter().flatten().map(|reading| reading.id).collect())
    }
}

/// Sums of counters by slot; None for those the hardware could not keep.
pub fn totals(opened: &[Opened]) -> HashMap<Slot, Option<Total>> {
    opened.iter().map(|opened| (opened.slot, opened.total().unwrap_or(None))).collect()
}

impl Session {
    /// Opens what `roles` name on a process that is about to exec. Never fails: what could not be opened is in
    /// `refused`.
    ///
    /// The order of opening matters. When the kernel switches between two tasks whose counters were inherited from the
    /// same parent, it swaps their contexts whole, and then swaps back the counts of `inherit_stat` events pairwise
    /// *by position in the list*. A child's list has the order of the kernel's tree (pinned first, then by CPU with -1
    /// before 0, by PMU, by age); counters opened in another order are paired wrongly, and counts of one event land
    /// in another (seen on Linux 6.18). So: hardware totals, hardware by CPU; software totals, then everything of CPU
    /// 0, of CPU 1 …; and only one PMU in each of the two trees.
    pub fn open(roles: &[Role], pid: i32, cpus: &Cpus, per_process: bool) -> Session {
        let mut session = Session::default();
        perf::raise_descriptor_limit();
        let (hardware, software) = session.plan(roles);
        let wanted = per_process && roles.iter().any(|role| !role.parts.is_empty());
        let by_process = if wanted { session.choose(roles, &hardware, &software, &cpus.program) } else { None };
        session.open_groups(roles, pid, &hardware);
        let mut second = Second::default();
        if let Some(chosen) = &by_process {
            second.open_hardware(roles, pid, &chosen.hardware, &cpus.program);
        }
        session.open_groups(roles, pid, &software);
        let software = by_process.as_ref().map(|chosen| chosen.software.as_slice());
        if cpus.program.len() <= MOST_BY_CPU {
            session.watch(&mut second, roles, pid, software.unwrap_or_default(), &cpus.program);
        }
        session.drop_incomplete();
        if by_process.is_some() {
            match second.finish(cpus.program.len()) {
                Ok(breakdown) => session.breakdown = Some(breakdown),
                Err(error) => session.no_breakdown = Some(crate::sys::errno_text(&error)),
            }
        }
        session
    }

    /// Opens the announcements of the tree and, CPU by CPU behind them, the software events of the second set.
    fn watch(&mut self, second: &mut Second, roles: &[Role], pid: i32, slots: &[Slot], cpus: &[usize]) {
        let mut rings = Vec::new();
        for &cpu in cpus {
            match perf::open_side_band(pid, cpu).and_then(Ring::new) {
                Ok(ring) => rings.push(ring),
                Err(error) => {
                    second.problem.get_or_insert(io::Error::other("processes cannot be followed"));
                    self.unwatched = Some(error);
                    return;
                }
            }
            second.open_software(roles, pid, slots, cpu);
        }
        self.watch = Some(Watch { rings, family: Family::of(pid) });
    }

    /// Groups for the totals: (hardware, software).
    fn plan(&mut self, roles: &[Role]) -> (Vec<Group>, Vec<Group>) {
        let (hardware, software) = groups::slots(roles);
        let software = software.into_iter().map(Group::alone).collect();
        if hardware.is_empty() {
            return (Vec::new(), software);
        }
        let verdict = match selftest::run_here() {
            Ok(verdict) => verdict,
            Err(error) => {
                self.refuse(&hardware, &error);
                return (Vec::new(), software);
            }
        };
        if verdict.usable < verdict.advertised {
            self.lying = Some((verdict.advertised, verdict.usable));
        }
        if verdict.usable == 0 {
            self.refuse(&hardware, &io::Error::from_raw_os_error(libc::ENODEV));
            return (Vec::new(), software);
        }
        let hardware = self.obtainable(roles, hardware);
        self.spare = verdict.usable.saturating_sub(groups::general(roles, &hardware));
        (groups::hardware(roles, &hardware, verdict.usable), software)
    }

    /// The events that can be opened alone. With the others, the rest could not be one pinned group.
    fn obtainable(&mut self, roles: &[Role], mut hardware: Vec<Slot>) -> Vec<Slot> {
        let how = Open { pid: 0, cpu: None, leader: None, pinned: false, tree: false, stat: false };
        for slot in &hardware {
            if let Some(Err(error)) = part(roles, slot).map(|part| open_allowed(&part.code, &how)) {
                self.refuse(&[*slot], &error);
            }
        }
        hardware.retain(|slot| !self.refused.iter().any(|refused| refused.0 == slot.0));
        hardware
    }

    /// Counters of the second set: by CPU and with ring buffers, for counts by process.
    fn choose(&mut self, roles: &[Role], hardware: &[Group], software: &[Group], cpus: &[usize]) -> Option<Chosen> {
        let mut chosen = Chosen::default();
        let mut left_out: Vec<&str> = Vec::new();
        let mut spare = if hardware.iter().all(|group| group.pinned) { self.spare } else { 0 };
        for (number, role) in roles.iter().enumerate().filter(|(_, role)| !role.parts.is_empty()) {
            if self.refused.iter().any(|refused| refused.0 == number) {
                continue;
            }
            let own: Vec<Slot> = (0..role.parts.len()).map(|part| (number, part)).collect();
            if role.parts.iter().all(Part::is_core_hardware) && own.len() <= spare {
                spare -= own.len();
                chosen.hardware.extend(own);
            } else if role.parts.iter().all(Part::is_plain_software) {
                chosen.software.extend(own);
            } else {
                left_out.push(&role.name);
            }
        }
        let count = (chosen.hardware.len() + chosen.software.len() + 1) * cpus.len();
        // Another PMU's events in the software tree would break the order explained at `open`.
        let mixed = software
            .iter()
            .flat_map(|group| &group.slots)
            .any(|slot| part(roles, slot).is_some_and(|part| !part.is_plain_software()));
        self.no_breakdown = if count > MOST_BY_CPU {
            Some(format!("{count} counters (events × CPUs) would slow down every fork"))
        } else if mixed || hardware.iter().any(|group| !group.pinned) {
            Some(format!("{} cannot be combined with counting by process", left_out.join(", ")))
        } else {
            (!left_out.is_empty())
                .then(|| format!("the processor has no second counter for {}", left_out.join(", ")))
        };
        let possible = count <= MOST_BY_CPU && !mixed && hardware.iter().all(|group| group.pinned);
        (possible && chosen.hardware.len() + chosen.software.len() > 0).then_some(chosen)
    }

    fn refuse(&mut self, slots: &[Slot], error: &io::Error) {
        for slot in slots {
            if !self.refused.iter().any(|refused| refused.0 == slot.0) {
                let copy = error.raw_os_error().map(io::Error::from_raw_os_error);
                self.refused.push((slot.0, copy.unwrap_or_else(|| io::Error::other(error.to_string()))));
            }
        }
    }

    fn open_groups(&mut self, roles: &[Role], pid: i32, groups: &[Group]) {
        for group in groups {
            // The first that can be opened leads.
            let first = self.opened.len();
            for slot in &group.slots {
                let Some(wanted) = part(roles, slot) else { continue };
                let leader = self.opened.get(first).and_then(|leader| leader.fds.first());
                let how = Open { pid, cpu: None, leader, pinned: group.pinned, tree: true, stat: false };
                match open_allowed(&wanted.code, &how) {
                    Ok((fd, user_only)) => self.opened.push(Opened { slot: *slot, fds: vec![fd], user_only }),
                    Err(error) => self.refuse(&[*slot], &error),
                }
            }
        }
        self.drop_incomplete();
    }

    /// A role of which a part is missing would be a wrong sum. (Closing a leader leaves its members running alone.)
    fn drop_incomplete(&mut self) {
        let refused: Vec<usize> = self.refused.iter().map(|refused| refused.0).collect();
        self.opened.retain(|opened| !refused.contains(&opened.slot.0));
    }
}

#[derive(Default)]
struct Chosen {
    hardware: Vec<Slot>,
    software: Vec<Slot>,
}

/// The second set, while it is being opened; nothing more is opened after the first problem.
#[derive(Default)]
struct Second {
    opened: Vec<Opened>,
    problem: Option<io::Error>,
}

impl Second {
    fn open_one(&mut self, roles: &[Role], pid: i32, slot: Slot, cpu: usize, leads: bool) -> io::Result<()> {
        let Some(wanted) = part(roles, &slot) else { return Ok(()) };
        let hardware = wanted.is_hardware();
        let first = self.opened.first().filter(|_| hardware && !leads);
        let leader = first.and_then(|first| first.fds.last());
        let how = Open { pid, cpu: Some(cpu), leader, pinned: hardware, tree: true, stat: true };
        let (fd, user_only) = open_allowed(&wanted.code, &how)?;
        match self.opened.iter_mut().find(|opened| opened.slot == slot) {
            Some(opened) => opened.fds.push(fd),
            None => self.opened.push(Opened { slot, fds: vec![fd], user_only }),
        }
        Ok(())
    }

    fn open_hardware(&mut self, roles: &[Role], pid: i32, slots: &[Slot], cpus: &[usize]) {
        for &cpu in cpus {
            for (index, &slot) in slots.iter().enumerate() {
                self.try_one(roles, pid, slot, cpu, index == 0);
            }
        }
    }

    fn open_software(&mut self, roles: &[Role], pid: i32, slots: &[Slot], cpu: usize) {
        for &slot in slots {
            self.try_one(roles, pid, slot, cpu, true);
        }
    }

    fn try_one(&mut self, roles: &[Role], pid: i32, slot: Slot, cpu: usize, leads: bool) {
        if self.problem.is_none() {
            self.problem = self.open_one(roles, pid, slot, cpu, leads).err();
        }
    }

    fn finish(self, cpus: usize) -> io::Result<Breakdown> {
        if let Some(error) = self.problem {
            return Err(error);
        }
        let mut heard = Heard::default();
        for opened in &self.opened {
            if opened.fds.len() != cpus {
                return Err(io::ErrorKind::NotFound.into());
            }
            for id in opened.ids()? {
                heard.learn(id, opened.slot);
            }
        }
        let mut rings = Vec::new();
        for cpu in 0..cpus {
            let mut own = self.opened.iter().filter_map(|opened| opened.fds.get(cpu));
            let Some(first) = own.next() else { break };
            let ring = Ring::new(first.try_clone()?)?;
            own.try_for_each(|fd| ring.attach(fd))?;
            rings.push(ring);
        }
        Ok(Breakdown { rings, opened: self.opened, heard })
    }
}

/// Opens an event as requested; if the kernel's settings allow user mode only, for user mode.
pub fn open_allowed(code: &Code, how: &Open<'_>) -> io::Result<(OwnedFd, bool)> {
    match perf::open(code, how) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) && !code.exclude_kernel && !code.exclude_user => {
            perf::open(&Code { exclude_kernel: true, ..*code }, how).map(|fd| (fd, true)).map_err(|_| error)
        }
        done => done.map(|fd| (fd, false)),
    }
}
