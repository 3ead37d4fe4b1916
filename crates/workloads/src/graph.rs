//! Graphs in compressed rows (CSR), and two kinds of them: scale-free ones (R-MAT), and grids with gaps, as roads are.

use clap::ValueEnum;

use crate::rng::Rng;

/// A vertex that a search has not reached.
pub const NONE: u32 = u32::MAX;
/// Edges a vertex of R-MAT graphs, as Graph500 has them.
pub const EDGE_FACTOR: usize = 16;
/// Of 256 edges of a full grid, those that a road-like graph has.
const KEPT: u64 = 218;

/// The kind of graph.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// R-MAT with Graph500's shares and 16 edges a vertex: few vertices have most edges, labels are random
    RMat,
    /// A square grid of which 85% of the edges exist, labelled row by row: long paths, neighbours near in memory
    Road,
}

impl Kind {
    /// Bytes of compressed rows for each vertex.
    pub fn bytes_a_vertex(self) -> usize {
        match self {
            Kind::RMat => 8 + 4 * 2 * EDGE_FACTOR,
            Kind::Road => 8 + 4 * 4,
        }
    }

    /// The graph of about this many vertices.
    pub fn make(self, vertices: usize, rng: &mut Rng) -> Graph {
        match self {
            Kind::RMat => Graph::compress(vertices, &r_mat(vertices, EDGE_FACTOR * vertices, rng)),
            Kind::Road => {
                let side = vertices.isqrt().max(2);
                Graph::compress(side * side, &road(side, rng))
            }
        }
    }
}

/// An undirected graph: every edge is in the rows of both its ends; loops are left out, repeated edges are not.
pub struct Graph {
    /// Start of each vertex's row in `targets`, and the end of the last row.
    starts: Vec<usize>,
    targets: Vec<u32>,
}

impl Graph {
    /// Compresses a list of edges: rows are counted, then filled.
    pub fn compress(vertices: usize, edges: &[(u32, u32)]) -> Graph {
        let mut starts = vec![0_usize; vertices + 1];
        let both = || edges.iter().filter(|(u, v)| u != v).flat_map(|&(u, v)| [(u, v), (v, u)]);
        for (u, _) in both() {
            starts[u as usize + 1] += 1;
        }
        for vertex in 0..vertices {
            starts[vertex + 1] += starts[vertex];
        }
        let mut next = starts.clone();
        let mut targets = vec![0; starts[vertices]];
        for (u, v) in both() {
            targets[next[u as usize]] = v;
            next[u as usize] += 1;
        }
        Graph { starts, targets }
    }

    pub fn vertices(&self) -> usize {
        self.starts.len() - 1
    }

    /// Entries of all rows: twice the edges.
    pub fn entries(&self) -> usize {
        self.targets.len()
    }

    pub fn row(&self, vertex: u32) -> &[u32] {
        &self.targets[self.span(vertex)]
    }

    /// The range of a vertex's row in everything that is stored by entry.
    pub fn span(&self, vertex: u32) -> std::ops::Range<usize> {
        self.starts[vertex as usize]..self.starts[vertex as usize + 1]
    }

    /// A random vertex that has an edge, found in at most a thousand tries; otherwise the first vertex that has one;
    /// otherwise vertex 0.
    pub fn root(&self, rng: &mut Rng) -> u32 {
        let has_edge = |&vertex: &u32| !self.row(vertex).is_empty();
        let mut tries = (0..1000).map(|_| rng.below(self.vertices()) as u32);
        tries.find(has_edge).or_else(|| (0..self.vertices() as u32).find(has_edge)).unwrap_or(0)
    }
}

/// Edges by recursive halving of both axes of the adjacency matrix (Chakrabarti, Zhan, Faloutsos, SDM 2004), with the
/// shares 0.57, 0.19, 0.19, 0.05 of Graph500; then vertices get random labels. The matrix has the next power of two of
/// vertices: edges outside of those that there are are drawn again.
pub fn r_mat(vertices: usize, edges: usize, rng: &mut Rng) -> Vec<(u32, u32)> {
    let mut labels: Vec<u32> = (0..vertices as u32).collect();
    rng.shuffle(&mut labels);
    let levels = vertices.next_power_of_two().trailing_zeros();
    let mut found = Vec::with_capacity(edges);
    while found.len() < edges {
        let (from, to) = cell(levels, rng);
        if from < vertices && to < vertices {
            found.push((labels[from], labels[to]));
        }
    }
    found
}

