//! The discrete Fourier transform X(k) = Σ x(n)·exp(−2πi·kn/N) by decimation in time (Cooley and Tukey 1965), in place.

use std::f64::consts::PI;

use super::{Kernel, Tally, close, power_of_two, unit};
use crate::rng::Rng;

/// Number of spectral lines that are compared with the sum that defines them.
const LINES: usize = 4;

/// Transforms of `points` complex numbers, N a power of two.
pub struct ComplexFft {
    points: usize,
}

/// Interleaved real and imaginary parts, and the values to which each operation must return them.
pub struct Signal {
    values: Vec<f64>,
    seed: Rng,
    lines: Tally,
}

impl ComplexFft {
    /// Transforms of as many points as fit into `bytes`.
    pub fn of_bytes(bytes: usize) -> Self {
        Self { points: power_of_two(bytes, 16, 4) }
    }

    fn fill(&self, rng: &Rng) -> Vec<f64> {
        let mut rng = rng.clone();
        (0..2 * self.points).map(|_| unit(&mut rng) - 0.5).collect()
    }
}

impl Kernel for ComplexFft {
    const NAME: &'static str = "scimark.fft";
    type Data = Signal;

    fn flops(&self) -> u64 {
        2 * 5 * self.points as u64 * u64::from(self.points.ilog2())
    }

    fn bytes(&self) -> usize {
        16 * self.points
    }

    /// Some lines are compared with the definition, because round trips alone would not prove that it is Fourier's
    /// transform.
    fn prepare(&self, rng: Rng) -> Signal {
        let mut values = self.fill(&rng);
        let numbers = (0..LINES).map(|line| line * (self.points - 1) / LINES + 1);
        let wanted: Vec<_> = numbers.map(|k| (k, line(&values, k))).collect();
        transform(&mut values, -1.0);
        let scale = (self.points as f64).sqrt();
        let right = |&(k, (re, im)): &(usize, (f64, f64))| {
            close(values[2 * k], re, scale) && close(values[2 * k + 1], im, scale)
        };
        let lines = Tally::count(wanted.iter().map(right));
        values.copy_from_slice(&self.fill(&rng));
        Signal { values, seed: rng, lines }
    }

    fn operate(&self, data: &mut Signal) {
        transform(&mut data.values, -1.0);
        transform(&mut data.values, 1.0);
        let scale = 1.0 / self.points as f64;
        data.values.iter_mut().for_each(|value| *value *= scale);
    }

    fn check(&self, data: &Signal, _operated: u64) -> Tally {
        let wanted = self.fill(&data.seed);
        data.lines
            .and(Tally::count(data.values.iter().zip(wanted).map(|(&found, wanted)| close(found, wanted, 1.0))))
    }
}

/// The line X(k) by its definition, term by term.
fn line(values: &[f64], k: usize) -> (f64, f64) {
    let points = values.len() / 2;
    values.chunks_exact(2).enumerate().fold((0.0, 0.0), |(re, im), (n, x)| {
        // The product is reduced before it becomes a float: large angles would lose the significant digits.
        let (sin, cos) = (-2.0 * PI * ((k * n) % points) as f64 / points as f64).sin_cos();
        (re + x[0] * cos - x[1] * sin, im + x[0] * sin + x[1] * cos)
    })
}

/// Transforms in place, without the factor 1/N; `sign` is that of the exponent.
fn transform(values: &mut [f64], sign: f64) {
    reverse_bits(values);
    let points = values.len() / 2;
    let mut half = 1;
    while half < points {
        let (turn_sin, turn_cos) = (sign * PI / half as f64).sin_cos();
        let (mut re, mut im) = (1.0, 0.0);
        for offset in 0..half {
            // Recurrences lose digits; every 16th root is computed anew.
            if offset % 16 == 0 {
                (im, re) = (sign * PI * offset as f64 / half as f64).sin_cos();
            }
            let mut low = offset;
            while low < points {
                butterfly(values, low, low + half, (re, im));
                low += 2 * half;
            }
            (re, im) = (re * turn_cos - im * turn_sin, re * turn_sin + im * turn_cos);
        }
        half *= 2;
    }
}

#[inline]
fn butterfly(values: &mut [f64], low: usize, high: usize, (re, im): (f64, f64)) {
    let (high_re, high_im) = (values[2 * high], values[2 * high + 1]);
    let (turned_re, turned_im) = (high_re * re - high_im * im, high_re * im + high_im * re);
    let (low_re, low_im) = (values[2 * low], values[2 * low + 1]);
    values[2 * low] = low_re + turned_re;
    values[2 * low + 1] = low_im + turned_im;
    values[2 * high] = low_re - turned_re;
    values[2 * high + 1] = low_im - turned_im;
}

fn reverse_bits(values: &mut [f64]) {
    let points = values.len() / 2;
    let shift = usize::BITS - points.ilog2();
    for index in 0..points {
        let other = index.reverse_bits() >> shift;
        if index < other {
            values.swap(2 * index, 2 * other);
            values.swap(2 * index + 1, 2 * other + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Signal {
        pub fn spoil(&mut self) {
            self.values[1] += 1e-3;
        }
    }

    #[test]
    fn every_line_is_the_sum_that_defines_it() {
        for points in [4, 8, 32, 256] {
            let mut rng = Rng::new(points as u64);
            let signal: Vec<f64> = (0..2 * points).map(|_| unit(&mut rng) - 0.5).collect();
            let mut found = signal.clone();
            transform(&mut found, -1.0);
            for k in 0..points {
                let (re, im) = line(&signal, k);
                assert!((found[2 * k] - re).abs() < 1e-12 * points as f64, "{points} points, line {k}");
                assert!((found[2 * k + 1] - im).abs() < 1e-12 * points as f64, "{points} points, line {k}");
            }
        }
    }

    #[test]
    fn an_impulse_has_a_flat_spectrum_and_a_wave_one_line() {
        let mut impulse = vec![0.0; 32];
        impulse[0] = 1.0;
        transform(&mut impulse, -1.0);
        assert!(impulse.chunks_exact(2).all(|x| close(x[0], 1.0, 1e-3) && close(x[1], 0.0, 1e-3)));
        let mut wave: Vec<f64> = (0..16)
            .flat_map(|n| [(2.0 * PI * 3.0 * n as f64 / 16.0).cos(), (2.0 * PI * 3.0 * n as f64 / 16.0).sin()])
            .collect();
        transform(&mut wave, -1.0);
        assert!((wave[6] - 16.0).abs() < 1e-12);
        assert!(wave.iter().enumerate().all(|(place, value)| place == 6 || value.abs() < 1e-12));
    }
}
