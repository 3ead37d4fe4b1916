//! A list of 64-bit words read in place out of little-endian bytes of any alignment (the plan, or the API's own copy).

/// Words of somebody's memory; copying it copies the reference.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words<'a> {
    bytes: &'a [u8],
}

impl<'a> Words<'a> {
    /// The words in `bytes`; an incomplete last one is left out.
    pub const fn new(bytes: &'a [u8]) -> Words<'a> {
        Words { bytes }
    }

    /// How many there are.
    pub const fn len(self) -> usize {
        self.bytes.len() / 8
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Word `at`.
    pub fn get(self, at: usize) -> Option<u64> {
        let from = at.checked_mul(8)?;
        let raw = self.bytes.get(from..from.checked_add(8)?)?;
        Some(u64::from_le_bytes(raw.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_at_any_alignment() {
        let mut bytes = std::vec![0xffu8];
        for word in [1u64, u64::MAX, 42] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.push(9);
        let words = Words::new(&bytes[1..]);
        assert_eq!((words.len(), words.is_empty()), (3, false));
        assert_eq!([0, 1, 2, 3].map(|at| words.get(at)), [Some(1), Some(u64::MAX), Some(42), None]);
        assert_eq!(words.get(usize::MAX), None);
        assert!(Words::default().is_empty());
    }
}
