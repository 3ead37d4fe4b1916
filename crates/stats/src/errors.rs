//! Standard errors of the spreads, on the scale of logarithms, from which their intervals are made.
//!
//! Percentiles of bootstrap replicates, which ALLOC uses, contain the true spread too rarely: a resample of few
//! executions varies less than the executions do, and resampled measurements bring their noise into the means a second
//! time. Here the error is the jackknife's over executions (Miller 1968), combined with the error that normal data
//! would have, because a jackknife of few values that are similar by chance is far too small.
//! `docs/method/nondeterminism.md` has formulas and simulated coverage.

use crate::executions::Moments;

/// Weight of the normal error in that of the CV of all measurements, in executions.
const PRIOR: f64 = 4.0;

/// The bounds of an interval on the log scale, relative to the log of its estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogError {
    /// Distance of the interval's centre from the estimate: the expected loss from having few executions.
    pub shift: f64,
    /// Standard error.
    pub error: f64,
}

impl LogError {
    /// The error of a number that cannot vary.
    const NONE: Self = Self { shift: 0.0, error: 0.0 };
}

/// Relative standard error of the mean of `values`, which are independent; that is the error of its log, by the delta
/// method. None for one value.
#[must_use]
pub fn of_mean(values: &[f64]) -> Option<f64> {
    let all = Moments::of(values);
    let variance = all.variance()?;
    Some(if variance == 0.0 { 0.0 } else { (variance / all.count).sqrt() / all.mean })
}

/// Share of the variance that lies between executions, and sums for both spreads.
struct Shares {
    executions: f64,
    total: f64,
    between_means: f64,
    within_degrees: f64,
}

impl Shares {
    fn of(moments: &[Moments]) -> Self {
        let means: Vec<f64> = moments.iter().map(|one| one.mean).collect();
        let executions = moments.len() as f64;
        let total: f64 = moments.iter().map(|one| one.count).sum();
        let between_means = Moments::of(&means).variance().unwrap_or(0.0);
        Self { executions, total, between_means, within_degrees: total - executions }
    }

    /// Variance of the logarithm of a standard deviation for normal data, with `share` of their variance between
    /// executions.
    fn normal(&self, share: f64) -> f64 {
        let rest = 1.0 - share;
        let within = if self.within_degrees > 0.0 { rest * rest / self.within_degrees } else { 0.0 };
        (share * share / (self.executions - 1.0) + within) / 2.0
    }
}

/// Error of the CV of all measurements together; None for one execution.
#[must_use]
pub fn of_pooled(moments: &[Moments]) -> Option<LogError> {
    if moments.len() < 2 {
        return None;
    }
    let shares = Shares::of(moments);
    let (n, total) = (shares.executions, shares.total);
    let first = moments[0].mean;
    let grand = first + moments.iter().map(|one| one.count * (one.mean - first)).sum::<f64>() / total;
    let apart: Vec<f64> = moments.iter().map(|one| one.squares + one.count * (one.mean - grand).powi(2)).collect();
    let squares: f64 = apart.iter().sum();
    if squares <= 0.0 {
        return Some(LogError::NONE);
    }
    let within: f64 = moments.iter().map(|one| one.squares).sum::<f64>() / shares.within_degrees.max(1.0);
    let measurements = total / n;
    let between = (shares.between_means - within / measurements).max(0.0);
    // The variance of the means is at least what normal noise inside executions causes.
    let share = (between / (between + within)).max(1.0 / measurements).min(1.0);
    let normal = shares.normal(share);
    // n executions show (n − 1)/n of the variance between them.
    let lost = -0.5 * (-share * (measurements - 1.0) / (total - 1.0)).ln_1p();
    let (mut influences, mut logs) = (0.0, Vec::with_capacity(moments.len()));
    for (one, apart) in moments.iter().zip(&apart) {
        let deviation = one.mean - grand;
        let influence = (apart / squares - one.count / total) / 2.0 - one.count * deviation / (total * grand);
        influences += influence * influence;
        let rest = total - one.count;
        let moved = -one.count * deviation / rest;
        let left = squares - apart - rest * moved * moved;
        logs.push(0.5 * (left.max(0.0) / (rest - 1.0)).ln() - (grand + moved).ln());
    }
    // If one execution causes all of the spread, the jackknife has no bound; so it is limited to twice the
    // infinitesimal one.
    let most = 4.0 * influences * n / (n - 1.0);
    let found = jackknife(&logs).filter(|found| *found < most).unwrap_or(most);
    let error = (((n - 1.0) * found + PRIOR * normal) / (n - 1.0 + PRIOR)).sqrt();
    Some(LogError { shift: lost + normal / 2.0, error })
}

