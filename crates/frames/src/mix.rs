//! A mixing function: every bit of the input changes about half of the output's bits.

/// Finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014, figure 17).
pub const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// `value` mixed, then reduced to `0..bound` without the low bits' bias (`bound` 0 counts as 1).
pub const fn mix_below(value: u64, bound: u32) -> u32 {
    ((mix(value) as u128 * bound as u128) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_splitmix64() {
        // The first outputs of the reference generator with seed 0.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn reduced_values_stay_below_the_bound() {
        for bound in [1, 2, 3, 16, 1000] {
            let mut seen = std::collections::BTreeSet::new();
            for value in 0..20_000 {
                seen.insert(mix_below(value, bound));
            }
            assert_eq!(seen.len(), bound as usize);
            assert!(seen.iter().all(|value| *value < bound));
        }
        assert_eq!(mix_below(7, 0), 0);
    }
}
