//! Many experiments on several threads, with the same results as on one.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::executions::Experiment;
use crate::impact::Settings;
use crate::report::{Report, report};

/// The interval at which the caller is asked whether to continue.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Experiments, stored one after the other in memory.
#[derive(Debug, Clone)]
pub struct Batch<'a> {
    experiments: Vec<(Experiment<'a>, usize, u64)>,
}

/// Why a batch cannot be worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchError {
    /// The arrays that describe the experiments have different lengths.
    Lengths {
        /// Ends of experiments, group sizes, keys.
        found: [usize; 3],
    },
    /// The ends of this experiment do not rise, or do not end where its values end.
    Ends {
        /// Its place in the batch.
        experiment: usize,
    },
    /// The group size of this experiment is beyond its executions or its fewest measurements.
    Group {
        /// Its place in the batch.
        experiment: usize,
    },
    /// The caller asked to stop.
    Stopped,
    /// A thread could not be started, or ended before its work.
    Thread,
}

impl fmt::Display for BatchError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lengths { found: [experiments, groups, keys] } => {
                write!(out, "{experiments} experiments, {groups} group sizes, {keys} keys: not the same number")
            }
            Self::Ends { experiment } => write!(out, "experiment {experiment}: its executions' ends do not fit"),
            Self::Group { experiment } => write!(out, "experiment {experiment}: its group size is too large"),
            Self::Stopped => write!(out, "stopped"),
            Self::Thread => write!(out, "a worker thread failed"),
        }
    }
}

impl std::error::Error for BatchError {}

impl<'a> Batch<'a> {
    /// `ends`: end of each execution in `values`; `experiment_ends`: end of each experiment in `ends`. `groups` and
    /// `keys`: one for each experiment. `scratch` receives the ends relative to each experiment's start.
    ///
    /// # Errors
    /// Lengths that differ, ends that do not rise, groups that are too large.
    pub fn new(
        values: &'a [f64],
        ends: &[u64],
        experiment_ends: &[u64],
        groups: &[u64],
        keys: &[u64],
        scratch: &'a mut Vec<usize>,
    ) -> Result<Self, BatchError> {
        let found = [experiment_ends.len(), groups.len(), keys.len()];
        if found.iter().any(|&count| count != found[0]) {
            return Err(BatchError::Lengths { found });
        }
        let mut pieces = Vec::with_capacity(found[0]);
        let (mut first, mut start) = (0usize, 0usize);
        for (experiment, &end) in experiment_ends.iter().enumerate() {
            let error = BatchError::Ends { experiment };
            let last = usize::try_from(end).ok().filter(|&last| last > first && last <= ends.len());
            let last = last.ok_or_else(|| error.clone())?;
            let stop = ends[last - 1] as usize;
            if stop > values.len() || stop <= start {
                return Err(error);
            }
            scratch.extend(ends[first..last].iter().map(|&end| (end as usize).wrapping_sub(start)));
            pieces.push((first..last, start..stop));
            (first, start) = (last, stop);
        }
        if first != ends.len() || start != values.len() {
            return Err(BatchError::Ends { experiment: found[0] });
        }
        let scratch: &'a [usize] = scratch;
        let mut experiments = Vec::with_capacity(pieces.len());
        for (number, (rows, range)) in pieces.into_iter().enumerate() {
            let error = BatchError::Ends { experiment: number };
            let experiment = Experiment::new(&values[range], &scratch[rows]).ok_or(error)?;
            let group = groups[number] as usize;
            if group > experiment.executions().min(experiment.fewest()) || group == 1 {
                return Err(BatchError::Group { experiment: number });
            }
            experiments.push((experiment, group, keys[number]));
        }
        Ok(Self { experiments })
    }

