//! How many counters truly count.
//!
//! A hypervisor may advertise more counters than it gives: one was seen that shows six, of which the sixth reads 0 with
//! time running as long as enabled. So N copies of one event are opened in a pinned group, a loop with a known answer
//! runs, and every copy must have counted it. The event is branches, or instructions where the kernel has no branches
//! to count: before Linux 6.13 it maps them to an event that Arm's newer cores, and emulated ones, do not have.

use crate::sys::perf::{self, Code, Open, Reading};
use perf_event_open_sys::bindings as abi;
use std::io;

/// Taken branches of the loop: so many that the instructions around it do not matter.
pub const BRANCHES: u64 = 1 << 20;
/// No core has more general counters for one event.
const MOST: usize = 16;

/// The operations on a PMU that the test needs.
pub trait Pmu {
    /// How many events the loop makes.
    fn expected(&self) -> u64;

    /// Counts the loop with `copies` counters at once; one reading each, None for one that could not be kept.
    fn count(&self, copies: usize) -> io::Result<Vec<Option<Reading>>>;
}

/// The result of the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Counters the kernel let us open at once.
    pub advertised: usize,
    /// Of these, how many counted.
    pub usable: usize,
}

/// Runs the test. Fails when not even one counter can be opened.
pub fn run(pmu: &impl Pmu) -> io::Result<Verdict> {
    let mut verdict = Verdict { advertised: 0, usable: 0 };
    for copies in 1..=MOST {
        let readings = match pmu.count(copies) {
            Ok(readings) => readings,
            Err(error) if copies == 1 => return Err(error),
            // The group is full.
            Err(_) => break,
        };
        if readings.iter().any(Option::is_none) {
            break;
        }
        verdict.advertised = copies;
        let right = |reading: &Reading| is_right(reading, pmu.expected());
        if readings.iter().flatten().all(right) && readings.len() == copies {
            verdict.usable = copies;
        }
    }
    Ok(verdict)
}

/// The expected count, plus 5% for the instructions around the loop.
fn is_right(reading: &Reading, expected: u64) -> bool {
    let most = expected + expected / 20;
    (expected..=most).contains(&reading.count) && reading.running_ns == reading.enabled_ns && reading.running_ns > 0
}

/// Runs the test on this processor, with the first event that the kernel can count.
pub fn run_here() -> io::Result<Verdict> {
    let branches = Hardware { config: abi::PERF_COUNT_HW_BRANCH_INSTRUCTIONS.into(), expected: BRANCHES };
    match run(&branches) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {
            run(&Hardware { config: abi::PERF_COUNT_HW_INSTRUCTIONS.into(), expected: 2 * BRANCHES })
                .map_err(|_| error)
        }
        done => done,
    }
}

/// This processor's own PMU, and an event of which the loop makes a known number.
struct Hardware {
    config: u64,
    expected: u64,
}

impl Pmu for Hardware {
    fn expected(&self) -> u64 {
        self.expected
    }

    fn count(&self, copies: usize) -> io::Result<Vec<Option<Reading>>> {
        let code =
            Code { kind: abi::PERF_TYPE_HARDWARE, config: self.config, exclude_kernel: true, ..Code::default() };
        let mut counters = Vec::new();
        for _ in 0..copies {
            let leader = counters.first();
            let how = Open { pid: 0, cpu: None, leader, pinned: true, tree: false, stat: false };
            let counter = perf::open(&code, &how)?;
            counters.push(counter);
        }
        if let Some(leader) = counters.first() {
            perf::enable(leader)?;
            branch_loop();
            perf::disable(leader)?;
        }
        counters.iter().map(perf::read).collect()
    }
}

/// Executes exactly [`BRANCHES`] branches, with two instructions each; all are taken but the last, which counts as a
/// branch all the same.
#[inline(never)]
pub fn branch_loop() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: counts a register down to zero; touches no memory and no stack.
    unsafe {
        std::arch::asm!("2: dec {n}", "jnz 2b", n = inout(reg) BRANCHES => _, options(nomem, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("2: subs {n}, {n}, #1", "b.ne 2b", n = inout(reg) BRANCHES => _, options(nomem, nostack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `real` counters count, `advertised` can be opened, and the rest read 0 with time running.
    struct Fake {
        real: usize,
        advertised: usize,
    }

    impl Pmu for Fake {
        fn expected(&self) -> u64 {
            BRANCHES
        }

        fn count(&self, copies: usize) -> io::Result<Vec<Option<Reading>>> {
            if copies > self.advertised {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            let count = |index| if index < self.real { BRANCHES + 10 } else { 0 };
            let reading =
                |index| Reading { count: count(index), enabled_ns: 500, running_ns: 500, id: index as u64 };
            Ok((0..copies).map(|index| Some(reading(index))).collect())
        }
    }

    #[test]
    fn a_counter_that_is_advertised_and_counts_nothing_is_found() {
        let verdict = run(&Fake { real: 5, advertised: 6 }).expect("a PMU");
        assert_eq!(verdict, Verdict { advertised: 6, usable: 5 });
    }

    #[test]
    fn honest_counters_are_all_usable() {
        assert_eq!(run(&Fake { real: 8, advertised: 8 }).expect("a PMU").usable, 8);
    }

    #[test]
    fn no_counter_at_all_is_an_error_and_lying_ones_are_none() {
        assert!(run(&Fake { real: 0, advertised: 0 }).is_err());
        assert_eq!(run(&Fake { real: 0, advertised: 4 }).expect("a PMU").usable, 0);
    }

    #[test]
    fn a_plausible_but_wrong_count_is_not_right() {
        let reading = |count, running_ns| Reading { count, enabled_ns: 10, running_ns, id: 0 };
        assert!(is_right(&reading(BRANCHES + 7, 10), BRANCHES));
        assert!(!is_right(&reading(BRANCHES / 2, 10), BRANCHES));
        assert!(!is_right(&reading(BRANCHES * 2, 10), BRANCHES));
        assert!(!is_right(&reading(BRANCHES, 5), BRANCHES));
    }
}
