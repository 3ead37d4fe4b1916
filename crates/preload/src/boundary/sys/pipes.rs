//! System calls about pipes, for holding on to pages.

use crate::boundary::arch::{PAGE, nr, syscall6};

use super::{Result, check, pad};

/// Most pages that one pipe is to hold: far below what makes the kernel shrink the pipes of the program's user.
pub const MOST_PAGES: usize = 64;

/// A pipe, by the numbers of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipe {
    /// Where bytes come out.
    pub from: i32,
    /// Where they go in.
    pub into: i32,
}

impl Pipe {
    /// pipe2(2): neither end is inherited by what the process executes.
    pub fn open() -> Result<Pipe> {
        let mut ends = [0i32; 2];
        // SAFETY: the kernel writes two numbers.
        unsafe { call!(nr::PIPE2, ends.as_mut_ptr(), super::c::O_CLOEXEC) }?;
        Ok(Pipe { from: ends[0], into: ends[1] })
    }

    /// Makes room for [`MOST_PAGES`] pages, if the kernel allows it; for how many there is room.
    pub fn widen(self) -> Result<usize> {
        const F_SETPIPE_SZ: usize = 1031;
        const F_GETPIPE_SZ: usize = 1032;
        // SAFETY: changes the pipe's size only.
        let _ = unsafe { call!(nr::FCNTL, self.into, F_SETPIPE_SZ, MOST_PAGES * PAGE) };
        // SAFETY: as above; it reads the size.
        let bytes = unsafe { call!(nr::FCNTL, self.into, F_GETPIPE_SZ, 0) }?;
        Ok((bytes / PAGE).min(MOST_PAGES))
    }

    /// vmsplice(2) of one byte of each page of `pages` (addresses; the rest beyond [`MOST_PAGES`] is left out): how many went
    /// in. They get a reference each until the byte is read. It never waits for room.
    pub fn hold(self, pages: &[usize]) -> Result<usize> {
        const SPLICE_F_NONBLOCK: usize = 2;
        let mut parts = [[0usize, 1]; MOST_PAGES];
        for (part, page) in parts.iter_mut().zip(pages) {
            part[0] = *page;
        }
        let count = pages.len().min(MOST_PAGES);
        // SAFETY: `count` pairs of address and length; the kernel reads the pages.
        unsafe { call!(nr::VMSPLICE, self.into, parts.as_ptr(), count, SPLICE_F_NONBLOCK) }
    }
}
