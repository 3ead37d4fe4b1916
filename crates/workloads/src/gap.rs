//! After the GAP benchmark suite (Beamer, Asanović, Patterson 2015): searches, shortest paths, ranks and betweenness on
//! scale-free and on road-like graphs, each by a plain sequential algorithm.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use clap::ValueEnum;

use crate::graph::{Graph, Kind, NONE, Search, search, wrong_levels};
use crate::measure::{Measurements, Proof};
use crate::options::Memory;
use crate::rng::{Rng, mix};

/// The computation of each repetition.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kernel {
    /// Breadth-first search from a random vertex
    Bfs,
    /// An iteration of PageRank
    Pr,
    /// Shortest paths from a random vertex (Dijkstra), weights 1 to 255
    Sssp,
    /// Betweenness by the shortest paths from a random vertex (Brandes)
    Bc,
}

/// Graph kernels: breadth-first search, PageRank, shortest paths, betweenness.
#[derive(clap::Args)]
pub struct Args {
    /// What is computed
    kernel: Kernel,
    /// The graph
    #[arg(long, value_enum, default_value = "r-mat")]
    graph: Kind,
    #[command(flatten)]
    memory: Memory,
}

const UNREACHED: u64 = u64::MAX;
/// Ranks are integers in units of 2⁻²⁴ of one vertex's rank, so that their sums are exact in any order.
const RANK: u64 = 1 << 24;

/// Runs the repetitions; the proof checks that the last one's result has the properties of a right one.
pub fn run(args: &Args, measurements: &mut Measurements) -> Result<Proof, String> {
    let own = match args.kernel {
        Kernel::Bfs => 8,
        Kernel::Pr => 24,
        Kernel::Sssp => 8 + (args.graph.bytes_a_vertex() - 8),
        Kernel::Bc => 8 + 16 + 8,
    };
    let vertices = (args.memory.bytes / (args.graph.bytes_a_vertex() + own)).clamp(4, NONE as usize);
    let mut rng = Rng::new(args.memory.seed);
    let graph = args.graph.make(vertices, &mut rng);
    let mut timed = Timed { graph: &graph, rng, repetitions: args.memory.repetitions, measurements };
    let (checksum, wrong) = match args.kernel {
        Kernel::Bfs => timed.searches()?,
        Kernel::Pr => timed.ranks()?,
        Kernel::Sssp => timed.distances()?,
        Kernel::Bc => timed.betweenness()?,
    };
    Ok(Proof { checksum, expected: checksum.wrapping_add(wrong) })
}

/// The timed repetitions on one graph. Each kernel returns the checksum of its last result, and the number of values in
/// it that are wrong.
struct Timed<'a> {
    graph: &'a Graph,
    rng: Rng,
    repetitions: u64,
    measurements: &'a mut Measurements,
}

