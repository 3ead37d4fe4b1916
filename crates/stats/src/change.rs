//! Warm-up: one change of level at the same place in every execution, found on ranks.

use crate::executions::Experiment;

/// The most likely place of a change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Measurements before the change.
    pub after: usize,
    /// Standardised difference of ranks there: the largest over all places, in absolute value.
    pub z: f64,
    /// Number of places examined (the fewest measurements of an execution, less one).
    pub places: usize,
    /// Mean before over mean after, less 1; averaged over executions.
    pub shift: f64,
}

/// The largest standardised CUSUM of within-execution midranks, summed over executions (after Pettitt 1979, with the
/// variance of sampling without replacement, so that a change after the first measurement counts as much as one in the
/// middle). It uses only as many first measurements as all executions have.
///
/// None with fewer than three measurements, or if each execution is constant.
#[must_use]
pub fn change(experiment: &Experiment<'_>) -> Option<Change> {
    let count = experiment.fewest();
    if count < 3 {
        return None;
    }
    let middle = (count as f64 + 1.0) / 2.0;
    let mut sums = vec![0.0; count];
    let mut variance = 0.0;
    for row in experiment.rows() {
        let ranks = midranks(&row[..count]);
        for (sum, rank) in sums.iter_mut().zip(&ranks) {
            *sum += rank - middle;
            variance += (rank - middle) * (rank - middle) / count as f64;
        }
    }
    if variance <= 0.0 {
        return None;
    }
    let (mut cumulated, mut best, mut z) = (0.0, 1, 0.0f64);
    for k in 1..count {
        cumulated += sums[k - 1];
        let (before, after) = (k as f64, (count - k) as f64);
        let standard = cumulated / (variance * before * after / (count as f64 - 1.0)).sqrt();
        if standard.abs() > z.abs() {
            (best, z) = (k, standard);
        }
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let shifts: f64 = experiment.rows().map(|row| mean(&row[..best]) / mean(&row[best..]) - 1.0).sum();
    Some(Change { after: best, z, places: count - 1, shift: shifts / experiment.executions() as f64 })
}

/// Ranks from 1; equal values share the mean of theirs.
#[must_use]
pub fn midranks(row: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_unstable_by(|&a, &b| row[a].total_cmp(&row[b]));
    let mut ranks = vec![0.0; row.len()];
    let mut start = 0;
    while start < order.len() {
        let mut end = start + 1;
        while end < order.len() && row[order[end]] == row[order[start]] {
            end += 1;
        }
        let rank = (start + end + 1) as f64 / 2.0;
        order[start..end].iter().for_each(|&i| ranks[i] = rank);
        start = end;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_share_their_ranks() {
        assert_eq!(midranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        assert_eq!(midranks(&[5.0; 3]), [2.0; 3]);
    }

    #[test]
    fn a_slow_start_of_two_is_found() {
        let mut values = Vec::new();
        for i in 0..5 {
            values.extend([20.0 + f64::from(i), 19.0]);
            values.extend((0..18).map(|j| 10.0 + f64::from((i * 7 + j * 5) % 11) / 100.0));
        }
        let experiment = Experiment::new(&values, &[20, 40, 60, 80, 100]).unwrap();
        let found = change(&experiment).unwrap();
        assert_eq!((found.after, found.places), (2, 19));
        assert!(found.z > 5.0 && found.shift > 0.9);
    }

    #[test]
    fn constants_and_pairs_have_no_change() {
        assert_eq!(change(&Experiment::new(&[1.0; 8], &[4, 8]).unwrap()), None);
        assert_eq!(change(&Experiment::new(&[1.0, 2.0, 3.0, 4.0], &[2, 4]).unwrap()), None);
    }
}
