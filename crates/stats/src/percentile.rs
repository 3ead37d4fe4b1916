//! Equal-tailed percentiles of resampled statistics.

/// The rank from either end at which `tail` of `count` resampled values is cut off: the whole part of (count + 1) tail,
/// at least 1 (Davison, Hinkley: Bootstrap Methods and their Application, 1997, equation 5.6, rounded outwards).
#[must_use]
pub fn rank(count: usize, tail: f64) -> usize {
    let exact = (count as f64 + 1.0) * tail;
    // 1,000 × 0.025 must be 25 although the product is a hair less.
    let near = exact.round();
    let whole = if (exact - near).abs() < 1e-9 * near.max(1.0) { near } else { exact.floor() };
    (whole as usize).clamp(1, count.max(1))
}

/// The `rank`-th smallest and the `rank`-th largest of `values`, which are reordered.
///
/// None where there are no values, where one is not a number, or where the rank is beyond the middle.
#[must_use]
pub fn ends(values: &mut [f64], rank: usize) -> Option<(f64, f64)> {
    let count = values.len();
    if rank == 0 || 2 * rank > count + 1 || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let low = *values.select_nth_unstable_by(rank - 1, f64::total_cmp).1;
    let high = *values.select_nth_unstable_by(count - rank, f64::total_cmp).1;
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_exact_product() {
        assert_eq!(rank(999, 0.025), 25);
        assert_eq!(rank(1000, 0.025), 25);
        assert_eq!(rank(10, 0.025), 1);
        assert_eq!(rank(1999, 0.025), 50);
        assert_eq!(rank(999, 0.5), 500);
    }

    #[test]
    fn ends_are_mirror_images() {
        let mut values: Vec<f64> = (1..=999).rev().map(f64::from).collect();
        assert_eq!(ends(&mut values, 25), Some((25.0, 975.0)));
        assert_eq!(ends(&mut [1.0, f64::NAN], 1), None);
        assert_eq!(ends(&mut [], 1), None);
        assert_eq!(ends(&mut [3.0], 1), Some((3.0, 3.0)));
        assert_eq!(ends(&mut [3.0, 4.0], 2), None);
    }
}
