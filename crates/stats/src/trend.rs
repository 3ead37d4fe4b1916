//! Trend over the schedule: Kendall's S of the executions' means, in the order in which they ran.

/// Kendall's statistic of values in order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Rising pairs minus falling pairs.
    pub s: f64,
    /// Its variance if every order were equally likely, ties counted (Kendall: Rank Correlation Methods, chapter 4).
    pub variance: f64,
    /// tau-b: S over the geometric mean of all pairs and of the pairs without ties.
    pub tau: f64,
}

/// Kendall's statistic of `values`; None with fewer than three values, or if all are equal.
#[must_use]
pub fn trend(values: &[f64]) -> Option<Trend> {
    let n = values.len() as f64;
    if values.len() < 3 {
        return None;
    }
    let pairs = n * (n - 1.0) / 2.0;
    let mut sorted = values.to_vec();
    let falling = inversions(&mut sorted) as f64;
    let (mut tied, mut correction) = (0.0, 0.0);
    for run in sorted.chunk_by(|a, b| a == b) {
        let t = run.len() as f64;
        tied += t * (t - 1.0) / 2.0;
        correction += t * (t - 1.0) * (2.0 * t + 5.0);
    }
    let variance = (n * (n - 1.0) * (2.0 * n + 5.0) - correction) / 18.0;
    let s = pairs - tied - 2.0 * falling;
    (tied < pairs && variance > 0.0).then(|| Trend { s, variance, tau: s / (pairs * (pairs - tied)).sqrt() })
}

/// Number of pairs in falling order; sorts the values (merge sort).
fn inversions(values: &mut [f64]) -> u64 {
    let middle = values.len() / 2;
    if middle == 0 {
        return 0;
    }
    let mut count = inversions(&mut values[..middle]) + inversions(&mut values[middle..]);
    let (left, right) = (values[..middle].to_vec(), values[middle..].to_vec());
    let (mut i, mut j) = (0, 0);
    for slot in values.iter_mut() {
        if j == right.len() || (i < left.len() && left[i] <= right[j]) {
            *slot = left[i];
            i += 1;
        } else {
            *slot = right[j];
            j += 1;
            count += (left.len() - i) as u64;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_counts_pairs(values in prop::collection::vec(0u8..6, 3..40)) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let mut s = 0.0;
            for i in 0..values.len() {
                for j in i + 1..values.len() {
                    s += f64::from(i32::from(values[j] > values[i]) - i32::from(values[j] < values[i]));
                }
            }
            match trend(&values) {
                Some(found) => prop_assert_eq!(found.s, s),
                None => prop_assert!(values.iter().all(|value| *value == values[0])),
            }
        }
    }

    #[test]
    fn a_rise_has_tau_one() {
        let found = trend(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!((found.s, found.tau), (6.0, 1.0));
        assert!((found.variance - 4.0 * 3.0 * 13.0 / 18.0).abs() < 1e-12);
    }
}
