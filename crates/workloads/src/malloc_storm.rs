//! Threads that allocate and free blocks of many sizes, and pass some to each other, to exercise malloc's arenas.

use std::sync::Mutex;

use crate::measure::{Measurements, Proof};
use crate::options::Memory;
use crate::rng::Rng;

const SHARED_SLOTS: usize = 64;
const SMALLEST: usize = 16;

/// Multi-threaded malloc and free with blocks that cross threads.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    memory: Memory,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Operations of each thread in each repetition
    #[arg(long, default_value_t = 500_000)]
    operations: u64,
    /// Largest block; sizes are spread evenly over the logarithm from 16 bytes
    #[arg(long, default_value = "16K", value_parser = crate::options::parse_bytes)]
    largest: usize,
}

/// A block whose first and last words carry its tag; a wrong one means that memory was handed out twice.
struct Block {
    words: Vec<u64>,
    tag: u64,
}

impl Block {
    fn new(bytes: usize, tag: u64) -> Self {
        // with_capacity and push, not vec!: the storm is about malloc, not about zeroing.
        let mut words = Vec::with_capacity(bytes.div_ceil(8));
        words.resize(words.capacity(), tag);
        Self { words, tag }
    }

    fn intact(&self) -> bool {
        self.words.first() == Some(&self.tag) && self.words.last() == Some(&self.tag)
    }
}

/// Totals over one thread's work.
#[derive(Default)]
struct Tally {
    allocated: u64,
    freed: u64,
    damaged: u64,
}

impl Tally {
    fn free(&mut self, block: Block) {
        self.damaged += u64::from(!block.intact());
        self.freed = self.freed.wrapping_add(block.tag);
    }
}

/// Runs the threads; the proof is that every tag allocated is freed once and undamaged.
pub fn run(args: &Args, measurements: &mut Measurements) -> Result<Proof, String> {
    if args.threads == 0 || args.largest < SMALLEST {
        return Err(format!("--threads must be at least 1 and --largest at least {SMALLEST}"));
    }
    let shared: Vec<Mutex<Option<Block>>> = (0..SHARED_SLOTS).map(|_| Mutex::new(None)).collect();
    let mut total = Tally::default();
    let operations = args.operations * args.threads as u64;
    for repetition in 0..args.memory.repetitions {
        let tallies =
            measurements.time("malloc_storm.operation", operations, || storm(args, repetition, &shared))?;
        for tally in tallies {
            let tally = tally.ok_or("a thread of the storm panicked")?;
            total.allocated = total.allocated.wrapping_add(tally.allocated);
            total.freed = total.freed.wrapping_add(tally.freed);
            total.damaged += tally.damaged;
        }
    }
    measurements.end_window();
    for slot in shared {
        if let Some(block) = slot.into_inner().map_err(|_| "a thread of the storm panicked")? {
            total.free(block);
        }
    }
    Ok(Proof { checksum: total.freed.wrapping_add(total.damaged), expected: total.allocated })
}

fn storm(args: &Args, repetition: u64, shared: &[Mutex<Option<Block>>]) -> Vec<Option<Tally>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|thread| {
                let seed = args.memory.seed ^ (repetition << 32) ^ ((thread as u64) << 48);
                scope.spawn(move || one_thread(args, Rng::new(seed), shared))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().ok()).collect()
    })
}

fn one_thread(args: &Args, mut rng: Rng, shared: &[Mutex<Option<Block>>]) -> Tally {
    let mut tally = Tally::default();
    let mut live: Vec<Option<Block>> = Vec::new();
    live.resize_with(live_blocks(args), || None);
    for _ in 0..args.operations {
        let slot = rng.below(live.len());
        match live[slot].take() {
            Some(block) if rng.below(16) == 0 => live[slot] = exchange(shared, rng.below(SHARED_SLOTS), block),
            Some(block) => tally.free(block),
            None => {
                let block = Block::new(random_size(args.largest, &mut rng), rng.next_u64());
                tally.allocated = tally.allocated.wrapping_add(block.tag);
                live[slot] = Some(block);
            }
        }
    }
    live.into_iter().flatten().for_each(|block| tally.free(block));
    tally
}

/// Slots for one thread so that all threads together hold about `--bytes` when half of the slots are full.
fn live_blocks(args: &Args) -> usize {
    let ratio = args.largest as f64 / SMALLEST as f64;
    let mean = if ratio > 1.0 { (args.largest - SMALLEST) as f64 / ratio.ln() } else { SMALLEST as f64 };
    ((2.0 * args.memory.bytes as f64 / mean / args.threads as f64) as usize).max(1)
}

fn exchange(shared: &[Mutex<Option<Block>>], slot: usize, block: Block) -> Option<Block> {
    match shared[slot].lock() {
        Ok(mut place) => place.replace(block),
        Err(_) => Some(block),
    }
}

fn random_size(largest: usize, rng: &mut Rng) -> usize {
    let exponent = rng.next_u64() as f64 / u64::MAX as f64;
    (SMALLEST as f64 * (largest as f64 / SMALLEST as f64).powf(exponent)) as usize
}
