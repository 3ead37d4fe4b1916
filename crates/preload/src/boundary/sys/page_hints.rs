//! Hints on page placement that the kernel keeps and carries out: requests to `/proc/self/page_hints`.

use core::ffi::CStr;

use pagelab_abi::page_hints::{
    CLEAR, COUNTERS, Counters, GET, Hint, REMAP, Range, Remap, SET_DEFAULT, SET_RANGE, USUAL,
};

use super::call::Plain;
use super::{Errno, Result, c};

const PATH: &CStr = c"/proc/self/page_hints";

// SAFETY: it contains only numbers, so any bytes are a value.
unsafe impl Plain for Hint {}
// SAFETY: it contains only numbers, so any bytes are a value.
unsafe impl Plain for Range {}
// SAFETY: it contains only numbers, so any bytes are a value.
unsafe impl Plain for Counters {}
// SAFETY: it contains only numbers, so any bytes are a value.
unsafe impl Plain for Remap {}

/// Whether this kernel supports hints.
pub fn are_there() -> bool {
    super::link_count(PATH).is_ok()
}

/// The open hints of this process, by their number in some descriptor table.
#[derive(Clone, Copy, Debug)]
pub struct Hints(i32);

impl Hints {
    /// Opens them. ENOENT: the kernel has no hints; EACCES: the process may not be traced.
    pub fn open() -> Result<Hints> {
        super::open(PATH, c::O_RDWR, 0).map(Hints)
    }

    /// Closes them.
    pub fn close(self) {
        super::close(self.0);
    }

    fn ask<T: Plain>(self, request: u32, argument: &mut T) -> Result<()> {
        // SAFETY: the request is one of the kernel's and contains the size of `T`, which has the kernel's layout.
        unsafe { super::ioctl(self.0, request as usize, core::ptr::from_mut(argument) as usize) }.map(drop)
    }

    /// Sets the default for the kinds that `hint` names. ENOENT: no such strategy; EPERM: no right; EINVAL: a refused
    /// value.
    pub fn set_default(self, mut hint: Hint) -> Result<()> {
        self.ask(SET_DEFAULT, &mut hint)
    }

    /// Sets the hint for the range that `hint` names. As [`Hints::set_default`]; ENOMEM: not mapped; ENOSPC: too many
    /// ranges.
    pub fn set_range(self, mut hint: Hint) -> Result<()> {
        self.ask(SET_RANGE, &mut hint)
    }

    /// Withdraws the hints of `length` bytes from `start` on; `length` is not 0, which would mean all hints.
    pub fn clear(self, start: usize, length: usize) -> Result<()> {
        if length == 0 {
            return Err(Errno::EINVAL);
        }
        self.ask(CLEAR, &mut Range { start: start as u64, length: length as u64 })
    }

    /// The hint that holds at an address: without lists, with its range (length 0: the default).
    pub fn at(self, address: usize) -> Result<Option<Hint>> {
        self.get(Hint { start: address as u64, ..Hint::named(USUAL) })
    }

    /// The default hint of one kind of memory; the answer names all kinds that share this default (0: all there are).
    pub fn default_of(self, kind: u32) -> Result<Option<Hint>> {
        self.get(Hint { kinds: kind, ..Hint::named(USUAL) })
    }

    fn get(self, mut hint: Hint) -> Result<Option<Hint>> {
        match self.ask(GET, &mut hint) {
            Ok(()) => Ok(Some(hint)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Counts of what became of the pages that the process requested.
    pub fn counters(self) -> Result<Counters> {
        let mut counters = Counters::default();
        self.ask(COUNTERS, &mut counters).map(|()| counters)
    }

    /// Moves the pages of a range to the frames that their hints request.
    pub fn remap(self, start: usize, length: usize) -> Result<Remap> {
        let mut remap = Remap { start: start as u64, length: length as u64, ..Remap::default() };
        // After a signal the same request goes on with what is left.
        loop {
            match self.ask(REMAP, &mut remap) {
                Err(Errno::EINTR) => {}
                result => return result.map(|()| remap),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clearing_nothing_never_clears_all() {
        assert_eq!(Hints(-1).clear(0, 0), Err(Errno::EINVAL));
    }
}
