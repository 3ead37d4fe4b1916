//! Two processes watch over a run, so that killing either leaves no program running and no setting changed.
//!
//! The process that was called (the *guard*) does nothing but wait; its child (the *launcher*) does everything. If the
//! launcher is killed, its orphans fall to the guard, which is a subreaper: it ends them, undoes the launcher's
//! settings and removes its run directory. If the guard is killed, the launcher gets SIGTERM (PR_SET_PDEATHSIG) and
//! ends the run in order. Only killing both at the same moment leaves anything behind; then the program itself still
//! dies (PR_SET_PDEATHSIG, SIGKILL), and `pagelab doctor --restore` undoes the settings.

use crate::announce::Caller;
use crate::error::{Error, Result, cannot_fork};
use crate::phase::Phase;
use crate::sys::process::{self, Change, End};
use crate::sys::procfs;
use crate::sys::{self, signals};
use crate::{say, settings};
use nix::sys::signalfd::SignalFd;
use rustix::process::Signal;
use std::os::fd::AsRawFd;

/// Ends the run in order when the process that called us dies: `pagelab` killed outright must leave nothing running.
pub fn end_with_caller() {
    // If this failed, the death of the caller would go unnoticed, and nothing else.
    let _ = process::signal_on_parent_death(Signal::TERM);
}

fn internal(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::Internal(format!("cannot {what}: {}", sys::errno_text(&error)))
}

/// Runs `work` in a child under guard; returns the exit code. `clean_up` is called when the child was killed, after
/// everything it had started is gone.
pub fn guarded(work: impl FnOnce() -> i32, clean_up: impl FnOnce()) -> Result<i32> {
    let watched = signals::watch().map_err(internal("watch signals"))?;
    process::become_subreaper().map_err(internal("become a subreaper"))?;
    let guard = process::own_pid();
    let terminal = signals::own_terminal();
    match process::fork().map_err(cannot_fork)? {
        0 => {
            // If this failed, the death of the guard would go unnoticed, and nothing else.
            let _ = process::signal_on_parent_death(Signal::TERM);
            let code = if process::parent_pid() == guard { work() } else { 4 };
            process::exit_now(code)
        }
        launcher => {
            Phase::Guard.begin(&mut Caller::none());
            wait(settings::Owner::of(launcher), launcher, watched, || {
                clean_up();
                terminal.iter().for_each(signals::take_back);
            })
        }
    }
}

fn wait(owner: settings::Owner, launcher: i32, watched: SignalFd, remove: impl FnOnce()) -> Result<i32> {
    loop {
        signals::wait_readable(&[watched.as_raw_fd()], None).map_err(internal("wait for the launcher"))?;
        while let Some(signal) = signals::next(&watched) {
            if signal != libc::SIGCHLD {
                // A signal from a terminal reached the launcher too, which ignores the second one.
                let _ = process::kill(launcher, signal);
            }
        }
        loop {
            let change = match process::reap() {
                Ok(Some(change)) => change,
                Ok(None) => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                // No child is left, and nobody will wake this process again.
                Err(error) => return Err(internal("learn how the launcher ended")(error)),
            };
            // Nothing is traced here.
            let Change::Ended(reaped) = change else { continue };
            if reaped.pid == launcher {
                return match reaped.end {
                    End::Exited(code) => Ok(code),
                    End::Signalled(signal) => {
                        let error = clean_up(owner, signal);
                        remove();
                        Err(error)
                    }
                };
            }
        }
    }
}

/// Ends what the launcher left behind, undoes its settings, removes its run directory.
fn clean_up(owner: settings::Owner, signal: i32) -> Error {
    let own = process::own_pid();
    let mut ended = 0;
    // New processes can appear while others are being killed; a fork bomb loses, as SIGKILL is faster than fork.
    for _ in 0..1000 {
        if procfs::descendants(own).is_empty() {
            break;
        }
        let signalled = procfs::signal_descendants(own, &[Signal::KILL]);
        ended += signalled.iter().filter(|(_, done)| done.is_ok()).count();
        while let Ok(Some(_)) = process::reap() {}
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // Those that ended by themselves, too: until then their groups exist.
    while let Ok(Some(_)) = process::reap() {}
    let undone = settings::undo_of(owner);
    for why in &undone.failed {
        say::say(why);
    }
    Error::Internal(format!(
        "the launcher was ended by {}; {ended} processes of the run were ended, {} settings put back, no record written",
        signals::name(signal),
        undone.restored
    ))
}