/// A random cell of the matrix: one quarter of four at each level, four levels for each draw.
fn cell(levels: u32, rng: &mut Rng) -> (usize, usize) {
    const ENDS: [u64; 3] = [37_356, 49_807, 62_259]; // of 65,536: 0.57, 0.76, 0.95
    let (mut from, mut to, mut random) = (0, 0, 0);
    for level in 0..levels {
        if level % 4 == 0 {
            random = rng.next_u64();
        }
        let draw = random & 0xFFFF;
        random >>= 16;
        let [right, below, both] = ENDS.map(|end| usize::from(draw >= end));
        from = (from << 1) | below;
        to = (to << 1) | (right ^ below ^ both);
    }
    (from, to)
}

fn road(side: usize, rng: &mut Rng) -> Vec<(u32, u32)> {
    let mut edges = Vec::new();
    for vertex in 0..side * side {
        let right = (vertex % side + 1 < side).then_some(vertex + 1);
        let below = (vertex + side < side * side).then_some(vertex + side);
        for other in [right, below].into_iter().flatten() {
            if rng.next_u64() >> 56 < KEPT {
                edges.push((vertex as u32, other as u32));
            }
        }
    }
    edges
}

/// A search by levels: the order in which vertices were reached, and each one's level ([`NONE`]: not reached).
pub struct Search {
    pub order: Vec<u32>,
    pub levels: Vec<u32>,
}

/// Breadth-first search from `root`.
pub fn search(graph: &Graph, root: u32) -> Search {
    let mut levels = vec![NONE; graph.vertices()];
    let mut order = Vec::with_capacity(graph.vertices());
    levels[root as usize] = 0;
    order.push(root);
    let mut at = 0;
    while let Some(&vertex) = order.get(at) {
        let level = levels[vertex as usize] + 1;
        for &other in graph.row(vertex) {
            if levels[other as usize] == NONE {
                levels[other as usize] = level;
                order.push(other);
            }
        }
        at += 1;
    }
    Search { order, levels }
}

/// Number of vertices that violate a property of breadth-first levels: the root alone has level 0, every other
/// reached vertex has a neighbour one level nearer and none farther than one, and no edge leaves what was reached.
pub fn wrong_levels(graph: &Graph, root: u32, levels: &[u32]) -> u64 {
    let is_wrong = |vertex: &u32| {
        let level = levels[*vertex as usize];
        let mut around = graph.row(*vertex).iter().map(|&other| levels[other as usize]);
        match level {
            NONE => around.any(|other| other != NONE),
            0 => *vertex != root,
            _ => {
                !around.clone().any(|other| other == level - 1)
                    || around.any(|other| other == NONE || other.abs_diff(level) > 1)
            }
        }
    };
    let wrong = (0..graph.vertices() as u32).filter(is_wrong).count() as u64;
    wrong + u64::from(levels[root as usize] != 0)
}

#[cfg(test)]
pub mod tests {
    use super::{EDGE_FACTOR, Graph, Kind, NONE, r_mat, search, wrong_levels};
    use crate::rng::Rng;

    /// Small graphs of both kinds, and some with loops, repeated edges and vertices without any.
    pub fn small() -> Vec<Graph> {
        let mut rng = Rng::new(11);
        let mut found = vec![Graph::compress(3, &[]), Graph::compress(4, &[(0, 0), (1, 2), (2, 1), (1, 2)])];
        for vertices in [2, 5, 16, 31, 60] {
            found.push(Kind::RMat.make(vertices, &mut rng));
            found.push(Kind::Road.make(vertices, &mut rng));
            found.push(Graph::compress(vertices, &r_mat(vertices, vertices, &mut rng)));
        }
        found
    }