    /// One report for each experiment, in order. `go_on` is called now and then on the calling thread.
    ///
    /// # Errors
    /// `Stopped` if `go_on` returns false.
    pub fn reports<F: FnMut() -> bool>(
        &self,
        settings: &Settings,
        mut go_on: F,
    ) -> Result<Vec<Report>, BatchError> {
        let count = self.experiments.len();
        let threads = match settings.threads {
            0 => thread::available_parallelism().map_or(1, std::num::NonZero::get),
            given => given,
        };
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let work = || {
            let mut done = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some((experiment, group, key)) = self.experiments.get(number) else { break };
                done.push((number, report(experiment, *group, *key, settings)));
            }
            done
        };
        let mut all: Vec<Option<Report>> = vec![None; count];
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for _ in 0..threads.clamp(1, count.max(1)) {
                workers.push(thread::Builder::new().spawn_scoped(scope, work).map_err(|_| BatchError::Thread)?);
            }
            while workers.iter().any(|worker| !worker.is_finished()) {
                if !stop.load(Ordering::Relaxed) && !go_on() {
                    stop.store(true, Ordering::Relaxed);
                }
                thread::sleep(ASK_EVERY.min(Duration::from_millis(1 + count as u64 / 16)));
            }
            for worker in workers {
                for (number, report) in worker.join().map_err(|_| BatchError::Thread)? {
                    all[number] = Some(report);
                }
            }
            Ok(())
        })?;
        if stop.into_inner() {
            return Err(BatchError::Stopped);
        }
        let all: Option<Vec<Report>> = all.into_iter().collect();
        all.ok_or(BatchError::Thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Part, Stream};

    fn data(experiments: usize) -> (Vec<f64>, Vec<u64>, Vec<u64>) {
        let mut stream = Stream::new(5, 0, Part::Impact, 0);
        let values = (0..experiments * 60).map(|_| 1.0 + stream.next() as f64 / 2f64.powi(64)).collect();
        let ends = (1..=experiments as u64 * 5).map(|i| i * 12).collect();
        (values, ends, (1..=experiments as u64).map(|i| i * 5).collect())
    }

    fn rows(threads: usize, experiments: usize) -> Vec<Vec<u64>> {
        let (values, ends, experiment_ends) = data(experiments);
        let keys: Vec<u64> = (0..experiments as u64).collect();
        let mut scratch = Vec::new();
        let groups = vec![5; experiments];
        let batch = Batch::new(&values, &ends, &experiment_ends, &groups, &keys, &mut scratch).unwrap();
        let settings = Settings { threads, ..Settings::default() };
        let reports = batch.reports(&settings, || true).unwrap();
        reports.iter().map(|one| one.row().map(f64::to_bits).to_vec()).collect()
    }

    #[test]
    fn digits_do_not_depend_on_threads_nor_on_the_rest_of_the_batch() {
        let alone = rows(1, 7);
        assert_eq!(alone, rows(3, 7));
        assert_eq!(alone[..4], rows(2, 4));
    }

    #[test]
    fn bad_descriptions_are_refused() {
        let (values, ends, experiment_ends) = data(2);
        let refused = |ends: &[u64], experiment_ends: &[u64], groups: &[u64]| {
            Batch::new(&values, ends, experiment_ends, groups, &[0, 1], &mut Vec::new()).unwrap_err()
        };
        assert_eq!(refused(&ends, &experiment_ends, &[5]), BatchError::Lengths { found: [2, 1, 2] });
        assert_eq!(refused(&ends, &experiment_ends, &[5, 6]), BatchError::Group { experiment: 1 });
        assert_eq!(refused(&ends, &[5, 9], &[5, 4]), BatchError::Ends { experiment: 2 });
        assert_eq!(refused(&ends, &[5, 11], &[5, 4]), BatchError::Ends { experiment: 1 });
        let mut broken = ends.clone();
        broken[1] = 1;
        assert_eq!(refused(&broken, &experiment_ends, &[5, 5]), BatchError::Ends { experiment: 0 });
        broken.clone_from(&ends);
        broken[4] = u64::MAX;
        assert_eq!(refused(&broken, &experiment_ends, &[5, 5]), BatchError::Ends { experiment: 0 });
    }

    #[test]
    fn a_batch_can_be_stopped() {
        let (values, ends, experiment_ends) = data(2);
        let mut scratch = Vec::new();
        let batch = Batch::new(&values, &ends, &experiment_ends, &[5, 5], &[0, 1], &mut scratch).unwrap();
        let settings = Settings { threads: 1, estimate_draws: 3_000_000, ..Settings::default() };
        assert_eq!(batch.reports(&settings, || false).unwrap_err(), BatchError::Stopped);
    }
}
