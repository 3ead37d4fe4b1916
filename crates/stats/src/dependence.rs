//! Dependence of measurements inside an execution: serial correlation with its exact permutation moments, and the
//! integrated autocorrelation time.

use crate::executions::Experiment;

/// Most products that are summed; a chain that is still correlated at the last lag is marked as truncated.
const MOST_PRODUCTS: usize = 400_000_000;
/// Fewest lags examined, however long the series are.
const LEAST_LAGS: usize = 32;

/// Lag-1 serial correlation of several series of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Serial {
    /// Mean of the series' correlations, weighted by length. Under independence it is about −1/length.
    pub correlation: f64,
    /// (sum of weighted correlations − its mean) / its standard deviation, both exact if each series is exchangeable
    /// (Wald, Wolfowitz 1943; moments of sums over distinct indices).
    pub z: f64,
}

/// None if no series has three values that differ.
pub fn serial<'a, I: Iterator<Item = &'a [f64]>>(series: I) -> Option<Serial> {
    let (mut weight, mut sum, mut excess, mut variance) = (0.0, 0.0, 0.0, 0.0);
    for row in series {
        let Some(centred) = centred(row) else { continue };
        let count = centred.len() as f64;
        if centred.len() < 3 {
            continue;
        }
        let products: f64 = centred.windows(2).map(|pair| pair[0] * pair[1]).sum();
        // `centred` has mean square 1, so the second moment's sum is the count.
        let fourth: f64 = centred.iter().map(|value| value.powi(4)).sum();
        weight += count;
        sum += products;
        excess += products + 1.0;
        variance += lag_one_variance(count, fourth);
    }
    (weight > 0.0 && variance > 0.0).then(|| Serial { correlation: sum / weight, z: excess / variance.sqrt() })
}

/// Variance of the sum of products of neighbours (whose mean is −1), over all orders of `count` values with mean 0,
/// mean square 1 and sum of fourth powers `fourth`.
///
/// The square of the sum has count − 1 terms a²b², 2(count − 2) terms ab²c and (count − 2)(count − 3) terms abcd of
/// distinct values; their means over orders follow from the power sums.
fn lag_one_variance(count: f64, fourth: f64) -> f64 {
    let (n, second) = (count, count);
    let two = (second * second - fourth) / (n * (n - 1.0));
    let three = (2.0 * fourth - second * second) / (n * (n - 1.0) * (n - 2.0));
    let four = if n > 3.0 {
        (3.0 * second * second - 6.0 * fourth) / (n * (n - 1.0) * (n - 2.0) * (n - 3.0))
    } else {
        0.0
    };
    (n - 1.0) * two + 2.0 * (n - 2.0) * three + (n - 2.0) * (n - 3.0) * four - 1.0
}

/// Values less their mean, over their root mean square; None if all are equal.
fn centred(row: &[f64]) -> Option<Vec<f64>> {
    let &first = row.first()?;
    let count = row.len() as f64;
    let mean = row.iter().map(|value| value - first).sum::<f64>() / count;
    let mut centred: Vec<f64> = row.iter().map(|value| (value - first) - mean).collect();
    if row.iter().all(|&value| value == first) {
        return None;
    }
    let scale = (centred.iter().map(|value| value * value).sum::<f64>() / count).sqrt();
    if scale == 0.0 {
        return None;
    }
    centred.iter_mut().for_each(|value| *value /= scale);
    Some(centred)
}

/// The number of measurements that are worth as much as one independent measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// Integrated autocorrelation time τ, at least 1: N measurements are worth N/τ independent ones.
    pub time: f64,
    /// Whether the correlation had not died out at the last lag examined: then τ is at least `time`.
    pub truncated: bool,
}

