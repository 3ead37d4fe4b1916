//! Lists of a hint, copied into the library's memory, because the program may change its own.

use pagelab_abi::plan::Words;

use crate::boundary::arch::PAGE;
use crate::boundary::span::Span;
use crate::boundary::sys::{self, Result};

/// Numbers of a hint in memory of our own.
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
        let len = bytes.next_multiple_of(PAGE);
        let at = sys::mmap_own(len)?;
        let mut to = at as *mut u64;
        for list in lists {
            // SAFETY: the mapping is fresh and has room for all lists.
            unsafe {
                core::ptr::copy_nonoverlapping(list.as_ptr(), to, list.len());
                to = to.add(list.len());
            }
        }
        Ok(Values { memory: Span::new(at, at + len), bytes })
    }

    /// All of them. Valid until [`Values::release`].
    pub fn bytes(&self) -> &'static [u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: our own mapping, written once; only `release` takes it away.
        unsafe { core::slice::from_raw_parts(self.memory.start as *const u8, self.bytes) }
    }

    /// All of them.
    pub fn words(&self) -> Words<'static> {
        Words::new(self.bytes())
    }

    /// Gives the memory back; nothing refers to it any more.
    pub fn release(self) {
        if !self.memory.is_empty() {
            // SAFETY: as the caller knows.
            let _ = unsafe { sys::munmap(self.memory.start, self.memory.len()) };
        }
    }
}
