//! A join of two relations by a hash table, as databases in memory do it: one is put into the table, the other probes
//! it.

use crate::measure::{Measurements, Proof};
use crate::options::Memory;
use crate::rng::{Rng, mix};

/// Join of two relations by a hash table.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    memory: Memory,
}

#[derive(Clone, Copy)]
struct Row {
    key: u64,
    value: u64,
}

/// Both relations, and the table with two places for each row of the first.
const BYTES_A_ROW: usize = 2 * size_of::<Row>() + 2 * size_of::<Row>();
/// The key of an empty place, which no row has.
const EMPTY: u64 = 0;

/// Open addressing with linear probing; at most half full.
struct Table {
    places: Vec<Row>,
}

impl Table {
    fn new(rows: usize) -> Table {
        Table { places: vec![Row { key: EMPTY, value: 0 }; (2 * rows).max(2)] }
    }

    fn place(&self, key: u64) -> usize {
        ((u128::from(mix(key ^ 0x5851_F42D_4C95_7F2D)) * self.places.len() as u128) >> 64) as usize
    }

    fn put(&mut self, row: Row) {
        let mut at = self.place(row.key);
        while self.places[at].key != EMPTY {
            at = if at + 1 == self.places.len() { 0 } else { at + 1 };
        }
        self.places[at] = row;
    }

    /// The sum of the values under a key.
    fn sum(&self, key: u64) -> u64 {
        let mut at = self.place(key);
        let mut sum = 0_u64;
        while self.places[at].key != EMPTY {
            if self.places[at].key == key {
                sum = sum.wrapping_add(self.places[at].value);
            }
            at = if at + 1 == self.places.len() { 0 } else { at + 1 };
        }
        sum
    }
}

/// Builds and probes in each repetition; the proof knows which rows meet, from the way they were made.
pub fn run(args: &Args, measurements: &mut Measurements) -> Result<Proof, String> {
    let rows = (args.memory.bytes / BYTES_A_ROW).max(1);
    let (built, probing, once) = relations(rows, &mut Rng::new(args.memory.seed));
    let (mut checksum, mut expected) = (0_u64, 0_u64);
    let mut table = Table::new(rows);
    for repetition in 0..args.memory.repetitions {
        let sum = measurements.time("hash-join.row", 2 * rows as u64, || join(&mut table, &built, &probing))?;
        checksum = checksum.wrapping_add(sum ^ mix(repetition));
        expected = expected.wrapping_add(once ^ mix(repetition));
    }
    measurements.end_window();
    Ok(Proof { checksum, expected })
}

/// The relation that is put into the table, the one that probes, and the sum over all rows that meet of the product of
/// their values. Of the probing rows half meet one.
fn relations(rows: usize, rng: &mut Rng) -> (Vec<Row>, Vec<Row>, u64) {
    let value_of = |number: u64| mix(number.wrapping_add(0xA5A5));
    let mut numbers: Vec<u32> = (1..=rows as u32).collect();
    rng.shuffle(&mut numbers);
    let built = numbers.iter().map(|&one| Row { key: mix(one.into()), value: value_of(one.into()) }).collect();
    let mut sum = 0_u64;
    let probing = (0..rows)
        .map(|_| {
            let number = 1 + rng.below(2 * rows) as u64;
            let value = rng.next_u64();
            if number <= rows as u64 {
                sum = sum.wrapping_add(value.wrapping_mul(value_of(number)));
            }
            Row { key: mix(number), value }
        })
        .collect();
    (built, probing, sum)
}

fn join(table: &mut Table, built: &[Row], probing: &[Row]) -> u64 {
    table.places.fill(Row { key: EMPTY, value: 0 });
    for &row in built {
        table.put(row);
    }
    probing.iter().fold(0_u64, |sum, row| sum.wrapping_add(row.value.wrapping_mul(table.sum(row.key))))
}

#[cfg(test)]
mod tests {
    use super::{EMPTY, Row, Table, join, relations};
    use crate::rng::Rng;

    fn nested_loops(built: &[Row], probing: &[Row]) -> u64 {
        let mut sum = 0_u64;
        for row in probing {
            for other in built.iter().filter(|other| other.key == row.key) {
                sum = sum.wrapping_add(row.value.wrapping_mul(other.value));
            }
        }
        sum
    }

    #[test]
    fn a_join_is_that_of_nested_loops_and_as_the_generator_says() {
        for rows in [1, 2, 3, 50, 500] {
            let (built, probing, expected) = relations(rows, &mut Rng::new(rows as u64));
            let mut table = Table::new(rows);
            for _ in 0..2 {
                assert_eq!(join(&mut table, &built, &probing), expected);
            }
            assert_eq!(nested_loops(&built, &probing), expected);
            assert!(built.iter().chain(&probing).all(|row| row.key != EMPTY));
        }
    }

    #[test]
    fn keys_that_stand_twice_meet_twice_and_about_half_meet() {
        let row = |key, value| Row { key, value };
        let (built, probing) = ([row(1, 10), row(1, 20), row(2, 5)], [row(1, 3), row(2, 2), row(9, 7)]);
        assert_eq!(join(&mut Table::new(3), &built, &probing), 3 * 30 + 2 * 5);
        assert_eq!(nested_loops(&built, &probing), 100);
        let (built, probing, _) = relations(4000, &mut Rng::new(8));
        let keys: std::collections::HashSet<u64> = built.iter().map(|row| row.key).collect();
        let meeting = probing.iter().filter(|row| keys.contains(&row.key)).count();
        assert!((1800..2200).contains(&meeting), "{meeting} of 4000");
    }
}