/// Error of the impact factor: of √(variance between single measurements) × mean of the inverse deviations inside. This
/// is the factor's expectation, except for factors that depend only on the group size.
///
/// None with fewer than three executions, with one measurement in any, and if any has no spread.
#[must_use]
pub fn of_impact(moments: &[Moments]) -> Option<LogError> {
    if moments.len() < 3 {
        return None;
    }
    let inverse: Option<Vec<f64>> = moments
        .iter()
        .map(|one| one.variance().filter(|found| *found > 0.0).map(|found| 1.0 / found.sqrt()))
        .collect();
    let inverse = inverse?;
    let shares = Shares::of(moments);
    let n = shares.executions;
    let first = moments[0].mean;
    let mean = first + moments.iter().map(|one| one.mean - first).sum::<f64>() / n;
    let inside: Vec<f64> = moments.iter().map(|one| one.squares / one.count).collect();
    let (all_inside, all_inverse): (f64, f64) = (inside.iter().sum(), inverse.iter().sum());
    let share = shares.between_means / (shares.between_means + all_inside / n);
    let logs: Vec<f64> = moments
        .iter()
        .zip(inside.iter().zip(&inverse))
        .map(|(one, (inside, inverse))| {
            let taken = (one.mean - mean).powi(2) * n / (n - 1.0);
            let between = ((n - 1.0) * shares.between_means - taken).max(0.0) / (n - 2.0);
            0.5 * (between + (all_inside - inside) / (n - 1.0)).ln() + (all_inverse - inverse).ln()
        })
        .collect();
    let normal = shares.normal(share) + 0.5 / shares.within_degrees;
    let error = jackknife(&logs).unwrap_or(normal).max(normal).sqrt();
    Some(LogError { shift: share * share / (4.0 * (n - 1.0)), error })
}

/// The jackknife's variance, from the statistic without each execution in turn; None if one of these does not exist.
fn jackknife(without: &[f64]) -> Option<f64> {
    let all = Moments::of(without);
    let found = all.squares * (all.count - 1.0) / all.count;
    found.is_finite().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(rows: &[&[f64]]) -> Vec<Moments> {
        rows.iter().map(|row| Moments::of(row)).collect()
    }

    #[test]
    fn leaving_one_out_is_leaving_one_out() {
        let rows: [&[f64]; 4] = [&[1.0, 1.2, 1.1], &[1.4, 1.3], &[0.9, 1.0, 1.3, 1.25], &[1.6, 1.1, 1.2]];
        let all = moments(&rows);
        let log_of = |keep: &[Moments]| {
            let n = keep.len() as f64;
            let means: Vec<f64> = keep.iter().map(|one| one.mean).collect();
            let inside = keep.iter().map(|one| one.squares / one.count).sum::<f64>() / n;
            let inverse = keep.iter().map(|one| 1.0 / one.variance().unwrap().sqrt()).sum::<f64>() / n;
            0.5 * (Moments::of(&means).variance().unwrap() + inside).ln() + inverse.ln()
        };
        let logs: Vec<f64> = (0..4)
            .map(|i| {
                log_of(&all.iter().enumerate().filter(|(k, _)| *k != i).map(|(_, one)| *one).collect::<Vec<_>>())
            })
            .collect();
        let expected = jackknife(&logs).unwrap().sqrt();
        let found = of_impact(&all).unwrap();
        assert!(found.error >= expected * (1.0 - 1e-12) && found.shift > 0.0, "{found:?} {expected}");
    }

    #[test]
    fn constants_have_no_error_and_too_few_have_none_at_all() {
        assert_eq!(of_pooled(&moments(&[&[2.0; 3], &[2.0; 3]])), Some(LogError::NONE));
        assert_eq!(of_pooled(&moments(&[&[2.0, 3.0]])), None);
        assert_eq!(of_impact(&moments(&[&[2.0, 3.0], &[2.0, 3.0]])), None);
        assert_eq!(of_impact(&moments(&[&[2.0, 3.0], &[2.0, 2.0], &[1.0, 2.0]])), None);
        assert_eq!(of_mean(&[3.0]), None);
        assert_eq!(of_mean(&[3.0, 3.0]), Some(0.0));
    }

    #[test]
    fn one_execution_that_makes_all_the_spread_has_a_bounded_error() {
        let rows: [&[f64]; 6] = [&[1.0], &[1.0], &[1.0], &[1.0], &[1.0], &[2.0]];
        let found = of_pooled(&moments(&rows)).unwrap();
        assert!(found.error > 0.3 && found.error < 1.5, "{found:?}");
        let two = of_pooled(&moments(&rows[4..])).unwrap();
        assert!(two.error.is_finite() && two.error > 0.0, "{two:?}");
    }
}
