//! The colour of a page, and the colour counts that can share one simulation.

use super::VPN_BITS;

/// The largest colour count.
pub const MAX_COLOURS: u32 = 4096;
/// Most colour counts of one chain; more are divided into several chains.
pub const MAX_LEVELS: usize = 9;

/// A function from pages to colours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Colouring {
    /// Virtual page number modulo the number of colours, the same for all address spaces (PAGING, section 4).
    #[default]
    Modulo,
    /// As `Modulo`, after each address space's pages were shifted by its own pseudo-random distance.
    PidHashed,
    /// Bit i of the colour is the parity of the virtual page number under mask i; counts must be powers of two.
    Xor(Vec<u64>),
}

/// Why colours cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColouringError {
    /// No colour count was given.
    NoCounts,
    /// A colour count is 0 or above [`MAX_COLOURS`].
    Count(u32),
    /// XOR masks give only powers of two, and each bit needs a mask.
    Masks {
        /// The impossible colour count.
        count: u32,
        /// Number of masks.
        masks: usize,
    },
    /// No page is in a sample of this rate.
    Rate(String),
}

impl std::fmt::Display for ColouringError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoCounts => write!(f, "no colour count was given: name at least one, such as 1,2,4"),
            Self::Count(count) => write!(f, "{count} colours: not within 1 ... {MAX_COLOURS}"),
            Self::Masks { count, masks } if count.is_power_of_two() => {
                write!(f, "{count} colours need {} XOR masks: {masks} are given", count.trailing_zeros())
            }
            Self::Rate(rate) => {
                write!(f, "rate {rate}: a sample has pages from 2^-64 (5.5e-20) on, and at most all, 1")
            }
            Self::Masks { count, .. } => write!(f, "{count} colours: XOR masks make powers of two only"),
        }
    }
}

impl std::error::Error for ColouringError {}

/// Colour counts whose classes nest, so that one walk over the trace serves them all: each is twice the one before.
///
/// Every page has a *code*. With q the odd part of the counts, it has page modulo q in the low bits, then the bits of
/// page div q. Two pages have the same colour of q·2^i if the lowest `bits(q) + i` bits of their codes are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    colouring: Colouring,
    odd: u64,
    odd_bits: u32,
    doublings: u32,
    counts: Vec<u32>,
}

impl Chain {
    /// Divides `counts` (in any order, repetitions allowed) into chains.
    ///
    /// # Errors
    /// Counts that are out of range, or impossible for the colouring.
    pub fn split(colouring: &Colouring, counts: &[u32]) -> Result<Vec<Self>, ColouringError> {
        let mut sorted = counts.to_vec();
        sorted.sort_unstable_by_key(|&count| (count >> count.trailing_zeros().min(31), count));
        sorted.dedup();
        for &count in &sorted {
            check(colouring, count)?;
        }
        let chains: Vec<Self> = sorted
            .chunk_by(|a, b| a * 2 == *b)
            .flat_map(|group| group.chunks(MAX_LEVELS))
            .map(|group| Self::of(colouring.clone(), group))
            .collect();
        if chains.is_empty() { Err(ColouringError::NoCounts) } else { Ok(chains) }
    }

    fn of(colouring: Colouring, counts: &[u32]) -> Self {
        let odd = u64::from(counts[0] >> counts[0].trailing_zeros());
        let odd_bits = u64::BITS - (odd - 1).leading_zeros();
        let doublings = counts[counts.len() - 1].trailing_zeros();
        Self { colouring, odd, odd_bits, doublings, counts: counts.to_vec() }
    }

    /// The colour counts, ascending.
    #[must_use]
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Number of bits of a code.
    #[must_use]
    pub fn code_bits(&self) -> u32 {
        self.odd_bits + self.doublings
    }

    /// The number of low bits of the code that distinguish the colours of each count.
    #[must_use]
    pub fn level_bits(&self) -> Vec<u32> {
        self.counts.iter().map(|count| self.odd_bits + count.trailing_zeros()).collect()
    }

    /// The code of `page`.
    #[inline]
    #[must_use]
    pub fn code(&self, page: u64) -> u32 {
        let low = (1 << self.doublings) - 1;
        match &self.colouring {
            Colouring::Modulo if self.odd == 1 => (vpn(page) & low) as u32,
            Colouring::Modulo => self.spread(vpn(page)),
            Colouring::PidHashed => {
                self.spread(vpn(page.wrapping_add(pagelab_stats::stream::mix(page >> VPN_BITS))))
            }
            Colouring::Xor(masks) => {
                let bit = |(i, mask): (usize, &u64)| ((vpn(page) & mask).count_ones() & 1) << i;
                masks.iter().take(self.doublings as usize).enumerate().map(bit).sum()
            }
        }
    }

