//! Laplace's equation on a square grid by successive over-relaxation, in place: g(i,j) ← (ω/4)·(g(i−1,j) + g(i+1,j) +
//! g(i,j−1) + g(i,j+1)) + (1 − ω)·g(i,j), ω = 1.25, with a fixed border.

use super::{Kernel, Tally, close, side, unit};
use crate::rng::Rng;

const OMEGA: f64 = 1.25;

/// Sweeps over a grid.
pub struct Sor {
    side: usize,
}

/// The grid, by rows.
pub struct Grid {
    values: Vec<f64>,
    /// The initial distance from the solution.
    error: f64,
}

impl Sor {
    /// A grid that fills `bytes`, of at least one inner point.
    pub fn of_bytes(bytes: usize) -> Self {
        Self { side: side(bytes).max(3) }
    }

    /// i² − j² over the side's square: it is harmonic on the grid, too, so the solution for its border is known
    /// everywhere.
    fn solution(&self, i: usize, j: usize) -> f64 {
        let scale = (self.side * self.side) as f64;
        ((i * i) as f64 - (j * j) as f64) / scale
    }

    fn error(&self, values: &[f64]) -> f64 {
        let square =
            |(place, value): (usize, &f64)| (value - self.solution(place / self.side, place % self.side)).powi(2);
        values.iter().enumerate().map(square).sum()
    }

    fn is_border(&self, place: usize) -> bool {
        let (i, j) = (place / self.side, place % self.side);
        i == 0 || j == 0 || i == self.side - 1 || j == self.side - 1
    }
}

impl Kernel for Sor {
    const NAME: &'static str = "scimark.sor";
    type Data = Grid;

    fn flops(&self) -> u64 {
        6 * (self.side as u64).pow(2)
    }

    fn bytes(&self) -> usize {
        8 * self.side * self.side
    }

    fn prepare(&self, mut rng: Rng) -> Grid {
        let value = |place: usize| {
            let exact = self.solution(place / self.side, place % self.side);
            if self.is_border(place) { exact } else { exact + unit(&mut rng) - 0.5 }
        };
        let values: Vec<f64> = (0..self.side * self.side).map(value).collect();
        let error = self.error(&values);
        Grid { values, error }
    }

    fn operate(&self, data: &mut Grid) {
        sweep(&mut data.values, self.side);
    }

    /// Checks that the border is untouched, that one more sweep agrees with the formula at each point, and that the
    /// error shrank with the sweeps (an energy argument: for 0 < ω < 2 it cannot grow, and one sweep removes more than
    /// a third of a random one).
    fn check(&self, data: &Grid, operated: u64) -> Tally {
        let mut swept = data.values.clone();
        sweep(&mut swept, self.side);
        let wanted = by_formula(&data.values, self.side);
        let points = swept.iter().zip(&wanted).map(|(&found, &wanted)| close(found, wanted, 1e-6));
        let border = (0..data.values.len()).filter(|&place| self.is_border(place));
        let held = border.map(|place| {
            data.values[place].to_bits() == self.solution(place / self.side, place % self.side).to_bits()
        });
        let shrank = operated == 0 || self.error(&data.values) <= 0.7 * data.error;
        Tally::count(points).and(Tally::count(held)).and(Tally::count([shrank]))
    }
}

fn sweep(values: &mut [f64], side: usize) {
    for i in 1..side - 1 {
        let (above, rest) = values.split_at_mut(i * side);
        let (row, below) = rest.split_at_mut(side);
        let (above, below) = (&above[(i - 1) * side..], &below[..side]);
        let mut left = row[0];
        for j in 1..side - 1 {
            let around = above[j] + below[j] + left + row[j + 1];
            left = OMEGA / 4.0 * around + (1.0 - OMEGA) * row[j];
            row[j] = left;
        }
    }
}

/// One sweep by indices alone, point after point.
fn by_formula(values: &[f64], side: usize) -> Vec<f64> {
    let mut grid = values.to_vec();
    for i in 1..side - 1 {
        for j in 1..side - 1 {
            let around = grid[(i - 1) * side + j]
                + grid[(i + 1) * side + j]
                + grid[i * side + j - 1]
                + grid[i * side + j + 1];
            grid[i * side + j] = OMEGA / 4.0 * around + (1.0 - OMEGA) * grid[i * side + j];
        }
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Grid {
        pub fn spoil(&mut self) {
            self.values[0] += 1e-3;
        }
    }

    #[test]
    fn one_inner_point_by_hand() {
        // The neighbours are 1, 2, 3, 4, the point itself 10: 1.25/4 · 10 − 0.25 · 10.
        let mut grid = [0.0, 1.0, 0.0, 2.0, 10.0, 3.0, 0.0, 4.0, 0.0];
        sweep(&mut grid, 3);
        assert_eq!(grid[4], 3.125 - 2.5);
    }

    #[test]
    fn it_converges_to_the_solution() {
        // Young's theory: with μ = cos(π/19) the error shrinks by the factor 0.954 per sweep; squared, after 1,000
        // sweeps, it is below 1e-40.
        let kernel = Sor::of_bytes(8 * 20 * 20);
        let mut data = kernel.prepare(Rng::new(5));
        (0..1000).for_each(|_| kernel.operate(&mut data));
        assert!(kernel.error(&data.values) < 1e-20 * data.error);
    }
}
