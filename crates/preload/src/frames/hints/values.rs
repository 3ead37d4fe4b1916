//! Lists of a hint, copied into the library's memory, because the program may change its own.

use pagelab_abi::plan::Words;

use crate::boundary::own::Fresh;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Result};

/// A hint's numbers in the library's own memory.
#[derive(Debug)]
pub struct Values {
    memory: Span,
    bytes: usize,
}

impl Values {
    /// No numbers.
    pub const fn none() -> Values {
        Values { memory: Span::new(0, 0), bytes: 0 }
    }

    /// Copies the lists, one behind the other.
    pub fn copy(lists: &[&[u64]]) -> Result<Values> {
        let bytes = lists.iter().map(|list| size_of_val(*list)).sum::<usize>();
        let mut memory = Fresh::map(bytes)?.into_bytes();
        let words = lists.iter().copied().flatten();
        for (to, word) in memory.all().chunks_exact_mut(size_of::<u64>()).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(Values { memory: memory.into_room().keep(), bytes })
    }

    /// The bytes of all numbers. Valid until [`Values::release`].
    pub fn bytes(&self) -> &'static [u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the mapping is the library's own and written once; only `release` unmaps it.
        unsafe { core::slice::from_raw_parts(self.memory.start as *const u8, self.bytes) }
    }

    /// All numbers.
    pub fn words(&self) -> Words<'static> {
        Words::new(self.bytes())
    }

    /// Gives the memory back; nothing refers to it any more.
    pub fn release(self) {
        if !self.memory.is_empty() {
            // SAFETY: the caller promises that nothing refers to the memory any more.
            let _ = unsafe { sys::munmap(self.memory.start, self.memory.len()) };
        }
    }
}
