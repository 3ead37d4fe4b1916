//! P·A = L·U by Gaussian elimination with partial pivoting, L with ones on its diagonal, in place of A.

use super::{Kernel, Tally, side, unit};
use crate::rng::Rng;

/// Factorises a dense square matrix.
pub struct Lu {
    side: usize,
}

/// The matrix, stored by rows; its factors; the order of its rows.
pub struct Matrix {
    factors: Vec<f64>,
    rows: Vec<usize>,
    seed: Rng,
}

impl Lu {
    /// A matrix that fills `bytes`.
    pub fn of_bytes(bytes: usize) -> Self {
        Self { side: side(bytes) }
    }

    /// The matrix is written anew before each factorisation, not kept: a second matrix would double the working set.
    fn fill(&self, rng: &Rng, matrix: &mut [f64]) {
        let mut rng = rng.clone();
        matrix.iter_mut().for_each(|element| *element = unit(&mut rng) - 0.5);
    }
}

impl Kernel for Lu {
    const NAME: &'static str = "scimark.lu";
    type Data = Matrix;

    fn flops(&self) -> u64 {
        2 * (self.side as u64).pow(3) / 3
    }

    fn bytes(&self) -> usize {
        8 * self.side * self.side
    }

    fn prepare(&self, rng: Rng) -> Matrix {
        let mut factors = vec![0.0; self.side * self.side];
        self.fill(&rng, &mut factors);
        Matrix { factors, rows: vec![0; self.side], seed: rng }
    }

    fn operate(&self, data: &mut Matrix) {
        self.fill(&data.seed, &mut data.factors);
        factorise(&mut data.factors, &mut data.rows, self.side);
    }

    /// Solves A·x = b, where b is made from a known x, and compares: each row of A and every element of L and U counts.
    fn check(&self, data: &Matrix, _operated: u64) -> Tally {
        let mut matrix = vec![0.0; self.side * self.side];
        self.fill(&data.seed, &mut matrix);
        let known: Vec<f64> = (0..self.side).map(|i| 1.0 + (i % 7) as f64).collect();
        let right: Vec<f64> = matrix.chunks_exact(self.side).map(|row| dot(row, &known)).collect();
        let solved = solve(&data.factors, &data.rows, &right);
        // The residual is checked, not the solution: it is small whatever the condition of the matrix.
        let again = matrix.chunks_exact(self.side).map(|row| dot(row, &solved));
        let norm = |values: &[f64]| values.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let scale = norm(&matrix) * norm(&solved) * self.side as f64;
        // LINPACK's measure: residuals above a few dozen roundings are wrong factors.
        let allowed = 64.0 * f64::EPSILON * scale * (self.side as f64).sqrt();
        Tally::count(again.zip(right).map(|(found, wanted)| (found - wanted).abs() <= allowed))
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Factorises in place; `rows[i]` is the row of A that is at i in the end.
fn factorise(matrix: &mut [f64], rows: &mut [usize], side: usize) {
    rows.iter_mut().enumerate().for_each(|(i, row)| *row = i);
    for step in 0..side {
        let pivot = (step..side)
            .max_by(|&a, &b| matrix[a * side + step].abs().total_cmp(&matrix[b * side + step].abs()))
            .unwrap_or(step);
        if pivot != step {
            rows.swap(pivot, step);
            let (above, below) = matrix.split_at_mut(pivot * side);
            above[step * side..(step + 1) * side].swap_with_slice(&mut below[..side]);
        }
        let (above, below) = matrix.split_at_mut((step + 1) * side);
        let pivot_row = &above[step * side..];
        for row in below.chunks_exact_mut(side) {
            let factor = row[step] / pivot_row[step];
            row[step] = factor;
            for (element, pivot) in row[step + 1..].iter_mut().zip(&pivot_row[step + 1..]) {
                *element -= factor * pivot;
            }
        }
    }
}

/// Solves L·y = P·b, then U·x = y.
fn solve(factors: &[f64], rows: &[usize], right: &[f64]) -> Vec<f64> {
    let side = rows.len();
    let mut x: Vec<f64> = rows.iter().map(|&row| right[row]).collect();
    for i in 0..side {
        x[i] -= dot(&factors[i * side..i * side + i], &x[..i]);
    }
    for i in (0..side).rev() {
        let known = dot(&factors[i * side + i + 1..(i + 1) * side], &x[i + 1..]);
        x[i] = (x[i] - known) / factors[i * side + i];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Matrix {
        pub fn spoil(&mut self) {
            let last = self.factors.len() - 1;
            self.factors[last] *= 1.001;
        }
    }

    #[test]
    fn the_product_of_the_factors_is_the_matrix_with_its_rows_exchanged() {
        for side in [2, 3, 10, 37] {
            let kernel = Lu { side };
            let mut data = kernel.prepare(Rng::new(side as u64));
            let matrix = data.factors.clone();
            kernel.operate(&mut data);
            for i in 0..side {
                for j in 0..side {
                    let lower = |k: usize| if k == i { 1.0 } else { data.factors[i * side + k] };
                    let product: f64 = (0..=i.min(j)).map(|k| lower(k) * data.factors[k * side + j]).sum();
                    let wanted = matrix[data.rows[i] * side + j];
                    assert!((product - wanted).abs() < 1e-13 * side as f64, "{side}: ({i}, {j})");
                }
                let largest = (0..i).all(|k| data.factors[i * side + k].abs() <= 1.0);
                assert!(largest, "partial pivoting keeps factors within 1");
            }
        }
    }

    #[test]
    fn a_matrix_done_by_hand() {
        // [[1, 2], [3, 4]]: the second row is the pivot, the factor is 1/3, and 2 − 4/3 remains.
        let (mut matrix, mut rows) = ([1.0, 2.0, 3.0, 4.0], [0, 0]);
        factorise(&mut matrix, &mut rows, 2);
        assert_eq!(rows, [1, 0]);
        assert_eq!(matrix[..2], [3.0, 4.0]);
        assert!((matrix[2] - 1.0 / 3.0).abs() < 1e-15 && (matrix[3] - 2.0 / 3.0).abs() < 1e-15);
    }
}
