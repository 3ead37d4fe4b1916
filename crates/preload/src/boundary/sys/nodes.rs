//! System calls about memory nodes.

use crate::boundary::arch::{PAGE, nr, syscall6};

use super::{Result, check, pad};

/// Bits of the node masks that the kernel is shown: as many as it may ever have.
const MASK_BITS: usize = 1024;
const MASK_WORDS: usize = MASK_BITS / 64;

/// get_mempolicy(2): mode (flags stripped) and nodes (below 64) of the policy of the mapping at `addr`, which is
/// MPOL_DEFAULT (0) where it has none of its own.
pub fn policy_of_mapping(addr: usize) -> Result<(u32, u64)> {
    const MPOL_F_ADDR: usize = 2;
    const MODE_FLAGS: u32 = !0xff;
    let (mut mode, mut mask) = (0u32, [0u64; MASK_WORDS]);
    // SAFETY: the kernel writes the mode and at most the mask's bits.
    unsafe { call!(nr::GET_MEMPOLICY, &raw mut mode, mask.as_mut_ptr(), MASK_BITS, addr, MPOL_F_ADDR) }?;
    Ok((mode & !MODE_FLAGS, mask[0]))
}

/// mbind(2): pages of `[addr, addr + len)` are to come from `node`, while there are any.
pub fn prefer(addr: usize, len: usize, node: usize) -> Result<()> {
    const MPOL_PREFERRED: usize = 1;
    let mask = 1u64 << (node % 64);
    // SAFETY: a policy changes no contents; the kernel reads one word (it takes one bit off the number of bits).
    unsafe { call!(nr::MBIND, addr, len, MPOL_PREFERRED, &raw const mask, 65, 0) }.map(drop)
}

/// Pages asked after at a time.
const AT_ONCE: usize = 64;

/// move_pages(2) that moves nothing: the nodes of the pages from `addr` on, one each; negative: not in memory.
pub fn of_pages(addr: usize, into: &mut [i32]) -> Result<()> {
    for (at, part) in into.chunks_mut(AT_ONCE).enumerate() {
        let mut pages = [0usize; AT_ONCE];
        for (place, page) in pages.iter_mut().zip((addr + at * AT_ONCE * PAGE..).step_by(PAGE)) {
            *place = page;
        }
        // SAFETY: the kernel reads and writes `part.len()` entries.
        unsafe { call!(nr::MOVE_PAGES, 0, part.len(), pages.as_ptr(), 0, part.as_mut_ptr(), 0) }?;
    }
    Ok(())
}
