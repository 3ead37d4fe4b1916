//! Random look-ups in a B+ tree whose nodes come from malloc one by one: an index of a database in memory.

use crate::measure::{Measurements, Proof};
use crate::options::Memory;
use crate::rng::{Rng, mix};

const FANOUT: usize = 16;

/// Random look-ups in a B+ tree.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    memory: Memory,
    /// Look-ups in each repetition; one in eight asks for a key that is absent
    #[arg(long, default_value_t = 1_000_000)]
    lookups: u64,
}

#[expect(clippy::vec_box, reason = "one malloc a node is the point: Vec<Node> would lay siblings out side by side")]
enum Node {
    Leaf { keys: [u64; FANOUT], values: [u64; FANOUT], used: usize },
    Inner { first_keys: [u64; FANOUT], children: Vec<Box<Node>> },
}

impl Node {
    fn first_key(&self) -> u64 {
        match self {
            Node::Leaf { keys, .. } => keys[0],
            Node::Inner { first_keys, .. } => first_keys[0],
        }
    }
}

/// Keys are even, so that odd ones are absent; a key's value is a hash of it.
fn value_of(key: u64) -> u64 {
    mix(key ^ 0xB7E1_5162_8AED_2A6A)
}

/// Looks up random keys; the proof adds the values found and compares with the sum computed from the keys.
pub fn run(args: &Args, measurements: &mut Measurements) -> Result<Proof, String> {
    let keys = (args.memory.bytes / 16).max(FANOUT) as u64;
    let tree = build(keys);
    let mut rng = Rng::new(args.memory.seed);
    let (mut checksum, mut expected) = (0_u64, 0_u64);
    for _ in 0..args.memory.repetitions {
        let (found, wanted) =
            measurements.time("btree.lookup", args.lookups, || look_up(&tree, keys, args.lookups, &mut rng))?;
        checksum = checksum.wrapping_add(found);
        expected = expected.wrapping_add(wanted);
    }
    measurements.end_window();
    Ok(Proof { checksum, expected })
}

fn look_up(tree: &Node, keys: u64, lookups: u64, rng: &mut Rng) -> (u64, u64) {
    let (mut found, mut wanted) = (0_u64, 0_u64);
    for i in 0..lookups {
        let absent = i % 8 == 7;
        let key = 2 * rng.below(keys as usize) as u64 + u64::from(absent);
        if !absent {
            wanted = wanted.wrapping_add(value_of(key));
        }
        found = found.wrapping_add(get(tree, key).unwrap_or(0));
    }
    (found, wanted)
}

fn get(mut node: &Node, key: u64) -> Option<u64> {
    loop {
        match node {
            Node::Inner { first_keys, children } => {
                let right_of = first_keys[..children.len()].partition_point(|&first| first <= key);
                node = &children[right_of.checked_sub(1)?];
            }
            Node::Leaf { keys, values, used } => {
                return keys[..*used].binary_search(&key).ok().map(|slot| values[slot]);
            }
        }
    }
}

/// Builds the tree bottom-up over the keys 0, 2, 4, … 2(n − 1).
fn build(keys: u64) -> Node {
    let mut level: Vec<Box<Node>> = Vec::new();
    let mut next = 0;
    while next < keys {
        let used = FANOUT.min((keys - next) as usize);
        let (mut leaf_keys, mut values) = ([u64::MAX; FANOUT], [0; FANOUT]);
        for slot in 0..used {
            leaf_keys[slot] = 2 * (next + slot as u64);
            values[slot] = value_of(leaf_keys[slot]);
        }
        level.push(Box::new(Node::Leaf { keys: leaf_keys, values, used }));
        next += used as u64;
    }
    while level.len() > 1 {
        level = group(level);
    }
    // `keys` is at least FANOUT, so there is a root.
    level.pop().map_or(Node::Inner { first_keys: [0; FANOUT], children: Vec::new() }, |root| *root)
}

#[expect(clippy::vec_box, reason = "as above")]
fn group(level: Vec<Box<Node>>) -> Vec<Box<Node>> {
    let mut above = Vec::with_capacity(level.len().div_ceil(FANOUT));
    let mut nodes = level.into_iter().peekable();
    while nodes.peek().is_some() {
        let children: Vec<Box<Node>> = nodes.by_ref().take(FANOUT).collect();
        let mut first_keys = [u64::MAX; FANOUT];
        for (slot, child) in children.iter().enumerate() {
            first_keys[slot] = child.first_key();
        }
        above.push(Box::new(Node::Inner { first_keys, children }));
    }
    above
}

#[cfg(test)]
mod tests {
    use super::{FANOUT, build, get, value_of};

    #[test]
    fn every_key_is_found_and_no_other() {
        for keys in [1, FANOUT as u64, 17, 256, 257, 5000] {
            let tree = build(keys);
            for key in 0..2 * keys + 5 {
                let present = key % 2 == 0 && key / 2 < keys;
                assert_eq!(get(&tree, key), present.then(|| value_of(key)), "key {key} of {keys}");
            }
        }
    }
}
