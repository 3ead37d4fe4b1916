//! One experiment: executions, each with its measurements.

/// Executions of one workload under one condition. `ends[i]` is the end of execution i's measurements in `values`.
#[derive(Debug, Clone, Copy)]
pub struct Experiment<'a> {
    values: &'a [f64],
    ends: &'a [usize],
}

impl<'a> Experiment<'a> {
    /// None unless the ends rise, each execution has a measurement, and the last end is the number of values.
    #[must_use]
    pub fn new(values: &'a [f64], ends: &'a [usize]) -> Option<Self> {
        let mut start = 0;
        for &end in ends {
            if end <= start {
                return None;
            }
            start = end;
        }
        (start == values.len() && u32::try_from(start).is_ok()).then_some(Self { values, ends })
    }

    /// Number of executions.
    #[must_use]
    pub const fn executions(&self) -> usize {
        self.ends.len()
    }

    /// All measurements, one execution after the other.
    #[must_use]
    pub const fn values(&self) -> &'a [f64] {
        self.values
    }

    /// The measurements of execution `i`.
    #[must_use]
    pub fn row(&self, i: usize) -> &'a [f64] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.values[start..self.ends[i]]
    }

    /// All executions in order.
    pub fn rows(&self) -> impl Iterator<Item = &'a [f64]> + '_ {
        (0..self.executions()).map(|i| self.row(i))
    }

    /// The fewest measurements of an execution; 0 without executions.
    #[must_use]
    pub fn fewest(&self) -> usize {
        self.rows().map(<[f64]>::len).min().unwrap_or(0)
    }
}

/// Moments of the measurements of one execution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    /// Number of measurements.
    pub count: f64,
    /// Their mean.
    pub mean: f64,
    /// Sum of squared deviations from the mean.
    pub squares: f64,
}

impl Moments {
    /// Computed in two passes, relative to the first value: a constant row has squares of exactly 0.
    #[must_use]
    pub fn of(row: &[f64]) -> Self {
        let (Some(&first), count) = (row.first(), row.len() as f64) else {
            return Self { count: 0.0, mean: f64::NAN, squares: f64::NAN };
        };
        let offset = row.iter().map(|value| value - first).sum::<f64>() / count;
        let mean = first + offset;
        // The second sum removes the rounding error of the mean (Chan, Golub, LeVeque 1983).
        let (mut squares, mut rest) = (0.0, 0.0);
        for value in row {
            let deviation = (value - first) - offset;
            squares += deviation * deviation;
            rest += deviation;
        }
        Self { count, mean, squares: (squares - rest * rest / count).max(0.0) }
    }

    /// Sample variance (divisor count − 1); None for one measurement.
    #[must_use]
    pub fn variance(&self) -> Option<f64> {
        (self.count > 1.0).then(|| self.squares / (self.count - 1.0))
    }

    /// Coefficient of variation; None for one measurement.
    #[must_use]
    pub fn cv(&self) -> Option<f64> {
        self.variance().map(|variance| variance.sqrt() / self.mean)
    }
}

/// Values of all executions together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    /// Mean of the executions' means; each execution has the same weight.
    pub mean: f64,
    /// Mean of the executions' CVs; NaN if an execution has one measurement.
    pub within: f64,
    /// CV of all measurements together; NaN if there is only one.
    pub pooled: f64,
}

impl Levels {
    /// Values of executions with these moments and CVs.
    #[must_use]
    pub fn of(moments: &[Moments], cvs: &[f64]) -> Self {
        // Means are summed relative to the first, so that equal means give exactly the same mean.
        let first = moments.first().map_or(f64::NAN, |one| one.mean);
        let (mut sum, mut count, mut weighted) = (0.0, 0.0, 0.0);
        for one in moments {
            sum += one.mean - first;
            count += one.count;
            weighted += one.count * (one.mean - first);
        }
        let (n, grand) = (moments.len() as f64, first + weighted / count);
        let apart = |one: &Moments| one.squares + one.count * (one.mean - grand).powi(2);
        let squares: f64 = moments.iter().map(apart).sum();
        let pooled = if count > 1.0 { (squares / (count - 1.0)).sqrt() / grand } else { f64::NAN };
        Self { mean: first + sum / n, within: cvs.iter().sum::<f64>() / n, pooled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_ends_are_no_experiment() {
        let values = [1.0, 2.0, 3.0];
        assert!(Experiment::new(&values, &[1, 3]).is_some());
        for ends in [&[1usize, 2][..], &[0, 3], &[2, 1, 3], &[4], &[]] {
            assert!(Experiment::new(&values, ends).is_none(), "{ends:?}");
        }
    }

    #[test]
    fn a_constant_has_no_spread_whatever_its_digits() {
        let moments = Moments::of(&[0.1; 7]);
        assert_eq!((moments.mean, moments.squares), (0.1, 0.0));
        assert_eq!(Moments::of(&[5.0]).variance(), None);
    }

    #[test]
    fn a_small_spread_on_a_large_mean_is_kept() {
        let row: Vec<f64> = (0..1000).map(|i| 1e9 + f64::from(i % 2)).collect();
        let variance = Moments::of(&row).variance().unwrap();
        assert!((variance - 250.0 / 999.0).abs() < 1e-12, "{variance}");
    }

    #[test]
    fn pooled_squares_are_those_of_all_values_together() {
        let values = [1.0, 2.0, 4.0, 10.0, 12.0];
        let experiment = Experiment::new(&values, &[3, 5]).unwrap();
        let moments: Vec<Moments> = experiment.rows().map(Moments::of).collect();
        let cvs: Vec<f64> = moments.iter().map(|one| one.cv().unwrap()).collect();
        let levels = Levels::of(&moments, &cvs);
        let all = Moments::of(&values);
        assert!((levels.pooled - all.cv().unwrap()).abs() < 1e-15);
        assert!((levels.mean - (7.0 / 3.0 + 11.0) / 2.0).abs() < 1e-15);
    }
}
