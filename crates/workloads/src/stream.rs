//! Sequential bandwidth: copy, scale, add and triad over three arrays (after McCalpin's STREAM).

use crate::measure::{Measurements, Proof};
use crate::options::Memory;

const SCALAR: f64 = 3.0;

/// Four sequential kernels over three arrays that share the given bytes.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    memory: Memory,
}

/// Runs all four kernels in each repetition; the proof replays one element and compares the sums.
pub fn run(args: &Args, measurements: &mut Measurements) -> Result<Proof, String> {
    let len = (args.memory.bytes / 24).max(1);
    let (mut a, mut b, mut c) = (vec![1.0_f64; len], vec![2.0_f64; len], vec![0.0_f64; len]);
    let ops = len as u64;
    let mut replay = Replay { a: 1.0, b: 2.0, c: 0.0 };
    for _ in 0..args.memory.repetitions {
        measurements.time("stream.copy", ops, || c.copy_from_slice(&a))?;
        measurements.time("stream.scale", ops, || each(&mut b, &c, &c, |c, _| SCALAR * c))?;
        measurements.time("stream.add", ops, || each(&mut c, &a, &b, |a, b| a + b))?;
        measurements.time("stream.triad", ops, || each(&mut a, &b, &c, |b, c| b + SCALAR * c))?;
        replay.step();
    }
    measurements.end_window();
    // Every element of an array has the same value, so its sum is known exactly from a count of equal elements.
    let right = |array: &[f64], value: f64| array.iter().filter(|x| x.to_bits() == value.to_bits()).count() as u64;
    let checksum = right(&a, replay.a) + right(&b, replay.b) + right(&c, replay.c);
    Ok(Proof { checksum, expected: 3 * ops })
}

fn each(to: &mut [f64], from1: &[f64], from2: &[f64], f: impl Fn(f64, f64) -> f64) {
    for ((to, &x), &y) in to.iter_mut().zip(from1).zip(from2) {
        *to = f(x, y);
    }
}

struct Replay {
    a: f64,
    b: f64,
    c: f64,
}

impl Replay {
    fn step(&mut self) {
        self.c = self.a;
        self.b = SCALAR * self.c;
        self.c = self.a + self.b;
        self.a = self.b + SCALAR * self.c;
    }
}
