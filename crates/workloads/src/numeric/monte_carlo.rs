//! π/4 as the share of random points of the unit square that lie in the unit circle. It works in registers, so the
//! placement of pages cannot affect it: it is the control among the kernels.

use super::{Kernel, Tally};
use crate::rng::Rng;

/// Coordinates have 26 bits, so that x² + y² is exact in a double: the same points lie inside for integers and floats.
const BITS: u32 = 26;
const POINTS: u64 = 100_000;

/// The kernel, which draws points.
pub struct MonteCarlo;

/// The generator's present state, and the number of points inside.
pub struct Points {
    start: Rng,
    rng: Rng,
    inside: u64,
}

impl MonteCarlo {
    /// The kernel; it has no size.
    pub fn new() -> Self {
        Self
    }
}

impl Kernel for MonteCarlo {
    const NAME: &'static str = "scimark.montecarlo";
    type Data = Points;

    fn flops(&self) -> u64 {
        4 * POINTS
    }

    fn bytes(&self) -> usize {
        size_of::<Points>()
    }

    fn prepare(&self, rng: Rng) -> Points {
        Points { start: rng.clone(), rng, inside: 0 }
    }

    fn operate(&self, data: &mut Points) {
        let scale = 1.0 / (1_u64 << BITS) as f64;
        for _ in 0..POINTS {
            let (x, y) = point(&mut data.rng);
            let (x, y) = (x as f64 * scale, y as f64 * scale);
            data.inside += u64::from(x * x + y * y <= 1.0);
        }
    }

    /// Draws the same points again and decides in integers. The share must be π/4 within five standard deviations.
    fn check(&self, data: &Points, operated: u64) -> Tally {
        let mut rng = data.start.clone();
        let drawn = POINTS * operated;
        let inside = (0..drawn).filter(|_| lies_inside(point(&mut rng))).count() as u64;
        let share = data.inside as f64 / drawn as f64;
        let quarter = std::f64::consts::FRAC_PI_4;
        let deviation = (quarter * (1.0 - quarter) / drawn as f64).sqrt();
        Tally::count([data.inside == inside, (share - quarter).abs() < 5.0 * deviation])
    }
}

fn point(rng: &mut Rng) -> (u64, u64) {
    let bits = rng.next_u64();
    let mask = (1 << BITS) - 1;
    (bits & mask, (bits >> 32) & mask)
}

fn lies_inside((x, y): (u64, u64)) -> bool {
    x * x + y * y <= 1 << (2 * BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Points {
        pub fn spoil(&mut self) {
            self.inside += 1;
        }
    }

    #[test]
    fn the_border_belongs_to_the_circle() {
        let one = 1 << BITS;
        assert!(lies_inside((one, 0)) && lies_inside((0, 0)));
        assert!(!lies_inside((one, 1)) && !lies_inside((one - 1, one - 1)));
    }
}
