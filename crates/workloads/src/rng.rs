//! A small seeded generator, so that a workload does the same work in every execution.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose sequence depends on `seed` only.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number in `0..bound`, by multiplication (bias below 2⁻³² for the bounds used here).
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Puts the items into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// `count` different numbers below `bound`, in random order; fewer if there are not as many.
    pub fn sample(&mut self, bound: usize, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..bound).collect();
        for i in 0..count.min(bound) {
            let other = i + self.below(bound - i);
            all.swap(i, other);
        }
        all.truncate(count);
        all
    }
}

/// SplitMix64's finaliser: a bijection on 64 bits whose results look random.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn known_sequence() {
        // Reference values of SplitMix64 with seed 1234567.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_sample_holds_different_numbers_of_the_whole_range() {
        let mut rng = Rng::new(5);
        let mut all = rng.sample(20, 20);
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
        assert_eq!(rng.sample(20, 3).len(), 3);
        assert_eq!(rng.sample(2, 3).len(), 2);
        let firsts: std::collections::HashSet<usize> = (0..400).map(|_| rng.sample(20, 1)[0]).collect();
        assert_eq!(firsts.len(), 20, "every number can come first");
    }

    #[test]
    fn below_stays_below() {
        let mut rng = Rng::new(7);
        assert!((0..10_000).all(|_| rng.below(13) < 13));
    }
}
