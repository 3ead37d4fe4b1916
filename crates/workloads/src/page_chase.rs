//! Chains of dependent loads to one line of each page, over the same lines in pages of several sizes: the measurement
//! of `pagelab doctor --probe-translation`.
//!
//! It prints every sample and draws no conclusions: `pagelab.machine.translation` finds the levels of the hardware.

mod memory;

use std::hint::black_box;
use std::time::Instant;

use crate::clock::addition_ns;
use crate::rng::{Rng, mix};
use memory::{Backing, Memory};

const LINE: usize = 64;
const LINES_OF_SMALL_PAGE: u64 = 64;
const PIECES: usize = 3;
/// Most chains that are followed at a time.
const MOST_CHAINS: usize = 16;

/// Latency of chains with one line a page, in pages of several sizes (one JSON document)
#[derive(clap::Args)]
pub struct Args {
    /// Bytes of memory in each page size
    #[arg(long, default_value = "512M", value_parser = crate::options::parse_bytes)]
    bytes: usize,
    /// Lengths of the chains over 4K pages
    #[arg(long, value_delimiter = ',', required = true)]
    pages: Vec<usize>,
    /// Lengths of the chains with one line in each 2 MiB
    #[arg(long, value_delimiter = ',')]
    large_pages: Vec<usize>,
    /// Numbers of chains that are followed at the same time, each over the longest length's part
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=MOST_CHAINS as i64))]
    chains: Vec<u8>,
    /// Pages of which each of these chains has its part
    #[arg(long, default_value_t = 65_536)]
    chain_pages: usize,
    /// Rounds; each measures everything once, in random order
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Dependent loads in each timed piece; a sample is the median of three
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..))]
    loads: u32,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The lines that a chain visits, and the size of their pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One line of each 4 KiB, in pages of 4 KiB.
    Small,
    /// The same lines in pages of 2 MiB.
    SameIn2M,
    /// The same lines in pages of 1 GiB.
    SameIn1G,
    /// One line of each 2 MiB, in pages of 2 MiB.
    Large,
    /// The same lines in pages of 1 GiB.
    LargeIn1G,
    /// As many lines of the same sets of a first-level cache, close together, so that there is nothing to translate.
    Dense,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Small => "4K",
            Kind::SameIn2M => "4K in 2M",
            Kind::SameIn1G => "4K in 1G",
            Kind::Large => "2M",
            Kind::LargeIn1G => "2M in 1G",
            Kind::Dense => "dense",
        }
    }

    fn backing(self) -> Backing {
        match self {
            Kind::Small => Backing::Small,
            Kind::SameIn2M | Kind::Large | Kind::Dense => Backing::Large,
            Kind::SameIn1G | Kind::LargeIn1G => Backing::Giant,
        }
    }

    /// Number of the memory that has its lines. Without large pages, lines that are close together are in small ones.
    fn place(self, backings: &[Backing]) -> Option<usize> {
        let of = |wanted: Backing| backings.iter().position(|backing| *backing == wanted);
        of(self.backing()).or_else(|| of(Backing::Small).filter(|_| self == Kind::Dense))
    }

    /// Most bytes that `count` pages take.
    fn span(self, count: usize) -> usize {
        match self {
            Kind::Large | Kind::LargeIn1G => count * memory::LARGE,
            Kind::Small | Kind::SameIn2M | Kind::SameIn1G | Kind::Dense => count * memory::SMALL,
        }
    }

    /// Offsets of the lines of the first `count` pages.
    fn lines(self, count: usize) -> Vec<usize> {
        let line = |page: usize, lines: u64| (mix(page as u64) % lines) as usize * LINE;
        match self {
            Kind::Small | Kind::SameIn2M | Kind::SameIn1G => {
                (0..count).map(|page| page * memory::SMALL + line(page, LINES_OF_SMALL_PAGE)).collect()
            }
            Kind::Large | Kind::LargeIn1G => {
                (0..count).map(|page| page * memory::LARGE + line(page, (memory::LARGE / LINE) as u64)).collect()
            }
            Kind::Dense => {
                let mut used = [0; LINES_OF_SMALL_PAGE as usize];
                let place = |page| {
                    let at = line(page, LINES_OF_SMALL_PAGE);
                    let rank = &mut used[at / LINE];
                    *rank += 1;
                    (*rank - 1) * memory::SMALL + at
                };
                (0..count).map(place).collect()
            }
        }
    }
}