impl Timed<'_> {
    fn time<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> Result<T, String> {
        self.measurements.time(name, self.graph.entries() as u64, work)
    }

    /// Repeats a kernel from random roots; returns the last root with its result. One result exists at a time.
    fn repeat_from_roots<T>(&mut self, name: &str, kernel: impl Fn(u32) -> T) -> Result<Option<(u32, T)>, String> {
        let mut last = None;
        for _ in 0..self.repetitions {
            drop(last.take());
            let root = self.graph.root(&mut self.rng);
            last = Some((root, self.time(name, || kernel(root))?));
        }
        self.measurements.end_window();
        Ok(last)
    }

    fn searches(&mut self) -> Result<(u64, u64), String> {
        let graph = self.graph;
        let Some((root, found)) = self.repeat_from_roots("gap.bfs", |root| search(graph, root))? else {
            return Ok((0, 0));
        };
        let checksum = sum_of(found.levels.iter().map(|&level| u64::from(level)));
        Ok((checksum, wrong_levels(graph, root, &found.levels)))
    }

    fn ranks(&mut self) -> Result<(u64, u64), String> {
        let graph = self.graph;
        let mut ranks = vec![RANK; graph.vertices()];
        let mut given = vec![0; graph.vertices()];
        for _ in 0..self.repetitions {
            self.time("gap.pr", || ranked(graph, &mut ranks, &mut given))?;
        }
        self.measurements.end_window();
        Ok((sum_of(ranks.iter().copied()), wrong_ranks(graph, &given, &ranks)))
    }

    fn distances(&mut self) -> Result<(u64, u64), String> {
        let graph = self.graph;
        let weights = weights_of(graph);
        let last = self.repeat_from_roots("gap.sssp", |root| shortest(graph, &weights, root))?;
        let Some((root, found)) = last else { return Ok((0, 0)) };
        Ok((sum_of(found.iter().copied()), wrong_distances(graph, &weights, root, &found)))
    }

    fn betweenness(&mut self) -> Result<(u64, u64), String> {
        let graph = self.graph;
        let mut between = vec![0.0; graph.vertices()];
        let mut expected = 0.0;
        for _ in 0..self.repetitions {
            let root = graph.root(&mut self.rng);
            let found = self.time("gap.bc", || dependencies(graph, root, &mut between))?;
            expected += paths_between(&found);
        }
        self.measurements.end_window();
        // A path of d steps passes d - 1 vertices, whichever of the shortest it is.
        let sum: f64 = between.iter().sum();
        let wrong = (sum - expected).abs() > 1e-6 * expected.max(1.0) || sum.is_nan();
        Ok((sum_of(between.iter().map(|one| one.to_bits())), u64::from(wrong)))
    }
}

fn sum_of(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, |sum, value| sum.wrapping_add(mix(value)))
}

/// The weight of each entry of the rows, the same in both directions.
fn weights_of(graph: &Graph) -> Vec<u32> {
    let mut found = Vec::with_capacity(graph.entries());
    for vertex in 0..graph.vertices() as u32 {
        for &other in graph.row(vertex) {
            let ends = (u64::from(vertex.min(other)) << 32) | u64::from(vertex.max(other));
            found.push((mix(ends) % 255) as u32 + 1);
        }
    }
    found
}

/// Distances from `root` (Dijkstra 1959, with a binary heap of which old entries are skipped).
fn shortest(graph: &Graph, weights: &[u32], root: u32) -> Vec<u64> {
    let mut found = vec![UNREACHED; graph.vertices()];
    let mut heap = BinaryHeap::from([Reverse((0, root))]);
    found[root as usize] = 0;
    while let Some(Reverse((distance, vertex))) = heap.pop() {
        if distance > found[vertex as usize] {
            continue;
        }
        for (&other, &weight) in graph.row(vertex).iter().zip(&weights[graph.span(vertex)]) {
            let new = distance + u64::from(weight);
            if new < found[other as usize] {
                found[other as usize] = new;
                heap.push(Reverse((new, other)));
            }
        }
    }
    found
}

/// Number of vertices whose distance is not a shortest one: an edge shortens it, or no edge explains it (but the
/// root's).
fn wrong_distances(graph: &Graph, weights: &[u32], root: u32, found: &[u64]) -> u64 {
    let is_wrong = |&vertex: &u32| {
        let distance = found[vertex as usize];
        let mut least = UNREACHED;
        for (&other, &weight) in graph.row(vertex).iter().zip(&weights[graph.span(vertex)]) {
            least = least.min(found[other as usize].saturating_add(u64::from(weight)));
        }
        if vertex == root { distance != 0 } else { distance != least }
    };
    (0..graph.vertices() as u32).filter(is_wrong).count() as u64
}

/// One iteration of PageRank with damping 0.85: every vertex adds up the shares of its neighbours; a neighbour's share
/// is its rank over the number of its own neighbours.
fn ranked(graph: &Graph, ranks: &mut [u64], given: &mut [u64]) {
    for (vertex, (rank, share)) in ranks.iter().zip(given.iter_mut()).enumerate() {
        *share = rank / (graph.row(vertex as u32).len() as u64).max(1);
    }
    for (vertex, rank) in ranks.iter_mut().enumerate() {
        let sum: u64 = graph.row(vertex as u32).iter().map(|&other| given[other as usize]).sum();
        *rank = damped(sum);
    }
}

fn damped(collected: u64) -> u64 {
    RANK * 15 / 100 + (u128::from(collected) * 85 / 100) as u64
}

