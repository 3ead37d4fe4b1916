//! After XSBench (Tramm and others, PHYSOR 2014): macroscopic cross sections of materials at random energies, looked up
//! in the unionised grid of all nuclides' energies, as Monte Carlo transport of neutrons does.

use crate::measure::{Measurements, Proof};
use crate::options::Memory;
use crate::rng::{Rng, mix};

const NUCLIDES: usize = 68;
const CHANNELS: usize = 5;
const MATERIALS: usize = 12;
/// Look-ups of each repetition that the proof makes again by searching every nuclide's own grid.
const CHECKED: u64 = 1000;

/// Look-ups of cross sections in a unionised grid of energies.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    memory: Memory,
    /// Look-ups in each repetition
    #[arg(long, default_value_t = 500_000)]
    lookups: u64,
}

/// An energy of a nuclide's grid, and its cross sections there.
#[derive(Clone, Copy, Default)]
struct Point {
    energy: f64,
    sections: [f64; CHANNELS],
}

struct Data {
    /// Points of each nuclide.
    points: usize,
    /// All nuclides' points, one nuclide after the other, in the order of energies.
    grids: Vec<Point>,
    /// All energies of all grids, in order.
    union: Vec<f64>,
    /// For each energy of the union and each nuclide, the last point that is not above it, or 0.
    below: Vec<u32>,
    /// For each material, its nuclides and their densities.
    materials: Vec<Vec<(usize, f64)>>,
}

/// Runs the repetitions; the proof repeats some look-ups without the union.
pub fn run(args: &Args, measurements: &mut Measurements) -> Result<Proof, String> {
    let points = points_for(args.memory.bytes);
    let data = Data::new(points, &mut Rng::new(args.memory.seed));
    let mut rng = Rng::new(mix(args.memory.seed));
    let (mut checksum, mut expected) = (0, 0);
    let checked = CHECKED.min(args.lookups);
    let mut starts = Vec::new();
    for _ in 0..args.memory.repetitions {
        starts.push(rng.clone());
        let first = measurements.time("cross-sections.lookup", args.lookups, || {
            let first = look_up(&data, checked, &mut rng, Data::at);
            std::hint::black_box(look_up(&data, args.lookups - checked, &mut rng, Data::at));
            first
        })?;
        checksum ^= mix(first);
    }
    measurements.end_window();
    for mut start in starts {
        expected ^= mix(look_up(&data, checked, &mut start, Data::at_by_search));
    }
    Ok(Proof { checksum, expected })
}

/// Points of each nuclide with which grids, union and indices take `bytes` bytes.
fn points_for(bytes: usize) -> usize {
    let a_point = NUCLIDES * (size_of::<Point>() + size_of::<f64>() + NUCLIDES * size_of::<u32>());
    (bytes / a_point).max(2)
}

/// The sum of the results, bit by bit: they are the same when the same points are used in the same order.
fn look_up(data: &Data, lookups: u64, rng: &mut Rng, at: fn(&Data, usize, f64) -> [f64; CHANNELS]) -> u64 {
    let mut sum = 0_u64;
    for _ in 0..lookups {
        let material = material_of(rng.next_u64());
        let energy = unit(rng.next_u64());
        for section in at(data, material, energy) {
            sum = sum.wrapping_add(section.to_bits());
        }
    }
    sum
}

/// The material of a look-up: the fuel in one of seven, each other material equally often.
fn material_of(random: u64) -> usize {
    if random.is_multiple_of(7) { 0 } else { 1 + (random / 7 % (MATERIALS as u64 - 1)) as usize }
}

/// From 0 to below 1.
fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