    fn spread(&self, number: u64) -> u32 {
        let low = (1 << self.doublings) - 1;
        ((number % self.odd) | ((number / self.odd) & low) << self.odd_bits) as u32
    }

    /// Writes the codes of `pages` to `codes`, of the same length.
    pub(crate) fn codes<T: super::Touch>(&self, pages: &[T], codes: &mut [u16]) {
        if self.colouring == Colouring::Modulo && self.odd == 1 {
            let low = (1 << self.doublings) - 1;
            for (code, reference) in codes.iter_mut().zip(pages) {
                *code = (reference.page() & low) as u16;
            }
        } else {
            for (code, reference) in codes.iter_mut().zip(pages) {
                *code = self.code(reference.page()) as u16;
            }
        }
    }
}

fn check(colouring: &Colouring, count: u32) -> Result<(), ColouringError> {
    if count == 0 || count > MAX_COLOURS {
        return Err(ColouringError::Count(count));
    }
    match colouring {
        Colouring::Xor(masks) if !count.is_power_of_two() || masks.len() < count.trailing_zeros() as usize => {
            Err(ColouringError::Masks { count, masks: masks.len() })
        }
        _ => Ok(()),
    }
}

const fn vpn(page: u64) -> u64 {
    page & ((1 << VPN_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn colour(colouring: &Colouring, page: u64, count: u32) -> u64 {
        match colouring {
            Colouring::Modulo => vpn(page) % u64::from(count),
            Colouring::PidHashed => {
                vpn(page.wrapping_add(pagelab_stats::stream::mix(page >> VPN_BITS))) % u64::from(count)
            }
            Colouring::Xor(masks) => (0..count.trailing_zeros() as usize)
                .map(|i| u64::from((vpn(page) & masks[i]).count_ones() % 2) << i)
                .sum(),
        }
    }

    proptest! {
        #[test]
        fn codes_tell_the_colours_of_every_count_apart(
            counts in proptest::collection::vec(1..=300_u32, 1..12),
            pages in proptest::collection::vec(any::<u64>(), 2..20),
            hashed in any::<bool>(),
        ) {
            let colouring = if hashed { Colouring::PidHashed } else { Colouring::Modulo };
            let mut seen = Vec::new();
            for chain in Chain::split(&colouring, &counts).unwrap() {
                for (&count, bits) in chain.counts().iter().zip(chain.level_bits()) {
                    seen.push(count);
                    let mask = (1_u64 << bits) - 1;
                    for pair in pages.windows(2) {
                        let [a, b] = [pair[0], pair[1]].map(|page| u64::from(chain.code(page)) & mask);
                        let [x, y] = [pair[0], pair[1]].map(|page| colour(&colouring, page, count));
                        prop_assert_eq!(a == b, x == y);
                    }
                }
            }
            let mut asked = counts.clone();
            asked.sort_unstable();
            asked.dedup();
            seen.sort_unstable();
            prop_assert_eq!(asked, seen);
        }
    }

    #[test]
    fn xor_masks_make_powers_of_two() {
        let colouring = Colouring::Xor(vec![0b101, 0b110]);
        let chain = &Chain::split(&colouring, &[1, 2, 4]).unwrap()[0];
        assert_eq!([0, 1, 2, 3, 4, 5].map(|page| chain.code(page)), [0, 1, 2, 3, 3, 2]);
        let refused = Chain::split(&colouring, &[8]).unwrap_err().to_string();
        assert_eq!(refused, "8 colours need 3 XOR masks: 2 are given");
        assert!(Chain::split(&colouring, &[3]).unwrap_err().to_string().contains("powers of two"));
    }

    #[test]
    fn odd_requests_are_refused() {
        assert_eq!(Chain::split(&Colouring::Modulo, &[]), Err(ColouringError::NoCounts));
        assert_eq!(Chain::split(&Colouring::Modulo, &[4, 0]), Err(ColouringError::Count(0)));
        assert_eq!(Chain::split(&Colouring::Modulo, &[4097]), Err(ColouringError::Count(4097)));
    }
}