    /// Distances of all pairs by Floyd and Warshall; `None`: no path.
    pub fn distances(graph: &Graph, weight: impl Fn(u32, usize) -> u64) -> Vec<Vec<Option<u64>>> {
        let count = graph.vertices();
        let mut found = vec![vec![None; count]; count];
        for (vertex, row) in found.iter_mut().enumerate() {
            for (at, &other) in graph.span(vertex as u32).zip(graph.row(vertex as u32)) {
                let new = weight(vertex as u32, at);
                let cell = &mut row[other as usize];
                *cell = Some(cell.map_or(new, |old: u64| old.min(new)));
            }
            row[vertex] = Some(0);
        }
        for middle in 0..count {
            for from in 0..count {
                for to in 0..count {
                    if let (Some(first), Some(second)) = (found[from][middle], found[middle][to]) {
                        let new = first + second;
                        found[from][to] = Some(found[from][to].map_or(new, |old: u64| old.min(new)));
                    }
                }
            }
        }
        found
    }

    #[test]
    fn rows_hold_every_edge_from_both_its_ends() {
        let edges = r_mat(37, 300, &mut Rng::new(3));
        let graph = Graph::compress(37, &edges);
        let mut expected: Vec<(u32, u32)> =
            edges.iter().filter(|(u, v)| u != v).flat_map(|&(u, v)| [(u, v), (v, u)]).collect();
        let mut found: Vec<(u32, u32)> = (0..37).flat_map(|u| graph.row(u).iter().map(move |&v| (u, v))).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected);
        assert_eq!(graph.entries(), expected.len());
    }

    #[test]
    fn levels_are_the_shortest_ways_and_wrong_ones_are_noticed() {
        for graph in small() {
            let wanted = distances(&graph, |_, _| 1);
            for root in 0..graph.vertices() as u32 {
                let found = search(&graph, root).levels;
                let as_levels: Vec<u32> =
                    wanted[root as usize].iter().map(|one| one.map_or(NONE, |level| level as u32)).collect();
                assert_eq!(found, as_levels);
                assert_eq!(wrong_levels(&graph, root, &found), 0);
                for vertex in 0..found.len() {
                    for other in [found[vertex].wrapping_add(1), found[vertex].wrapping_sub(1)] {
                        let mut changed = found.clone();
                        changed[vertex] = other;
                        assert_ne!(wrong_levels(&graph, root, &changed), 0, "{vertex} from {root} at {other}");
                    }
                }
            }
        }
    }

    #[test]
    fn r_mat_has_graph500s_shares_and_few_vertices_have_most_edges() {
        let vertices = 1 << 12;
        let graph = Kind::RMat.make(vertices, &mut Rng::new(5));
        let mut degrees: Vec<usize> = (0..vertices as u32).map(|v| graph.row(v).len()).collect();
        degrees.sort_unstable();
        let most: usize = degrees[vertices * 9 / 10..].iter().sum();
        assert!(most * 2 > graph.entries(), "a tenth of the vertices has less than half of the edges");
        assert!(graph.entries() > 2 * EDGE_FACTOR * vertices * 9 / 10);
        // With two vertices an edge is one draw of a quarter.
        let mut loops = 0;
        for seed in 0..200 {
            loops += r_mat(2, 100, &mut Rng::new(seed)).iter().filter(|(u, v)| u == v).count();
        }
        let share = loops as f64 / 20_000.0;
        assert!((share - 0.62).abs() < 0.015, "{share} on the diagonal, not 0.57 + 0.05");
    }

    #[test]
    fn roads_are_long_and_most_of_them_is_one_piece() {
        let graph = Kind::Road.make(10_000, &mut Rng::new(2));
        let found = search(&graph, graph.root(&mut Rng::new(1)));
        assert!(found.order.len() > 9000);
        assert!(found.levels.iter().filter(|&&level| level != NONE).max() > Some(&90));
        assert!((0..10_000).all(|vertex| graph.row(vertex).len() <= 4));
    }
}