impl Data {
    fn new(points: usize, rng: &mut Rng) -> Data {
        let mut grids = vec![Point::default(); NUCLIDES * points];
        for grid in grids.chunks_exact_mut(points) {
            for point in grid.iter_mut() {
                point.energy = unit(rng.next_u64());
                point.sections = std::array::from_fn(|_| unit(rng.next_u64()));
            }
            grid.sort_unstable_by(|one, other| one.energy.total_cmp(&other.energy));
        }
        let mut union: Vec<f64> = grids.iter().map(|point| point.energy).collect();
        union.sort_unstable_by(f64::total_cmp);
        let mut below = Vec::with_capacity(union.len() * NUCLIDES);
        let mut next = [0_usize; NUCLIDES];
        for &energy in &union {
            for (nuclide, at) in next.iter_mut().enumerate() {
                let grid = &grids[nuclide * points..][..points];
                while *at < points && grid[*at].energy <= energy {
                    *at += 1;
                }
                below.push(at.saturating_sub(1) as u32);
            }
        }
        // The fuel holds half of the nuclides, the others some: what a look-up costs differs as much.
        let materials = (0..MATERIALS)
            .map(|material| {
                let count = if material == 0 { NUCLIDES / 2 } else { 4 + rng.below(20) };
                rng.sample(NUCLIDES, count).into_iter().map(|nuclide| (nuclide, unit(rng.next_u64()))).collect()
            })
            .collect();
        Data { points, grids, union, below, materials }
    }

    /// Cross sections of a material at an energy: one search in the union.
    fn at(&self, material: usize, energy: f64) -> [f64; CHANNELS] {
        let row = self.union.partition_point(|&one| one <= energy).saturating_sub(1) * NUCLIDES;
        self.summed(material, energy, |nuclide| self.below[row + nuclide] as usize)
    }

    /// The same with a search in each nuclide's grid.
    fn at_by_search(&self, material: usize, energy: f64) -> [f64; CHANNELS] {
        self.summed(material, energy, |nuclide| {
            let grid = &self.grids[nuclide * self.points..][..self.points];
            grid.iter().rposition(|point| point.energy <= energy).unwrap_or(0)
        })
    }

    fn summed(&self, material: usize, energy: f64, below: impl Fn(usize) -> usize) -> [f64; CHANNELS] {
        let mut found = [0.0; CHANNELS];
        for &(nuclide, density) in &self.materials[material] {
            let at = below(nuclide).min(self.points - 2);
            let [low, high] = [0, 1].map(|next| self.grids[nuclide * self.points + at + next]);
            let share = (energy - low.energy) / (high.energy - low.energy);
            for (sum, (one, other)) in found.iter_mut().zip(low.sections.into_iter().zip(high.sections)) {
                *sum += density * (one + share * (other - one));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{Data, MATERIALS, NUCLIDES, material_of, points_for, unit};
    use crate::rng::Rng;

    #[test]
    fn the_union_leads_to_the_points_that_searches_find() {
        let mut rng = Rng::new(9);
        for points in [2, 3, 17, 40] {
            let data = Data::new(points, &mut rng);
            assert!(data.union.is_sorted() && data.union.len() == NUCLIDES * points);
            let edges = [0.0, data.union[0], data.union[points], 1.0 - f64::EPSILON];
            for energy in (0..300).map(|_| unit(rng.next_u64())).chain(edges) {
                for material in 0..MATERIALS {
                    assert_eq!(data.at(material, energy), data.at_by_search(material, energy), "{energy}");
                }
            }
        }
    }

    #[test]
    fn at_a_point_of_a_grid_its_own_cross_sections_count() {
        let mut data = Data::new(10, &mut Rng::new(1));
        data.materials = vec![vec![(5, 1.0)]];
        let point = data.grids[5 * 10 + 3];
        assert_eq!(data.at(0, point.energy), point.sections);
    }

    #[test]
    fn sizes_and_materials_are_as_promised() {
        let data = Data::new(points_for(32 << 20), &mut Rng::new(1));
        let bytes = data.grids.len() * 48 + data.union.len() * 8 + data.below.len() * 4;
        assert!(bytes <= 32 << 20 && bytes > 31 << 20, "{bytes}");
        let mut rng = Rng::new(3);
        let fuel = (0..70_000).filter(|_| material_of(rng.next_u64()) == 0).count();
        assert!((9_500..10_500).contains(&fuel), "{fuel} of 70,000");
    }
}
