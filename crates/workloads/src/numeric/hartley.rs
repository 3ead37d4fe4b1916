//! The Fourier transform of a real signal by the fast Hartley transform, as in the benchmark that ALLOC calls FFT.
//! Hartley: H(k) = Σ x(n)·cas(2πkn/N), cas θ = cos θ + sin θ, which is its own inverse except for 1/N (Bracewell 1984);
//! then Re X(k) = (H(k) + H(N−k))/2 and Im X(k) = (H(N−k) − H(k))/2.

use std::f64::consts::PI;

use super::{Kernel, Tally, close, power_of_two, unit};
use crate::rng::Rng;

const LINES: usize = 4;

/// Transforms of `points` real numbers, N a power of two.
pub struct RealFft {
    points: usize,
}

/// The signal, the table of sines, and the values to which each operation must return the signal.
pub struct Signal {
    values: Vec<f64>,
    /// sin(2πi/N) for i below N/2: half as many bytes as the signal.
    sines: Vec<f64>,
    seed: Rng,
    lines: Tally,
}

impl RealFft {
    /// Transforms of as many points as fit into `bytes`, the table of sines included.
    pub fn of_bytes(bytes: usize) -> Self {
        Self { points: power_of_two(bytes, 12, 8) }
    }

    fn fill(&self, rng: &Rng) -> Vec<f64> {
        let mut rng = rng.clone();
        (0..self.points).map(|_| unit(&mut rng) - 0.5).collect()
    }
}

impl Kernel for RealFft {
    const NAME: &'static str = "fft";
    type Data = Signal;

    fn flops(&self) -> u64 {
        2 * 3 * self.points as u64 * u64::from(self.points.ilog2())
    }

    fn bytes(&self) -> usize {
        12 * self.points
    }

    fn prepare(&self, rng: Rng) -> Signal {
        let sines = sines(self.points);
        let mut values = self.fill(&rng);
        let numbers = (0..LINES).map(|line| line * (self.points / 2 - 1) / LINES + 1);
        let wanted: Vec<_> = numbers.map(|k| (k, line(&values, k))).collect();
        forward(&mut values, &sines);
        let scale = (self.points as f64).sqrt();
        let right = |&(k, (re, im)): &(usize, (f64, f64))| {
            close(values[k], re, scale) && close(values[self.points - k], im, scale)
        };
        let lines = Tally::count(wanted.iter().map(right));
        values.copy_from_slice(&self.fill(&rng));
        Signal { values, sines, seed: rng, lines }
    }

    fn operate(&self, data: &mut Signal) {
        forward(&mut data.values, &data.sines);
        backward(&mut data.values, &data.sines);
    }

    fn check(&self, data: &Signal, _operated: u64) -> Tally {
        let wanted = self.fill(&data.seed);
        data.lines
            .and(Tally::count(data.values.iter().zip(wanted).map(|(&found, wanted)| close(found, wanted, 1.0))))
    }
}

/// X(k) of a real signal by its definition.
fn line(values: &[f64], k: usize) -> (f64, f64) {
    let points = values.len();
    values.iter().enumerate().fold((0.0, 0.0), |(re, im), (n, x)| {
        let (sin, cos) = (-2.0 * PI * ((k * n) % points) as f64 / points as f64).sin_cos();
        (re + x * cos, im + x * sin)
    })
}

/// Transforms to the spectrum: Re X(k) at place k up to N/2, Im X(k) at place N − k for 0 < k < N/2.
fn forward(values: &mut [f64], sines: &[f64]) {
    hartley(values, sines);
    let points = values.len();
    for k in 1..points / 2 {
        let (low, high) = (values[k], values[points - k]);
        values[k] = 0.5 * (low + high);
        values[points - k] = 0.5 * (high - low);
    }
}

/// Transforms from the spectrum back to the signal.
fn backward(values: &mut [f64], sines: &[f64]) {
    let points = values.len();
    for k in 1..points / 2 {
        let (re, im) = (values[k], values[points - k]);
        values[k] = re - im;
        values[points - k] = re + im;
    }
    hartley(values, sines);
    let scale = 1.0 / points as f64;
    values.iter_mut().for_each(|value| *value *= scale);
}

/// Computes H in place. Decimation in time: H(k) = E(k) + O(k)·cos θ + O(M−k)·sin θ, θ = 2πk/(2M), where E and O are
/// the transforms, of M points, of the numbers at even and odd places.
fn hartley(values: &mut [f64], sines: &[f64]) {
    let points = values.len();
    let shift = usize::BITS - points.ilog2();
    for index in 0..points {
        let other = index.reverse_bits() >> shift;
        if index < other {
            values.swap(index, other);
        }
    }
    let mut half = 1;
    while half < points {
        for block in values.chunks_exact_mut(2 * half) {
            combine(block, sines, points / (2 * half));
        }
        half *= 2;
    }
}

/// Combines one block of E, then O, into H; the four numbers at k and M − k of both halves are read before any is
/// written.
fn combine(block: &mut [f64], sines: &[f64], stride: usize) {
    let half = block.len() / 2;
    let (even, odd) = block.split_at_mut(half);
    (even[0], odd[0]) = (even[0] + odd[0], even[0] - odd[0]);
    if half == 1 {
        return;
    }
    // k = M/2: cos θ = 0, sin θ = 1.
    (even[half / 2], odd[half / 2]) = (even[half / 2] + odd[half / 2], even[half / 2] - odd[half / 2]);
    let quarter = sines.len() / 2;
    for k in 1..half / 2 {
        let mirror = half - k;
        let (sin, cos) = (sines[k * stride], sines[k * stride + quarter]);
        let turned = odd[k] * cos + odd[mirror] * sin;
        let turned_mirror = odd[k] * sin - odd[mirror] * cos;
        (even[k], odd[k]) = (even[k] + turned, even[k] - turned);
        (even[mirror], odd[mirror]) = (even[mirror] + turned_mirror, even[mirror] - turned_mirror);
    }
}

/// sin(2πi/N) for i below N/2; the cosine is a quarter of N further on.
fn sines(points: usize) -> Vec<f64> {
    (0..points / 2).map(|i| (2.0 * PI * i as f64 / points as f64).sin()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Signal {
        pub fn spoil(&mut self) {
            self.values[0] += 1e-3;
        }
    }

    #[test]
    fn every_number_is_the_sum_that_defines_hartleys_transform() {
        for points in [8, 16, 64, 512] {
            let mut rng = Rng::new(points as u64);
            let signal: Vec<f64> = (0..points).map(|_| unit(&mut rng) - 0.5).collect();
            let mut found = signal.clone();
            hartley(&mut found, &sines(points));
            for (k, &found) in found.iter().enumerate() {
                let cas = |n: usize| {
                    let (sin, cos) = (2.0 * PI * ((k * n) % points) as f64 / points as f64).sin_cos();
                    cos + sin
                };
                let wanted: f64 = signal.iter().enumerate().map(|(n, x)| x * cas(n)).sum();
                assert!((found - wanted).abs() < 1e-12 * points as f64, "{points} points, {k}");
            }
        }
    }

    #[test]
    fn the_spectrum_of_a_real_signal_is_fouriers() {
        let mut rng = Rng::new(9);
        let signal: Vec<f64> = (0..128).map(|_| unit(&mut rng) - 0.5).collect();
        let mut found = signal.clone();
        forward(&mut found, &sines(128));
        for k in 1..64 {
            let (re, im) = line(&signal, k);
            assert!((found[k] - re).abs() < 1e-11 && (found[128 - k] - im).abs() < 1e-11, "line {k}");
        }
    }
}
