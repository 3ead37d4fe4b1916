//! Groups of measurements: several of one execution against one of each of several executions (ALLOC 4.2).

use crate::executions::Experiment;
use crate::stream::Stream;

/// Sum of squared deviations from the mean, in one pass over values taken relative to the group's first.
///
/// That is safe: the squared distance of the first value from the mean is at most (g − 1)/g of the sum itself, so at
/// most about log₂ g bits are lost. A group of equal values gives exactly 0.
#[derive(Debug, Clone, Copy, Default)]
pub struct Squares {
    first: f64,
    sum: f64,
    squares: f64,
}

impl Squares {
    /// The value at place `k` of its group; the one at place 0 comes first.
    #[inline]
    pub fn add(&mut self, k: usize, value: f64) {
        if k == 0 {
            self.first = value;
        }
        let deviation = value - self.first;
        self.sum += deviation;
        self.squares += deviation * deviation;
    }

    /// The sum for a group of `size`.
    #[inline]
    #[must_use]
    pub fn total(&self, size: usize) -> f64 {
        (self.squares - self.sum * self.sum / size as f64).max(0.0)
    }
}

/// Rows in memory. Groups are drawn by a partial Fisher–Yates shuffle in place: any order is as good as another for the
/// start of the next draw.
#[derive(Debug, Default)]
pub struct Held {
    values: Vec<f64>,
    spans: Vec<Span>,
}

/// The position of a row in the values.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    count: u32,
}

impl Held {
    /// The experiment in the order in which it was measured.
    #[must_use]
    pub fn measured(experiment: &Experiment<'_>) -> Self {
        let mut held = Self::default();
        for row in experiment.rows() {
            held.spans.push(Span { start: held.values.len() as u32, count: row.len() as u32 });
            held.values.extend_from_slice(row);
        }
        held
    }
}

impl Held {
    /// Squares of `size` measurements of execution `i`, without replacement.
    #[inline]
    fn within(&mut self, i: usize, size: usize, stream: &mut Stream) -> f64 {
        let Span { start, count } = self.spans[i];
        squares_of_some(&mut self.values[start as usize..][..count as usize], size, stream)
    }

    #[inline]
    fn count(&self, i: usize) -> u32 {
        self.spans[i].count
    }

    #[inline]
    fn at(&self, i: usize, position: u32) -> f64 {
        self.values[(self.spans[i].start + position) as usize]
    }
}

/// The same sum for a group that is contiguous, in two running sums, so that each addition waits half as long.
#[inline]
fn squares_of(group: &[f64]) -> f64 {
    let Some(&first) = group.first() else { return 0.0 };
    let (mut sum, mut squares) = ([0.0; 2], [0.0; 2]);
    let mut pairs = group.chunks_exact(2);
    for pair in &mut pairs {
        let (a, b) = (pair[0] - first, pair[1] - first);
        sum[0] += a;
        sum[1] += b;
        squares[0] += a * a;
        squares[1] += b * b;
    }
    if let [last] = pairs.remainder() {
        let a = last - first;
        sum[0] += a;
        squares[0] += a * a;
    }
    let sum = sum[0] + sum[1];
    (squares[0] + squares[1] - sum * sum / group.len() as f64).max(0.0)
}

/// Squares of `size` of the row's values, which are moved to its front. If all values are wanted, there is no draw.
#[inline]
pub fn squares_of_some(row: &mut [f64], size: usize, stream: &mut Stream) -> f64 {
    let count = row.len();
    if size < count {
        stream.each_below(
            size,
            |k| (count - k) as u32,
            |k, further| {
                row.swap(k, k + further as usize);
            },
        );
    }
    squares_of(&row[..size.min(count)])
}

/// Moves `size` elements of `order` to its front, each choice equally likely; if all are wanted, there is no draw.
#[inline]
pub fn choose(order: &mut [u32], size: usize, stream: &mut Stream) {
    let count = order.len();
    if size < count {
        stream.each_below(size, |k| (count - k) as u32, |k, further| order.swap(k, k + further as usize));
    }
}

