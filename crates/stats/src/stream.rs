//! Random streams that are addressed, not shared: every resample of every experiment has its own stream.
//!
//! A stream is named by four words: the user's seed, the experiment's key, the part of the method, and the number of
//! the resample. So no draw depends on the draws of another thread, nor on the other experiments in the batch.

/// The step of SplitMix64's state.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014, figure 17).
#[inline]
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(GAMMA);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The part of the method that a stream serves. The numbers are part of the recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Part {
    /// The impact factor's point estimate.
    Impact = 2,
    /// The impact factor with measurements exchanged between executions.
    ImpactNull = 4,
}

/// The address of a stream: a hash of its four words.
#[must_use]
pub const fn address(seed: u64, key: u64, part: Part, index: u64) -> u64 {
    mix(mix(mix(mix(seed) ^ key) ^ part as u64) ^ index)
}

/// xoshiro256++ 1.0 (Blackman, Vigna: Scrambled Linear Pseudorandom Number Generators, 2021), seeded by SplitMix64.
#[derive(Debug, Clone)]
pub struct Stream {
    state: [u64; 4],
}

impl Stream {
    /// The stream at [`address`]`(seed, key, part, index)`.
    #[must_use]
    pub const fn new(seed: u64, key: u64, part: Part, index: u64) -> Self {
        Self::at(address(seed, key, part, index))
    }

    /// The stream whose state is the first four outputs of SplitMix64 at `address`.
    #[must_use]
    pub const fn at(address: u64) -> Self {
        let state = [
            mix(address),
            mix(address.wrapping_add(GAMMA)),
            mix(address.wrapping_add(GAMMA.wrapping_mul(2))),
            mix(address.wrapping_add(GAMMA.wrapping_mul(3))),
        ];
        Self { state }
    }

    /// 64 random bits.
    #[inline]
    pub const fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number in `0..bound`, each equally likely, from a separate word (Lemire: Fast Random Integer Generation in an
    /// Interval, 2019). `bound` 0 counts as 1.
    #[inline]
    pub const fn below(&mut self, bound: u32) -> u32 {
        let bound = bound as u64;
        loop {
            let product = self.next() as u128 * bound as u128;
            let rest = product as u64;
            if rest >= bound || rest >= bound.wrapping_neg() % bound.saturating_add((bound == 0) as u64) {
                return (product >> 64) as u32;
            }
        }
    }

    /// Numbers in `0..bound(i)` for each i below `count`, each equally likely, passed to `take` in order.
    ///
    /// Number i is made of sixteen bits of word i / 4: those at place i mod 4, counted from the lowest. If these would
    /// be uneven (less than once in 65,536 / bound times), or if the bound is above 2¹⁶, it is made of a separate word
    /// ([`Self::below`]), drawn at once.
    #[inline]
    pub fn each_below<B, T>(&mut self, count: usize, bound: B, mut take: T)
    where
        B: Fn(usize) -> u32,
        T: FnMut(usize, u32),
    {
        let mut start = 0;
        while start < count {
            let mut word = self.next();
            let end = count.min(start + 4);
            for i in start..end {
                take(i, self.lane_below(word as u32 & 0xFFFF, bound(i)));
                word >>= 16;
            }
            start = end;
        }
    }

    /// A number below `bound` from sixteen bits, if these are enough.
    #[inline(always)]
    fn lane_below(&mut self, sixteen: u32, bound: u32) -> u32 {
        let product = sixteen.wrapping_mul(bound);
        let rest = product & 0xFFFF;
        if bound > 1 << 16 || (rest < bound && rest < (1 << 16) % bound) {
            self.again(bound)
        } else {
            product >> 16
        }
    }

    /// [`Self::below`], kept out of the loops: inlined there, it would cost a third of their speed.
    #[cold]
    #[inline(never)]
    fn again(&mut self, bound: u32) -> u32 {
        self.below(bound)
    }
}

/// SplitMix64: one sequence of numbers, for simulations that draw in order.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence for this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    #[inline]
    pub const fn next(&mut self) -> u64 {
        let result = mix(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        result
    }

    /// A number in `0..bound` (0 for bound 0); not corrected, so that probabilities differ by up to `bound` in 2⁶⁴.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixing_is_splitmix64() {
        // The first outputs of the reference generator with seed 0.
        let mut random = SplitMix64::new(0);
        assert_eq!([random.next(), random.next()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        assert!((0..1000).all(|_| random.below(7) < 7));
    }

    #[test]
    fn next_is_xoshiro256_plus_plus() {
        // The reference generator from state 1, 2, 3, 4.
        let mut stream = Stream { state: [1, 2, 3, 4] };
        let expected = [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386];
        assert_eq!(std::array::from_fn(|_| stream.next()), expected);
    }

    #[test]
    fn every_number_below_the_bound_is_equally_likely() {
        let mut stream = Stream::new(7, 0, Part::Impact, 0);
        for bound in [1u32, 2, 3, 10, 20] {
            let mut seen = vec![0u32; bound as usize];
            for _ in 0..bound * 2_000 {
                seen[stream.below(bound) as usize] += 1;
            }
            let chi: f64 = seen.iter().map(|&count| (f64::from(count) - 2_000.0).powi(2) / 2_000.0).sum();
            assert!(chi < 60.0, "{bound}: {chi}");
        }
        assert_eq!(stream.below(0), 0);
    }

    #[test]
    fn numbers_of_one_word_are_independent() {
        // The numbers for all 6 × 5 × 4 shuffles, then many with all kinds of bounds.
        let mut stream = Stream::new(7, 0, Part::Impact, 2);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..60_000 {
            let mut all = [0; 3];
            stream.each_below(3, |i| 6 - i as u32, |i, number| all[i] = number);
            *seen.entry(all).or_insert(0u32) += 1;
        }
        assert_eq!(seen.len(), 120);
        assert!(seen.values().all(|count| (390..610).contains(count)), "{seen:?}");
        let mut count = 0;
        stream.each_below(
            1_000,
            |i| if i % 3 == 0 { u32::MAX } else { 1 + i as u32 },
            |i, number| {
                assert_eq!(i, count);
                assert!(u64::from(number) < if i % 3 == 0 { u64::from(u32::MAX) } else { 1 + i as u64 });
                count += 1;
            },
        );
        assert_eq!(count, 1_000);
    }

    #[test]
    fn a_bound_near_the_word_is_not_biased() {
        let mut stream = Stream::new(7, 0, Part::Impact, 1);
        let bound = 0xC000_0000;
        let low = (0..30_000).filter(|_| stream.below(bound) < bound / 2).count();
        assert!((14_500..15_500).contains(&low), "{low}");
    }

    #[test]
    fn neighbouring_addresses_share_nothing() {
        let mut seen = std::collections::BTreeSet::new();
        for (seed, key) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            for part in [Part::Impact, Part::ImpactNull] {
                for index in 0..100 {
                    assert!(seen.insert(Stream::new(seed, key, part, index).next()));
                }
            }
        }
    }
}