/// Number of ranks that differ from those computed by pushing shares instead of pulling them.
fn wrong_ranks(graph: &Graph, given: &[u64], ranks: &[u64]) -> u64 {
    let mut sums = vec![0_u64; graph.vertices()];
    for (vertex, share) in given.iter().enumerate() {
        for &other in graph.row(vertex as u32) {
            sums[other as usize] += share;
        }
    }
    sums.iter().zip(ranks).filter(|&(&sum, &rank)| damped(sum) != rank).count() as u64
}

/// A number of shortest paths: on a grid it exceeds what a floating-point number holds.
#[derive(Clone, Copy, Default)]
struct Paths {
    /// From 1 to 2⁶⁴, or 0.
    mantissa: f64,
    exponent: i64,
}

impl Paths {
    const ONE: Paths = Paths { mantissa: 1.0, exponent: 0 };

    fn add(&mut self, other: Paths) {
        if self.mantissa == 0.0 || other.exponent > self.exponent {
            let (larger, smaller) = (other, *self);
            *self = larger;
            self.mantissa += smaller.scaled(larger.exponent);
        } else {
            self.mantissa += other.scaled(self.exponent);
        }
        if self.mantissa >= 18_446_744_073_709_551_616.0 {
            self.mantissa /= 18_446_744_073_709_551_616.0;
            self.exponent += 64;
        }
    }

    /// The mantissa at an exponent that is no smaller.
    fn scaled(self, exponent: i64) -> f64 {
        self.mantissa * 2_f64.powi((self.exponent - exponent).max(-2000) as i32)
    }

    fn over(self, other: Paths) -> f64 {
        self.mantissa / other.mantissa * 2_f64.powi((self.exponent - other.exponent).clamp(-2000, 2000) as i32)
    }
}

/// Adds, to each vertex but the root, the share of shortest paths from `root` that pass it, summed over their ends
/// (Brandes 2001).
fn dependencies(graph: &Graph, root: u32, between: &mut [f64]) -> Search {
    let found = search(graph, root);
    let mut paths = vec![Paths::default(); graph.vertices()];
    paths[root as usize] = Paths::ONE;
    for &vertex in &found.order {
        for &other in graph.row(vertex) {
            if found.levels[other as usize] == found.levels[vertex as usize] + 1 {
                let own = paths[vertex as usize];
                paths[other as usize].add(own);
            }
        }
    }
    let mut passing = vec![0.0; graph.vertices()];
    for &vertex in found.order.iter().rev() {
        for &other in graph.row(vertex) {
            if found.levels[other as usize] == found.levels[vertex as usize] + 1 {
                let share = paths[vertex as usize].over(paths[other as usize]);
                passing[vertex as usize] += share * (1.0 + passing[other as usize]);
            }
        }
        if vertex != root {
            between[vertex as usize] += passing[vertex as usize];
        }
    }
    found
}

/// Vertices that shortest paths from a search's root pass, over all their ends.
fn paths_between(found: &Search) -> f64 {
    found.order.iter().map(|&vertex| f64::from(found.levels[vertex as usize].saturating_sub(1))).sum()
}

#[cfg(test)]
mod tests {
    use super::{
        Paths, RANK, UNREACHED, dependencies, paths_between, ranked, shortest, weights_of, wrong_distances,
        wrong_ranks,
    };
    use crate::graph::tests::{distances, small};
    use crate::graph::{Graph, Kind};
    use crate::rng::Rng;

    #[test]
    fn distances_are_those_of_all_pairs_and_wrong_ones_are_noticed() {
        for graph in small() {
            let weights = weights_of(&graph);
            assert!(weights.iter().all(|weight| (1..=255).contains(weight)));
            let wanted = distances(&graph, |_, at| u64::from(weights[at]));
            for root in 0..graph.vertices() as u32 {
                let found = shortest(&graph, &weights, root);
                let expected: Vec<u64> = wanted[root as usize].iter().map(|one| one.unwrap_or(UNREACHED)).collect();
                assert_eq!(found, expected);
                assert_eq!(wrong_distances(&graph, &weights, root, &found), 0);
                for vertex in 0..found.len() {
                    let mut changed = found.clone();
                    changed[vertex] = changed[vertex].wrapping_sub(1);
                    assert_ne!(wrong_distances(&graph, &weights, root, &changed), 0);
                }
            }
        }
    }

