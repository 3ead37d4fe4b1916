//! All numbers of one experiment, as one row of a table.

use crate::change::change;
use crate::dependence::{memory, serial};
use crate::errors;
use crate::executions::{Experiment, Levels, Moments};
use crate::impact::{Impact, Settings, impact};
use crate::trend::trend;

macro_rules! report {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// One row. A value that does not exist is NaN here; the Python side turns it into a typed refusal.
        #[derive(Debug, Clone, Copy)]
        pub struct Report {
            $($(#[$doc])* pub $field: f64,)*
        }

        /// Names of the columns, in the order of [`Report::row`].
        pub const COLUMNS: &[&str] = &[$(stringify!($field),)*];

        impl Report {
            const EMPTY: Self = Self { $($field: f64::NAN,)* };

            /// The values in the order of [`COLUMNS`].
            #[must_use]
            pub fn row(&self) -> [f64; COLUMNS.len()] {
                [$(self.$field,)*]
            }
        }
    };
}

report! {
    /// Mean of the executions' means.
    mean,
    /// Mean of the executions' CVs: non-determinism in measurement.
    within,
    /// Standard error of its logarithm.
    within_error,
    /// CV of all measurements: unclassified non-determinism.
    pooled,
    /// Distance of its interval's centre from the estimate, on the log scale.
    pooled_shift,
    /// Standard error of its logarithm.
    pooled_error,
    /// Sample variance of the executions' means.
    between_means,
    /// Mean of the executions' variances.
    within_variance,
    /// Mean over executions of variance / measurements: the part of the variance of the means that comes from the
    /// spread within.
    within_share,
    /// The impact factor: non-determinism in execution.
    impact,
    /// Distance of its interval's centre from the estimate, on the log scale.
    impact_shift,
    /// Standard error of its logarithm, from the executions.
    impact_error,
    /// Standard error of the estimate from the number of draws.
    draw_error,
    /// Geometric mean of the ratios.
    log_impact,
    /// The impact factor with measurements exchanged between executions.
    null_impact,
    /// Geometric mean of the ratios under exchange.
    null_log_impact,
    /// Draws of the estimate without spread within.
    zeros,
    /// Lag-1 correlation inside executions.
    lag_one,
    /// The same, standardised.
    lag_one_z,
    /// Integrated autocorrelation time inside executions.
    memory,
    /// 1 if the time is only a lower bound.
    memory_truncated,
    /// Measurements before the most likely change of level.
    change_after,
    /// Standardised size of that change.
    change_z,
    /// Number of places examined.
    change_places,
    /// Relative size of that change.
    change_shift,
    /// Kendall's S of the executions' means in order.
    trend_s,
    /// Its variance.
    trend_variance,
    /// Kendall's tau-b.
    trend_tau,
    /// Median of the last third of executions over that of the first, less 1.
    trend_shift,
    /// Lag-1 correlation of the executions' means.
    means_lag_one,
    /// The same, standardised.
    means_lag_one_z,
}

/// The report of one experiment. `group` is the impact factor's group size; 0 leaves the impact factor out.
#[must_use]
pub fn report(experiment: &Experiment<'_>, group: usize, key: u64, settings: &Settings) -> Report {
    let mut report = Report::EMPTY;
    let moments: Vec<Moments> = experiment.rows().map(Moments::of).collect();
    put_spread(&mut report, &moments);
    components(&mut report, &moments);
    if group > 0 {
        put_impact(&mut report, &impact(experiment, group, key, settings), &moments);
    }
    put_dependence(&mut report, experiment, &moments);
    report
}

fn put_spread(report: &mut Report, moments: &[Moments]) {
    let cvs: Vec<f64> = moments.iter().map(|one| one.cv().unwrap_or(f64::NAN)).collect();
    let found = Levels::of(moments, &cvs);
    (report.mean, report.within, report.pooled) = (found.mean, found.within, found.pooled);
    report.within_error = errors::of_mean(&cvs).unwrap_or(f64::NAN);
    if let Some(found) = errors::of_pooled(moments) {
        (report.pooled_shift, report.pooled_error) = (found.shift, found.error);
    }
}

/// Unweighted: every execution has the same weight, as in the mean. An execution with one measurement has no variance
/// of its own; the others' mean variance is used for its share.
fn components(report: &mut Report, moments: &[Moments]) {
    let count = moments.len() as f64;
    let means: Vec<f64> = moments.iter().map(|one| one.mean).collect();
    report.between_means = Moments::of(&means).variance().unwrap_or(f64::NAN);
    let known: Vec<f64> = moments.iter().filter_map(Moments::variance).collect();
    report.within_variance = known.iter().sum::<f64>() / known.len() as f64;
    let share = |one: &Moments| one.variance().unwrap_or(report.within_variance) / one.count;
    report.within_share = moments.iter().map(share).sum::<f64>() / count;
}

fn put_impact(report: &mut Report, found: &Impact, moments: &[Moments]) {
    if let Some(ratio) = found.estimate {
        (report.impact, report.log_impact, report.draw_error) = (ratio.mean, ratio.log_mean, ratio.error);
    }
    if let Some(ratio) = found.null {
        (report.null_impact, report.null_log_impact) = (ratio.mean, ratio.log_mean);
    }
    if let Some(found) = errors::of_impact(moments) {
        (report.impact_shift, report.impact_error) = (found.shift, found.error);
    }
    report.zeros = found.zeros as f64;
}

fn put_dependence(report: &mut Report, experiment: &Experiment<'_>, moments: &[Moments]) {
    if let Some(found) = serial(experiment.rows()) {
        (report.lag_one, report.lag_one_z) = (found.correlation, found.z);
    }
    if let Some(found) = memory(experiment) {
        (report.memory, report.memory_truncated) = (found.time, f64::from(u8::from(found.truncated)));
    }
    if let Some(found) = change(experiment) {
        (report.change_after, report.change_z) = (found.after as f64, found.z);
        (report.change_places, report.change_shift) = (found.places as f64, found.shift);
    }
    let means: Vec<f64> = moments.iter().map(|one| one.mean).collect();
    if let Some(found) = trend(&means) {
        (report.trend_s, report.trend_variance, report.trend_tau) = (found.s, found.variance, found.tau);
        let third = means.len() / 3;
        report.trend_shift = median(&means[means.len() - third..]) / median(&means[..third]) - 1.0;
    }
    if let Some(found) = serial(std::iter::once(&means[..])) {
        (report.means_lag_one, report.means_lag_one_z) = (found.correlation, found.z);
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_measurement_each_gives_mean_and_pooled_spread_only() {
        let values = [3.0, 4.0, 5.0, 6.0, 8.0];
        let experiment = Experiment::new(&values, &[1, 2, 3, 4, 5]).unwrap();
        let found = report(&experiment, 0, 0, &Settings::default());
        assert_eq!(found.mean, 5.2);
        assert!(found.pooled > 0.0 && found.pooled_error > 0.0);
        assert!(found.within.is_nan() && found.impact.is_nan() && found.within_variance.is_nan());
    }

    #[test]
    fn one_execution_has_no_interval() {
        let experiment = Experiment::new(&[3.0, 4.0, 6.0], &[3]).unwrap();
        let found = report(&experiment, 0, 0, &Settings::default());
        assert!(found.within > 0.0 && found.within_error.is_nan() && found.between_means.is_nan());
    }

    #[test]
    fn columns_and_rows_agree() {
        assert_eq!(COLUMNS.len(), Report::EMPTY.row().len());
        assert_eq!((COLUMNS[0], COLUMNS[COLUMNS.len() - 1]), ("mean", "means_lag_one_z"));
    }
}
