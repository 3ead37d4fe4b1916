//! Random updates of a table (after HPC Challenge RandomAccess): every access to a random page.

use crate::measure::{Measurements, Proof};
use crate::options::Memory;
use crate::rng::Rng;

/// Random read-modify-write updates over a table.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    memory: Memory,
    /// Updates in each repetition
    #[arg(long, default_value_t = 4_000_000)]
    updates: u64,
}

/// Runs the repetitions; the proof compares the table's XOR with that of all values put in.
pub fn run(args: &Args, measurements: &mut Measurements) -> Result<Proof, String> {
    let words = (args.memory.bytes / 8).max(1);
    let mut table: Vec<u64> = (0..words as u64).collect();
    let mut expected = table.iter().fold(0, |acc, word| acc ^ word);
    let mut rng = Rng::new(args.memory.seed);
    for _ in 0..args.memory.repetitions {
        expected ^=
            measurements.time("gups.update", args.updates, || update(&mut table, args.updates, &mut rng))?;
    }
    measurements.end_window();
    let checksum = table.iter().fold(0, |acc, word| acc ^ word);
    Ok(Proof { checksum, expected })
}

/// Applies `updates` updates and returns the XOR of the values applied.
fn update(table: &mut [u64], updates: u64, rng: &mut Rng) -> u64 {
    let mut applied = 0;
    for _ in 0..updates {
        let value = rng.next_u64();
        let index = ((u128::from(value) * table.len() as u128) >> 64) as usize;
        table[index] ^= value;
        applied ^= value;
    }
    applied
}

#[cfg(test)]
mod tests {
    use super::update;
    use crate::rng::Rng;

    #[test]
    fn applying_the_same_updates_twice_restores_the_table() {
        let original: Vec<u64> = (0..1000).collect();
        let mut table = original.clone();
        let first = update(&mut table, 5000, &mut Rng::new(3));
        assert_ne!(table, original);
        assert_eq!(update(&mut table, 5000, &mut Rng::new(3)), first);
        assert_eq!(table, original);
    }
}
