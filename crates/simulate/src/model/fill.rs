//! Allocation at random until a colour is full, many times.

use pagelab_stats::stream::{Stream, mix};

/// What many runs of [`fill`] gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fill {
    /// Mean number of requests.
    pub mean: f64,
    /// Standard deviation of the number of requests, with divisor runs − 1.
    pub deviation: f64,
    /// How many runs.
    pub runs: u32,
}

/// Requests of uniformly distributed colours until one colour has had `target` of them; `runs` times, each with a stream
/// of its own. `target` k + 1 is the paper's formula, k is its simulation. `colours`, `target` at least 1, `runs` 2.
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