/// Geyer's initial monotone sequence (Practical Markov Chain Monte Carlo, 1992, section 3.3) on the executions' pooled
/// autocorrelations, each corrected for the mean being estimated (−(m − k)/(m(m − 1)) at lag k under independence).
///
/// None if no execution has three measurements that differ.
#[must_use]
pub fn memory(experiment: &Experiment<'_>) -> Option<Memory> {
    let rows: Vec<Vec<f64>> = experiment.rows().filter(|row| row.len() >= 3).filter_map(centred).collect();
    let longest = rows.iter().map(Vec::len).max()?;
    let total: usize = rows.iter().map(Vec::len).sum();
    let lags = (MOST_PRODUCTS / total).max(LEAST_LAGS).min(longest - 1);
    let at = |lag: usize| -> Option<f64> {
        let (mut sum, mut weight) = (0.0, 0.0);
        for row in rows.iter().filter(|row| row.len() > lag) {
            let (count, pairs) = (row.len() as f64, (row.len() - lag) as f64);
            sum += row.iter().zip(&row[lag..]).map(|(a, b)| a * b).sum::<f64>() + pairs / (count - 1.0);
            weight += pairs;
        }
        (weight > 0.0).then(|| sum / weight)
    };
    let (mut time, mut before) = (-1.0, f64::INFINITY);
    let mut lag = 0;
    let mut truncated = true;
    while lag < lags {
        let even = if lag == 0 { 1.0 } else { at(lag).unwrap_or(0.0) };
        let pair = even + at(lag + 1).unwrap_or(0.0);
        if pair <= 0.0 {
            truncated = false;
            break;
        }
        before = pair.min(before);
        time += 2.0 * before;
        lag += 2;
    }
    let ended = lag + 1 >= longest;
    Some(Memory { time: time.max(1.0), truncated: truncated && !ended })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Part, Stream};

    fn permutations(values: &mut Vec<f64>, from: usize, visit: &mut impl FnMut(&[f64])) {
        if from == values.len() {
            visit(values);
            return;
        }
        for i in from..values.len() {
            values.swap(from, i);
            permutations(values, from + 1, visit);
            values.swap(from, i);
        }
    }

    #[test]
    fn moments_are_those_of_all_orders() {
        for values in [vec![1.0, 2.0, 4.0], vec![1.0, 1.0, 5.0, 9.0], vec![3.0, 1.0, 4.0, 1.5, 9.0, 2.0]] {
            let mut scaled = centred(&values).unwrap();
            let fourth: f64 = scaled.iter().map(|value| value.powi(4)).sum();
            let variance = lag_one_variance(scaled.len() as f64, fourth);
            let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
            permutations(&mut scaled, 0, &mut |order| {
                let product: f64 = order.windows(2).map(|pair| pair[0] * pair[1]).sum();
                count += 1.0;
                sum += product;
                squares += product * product;
            });
            assert!((sum / count + 1.0).abs() < 1e-12);
            assert!((squares / count - 1.0 - variance).abs() < 1e-12, "{values:?}");
        }
    }

    fn chain(length: usize, keep: f64, index: u64) -> Vec<f64> {
        let mut stream = Stream::new(3, 0, Part::Impact, index);
        let mut now = 0.0;
        (0..length)
            .map(|_| {
                let noise = (0..12).map(|_| stream.next() as f64 / 2f64.powi(64)).sum::<f64>() - 6.0;
                now = keep * now + noise;
                100.0 + now
            })
            .collect()
    }

    #[test]
    fn a_chain_of_known_memory_has_it() {
        // AR(1): τ = (1 + φ) / (1 − φ) = 3 at φ = 1/2.
        let values = chain(200_000, 0.5, 1);
        let experiment = Experiment::new(&values, &[100_000, 200_000]).unwrap();
        let found = memory(&experiment).unwrap();
        assert!((found.time - 3.0).abs() < 0.15 && !found.truncated, "{found:?}");
        let free = chain(200_000, 0.0, 2);
        let found = memory(&Experiment::new(&free, &[100_000, 200_000]).unwrap()).unwrap();
        assert!(found.time < 1.1, "{found:?}");
    }

    #[test]
    fn constants_and_pairs_say_nothing() {
        assert_eq!(serial([&[1.0, 1.0, 1.0][..], &[1.0, 2.0]].into_iter()), None);
        assert_eq!(memory(&Experiment::new(&[1.0, 1.0, 1.0], &[3]).unwrap()), None);
    }

    #[test]
    fn alternation_is_negative_and_persistence_positive() {
        let alternating: Vec<f64> = (0..40).map(|i| f64::from(i % 2)).collect();
        assert!(serial(std::iter::once(&alternating[..])).unwrap().z < -5.0);
        let rising: Vec<f64> = (0..40).map(f64::from).collect();
        assert!(serial(std::iter::once(&rising[..])).unwrap().z > 5.0);
    }
}
