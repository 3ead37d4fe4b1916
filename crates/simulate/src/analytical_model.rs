//! The analytical model of allocation until one colour is full (PAGING, section 3), and its Monte-Carlo check.
//!
//! Requests have independent, uniformly distributed colours. With c colours of k pages each, the first request that
//! finds its colour full is, on average, number E(c, k) = ∫₀^∞ S_k(t/c)^c e^(−t) dt, where S_k(x) = Σ_{j≤k} x^j/j!
//! (Klamkin and Newman, "Extensions of the birthday surprise", J. Combinatorial Theory 3, 1967).

mod gamma;

use pagelab_stats::stream::{Stream, mix};

/// Nodes of a panel of the quadrature, and the number of panels.
const NODES: usize = 16;
const PANELS: u32 = 32;

/// E(c, k): the mean number of requests up to and with the first one that finds its colour full.
///
/// With t = c·x the integral is c ∫ Q(k+1, x)^c dx, where Q is the regularised upper incomplete gamma function: c times
/// the mean of the smallest of c gamma variables. Below the transition the integrand is 1 to the last bit, above it is
/// 0. In between it is smooth, and Gauss-Legendre panels integrate the exponential of c·ln Q. The relative error is
/// below 1e-11 for c ≤ 4096, k ≤ 10⁷ (tests compare with 40-digit arithmetic). `colours` must be at least 1.
#[must_use]
pub fn expected_requests(colours: u32, pages_per_colour: u64) -> f64 {
    let c = f64::from(colours);
    let a = pages_per_colour as f64 + 1.0;
    let log_survival = |x: f64| c * gamma::log_upper(a, x);
    let low = last_where(0.0, a, |x| gamma::lower(a, x) * c < 1e-18);
    let mut beyond = a + 1.0;
    while log_survival(beyond) > -46.0 {
        beyond += (beyond - low).max(1.0);
    }
    let high = last_where(low, beyond, |x| log_survival(x) > -46.0);
    c * (low + integrate(low, high, |x| log_survival(x).exp()))
}

/// The end of the initial part of `low..high` in which `holds` is true, to a thousandth of the range. It must be true
/// in one such part only.
fn last_where(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}

/// Gauss-Legendre quadrature: ∫ f from `low` to `high`, for functions that are smooth on the scale of a panel.
fn integrate(low: f64, high: f64, f: impl Fn(f64) -> f64) -> f64 {
    let rule = rule();
    let half = (high - low) / f64::from(PANELS) / 2.0;
    let panel = |i: u32| {
        let middle = low + half * (2.0 * f64::from(i) + 1.0);
        rule.iter().map(|(node, weight)| weight * f(middle + half * node)).sum::<f64>()
    };
    half * (0..PANELS).map(panel).sum::<f64>()
}

/// Nodes and weights on −1 … 1: the zeros of the Legendre polynomial by Newton's method.
fn rule() -> [(f64, f64); NODES] {
    std::array::from_fn(|i| {
        let n = NODES as f64;
        let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (n + 0.5)).cos();
        let mut slope = 1.0;
        for _ in 0..8 {
            let (mut before, mut value) = (1.0, x);
            for j in 2..=NODES {
                let j = j as f64;
                (before, value) = (value, ((2.0 * j - 1.0) * x * value - (j - 1.0) * before) / j);
            }
            slope = n * (x * value - before) / (x * x - 1.0);
            x -= value / slope;
        }
        (x, 2.0 / ((1.0 - x * x) * slope * slope))
    })
}

/// Results of many runs of [`fill`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fill {
    /// Mean number of requests.
    pub mean: f64,
    /// Standard deviation of the number of requests, with divisor runs − 1.
    pub deviation: f64,
    /// Number of runs.
    pub runs: u32,
}

/// Makes requests of uniformly distributed colours until one colour has had `target` of them; `runs` times, each with
/// its own stream. `target` k + 1 is the paper's formula, k is its simulation. `colours` and `target` are at least 1,
/// `runs` at least 2.
#[must_use]
pub fn fill(colours: u32, target: u32, runs: u32, seed: u64) -> Fill {
    let mut counts = vec![0; colours as usize];
    let (mut mean, mut squares) = (0.0, 0.0);
    for run in 0..runs {
        counts.fill(0);
        let mut stream = Stream::at(mix(seed) ^ mix(u64::from(run)));
        let requests = once(&mut counts, target, &mut stream) as f64;
        let off = requests - mean;
        mean += off / f64::from(run + 1);
        squares += off * (requests - mean);
    }
    Fill { mean, deviation: (squares / f64::from(runs.max(2) - 1)).sqrt(), runs }
}

fn once(counts: &mut [u32], target: u32, stream: &mut Stream) -> u64 {
    let colours = counts.len() as u32;
    for requests in 1.. {
        let count = &mut counts[stream.below(colours) as usize];
        *count += 1;
        if *count == target {
            return requests;
        }
    }
    unreachable!("a colour fills up after at most colours × target requests")
}

#[cfg(test)]
mod tests {
    #[test]
    fn polynomials_are_exact() {
        let found = super::integrate(-1.0, 3.0, |x| x.powi(7) - 2.0 * x + 1.0);
        assert!((found - ((3_f64.powi(8) - 1.0) / 8.0 - 8.0 + 4.0)).abs() < 1e-11, "{found}");
    }
}
