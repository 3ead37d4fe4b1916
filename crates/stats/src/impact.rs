//! The impact factor: how many times greater the spread between executions is than the spread within (ALLOC 4.2).

use crate::executions::Experiment;
use crate::groups::{Held, draw_exchanged_pair, draw_pair};
use crate::stream::{Part, Stream};

/// Common settings of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Seed of the random numbers of the whole analysis.
    pub seed: u64,
    /// Number of ratios drawn for its point estimate.
    pub estimate_draws: u32,
    /// Number of ratios drawn under exchange.
    pub null_draws: u32,
    /// Number of threads; 0: one for each CPU that this process may use.
    pub threads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { seed: 0, estimate_draws: 5_000, null_draws: 5_000, threads: 0 }
    }
}

/// Draws whose group within has no spread are repeated, at most this many times the requested draws.
const MOST_AGAIN: u64 = 19;

/// Sums over drawn ratios of standard deviations.
#[derive(Debug, Clone, Copy)]
pub struct Ratios {
    drawn: u64,
    /// Draws thrown away because the group within had no spread.
    pub zeros: u64,
    sum: f64,
    sum_of_squares: f64,
    logs: f64,
    product: f64,
}

/// Results of a set of draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Mean of the ratios.
    pub mean: f64,
    /// Geometric mean of the ratios; 0 if a group between had no spread.
    pub log_mean: f64,
    /// Standard error of `mean` from the number of draws alone.
    pub error: f64,
}

impl Ratios {
    const fn new() -> Self {
        Self { drawn: 0, zeros: 0, sum: 0.0, sum_of_squares: 0.0, logs: 0.0, product: 1.0 }
    }

    #[inline]
    fn add(&mut self, (between, within): (f64, f64)) {
        if within == 0.0 {
            self.zeros += 1;
            return;
        }
        let square = between / within;
        self.drawn += 1;
        self.sum += square.sqrt();
        self.sum_of_squares += square;
        // Logarithms are taken of products, which stay far inside the range of doubles.
        if (1e-140..1e140).contains(&square) {
            self.product *= square;
            if !(1e-140..1e140).contains(&self.product) {
                self.logs += self.product.ln();
                self.product = 1.0;
            }
        } else {
            self.logs += square.ln();
        }
    }

    /// Draws until `draws` ratios exist; None if too many groups within have no spread.
    fn fill<F: FnMut() -> (f64, f64)>(draws: u32, mut pair: F) -> (Self, Option<Ratio>) {
        let mut all = Self::new();
        let draws = u64::from(draws);
        while all.drawn < draws && all.zeros <= MOST_AGAIN * draws {
            all.add(pair());
        }
        let count = all.drawn as f64;
        if all.drawn < draws || draws == 0 {
            return (all, None);
        }
        let mean = all.sum / count;
        let spread = (all.sum_of_squares / count - mean * mean).max(0.0);
        let log_mean = ((all.logs + all.product.ln()) / (2.0 * count)).exp();
        (all, Some(Ratio { mean, log_mean, error: (spread / (count - 1.0).max(1.0)).sqrt() }))
    }
}

/// The impact factor, and the values that are shown with it.
#[derive(Debug, Clone, Copy)]
pub struct Impact {
    /// The estimate, from the measurements as they are; None if a group within nearly always has no spread.
    pub estimate: Option<Ratio>,
    /// Draws of the estimate whose group within had no spread.
    pub zeros: u64,
    /// The same quantity with measurements exchanged between executions.
    pub null: Option<Ratio>,
}

/// Computes all values, for groups of `size` (at least 2, at most the executions and the fewest measurements).
#[must_use]
pub fn impact(experiment: &Experiment<'_>, size: usize, key: u64, settings: &Settings) -> Impact {
    let mut order: Vec<u32> = (0..experiment.executions() as u32).collect();
    let (counted, estimate) = {
        let mut rows = Held::measured(experiment);
        let mut stream = Stream::new(settings.seed, key, Part::Impact, 0);
        Ratios::fill(settings.estimate_draws, || draw_pair(&mut rows, &mut order, size, &mut stream))
    };
    let null = null(experiment, size, key, settings);
    Impact { estimate, zeros: counted.zeros, null }
}

/// The impact factor of measurements that are dealt to the executions anew for each draw.
fn null(experiment: &Experiment<'_>, size: usize, key: u64, settings: &Settings) -> Option<Ratio> {
    let mut pool = experiment.values().to_vec();
    let counts: Vec<u32> = experiment.rows().map(|row| row.len() as u32).collect();
    let mut order: Vec<u32> = (0..counts.len() as u32).collect();
    let mut stream = Stream::new(settings.seed, key, Part::ImpactNull, 0);
    let pair = || draw_exchanged_pair(&mut pool, &counts, &mut order, size, &mut stream);
    Ratios::fill(settings.null_draws, pair).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings { seed: 11, ..Settings::default() }
    }

    /// Sums of twelve uniform numbers: close enough to normal for moments of small groups.
    fn normals(count: usize, index: u64) -> Vec<f64> {
        let mut stream = Stream::new(99, 0, Part::Impact, index);
        let uniform = |stream: &mut Stream| stream.next() as f64 / 2f64.powi(64);
        (0..count).map(|_| 100.0 + (0..12).map(|_| uniform(&mut stream)).sum::<f64>()).collect()
    }

    #[test]
    fn nothing_between_gives_the_known_null_value() {
        // √2 Γ(k/2 + 1/2) Γ(k/2 − 1/2) / (√2 Γ(k/2)²) with k = g − 1: 1.0643 at g = 10.
        let values = normals(10 * 400, 1);
        let ends: Vec<usize> = (1..=10).map(|i| i * 400).collect();
        let experiment = Experiment::new(&values, &ends).unwrap();
        let found = impact(&experiment, 10, 0, &settings());
        assert!((found.null.unwrap().mean - 1.0643).abs() < 0.02, "{found:?}");
        assert!((found.null.unwrap().log_mean - 1.0).abs() < 0.02, "{found:?}");
        assert!((found.estimate.unwrap().mean - 1.0643).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn a_constant_execution_is_seen() {
        let mut values = normals(30, 2);
        values[..10].fill(7.0);
        let experiment = Experiment::new(&values, &[10, 20, 30]).unwrap();
        assert!(impact(&experiment, 3, 0, &settings()).zeros > 1_000);
        let constant = Experiment::new(&[3.0; 30], &[10, 20, 30]).unwrap();
        let found = impact(&constant, 3, 0, &settings());
        assert!(found.estimate.is_none() && found.null.is_none());
    }

    #[test]
    fn logarithms_of_products_are_sums_of_logarithms() {
        let pairs = [(1e200, 1.0), (3.0, 2.0), (1e-250, 1e10), (5.0, 7.0)];
        let mut next = pairs.iter().cycle();
        let (_, ratio) = Ratios::fill(4, || *next.next().unwrap());
        let expected = pairs.iter().map(|(b, w)| (b.ln() - w.ln()) / 2.0).sum::<f64>() / 4.0;
        assert!((ratio.unwrap().log_mean.ln() - expected).abs() < 1e-12);
        let (_, none) = Ratios::fill(4, || (0.0, 1.0));
        assert_eq!(none.unwrap().log_mean, 0.0);
    }
}
