//! System calls about pipes, for holding on to pages.

use linux_raw_sys::general::{F_GETPIPE_SZ, F_SETPIPE_SZ, SPLICE_F_NONBLOCK};

use crate::boundary::arch::{PAGE, nr};

use super::c;
use super::call::{Result, calls};

/// Most pages that one pipe is to hold: far below the number at which the kernel shrinks the pipes of the program's
/// user.
pub const MOST_PAGES: usize = 64;

/// A pipe, by the numbers of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipe {
    /// Where bytes come out.
    pub from: i32,
    /// Where they go in.
    pub into: i32,
}

calls! {
    fn pipe2(ends: &mut [i32; 2], flags: i32) -> () { nr::PIPE2; ends, flags }

    fn set_size(pipe: i32, bytes: usize) -> () { nr::FCNTL; pipe, F_SETPIPE_SZ, bytes }

    fn size(pipe: i32) -> usize { nr::FCNTL; pipe, F_GETPIPE_SZ, 0 }
}

calls! { unsafe:
    fn vmsplice(pipe: i32, parts: &[[usize; 2]; MOST_PAGES], count: usize, flags: u32) -> usize {
        nr::VMSPLICE; pipe, parts, count, flags
    }
}

impl Pipe {
    /// pipe2(2): neither end is inherited by what the process executes.
    pub fn open() -> Result<Pipe> {
        let mut ends = [0i32; 2];
        pipe2(&mut ends, c::O_CLOEXEC)?;
        Ok(Pipe { from: ends[0], into: ends[1] })
    }

    /// Makes room for [`MOST_PAGES`] pages, if the kernel allows it; returns for how many pages there is room.
    pub fn widen(self) -> Result<usize> {
        let _ = set_size(self.into, MOST_PAGES * PAGE);
        let bytes = size(self.into)?;
        Ok((bytes / PAGE).min(MOST_PAGES))
    }

    /// vmsplice(2) of one byte of each page of `pages` (addresses; those beyond [`MOST_PAGES`] are left out). Returns
    /// how many went in. Each such page keeps a reference until its byte is read. The call never waits for room.
    pub fn hold(self, pages: &[usize]) -> Result<usize> {
        let mut parts = [[0usize, 1]; MOST_PAGES];
        for (part, page) in parts.iter_mut().zip(pages) {
            part[0] = *page;
        }
        let count = pages.len().min(MOST_PAGES);
        // SAFETY: `parts` has `count` pairs of address and length; the kernel only reads the pages.
        unsafe { vmsplice(self.into, &parts, count, SPLICE_F_NONBLOCK) }
    }
}
