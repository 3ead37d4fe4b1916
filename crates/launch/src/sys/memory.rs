//! Anonymous memory of a requested page size.

use memmap2::{Advice, MmapMut};
use std::io;

/// Alignment that lets every page size up to 2 MiB be used.
const ALIGNMENT: usize = 2 << 20;

/// Words of zeroed memory, mapped with base pages only or with huge pages where the kernel has them.
pub struct Words {
    map: MmapMut,
    length: usize,
}

impl Words {
    /// Maps `bytes` (rounded down to words), aligned to 2 MiB.
    pub fn map(bytes: usize, huge: bool) -> io::Result<Words> {
        let map = MmapMut::map_anon(bytes + ALIGNMENT)?;
        // A kernel without huge pages refuses this, and gives base pages.
        let _ = map.advise(if huge { Advice::HugePage } else { Advice::NoHugePage });
        Ok(Words { map, length: bytes / 8 })
    }

    /// The words.
    pub fn as_slice(&mut self) -> &mut [u64] {
        let first = self.map.as_ptr().align_offset(ALIGNMENT);
        let bytes = &mut self.map[first..][..self.length * 8];
        // SAFETY: any bytes are words, and the slice begins at a multiple of 2 MiB.
        let (_, words, _) = unsafe { bytes.align_to_mut() };
        words
    }
}
