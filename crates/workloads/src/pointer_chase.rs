//! Dependent loads along one random cycle: the latency of memory and of address translation, without overlap.

use crate::measure::{Measurements, Proof};
use crate::options::Memory;
use crate::rng::{Rng, mix};

const LINE_WORDS: usize = 8;

/// A chain of dependent loads through memory in random order.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    memory: Memory,
    /// Distance between nodes: 64 visits every cache line, 4096 one line of each 4K page
    #[arg(long, default_value = "64", value_parser = crate::options::parse_bytes)]
    stride: usize,
    /// Full rounds of the cycle in each repetition
    #[arg(long, default_value_t = 1)]
    laps: u64,
}

/// Walks the cycle. The proof is that each lap returns to its start with the sum of every node's number.
pub fn run(args: &Args, measurements: &mut Measurements) -> Result<Proof, String> {
    if args.stride < 64 || !args.stride.is_multiple_of(64) {
        return Err(format!("--stride {} must be a multiple of 64 bytes (a cache line)", args.stride));
    }
    let nodes = args.memory.bytes / args.stride;
    if nodes < 2 {
        return Err(format!(
            "--bytes {} holds fewer than two nodes of --stride {}",
            args.memory.bytes, args.stride
        ));
    }
    let (memory, start) = build(nodes, args.stride / 8, args.memory.seed);
    let steps = args.laps * nodes as u64;
    let mut checksum = 0_u64;
    for _ in 0..args.memory.repetitions {
        let (end, sum) = measurements.time("pointer_chase.load", steps, || chase(&memory, start, steps))?;
        checksum = checksum.wrapping_add(sum).wrapping_add((end != start) as u64);
    }
    measurements.end_window();
    let lap: u64 = (0..nodes as u64).fold(0, u64::wrapping_add);
    let expected = lap.wrapping_mul(args.laps).wrapping_mul(args.memory.repetitions);
    Ok(Proof { checksum, expected })
}

/// Lays one cycle over all nodes (Sattolo's algorithm). A node is two words: next node's word index, own number.
fn build(nodes: usize, stride_words: usize, seed: u64) -> (Vec<u64>, usize) {
    let mut order: Vec<u32> = (0..nodes as u32).collect();
    let mut rng = Rng::new(seed);
    for i in (1..nodes).rev() {
        order.swap(i, rng.below(i));
    }
    // One line of each stride, at a random place in it, so that long strides do not map to few cache sets.
    let lines = stride_words / LINE_WORDS;
    let word_of = |node: u32| node as usize * stride_words + (mix(u64::from(node)) as usize % lines) * LINE_WORDS;
    let mut memory = vec![0_u64; nodes * stride_words];
    for (node, &next) in order.iter().enumerate() {
        let word = word_of(node as u32);
        memory[word] = word_of(next) as u64;
        memory[word + 1] = node as u64;
    }
    (memory, word_of(0))
}

/// Follows `steps` links. Returns where it ended, and the sum of the numbers of the nodes that it left.
fn chase(memory: &[u64], start: usize, steps: u64) -> (usize, u64) {
    let (mut at, mut sum) = (start, 0_u64);
    for _ in 0..steps {
        sum = sum.wrapping_add(memory[at + 1]);
        at = memory[at] as usize;
    }
    (at, sum)
}

#[cfg(test)]
mod tests {
    use super::{build, chase};

    #[test]
    fn the_cycle_visits_every_node_once() {
        for (nodes, stride_words) in [(2, 8), (257, 8), (1000, 512)] {
            let (memory, start) = build(nodes, stride_words, 9);
            let (end, sum) = chase(&memory, start, nodes as u64);
            assert_eq!(end, start);
            assert_eq!(sum, (nodes * (nodes - 1) / 2) as u64);
            assert!((1..nodes as u64).all(|steps| chase(&memory, start, steps).0 != start));
        }
    }
}
