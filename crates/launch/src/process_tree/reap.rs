//! Watching over the process tree of a run: reaping, time-out, signals, ending what is left.

use crate::sys::process::{Change, End, Reaped, Usage};
use crate::sys::procfs;
use crate::sys::trace::Stopped;
use crate::sys::{self, process, signals};
use nix::sys::signalfd::SignalFd;
use rustix::process::Signal;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// How long a process may take to end after SIGTERM before it gets SIGKILL.
pub const TERM_GRACE_NS: u64 = 2_000_000_000;
/// How long processes that the program left behind may go on after it has ended.
pub const LEFT_GRACE_NS: u64 = 200_000_000;
/// Interval between readings of buffers that can no longer wake the launcher.
const VISIT_NS: u64 = 50_000_000;
/// How often the tree is looked at while it is being ended.
const ENDING_POLL_NS: u64 = 20_000_000;

/// Why the launcher ended the tree itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The time-out.
    TimedOut,
    /// A signal to the launcher.
    Interrupted(i32),
}

/// Everything observed of a tree.
#[derive(Debug, Default)]
pub struct Story {
    /// Everything reaped, in order.
    pub ended: Vec<Reaped>,
    /// How the program itself ended, and when.
    pub program: Option<Reaped>,
    /// Why it was cut short, if it was.
    pub cut: Option<Cut>,
    /// Why the program got no signal that was to end it: it runs as a user whose processes may not be signalled.
    pub refused: Option<io::Error>,
    /// Processes still running when the program had ended and the grace was over: (pid, name). They were ended, unless
    /// the launcher gave up.
    pub left: Vec<(i32, String)>,
    /// What was left could not be ended.
    pub gave_up: bool,
}

impl Story {
    /// Usage of the whole tree.
    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        for ended in &self.ended {
            sum.add(&ended.usage);
        }
        sum
    }
}

/// Something that must be looked after while the tree runs (ring buffers, captured output).
pub trait Companion {
    /// Descriptors that are readable when a visit is needed.
    fn fds(&self) -> Vec<RawFd>;
    /// A descriptor that is writable when a visit is needed.
    fn writable(&self) -> Option<RawFd>;
    /// A visit; also made at every other event.
    fn visit(&mut self);
    /// The longest time between visits.
    fn interval_ns(&self) -> Option<u64>;
    /// A process that is traced has stopped, and must be resumed. Returns whether the program is at its end.
    fn stopped(&mut self, stopped: Stopped) -> bool;
    /// The program was reaped: its process id may be another's.
    fn program_ended(&mut self);
}

/// A second signal that comes later than this skips the waiting. One that comes sooner is a copy of the first: Ctrl-C
/// reaches the whole process group, and the caller passes it on once more.
const ECHO_NS: u64 = 500_000_000;
/// How long SIGKILL is repeated before a process that will not die is left alone (no right to signal it, or stuck).
const KILL_PATIENCE_NS: u64 = 10_000_000_000;

/// The tree is being ended: SIGTERM to all of it at one time, SIGKILL at another.
struct Ending {
    since_ns: u64,
    term_at_ns: Option<u64>,
    kill_at_ns: u64,
}

impl Ending {
    /// Begins now, with SIGTERM after `delay_ns`.
    fn begin(now: u64, delay_ns: u64) -> Ending {
        let term_at = now + delay_ns;
        Ending { since_ns: now, term_at_ns: Some(term_at), kill_at_ns: term_at + TERM_GRACE_NS }
    }

    /// Sends what is due; false when even SIGKILL has not helped.
    fn act(&mut self, now: u64, program: i32, story: &mut Story) -> bool {
        if self.term_at_ns.is_some_and(|at| now >= at) {
            self.term_at_ns = None;
            // A stopped process acts on it only when continued.
            signal_all(&[Signal::TERM, Signal::CONT], program, story);
        }
        if now >= self.kill_at_ns {
            signal_all(&[Signal::KILL], program, story);
        }
        now < self.kill_at_ns + KILL_PATIENCE_NS
    }
}

/// Watches until the program and everything it started has ended.
pub struct Watch<'a> {
    /// From [`signals::watch`], made before the program was started.
    pub signals: &'a SignalFd,
    /// The program's process id, also its group's unless `shares_group`.
    pub program: i32,
    /// The program is in this process's group.
    pub shares_group: bool,
    /// When to end the tree.
    pub deadline_ns: Option<u64>,
    /// Visited while the tree runs.
    pub companion: &'a mut dyn Companion,
}