    #[test]
    fn ranks_are_those_of_the_formula_in_floating_point() {
        for graph in small() {
            let count = graph.vertices();
            let (mut ranks, mut given) = (vec![RANK; count], vec![0; count]);
            let mut wanted = vec![1.0; count];
            for _ in 0..10 {
                ranked(&graph, &mut ranks, &mut given);
                assert_eq!(wrong_ranks(&graph, &given, &ranks), 0);
                let mut next = vec![0.15; count];
                for (from, rank) in wanted.iter().enumerate() {
                    let row = graph.row(from as u32);
                    for &to in row {
                        next[to as usize] += 0.85 * rank / row.len() as f64;
                    }
                }
                wanted = next;
            }
            for (rank, want) in ranks.iter().zip(&wanted) {
                assert!((*rank as f64 / RANK as f64 - want).abs() < 1e-4 * want.max(1.0), "{rank} is not {want}");
            }
            ranks[0] += 1;
            assert_eq!(wrong_ranks(&graph, &given, &ranks), 1);
        }
    }

    /// The numbers of shortest paths from every vertex, and distances, by walking them all.
    fn paths_of_all(graph: &Graph) -> (Vec<Vec<f64>>, Vec<Vec<Option<u64>>>) {
        let apart = distances(graph, |_, _| 1);
        let count = graph.vertices();
        let mut paths = vec![vec![0.0; count]; count];
        for from in 0..count {
            paths[from][from] = 1.0;
            for level in 1..count as u64 {
                for to in (0..count).filter(|&to| apart[from][to] == Some(level)) {
                    paths[from][to] = graph
                        .row(to as u32)
                        .iter()
                        .filter(|&&last| apart[from][last as usize] == Some(level - 1))
                        .map(|&last| paths[from][last as usize])
                        .sum();
                }
            }
        }
        (paths, apart)
    }

    #[test]
    fn betweenness_is_that_of_its_definition() {
        for graph in small() {
            let (paths, apart) = paths_of_all(&graph);
            let count = graph.vertices();
            for root in 0..count {
                let mut found = vec![0.0; count];
                let searched = dependencies(&graph, root as u32, &mut found);
                for middle in 0..count {
                    let mut wanted = 0.0;
                    for end in (0..count).filter(|&end| end != middle && end != root && middle != root) {
                        if let (Some(first), Some(second), Some(whole)) =
                            (apart[root][middle], apart[middle][end], apart[root][end])
                            && first + second == whole
                        {
                            wanted += paths[root][middle] * paths[middle][end] / paths[root][end];
                        }
                    }
                    assert!(
                        (found[middle] - wanted).abs() < 1e-9 * wanted.max(1.0),
                        "{} is not {wanted}",
                        found[middle]
                    );
                }
                let sum: f64 = found.iter().sum();
                assert!((sum - paths_between(&searched)).abs() < 1e-9 * sum.max(1.0));
            }
        }
    }

    #[test]
    fn more_ways_than_a_number_holds_are_counted() {
        let mut paths = Paths::ONE;
        for _ in 0..3000 {
            paths.add(paths);
        }
        let mut half = Paths::ONE;
        for _ in 0..2999 {
            half.add(half);
        }
        assert_eq!(half.over(paths), 0.5);
        let mut sum = half;
        sum.add(Paths::ONE);
        assert_eq!(sum.over(paths), 0.5);
        let mut other = Paths::ONE;
        other.add(half);
        assert_eq!(other.over(half), 1.0);
        let graph = Kind::Road.make(2000 * 2000, &mut Rng::new(4));
        let mut found = vec![0.0; graph.vertices()];
        let searched = dependencies(&graph, graph.root(&mut Rng::new(4)), &mut found);
        let (sum, wanted) = (found.iter().sum::<f64>(), paths_between(&searched));
        assert!(wanted > 1e9 && (sum - wanted).abs() < 1e-6 * wanted, "{sum} is not {wanted}");
    }
}