/// One measurement of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Task {
    kind: Kind,
    pages: usize,
    chains: usize,
}

struct Sample {
    round: u32,
    task: Task,
    ns_per_load: f64,
}

/// Measures and prints one JSON document (`pagelab.page-chase/1`).
pub fn run(args: &Args) -> Result<(), String> {
    if let Some(chains) = args.chains.iter().find(|chains| !chains.is_power_of_two()) {
        return Err(format!("--chains {chains}: allowed: 1, 2, 4, 8, 16"));
    }
    let mut memories = Memory::all(args.bytes)?;
    let tasks = tasks(args, &memories);
    let mut rng = Rng::new(args.seed);
    let (mut samples, mut cycles) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        cycles.push(addition_ns(3));
        let mut order = tasks.clone();
        rng.shuffle(&mut order);
        for task in order {
            let backings: Vec<Backing> = memories.iter().map(|memory| memory.backing).collect();
            if let Some(memory) = task.kind.place(&backings).and_then(|place| memories.get_mut(place)) {
                let part = memory.part(task.kind.span(task.pages), mix(args.seed ^ mix(u64::from(round))));
                let ns_per_load = time(part, task, args.loads as usize, &mut rng);
                samples.push(Sample { round, task, ns_per_load });
            }
        }
    }
    print(args, &memories, &cycles, &samples);
    Ok(())
}

/// All measurements for which there is memory.
fn tasks(args: &Args, memories: &[Memory]) -> Vec<Task> {
    let backings: Vec<Backing> = memories.iter().map(|memory| memory.backing).collect();
    let small = [Kind::Small, Kind::SameIn2M, Kind::SameIn1G, Kind::Dense];
    let large = [Kind::Large, Kind::LargeIn1G, Kind::Dense];
    let one = |kinds: &[Kind], lengths: &[usize], most: usize| -> Vec<Task> {
        let of =
            |&kind: &Kind| lengths.iter().filter(move |&&pages| pages <= most).map(move |&pages| (kind, pages));
        kinds.iter().flat_map(of).map(|(kind, pages)| Task { kind, pages, chains: 1 }).collect()
    };
    let mut tasks = one(&small, &args.pages, args.bytes / memory::SMALL);
    for task in one(&large, &args.large_pages, args.bytes / memory::LARGE) {
        if !tasks.contains(&task) {
            tasks.push(task);
        }
    }
    if args.chain_pages <= args.bytes / memory::SMALL {
        for kind in [Kind::Small, Kind::Dense] {
            let several = |&chains: &u8| Task { kind, pages: args.chain_pages, chains: chains.into() };
            tasks.extend(args.chains.iter().map(several));
        }
    }
    tasks.retain(|task| task.kind.place(&backings).is_some());
    tasks
}

/// Nanoseconds per load of each chain: the median of some pieces, after a round to warm up.
fn time(memory: &mut [u8], task: Task, loads: usize, rng: &mut Rng) -> f64 {
    let mut lines = task.kind.lines(task.pages);
    rng.shuffle(&mut lines);
    let each = task.pages / task.chains;
    let mut at = [0; MOST_CHAINS];
    for (chain, lines) in lines.chunks_exact(each).take(task.chains).enumerate() {
        for (node, &line) in lines.iter().enumerate() {
            memory[line..line + 8].copy_from_slice(&lines[(node + 1) % each].to_ne_bytes());
        }
        at[chain] = lines[0];
    }
    let follow = |at: &mut [usize; MOST_CHAINS], steps| match task.chains {
        1 => chase::<1>(memory, at, steps),
        2 => chase::<2>(memory, at, steps),
        4 => chase::<4>(memory, at, steps),
        8 => chase::<8>(memory, at, steps),
        _ => chase::<MOST_CHAINS>(memory, at, steps),
    };
    follow(&mut at, each);
    let steps = loads.div_ceil(task.chains).max(each);
    let mut pieces = [(); PIECES].map(|()| {
        let begun = Instant::now();
        follow(&mut at, steps);
        begun.elapsed().as_nanos() as f64 / (steps * task.chains) as f64
    });
    pieces.sort_by(f64::total_cmp);
    pieces[PIECES / 2]
}

