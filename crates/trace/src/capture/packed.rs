//! Page runs as the plugin sends them: one word a run, page above and count below.

/// Bits of the count; a longer run is sent in several words, which the collector puts together again.
const COUNT_BITS: u32 = 12;
const MOST: u64 = (1 << COUNT_BITS) - 1;
// A page has at most 52 bits: of an address of 56, at least 4 are in the page.
const _: () = assert!(crate::reference::ADDRESS_BITS - *crate::run::PAGE_BITS.start() + COUNT_BITS <= 64);

/// Page and count of a word.
#[inline]
pub const fn run_of(word: u64) -> (u64, u64) {
    (word >> COUNT_BITS, word & MOST)
}

/// Appends the runs of references to `addresses`, on pages of 2 to the power of `page_bits` bytes. `ends` is room, kept from
/// call to call.
///
/// No branch depends on the addresses, but for runs of more than 4095: whether the next reference has the same page cannot
/// be foretold.
pub fn append(addresses: &[u64], page_bits: u32, ends: &mut Vec<u32>, block: &mut Vec<u8>) {
    if addresses.is_empty() {
        return;
    }
    ends.resize(ends.len().max(addresses.len()), 0);
    let mut runs = 0;
    for (at, pair) in addresses.windows(2).enumerate() {
        ends[runs] = at as u32;
        runs += usize::from((pair[0] ^ pair[1]) >> page_bits != 0);
    }
    ends[runs] = (addresses.len() - 1) as u32;
    block.reserve((runs + 1) * 8);
    let mut begin = 0;
    for &end in &ends[..=runs] {
        let page = addresses[end as usize] >> page_bits << COUNT_BITS;
        let mut count = u64::from(end + 1 - begin);
        while count > MOST {
            block.extend_from_slice(&(page | MOST).to_ne_bytes());
            count -= MOST;
        }
        block.extend_from_slice(&(page | count).to_ne_bytes());
        begin = end + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Run, RunBuilder};
    use proptest::prelude::*;

    fn naive(addresses: &[u64], page_bits: u32) -> Vec<Run> {
        let (mut runs, mut builder) = (Vec::new(), RunBuilder::default());
        addresses.iter().for_each(|address| builder.push(address >> page_bits, 1, &mut runs));
        builder.finish(&mut runs);
        runs
    }

    fn sent(addresses: &[u64], page_bits: u32, pieces: usize) -> Vec<Run> {
        let (mut ends, mut block) = (Vec::new(), Vec::new());
        addresses.chunks(pieces).for_each(|piece| append(piece, page_bits, &mut ends, &mut block));
        let (mut runs, mut builder) = (Vec::new(), RunBuilder::default());
        for word in block.chunks_exact(8) {
            let (page, count) = run_of(u64::from_ne_bytes(word.try_into().unwrap()));
            builder.push(page, count, &mut runs);
        }
        builder.finish(&mut runs);
        runs
    }

    proptest! {
        #[test]
        fn runs_come_back_whole(
            steps in prop::collection::vec((0..4_u64, 1..200_usize), 0..60),
            page_bits in 4..41_u32,
            pieces in 1..9000_usize,
        ) {
            let mut addresses = Vec::new();
            for (page, times) in steps {
                // The highest address that a trace holds is among them.
                let address = ((1 << 56) - 1) - (page << page_bits);
                addresses.extend(std::iter::repeat_n(address, times));
            }
            prop_assert_eq!(sent(&addresses, page_bits, pieces), naive(&addresses, page_bits));
        }
    }

    #[test]
    fn runs_longer_than_a_word_holds_are_one_again() {
        for length in [1, 4095, 4096, 4097, 8190, 8191, 20_000] {
            assert_eq!(sent(&vec![0x1234; length], 12, usize::MAX), [Run { page: 1, count: length as u64 }]);
        }
    }
}