impl Watch<'_> {
    /// Runs the watch to its end.
    pub fn run(mut self) -> io::Result<Story> {
        let mut story = Story::default();
        let mut ending: Option<Ending> = None;
        let mut leave_at_ns = None;
        let mut hung_up: Vec<RawFd> = Vec::new();
        loop {
            if !self.reap(&mut story)? {
                return Ok(story);
            }
            self.companion.visit();
            let now = sys::monotonic_ns();
            if story.program.is_some() && leave_at_ns.is_none() {
                leave_at_ns = Some(now + LEFT_GRACE_NS);
            }
            // A program that has ended did so in time; what it left behind has its own grace.
            let is_late = story.program.is_none() && self.deadline_ns.is_some_and(|deadline| now >= deadline);
            if ending.is_none() && is_late {
                story.cut = story.cut.or(Some(Cut::TimedOut));
                ending = Some(Ending::begin(now, 0));
            }
            if ending.is_none() && leave_at_ns.is_some_and(|at| now >= at) {
                story.left = left_over();
                ending = Some(Ending::begin(now, 0));
            }
            if let Some(ending) = &mut ending {
                if story.program.is_some() {
                    // After an interruption, processes that are left behind are ended without a grace.
                    ending.term_at_ns = ending.term_at_ns.map(|at| at.min(now));
                }
                if !ending.act(now, self.program, &mut story) {
                    story.left = left_over();
                    story.gave_up = true;
                    return Ok(story);
                }
            }
            let next_ns = leave_at_ns.or(self.deadline_ns);
            self.wait(now, ending.as_ref(), next_ns, &mut hung_up)?;
            while let Some((signal, by_kernel)) = signals::next_with_sender(self.signals) {
                if signal != libc::SIGCHLD {
                    self.interrupted(signal, by_kernel, &mut story, &mut ending);
                }
            }
        }
    }

    /// Reaps what has ended; false when no child remains.
    fn reap(&mut self, story: &mut Story) -> io::Result<bool> {
        loop {
            match process::reap() {
                Ok(Some(Change::Stopped(stopped))) => {
                    let began_ns = sys::monotonic_ns();
                    let ends = self.companion.stopped(stopped);
                    self.deadline_ns = deadline_after(self.deadline_ns, sys::monotonic_ns() - began_ns, ends);
                }
                Ok(Some(Change::Ended(reaped))) => {
                    if reaped.pid == self.program {
                        self.companion.program_ended();
                        story.program = Some(reaped);
                    }
                    story.ended.push(reaped);
                }
                Ok(None) => return Ok(true),
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A counter hangs up when the task that holds it ends, which may be long before the tree ends; from then on its
    /// buffer is read at intervals.
    fn wait(
        &self,
        now: u64,
        ending: Option<&Ending>,
        next_ns: Option<u64>,
        hung_up: &mut Vec<RawFd>,
    ) -> io::Result<()> {
        let until = match ending {
            Some(_) => Some(ENDING_POLL_NS),
            None => next_ns.map(|at| at.saturating_sub(now)),
        };
        let visit = (!hung_up.is_empty()).then_some(VISIT_NS);
        let until = [until, visit, self.companion.interval_ns()].into_iter().flatten().min();
        let mut fds = self.companion.fds();
        fds.retain(|fd| !hung_up.contains(fd));
        fds.push(self.signals.as_raw_fd());
        hung_up.extend(signals::wait_for(&fds, self.companion.writable(), until)?);
        Ok(())
    }

    /// The first signal is passed on to the program's group; SIGTERM and SIGKILL to the whole tree follow when that
    /// does not end it. A second signal skips the grace.
    fn interrupted(&self, signal: i32, by_kernel: bool, story: &mut Story, ending: &mut Option<Ending>) {
        let now = sys::monotonic_ns();
        if let (Some(Cut::Interrupted(_)), Some(first)) = (story.cut, ending.as_mut()) {
            if now > first.since_ns + ECHO_NS {
                first.kill_at_ns = first.kill_at_ns.min(now);
            }
            return;
        }
        story.cut = story.cut.or(Some(Cut::Interrupted(signal)));
        // To the group, as a terminal would; a process that has just gone needs no signal.
        match story.program {
            None if !self.shares_group => drop(process::kill(-self.program, signal)),
            // A key at the terminal has reached it already.
            None if !by_kernel => drop(process::kill(self.program, signal)),
            _ => {}
        }
        ending.get_or_insert(Ending::begin(now, ECHO_NS));
    }
}

/// The deadline of a program that was held for `held_ns`, which is not its own time. One that has come to its end did so
/// in time.
fn deadline_after(deadline_ns: Option<u64>, held_ns: u64, ends: bool) -> Option<u64> {
    deadline_ns.filter(|_| !ends).map(|at| at.saturating_add(held_ns))
}

fn signal_all(signals: &[Signal], program: i32, story: &mut Story) {
    let signalled = procfs::signal_descendants(process::own_pid(), signals);
    if let Some((_, done)) = signalled.into_iter().find(|(pid, _)| *pid == program) {
        story.refused = done.err().filter(|error| error.raw_os_error() == Some(libc::EPERM));
    }
}

fn left_over() -> Vec<(i32, String)> {
    let left = procfs::descendants(process::own_pid());
    left.into_iter().map(|pid| (pid, procfs::name(pid))).collect()
}

/// How a run's program ended, as an outcome.
pub fn describe(end: End) -> String {
    match end {
        End::Exited(code) => format!("exit code {code}"),
        End::Signalled(signal) => signals::name(signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_program_is_held_does_not_count_against_it() {
        assert_eq!(deadline_after(Some(100), 20, false), Some(120));
        assert_eq!(deadline_after(Some(100), 20, true), None);
        assert_eq!(deadline_after(None, 20, false), None);
    }
}
