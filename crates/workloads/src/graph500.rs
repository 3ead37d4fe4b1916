//! After Graph500: an R-MAT graph is compressed to rows, then searched breadth-first from random roots.

use crate::graph::{EDGE_FACTOR, Graph, NONE, r_mat, wrong_levels};
use crate::measure::{Measurements, Proof};
use crate::options::Memory;
use crate::rng::{Rng, mix};

/// Compression of an R-MAT graph, then breadth-first searches of it.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    memory: Memory,
}

/// Bytes for each vertex: the list of edges, the rows, and parents, levels and queue of a search.
const BYTES_A_VERTEX: usize = 8 * EDGE_FACTOR + 8 + 8 * EDGE_FACTOR + 12;

/// Measures the compression once and a search in each repetition; the proof checks every tree of parents.
pub fn run(args: &Args, measurements: &mut Measurements) -> Result<Proof, String> {
    let vertices = (args.memory.bytes / BYTES_A_VERTEX).clamp(2, NONE as usize);
    let mut rng = Rng::new(args.memory.seed);
    let edges = r_mat(vertices, EDGE_FACTOR * vertices, &mut rng);
    let graph = measurements.time("graph500.compress", edges.len() as u64, || Graph::compress(vertices, &edges))?;
    let mut found = Vec::new();
    for _ in 0..args.memory.repetitions {
        let root = graph.root(&mut rng);
        let parents = measurements.time("graph500.bfs", graph.entries() as u64, || tree(&graph, root))?;
        found.push((root, parents));
        if found.len() > 1 && found.len() as u64 != args.memory.repetitions {
            // Trees of first and last are checked: those between would need more memory than was requested.
            found.pop();
        }
    }
    measurements.end_window();
    let (mut checksum, mut wrong) = (0_u64, 0);
    for (root, parents) in &found {
        let levels = levels_of(parents, *root);
        wrong += wrong_levels(&graph, *root, &levels) + wrong_parents(&graph, *root, parents);
        checksum = levels.iter().fold(checksum, |sum, &level| sum.wrapping_add(mix(u64::from(level))));
    }
    Ok(Proof { checksum, expected: checksum.wrapping_add(wrong) })
}

/// The parent of each vertex in a tree of breadth-first search; the root is its own, and [`NONE`] is not reached.
fn tree(graph: &Graph, root: u32) -> Vec<u32> {
    let mut parents = vec![NONE; graph.vertices()];
    let mut queue = Vec::with_capacity(graph.vertices());
    parents[root as usize] = root;
    queue.push(root);
    let mut at = 0;
    while let Some(&vertex) = queue.get(at) {
        for &other in graph.row(vertex) {
            if parents[other as usize] == NONE {
                parents[other as usize] = vertex;
                queue.push(other);
            }
        }
        at += 1;
    }
    parents
}

/// Levels of a tree; [`NONE`] where following the parents does not end at the root.
fn levels_of(parents: &[u32], root: u32) -> Vec<u32> {
    let mut levels = vec![NONE; parents.len()];
    levels[root as usize] = 0;
    let mut path = Vec::new();
    for start in 0..parents.len() as u32 {
        let mut vertex = start;
        while levels[vertex as usize] == NONE && parents[vertex as usize] != NONE && path.len() <= parents.len() {
            path.push(vertex);
            vertex = parents[vertex as usize];
        }
        let mut level = levels[vertex as usize];
        for step in path.drain(..).rev() {
            level = level.saturating_add(1);
            levels[step as usize] = level;
        }
    }
    levels
}

/// Number of vertices whose parent is no neighbour.
fn wrong_parents(graph: &Graph, root: u32, parents: &[u32]) -> u64 {
    let is_wrong = |&vertex: &u32| {
        let parent = parents[vertex as usize];
        parent != NONE && vertex != root && !graph.row(vertex).contains(&parent)
    };
    (0..graph.vertices() as u32).filter(is_wrong).count() as u64
}

#[cfg(test)]
mod tests {
    use super::{levels_of, tree, wrong_parents};
    use crate::graph::tests::small;
    use crate::graph::{NONE, search, wrong_levels};

    #[test]
    fn trees_have_the_levels_of_a_search() {
        for graph in small() {
            for root in 0..graph.vertices() as u32 {
                let parents = tree(&graph, root);
                assert_eq!(levels_of(&parents, root), search(&graph, root).levels);
                assert_eq!(wrong_parents(&graph, root, &parents), 0);
            }
        }
    }

    #[test]
    fn a_wrong_parent_is_noticed() {
        for graph in small() {
            let parents = tree(&graph, 0);
            for vertex in 1..parents.len() {
                for other in (0..parents.len() as u32).chain([NONE]) {
                    let mut changed = parents.clone();
                    changed[vertex] = other;
                    let levels = levels_of(&changed, 0);
                    let right = levels == search(&graph, 0).levels
                        && (other == NONE || graph.row(vertex as u32).contains(&other));
                    let wrong = wrong_levels(&graph, 0, &levels) + wrong_parents(&graph, 0, &changed);
                    assert_eq!(wrong == 0, right, "{vertex} under {other}");
                }
            }
        }
    }
}