/// Follows `steps` links of each of `N` chains in turn.
#[inline(never)]
fn chase<const N: usize>(memory: &[u8], at: &mut [usize; MOST_CHAINS], steps: usize) {
    let mut own = [0; N];
    own.copy_from_slice(&at[..N]);
    for _ in 0..steps {
        for at in &mut own {
            let mut word = [0_u8; 8];
            word.copy_from_slice(&memory[*at..*at + 8]);
            *at = usize::from_ne_bytes(word);
        }
    }
    at[..N].copy_from_slice(&black_box(own));
}

fn print(args: &Args, memories: &[Memory], cycles: &[f64], samples: &[Sample]) {
    let join = |texts: &mut dyn Iterator<Item = String>| texts.collect::<Vec<_>>().join(",");
    let memories = join(&mut memories.iter().map(|memory| {
        format!(
            r#"{{"page":"{}","bytes":{},"huge_bytes":{}}}"#,
            memory.backing.name(),
            args.bytes,
            memory.huge_bytes
        )
    }));
    let cycles = join(&mut cycles.iter().map(|ns| format!("{ns:.5}")));
    let samples = join(&mut samples.iter().map(|one| {
        let Task { kind, pages, chains } = one.task;
        format!(
            r#"{{"round":{},"kind":"{}","pages":{pages},"chains":{chains},"ns_per_load":{:.4}}}"#,
            one.round,
            kind.name(),
            one.ns_per_load
        )
    }));
    println!(
        r#"{{"schema":"pagelab.page-chase/1","rounds":{},"seed":{},"memories":[{memories}],"cycle_ns":[{cycles}],"samples":[{samples}]}}"#,
        args.rounds, args.seed
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_lines_are_in_the_same_sets_close_together() {
        let sets = |kind: Kind| {
            let mut sets = [0; 64];
            kind.lines(5000).iter().for_each(|line| sets[line / LINE % 64] += 1);
            sets
        };
        assert_eq!(sets(Kind::Small), sets(Kind::Dense));
        assert_eq!(Kind::Small.lines(100), Kind::SameIn2M.lines(100));
        let dense = Kind::Dense.lines(5000);
        let mut once = dense.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), 5000);
        assert!(dense.iter().all(|line| line / memory::SMALL < 2 * 5000 / 64));
    }

    #[test]
    fn without_large_pages_there_is_still_something_to_compare_with() {
        assert_eq!(Kind::Dense.place(&[Backing::Small, Backing::Large]), Some(1));
        assert_eq!(Kind::Dense.place(&[Backing::Small]), Some(0));
        assert_eq!(Kind::SameIn2M.place(&[Backing::Small]), None);
    }

    #[test]
    fn every_page_has_one_line() {
        for (kind, bytes) in [(Kind::Small, memory::SMALL), (Kind::Large, memory::LARGE)] {
            let lines = kind.lines(300);
            assert!(lines.iter().enumerate().all(|(page, line)| line / bytes == page && line % LINE == 0));
        }
    }

    #[test]
    fn chains_are_followed_to_their_ends_and_round() {
        let mut memory = vec![0; 64 * memory::SMALL];
        for chains in [1, 2, 4, 8, 16] {
            let task = Task { kind: Kind::Small, pages: 64, chains };
            assert!(time(&mut memory, task, 100, &mut Rng::new(1)) > 0.0);
            let lines = Kind::Small.lines(64);
            let mut at = [0; MOST_CHAINS];
            let mut seen: Vec<usize> = Vec::new();
            at[0] = lines[0];
            for _ in 0..64 / chains {
                chase::<1>(&memory, &mut at, 1);
                assert!(lines.contains(&at[0]));
                seen.push(at[0]);
            }
            assert_eq!(at[0], lines[0], "back at the start");
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 64 / chains);
        }
    }
}
