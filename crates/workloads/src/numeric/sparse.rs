//! y = A·x for a sparse A in compressed rows: the values, their columns, and where each row begins.

use super::{Kernel, Tally};
use crate::rng::Rng;

/// Elements of each row.
const FILLED: usize = 10;
/// Bytes of a row: its elements with their columns, its beginning, one element of x and one of y.
const ROW_BYTES: usize = FILLED * 12 + 4 + 16;

/// Multiplies a square matrix of random structure with a vector.
pub struct Sparse {
    rows: usize,
}

/// Matrix and vectors. All numbers are small integers, so that sums are exact in any order.
pub struct Product {
    values: Vec<f64>,
    columns: Vec<u32>,
    begins: Vec<u32>,
    x: Vec<f64>,
    y: Vec<f64>,
    seed: Rng,
}

impl Sparse {
    /// A product whose matrix and vectors together fill `bytes`.
    pub fn of_bytes(bytes: usize) -> Self {
        Self { rows: ((bytes - 4.min(bytes)) / ROW_BYTES).max(1) }
    }

    /// The elements (row, column, value) that the seed gives; columns may repeat, and then their values add up.
    fn elements(&self, rng: &Rng) -> impl Iterator<Item = (usize, usize, i64)> {
        let (mut rng, rows) = (rng.clone(), self.rows);
        (0..rows * FILLED).map(move |place| (place / FILLED, rng.below(rows), rng.below(201) as i64 - 100))
    }

    fn x(&self, column: usize) -> i64 {
        (column * 7 % 1001) as i64 - 500
    }
}

impl Kernel for Sparse {
    const NAME: &'static str = "scimark.sparse";
    type Data = Product;

    fn flops(&self) -> u64 {
        2 * (self.rows * FILLED) as u64
    }

    fn bytes(&self) -> usize {
        self.rows * ROW_BYTES + 4
    }

    fn prepare(&self, rng: Rng) -> Product {
        let count = self.rows * FILLED;
        let (mut values, mut columns) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (_, column, value) in self.elements(&rng) {
            values.push(value as f64);
            columns.push(column as u32);
        }
        let begins = (0..=self.rows).map(|row| (row * FILLED) as u32).collect();
        let x = (0..self.rows).map(|column| self.x(column) as f64).collect();
        Product { values, columns, begins, x, y: vec![0.0; self.rows], seed: rng }
    }

    fn operate(&self, data: &mut Product) {
        for (row, y) in data.y.iter_mut().enumerate() {
            let (begin, end) = (data.begins[row] as usize, data.begins[row + 1] as usize);
            let elements = data.values[begin..end].iter().zip(&data.columns[begin..end]);
            *y = elements.map(|(value, &column)| value * data.x[column as usize]).sum();
        }
    }

    /// Computes the product in integers, directly from the seed, without compressed rows.
    fn check(&self, data: &Product, _operated: u64) -> Tally {
        let mut wanted = vec![0_i64; self.rows];
        for (row, column, value) in self.elements(&data.seed) {
            wanted[row] += value * self.x(column);
        }
        Tally::count(data.y.iter().zip(wanted).map(|(&found, wanted)| found == wanted as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Product {
        pub fn spoil(&mut self) {
            self.y[0] += 1.0;
        }
    }

    #[test]
    fn it_is_the_dense_product() {
        let kernel = Sparse { rows: 40 };
        let mut data = kernel.prepare(Rng::new(8));
        kernel.operate(&mut data);
        let mut dense = vec![vec![0.0; 40]; 40];
        for (row, elements) in dense.iter_mut().enumerate() {
            for place in data.begins[row] as usize..data.begins[row + 1] as usize {
                elements[data.columns[place] as usize] += data.values[place];
            }
        }
        for (row, &y) in dense.iter().zip(&data.y) {
            assert_eq!(row.iter().zip(&data.x).map(|(a, x)| a * x).sum::<f64>(), y);
        }
        assert!(data.y.iter().any(|&y| y != 0.0));
    }
}
