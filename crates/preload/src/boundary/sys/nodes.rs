//! System calls about memory nodes.

use linux_raw_sys::mempolicy::{MPOL_F_ADDR, MPOL_PREFERRED};

use crate::boundary::arch::{PAGE, nr};

use super::call::{Result, calls};

/// Bits of the node masks that the kernel gets: as many as it may ever use.
const MASK_BITS: usize = 1024;
const MASK_WORDS: usize = MASK_BITS / 64;

calls! {
    // The kernel writes the mode and at most the mask's bits.
    fn get_mempolicy(mode: &mut u32, mask: &mut [u64; MASK_WORDS], addr: usize) -> () {
        nr::GET_MEMPOLICY; mode, mask, MASK_BITS, addr, MPOL_F_ADDR
    }

    // A policy changes no contents; the kernel reads one word (it takes one bit off the number of bits).
    fn mbind(addr: usize, len: usize, mode: u32, mask: &u64) -> () { nr::MBIND; addr, len, mode, mask, 65, 0 }
}

calls! { unsafe:
    fn move_pages(count: usize, pages: &[usize; AT_ONCE], nodes: usize) -> () {
        nr::MOVE_PAGES; 0, count, pages, 0, nodes, 0
    }
}

/// get_mempolicy(2): mode (flags stripped) and nodes (below 64) of the policy of the mapping at `addr`; MPOL_DEFAULT
/// (0) if the mapping has no policy of its own.
pub fn policy_of_mapping(addr: usize) -> Result<(u32, u64)> {
    const MODE_FLAGS: u32 = !0xff;
    let (mut mode, mut mask) = (0u32, [0u64; MASK_WORDS]);
    get_mempolicy(&mut mode, &mut mask, addr)?;
    Ok((mode & !MODE_FLAGS, mask[0]))
}

/// mbind(2): pages of `[addr, addr + len)` are to come from `node`, while it has free ones.
pub fn prefer(addr: usize, len: usize, node: usize) -> Result<()> {
    let mask = 1u64 << (node % 64);
    mbind(addr, len, MPOL_PREFERRED as u32, &mask)
}

/// Pages in one query.
const AT_ONCE: usize = 64;

/// move_pages(2) that moves nothing: stores the node of each page from `addr` on; negative: the page is not in memory.
pub fn of_pages(addr: usize, into: &mut [i32]) -> Result<()> {
    for (at, part) in into.chunks_mut(AT_ONCE).enumerate() {
        let mut pages = [0usize; AT_ONCE];
        for (place, page) in pages.iter_mut().zip((addr + at * AT_ONCE * PAGE..).step_by(PAGE)) {
            *place = page;
        }
        // SAFETY: the kernel reads and writes `part.len()` entries.
        unsafe { move_pages(part.len(), &pages, part.as_mut_ptr() as usize) }?;
    }
    Ok(())
}
