//! The real-time setting of a run (ALLOC 5.6): SCHED_FIFO at the highest priorities there are.
//!
//! The launcher takes the highest itself. It sleeps until there is something to do, but a program that never sleeps
//! could otherwise not be ended at its time limit. The program gets the third highest, because the library's threads,
//! which place its frames, take the one above it. Nothing is guessed from rights: taking the priority is the test.
//!
//! A launcher that is real-time from its start (`chrt -f 50 pagelab run`) stays as far above the program, which keeps
//! the policy and the priority that its user has chosen.

use crate::error::{Error, Result};
use crate::request::Scheduler;
use crate::sys::process::RealTime;
use crate::sys::{self, process};
use crate::warnings::{Kind, Severity, Warnings};
use serde_json::json;

const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const PERIOD: &str = "/proc/sys/kernel/sched_rt_period_us";

/// How far the launcher is above the program: the library's threads are between them.
const ABOVE: i32 = 2;

/// Raises the launcher and returns the program's policy; None where it is not real-time.
///
/// # Errors
/// [`Error::Cannot`] where real-time priorities are not permitted, with what would permit them.
pub fn take(asked: Option<Scheduler>, warnings: &mut Warnings) -> Result<Option<RealTime>> {
    let program = match (asked, RealTime::own()) {
        // With a limit of 2 the library's threads share the launcher's priority.
        (Some(Scheduler::Fifo), _) => RealTime::fifo((raise()? - ABOVE).max(1)),
        (None, Some(own)) => {
            stay_above(own, warnings);
            own
        }
        (None, None) => return Ok(None),
    };
    tell_limits(&read(RUNTIME), &read(PERIOD), warnings);
    Ok(Some(program))
}

/// Raises the launcher above the program, which gets the launcher's present policy.
fn stay_above(own: RealTime, warnings: &mut Warnings) {
    let higher =
        (1..=ABOVE).rev().map(|more| own.priority + more).filter(|higher| *higher <= process::HIGHEST_FIFO);
    // The child sets the program's priority itself. Until then it must not wait for others.
    if higher.map(RealTime::fifo).any(|what| process::become_real_time(what, false).is_ok()) {
        return;
    }
    let message = format!(
        "the launcher cannot have a higher real-time priority than the program ({}): a program that never sleeps may \
         not be ended at its time limit; start it with a lower one, as root or with a higher limit (ulimit -r)",
        own.priority
    );
    warnings.add(Kind::RealTimeLimited, Severity::Warning, message, json!({"priority": own.priority}));
}

/// Takes the highest priority that is permitted: the system's, or what RLIMIT_RTPRIO leaves to an ordinary user.
fn raise() -> Result<i32> {
    let highest = process::HIGHEST_FIFO;
    let Err(error) = process::become_real_time(RealTime::fifo(highest), true) else { return Ok(highest) };
    let limit = i32::try_from(process::real_time_limit()).unwrap_or(highest).min(highest);
    if limit >= 2 && process::become_real_time(RealTime::fifo(limit), true).is_ok() {
        return Ok(limit);
    }
    Err(Error::Cannot(format!(
        "cannot run the program under SCHED_FIFO: {}; it needs CAP_SYS_NICE or a limit of at least 2 on real-time \
         priorities (it is {limit}); run as root, or let root run: prlimit --pid $$ --rtprio={highest}{}",
        sys::errno_text(&error),
        crate::sandbox::hint(&error)
    )))
}

fn read(path: &str) -> Option<i64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The kernel keeps a share of each CPU from real-time programs (since Linux 6.12 only where others wait for it). A
/// program that computes without a pause is held up for that share, which is an outlier in its times.
fn tell_limits(runtime_us: &Option<i64>, period_us: &Option<i64>, warnings: &mut Warnings) {
    let (Some(runtime_us), Some(period_us)) = (*runtime_us, *period_us) else { return };
    let data = json!({"sched_rt_runtime_us": runtime_us, "sched_rt_period_us": period_us, "scope": "machine"});
    let (severity, message) = if runtime_us < 0 {
        let message = "real-time programs have no limit here: one that never sleeps stops everything else on its CPU, \
                       kernel threads included; limit them with: sysctl kernel.sched_rt_runtime_us=950000";
        (Severity::Warning, message.to_owned())
    } else if runtime_us < period_us {
        let (kept, period) = ((period_us - runtime_us) / 1000, period_us / 1000);
        let message = format!(
            "where other programs wait for its CPU, a real-time program may be held up for {kept} ms in every \
             {period} ms of computing: pin it to a CPU that nothing else uses"
        );
        (Severity::Info, message)
    } else {
        return;
    };
    warnings.add(Kind::RealTimeLimited, severity, message, data);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(runtime_us: Option<i64>, period_us: Option<i64>) -> Vec<Severity> {
        let mut warnings = Warnings::default();
        tell_limits(&runtime_us, &period_us, &mut warnings);
        warnings.0.iter().map(|warning| warning.severity).collect()
    }

    #[test]
    fn the_share_kept_from_real_time_programs_is_told() {
        assert_eq!(told(Some(950_000), Some(1_000_000)), [Severity::Info]);
        assert_eq!(told(Some(-1), Some(1_000_000)), [Severity::Warning]);
        assert!(told(Some(1_000_000), Some(1_000_000)).is_empty());
        assert!(told(None, Some(1_000_000)).is_empty());
    }

    #[test]
    fn nothing_is_taken_that_was_not_asked_for() {
        assert_eq!(take(None, &mut Warnings::default()).ok(), Some(None));
    }
}
