//! Frame numbers from `/proc/self/pagemap`.

use crate::boundary::arch::PAGE;
use crate::boundary::sys::{self, Errno, Result, c};

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// Flag bit of pages that this process alone maps.
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;
const WORD: usize = size_of::<u64>();

/// The open file, by its number in some descriptor table. To open it for frame numbers takes CAP_SYS_ADMIN; to read it
/// takes no right.
#[derive(Clone, Copy, Debug)]
pub struct Pagemap(pub i32);

impl Pagemap {
    /// Opens it.
    pub fn open() -> Result<Pagemap> {
        sys::open(c"/proc/self/pagemap", c::O_RDONLY, 0).map(Pagemap)
    }

    /// The frames of the pages from `addr` on, one a word; 0: not present, or hidden from this process.
    pub fn read(self, addr: usize, into: &mut [u64]) -> Result<()> {
        let wanted = size_of_val(into);
        let used = sys::pread_words(self.0, into, addr / PAGE * WORD)?;
        if used != wanted {
            return Err(Errno::EFAULT);
        }
        for word in into {
            *word = if *word & PRESENT == 0 { 0 } else { *word & FRAME };
        }
        Ok(())
    }

    /// Whether the page at `addr` is in swap.
    #[cfg(feature = "expensive")]
    pub fn is_swapped(self, addr: usize) -> bool {
        let mut word = [0];
        sys::pread_words(self.0, &mut word, addr / PAGE * WORD) == Ok(WORD) && word[0] & SWAPPED != 0
    }

    /// For the pages from `addr` on: 1 if the page has contents, in memory or in swap, otherwise 0. No right is needed.
    pub fn read_there(self, addr: usize, into: &mut [u64]) -> Result<()> {
        let wanted = size_of_val(into);
        if sys::pread_words(self.0, into, addr / PAGE * WORD)? != wanted {
            return Err(Errno::EFAULT);
        }
        for word in into {
            *word = u64::from(*word & (PRESENT | SWAPPED) != 0);
        }
        Ok(())
    }

    /// For the pages from `addr` on: 1 if the page is in memory, otherwise 0. No right is needed.
    pub fn read_present(self, addr: usize, into: &mut [u64]) -> Result<()> {
        let wanted = size_of_val(into);
        if sys::pread_words(self.0, into, addr / PAGE * WORD)? != wanted {
            return Err(Errno::EFAULT);
        }
        for word in into {
            *word = u64::from(*word & PRESENT != 0);
        }
        Ok(())
    }

    /// For the pages from `addr` on: 1 if the page is present but not this process's alone, otherwise 0. No right is
    /// needed.
    pub fn read_shared(self, addr: usize, into: &mut [u64]) -> Result<()> {
        let wanted = size_of_val(into);
        if sys::pread_words(self.0, into, addr / PAGE * WORD)? != wanted {
            return Err(Errno::EFAULT);
        }
        for word in into {
            *word = u64::from(*word & PRESENT != 0 && *word & EXCLUSIVE == 0);
        }
        Ok(())
    }

    /// Whether the file shows frame numbers: tried on a page that is present.
    pub fn tells(self) -> bool {
        let mut frame = [0u64; 1];
        let here = (&raw const frame) as usize;
        self.read(here, &mut frame).is_ok() && frame[0] != 0
    }
}