/// One pair of groups: squares between (one measurement of each of `size` executions), squares within (`size` of one).
#[inline]
pub fn draw_pair(rows: &mut Held, order: &mut [u32], size: usize, stream: &mut Stream) -> (f64, f64) {
    let execution = stream.below(order.len() as u32) as usize;
    let within = rows.within(execution, size, stream);
    choose(order, size, stream);
    let chosen = &order[..size.min(order.len())];
    let mut between = Squares::default();
    stream.each_below(
        chosen.len(),
        |k| rows.count(chosen[k] as usize),
        |k, position| between.add(k, rows.at(chosen[k] as usize, position)),
    );
    (between.total(chosen.len()), within)
}

/// The same pair under exchange: measurements are dealt to the executions anew, and each execution keeps its count.
///
/// Only the 2·size measurements that are examined are dealt. The first `size` of `pool` become the group within, in the
/// first positions of their execution. If that execution is also examined for the group between, it supplies one of its
/// positions, which may be one of those.
#[inline]
pub fn draw_exchanged_pair(
    pool: &mut [f64],
    counts: &[u32],
    order: &mut [u32],
    size: usize,
    stream: &mut Stream,
) -> (f64, f64) {
    let execution = stream.below(order.len() as u32);
    let within = squares_of_some(pool, size, stream);
    choose(order, size, stream);
    let (mut next, total) = (size, pool.len());
    let mut between = Squares::default();
    for (k, &i) in order[..size.min(order.len())].iter().enumerate() {
        let mut position = size;
        if i == execution {
            position = stream.below(counts[i as usize]) as usize;
        }
        if position >= size {
            if next == total {
                continue;
            }
            pool.swap(next, next + stream.below((total - next) as u32) as usize);
            position = next;
            next += 1;
        }
        between.add(k, pool[position]);
    }
    (between.total(size), within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Part;

    fn stream(index: u64) -> Stream {
        Stream::new(1, 2, Part::Impact, index)
    }

    #[test]
    fn equal_values_have_no_squares_and_outliers_keep_the_rest() {
        assert_eq!(squares_of_some(&mut [0.1; 9], 9, &mut stream(0)), 0.0);
        let exact = squares_of_some(&mut [1e6, 1.0, 2.0, 3.0], 4, &mut stream(0));
        let mean = (1e6 + 6.0) / 4.0;
        let expected: f64 = [1e6f64, 1.0, 2.0, 3.0].iter().map(|value| (value - mean).powi(2)).sum();
        assert!((exact / expected - 1.0).abs() < 1e-14);
    }

    #[test]
    fn every_subset_is_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        let mut row: Vec<f64> = (0..5).map(f64::from).collect();
        let mut random = stream(3);
        for _ in 0..20_000 {
            squares_of_some(&mut row, 3, &mut random);
            let mut group = [row[0] as u8, row[1] as u8, row[2] as u8];
            group.sort_unstable();
            *counts.entry(group).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 10);
        assert!(counts.values().all(|count| (1_800..2_200).contains(count)), "{counts:?}");
    }

    #[test]
    fn exchanged_pairs_use_each_measurement_once_but_for_the_shared_execution() {
        let mut pool: Vec<f64> = (0..12).map(|i| f64::from(1 << i)).collect();
        let (counts, mut order) = ([4, 4, 4], [0, 1, 2]);
        let mut random = stream(9);
        for _ in 0..1_000 {
            let (between, within) = draw_exchanged_pair(&mut pool, &counts, &mut order, 3, &mut random);
            assert!(between > 0.0 && within > 0.0);
            let mut sorted = pool.clone();
            sorted.sort_by(f64::total_cmp);
            assert_eq!(sorted, (0..12).map(|i| f64::from(1 << i)).collect::<Vec<_>>());
        }
    }
}
