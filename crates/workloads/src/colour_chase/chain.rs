//! Chains of dependent loads over every line of some pages, in random order.

use std::hint::black_box;
use std::time::Instant;

use super::pool::{PAGE_BYTES, Pool};
use crate::rng::Rng;

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;
const LINES: usize = PAGE_BYTES / LINE_BYTES;
const PIECES: usize = 5;

/// The common property of a chain's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One colour, by their frame numbers.
    Same,
    /// As many colours as there are, of one colour of the cache above.
    Spread,
    /// They conflict, as timing found, whatever their frame numbers are.
    Conflict,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Same, Kind::Spread, Kind::Conflict];

    /// The name in the output.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Same => "same",
            Kind::Spread => "spread",
            Kind::Conflict => "conflict",
        }
    }
}

/// Random pages of one random colour; `None` where no colour has as many.
pub fn of_one_colour(by_colour: &[Vec<usize>], count: usize, rng: &mut Rng) -> Option<Vec<usize>> {
    let large: Vec<&Vec<usize>> = by_colour.iter().filter(|pages| pages.len() >= count).collect();
    let list = large.get(rng.below(large.len().max(1)))?;
    Some(rng.sample(list.len(), count).into_iter().map(|at| list[at]).collect())
}

/// Random pages, as evenly as can be over the colours that share one random colour of the cache above.
///
/// So both kinds of chains fill the inner cache's sets alike, and differ in the outer cache only. `None` where there
/// are too few pages.
pub fn spread(by_colour: &[Vec<usize>], inner: u32, count: usize, rng: &mut Rng) -> Option<Vec<usize>> {
    let inner = inner as usize;
    let first = rng.below(inner.min(by_colour.len()));
    let mut lists: Vec<Vec<usize>> = by_colour.iter().skip(first).step_by(inner).cloned().collect();
    rng.shuffle(&mut lists);
    for list in &mut lists {
        rng.shuffle(list);
    }
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let dealt = (0..longest).flat_map(|depth| lists.iter().filter_map(move |list| list.get(depth).copied()));
    let chosen: Vec<usize> = dealt.take(count).collect();
    (chosen.len() == count).then_some(chosen)
}

/// Random pages of one random class of conflicting pages; `None` where no class has as many.
pub fn of_one_class(classes: &[Vec<usize>], count: usize, rng: &mut Rng) -> Option<Vec<usize>> {
    of_one_colour(classes, count, rng)
}

/// Nanoseconds a load of a random cycle over all lines of `pages`: the median of five pieces of about `loads` loads,
/// after two rounds to warm up.
pub fn time(pool: &mut Pool, pages: &[usize], loads: usize, rng: &mut Rng) -> f64 {
    let (start, nodes) = build(pool, pages, rng);
    let memory = pool.memory();
    let mut at = chase(memory, start, 2 * nodes);
    let steps = loads.div_ceil(nodes) * nodes;
    let mut pieces: Vec<f64> = (0..PIECES)
        .map(|_| {
            let begun = Instant::now();
            at = black_box(chase(memory, at, steps));
            begun.elapsed().as_nanos() as f64 / steps as f64
        })
        .collect();
    pieces.sort_by(f64::total_cmp);
    pieces[PIECES / 2]
}

/// Nanoseconds a load of a random cycle over all lines of `pages`, in the quickest of a few rounds: other work of the
/// machine can only slow a round down.
pub fn quickest(pool: &mut Pool, pages: &[usize], rng: &mut Rng) -> f64 {
    let (start, nodes) = build(pool, pages, rng);
    let memory = pool.memory();
    let mut at = chase(memory, start, nodes);
    let rounds = (0..4).map(|_| {
        let begun = Instant::now();
        at = black_box(chase(memory, at, nodes));
        begun.elapsed().as_nanos() as f64 / nodes as f64
    });
    rounds.fold(f64::INFINITY, f64::min)
}

/// Lays one cycle over every line of the pages (Sattolo's algorithm); returns a node and their number.
fn build(pool: &mut Pool, pages: &[usize], rng: &mut Rng) -> (usize, usize) {
    let mut lines: Vec<usize> = pages
        .iter()
        .flat_map(|&page| {
            let start = pool.start(page);
            (0..LINES).map(move |line| start + line * LINE_BYTES)
        })
        .collect();
    rng.shuffle(&mut lines);
    let memory = pool.memory_mut();
    for (i, &line) in lines.iter().enumerate() {
        let next = lines[(i + 1) % lines.len()];
        memory[line..line + 8].copy_from_slice(&next.to_ne_bytes());
    }
    (lines[0], lines.len())
}

/// Follows `steps` links.
fn chase(memory: &[u8], start: usize, steps: usize) -> usize {
    let mut at = start;
    for _ in 0..steps {
        let mut word = [0_u8; 8];
        word.copy_from_slice(&memory[at..at + 8]);
        at = usize::from_ne_bytes(word);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::{of_one_colour, spread};
    use crate::rng::Rng;

    fn colours(count: usize, pages_each: usize) -> Vec<Vec<usize>> {
        (0..count).map(|colour| (0..pages_each).map(|i| i * count + colour).collect()).collect()
    }

    #[test]
    fn a_chain_of_one_colour_has_distinct_pages_of_one_colour() {
        let mut rng = Rng::new(3);
        for _ in 0..50 {
            let mut pages = of_one_colour(&colours(8, 20), 16, &mut rng).unwrap();
            assert!(pages.iter().all(|page| page % 8 == pages[0] % 8));
            pages.sort_unstable();
            pages.dedup();
            assert_eq!(pages.len(), 16);
        }
        assert!(of_one_colour(&colours(8, 20), 21, &mut rng).is_none());
    }

    #[test]
    fn a_spread_chain_is_even_over_the_colours_of_one_inner_colour() {
        let mut rng = Rng::new(4);
        for _ in 0..50 {
            let pages = spread(&colours(32, 20), 4, 20, &mut rng).unwrap();
            let mut counts = [0; 32];
            pages.iter().for_each(|page| counts[page % 32] += 1);
            assert!(pages.iter().all(|page| page % 4 == pages[0] % 4), "one colour of the inner cache");
            let used: Vec<i32> = counts.into_iter().filter(|&count| count > 0).collect();
            assert_eq!(used.len(), 8);
            assert!(used.iter().all(|&count| count == 2 || count == 3), "{used:?}");
        }
        assert!(spread(&colours(32, 2), 4, 17, &mut rng).is_none());
    }

    #[test]
    fn a_spread_chain_takes_more_from_full_colours_only_when_others_are_empty() {
        let lists = vec![vec![0], (1..40).collect(), vec![40]];
        let pages = spread(&lists, 1, 10, &mut Rng::new(1)).unwrap();
        assert!(pages.contains(&0) && pages.contains(&40));
    }
}
